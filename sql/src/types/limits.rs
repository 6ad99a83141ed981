//! How large values may be.

use crate::error::{SqlError, SqlResult, SqlState};

/// Most elements of an array.
const MAX_ELEMENTS: usize = 8 << 20;

/// Most values within a document, which take a multiple of its text while that is looked at.
pub(crate) const MAX_DOCUMENT_VALUES: usize = 4 << 20;

/// Refuses an element more than an array of so many may have.
pub(crate) fn check_count(elements: usize) -> SqlResult<()> {
    if elements < MAX_ELEMENTS {
        return Ok(());
    }
    let message = format!("array size exceeds the maximum allowed ({MAX_ELEMENTS})");
    Err(SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message))
}
