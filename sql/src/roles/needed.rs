//! What a statement needs to be allowed.

use super::acl::{Kind, Privileges, Rights};
use super::authority::{Authority, no_privilege};
use super::document::BOOTSTRAP;
use crate::error::SqlResult;

/// Privileges of a table or view that a statement needs. A plan keeps it: the rights are part of
/// the definition for which the plan is right.
#[derive(Clone, Debug)]
pub(crate) struct Needed {
    pub(crate) kind: Kind,
    pub(crate) name: String,
    pub(crate) rights: Rights,
    pub(crate) privileges: Privileges,
    /// The owner of the view that reads it; `None` if it is the role of the statement.
    pub(crate) by: Option<u32>,
}

impl Needed {
    /// Whether it is there if the statement runs as one that may do everything.
    pub(crate) fn is_trivial(&self) -> bool {
        self.by.is_none_or(|by| by == BOOTSTRAP)
    }

    /// Refuses the statement if it is not there.
    ///
    /// # Errors
    /// 42501.
    pub(crate) fn check(&self, authority: &Authority) -> SqlResult<()> {
        let held = match self.by {
            None => authority.held(self.kind, &self.rights),
            Some(by) => authority.held_by(by, self.kind, &self.rights),
        };
        if held.has_all(self.privileges) {
            Ok(())
        } else {
            Err(no_privilege(self.kind, &self.name))
        }
    }
}
