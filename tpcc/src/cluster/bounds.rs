//! Refusing a configured value, with the key, the value and what is allowed.

use crate::error::TpccError;

/// Refuses a value that is not in a range.
pub(crate) fn within(key: &'static str, value: u64, low: u64, high: u64) -> Result<(), TpccError> {
    if (low..=high).contains(&value) {
        return Ok(());
    }
    Err(refused(key, value, format!("must be {low} to {high}")))
}

pub(crate) fn refused(key: &'static str, value: impl ToString, allowed: String) -> TpccError {
    TpccError::Config { key, value: value.to_string(), allowed }
}
