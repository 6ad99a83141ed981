//! The names of failure domains.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::PoolError;

/// Most characters of a name.
const MAX_NAME: usize = 64;

/// A failure domain: the memory nodes that fail together, as in a rack, or at a power supply. No
/// two splits of a page lie in one domain.
///
/// ```
/// use selkie_pool::FailureDomain;
/// let rack: FailureDomain = "rack-7".parse()?;
/// assert!(rack.is_shared_with(&rack));
/// assert!(!FailureDomain::ALONE.is_shared_with(&FailureDomain::ALONE));
/// # Ok::<(), selkie_pool::PoolError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FailureDomain(String);

impl FailureDomain {
    /// The domain of a node that fails with no other.
    pub const ALONE: Self = Self(String::new());

    /// Whether it has only one node.
    #[must_use]
    pub fn is_alone(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether nodes of these domains fail together.
    #[must_use]
    pub fn is_shared_with(&self, other: &Self) -> bool {
        !self.is_alone() && self == other
    }
}

impl FromStr for FailureDomain {
    type Err = PoolError;

    fn from_str(name: &str) -> Result<Self, PoolError> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || "-_./:".contains(c);
        if (1..=MAX_NAME).contains(&name.len()) && name.chars().all(allowed) {
            return Ok(Self(name.to_owned()));
        }
        Err(PoolError::Config {
            key: "domain",
            value: name.to_owned(),
            allowed: format!("1 to {MAX_NAME} letters, digits, or any of - _ . / :"),
        })
    }
}

impl fmt::Display for FailureDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_others_refused_with_what_is_allowed() {
        for good in ["a", "rack-7", "eu/dc1/row_2:pdu.3", &"x".repeat(64)] {
            assert_eq!(good.parse::<FailureDomain>().unwrap().to_string(), good);
        }
        for bad in ["", "a b", "ä", &"x".repeat(65)] {
            let error = bad.parse::<FailureDomain>().unwrap_err().to_string();
            assert!(error.contains("1 to 64 letters, digits"), "{error}");
        }
    }
}
