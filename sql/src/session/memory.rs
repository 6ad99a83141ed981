//! How much memory, and how large temporary files, the statements of a session may take.

use std::sync::Arc;

use super::Session;
use super::parameters::{Unit, number, shown_number};
use super::settings::Settings;
use crate::error::{SqlError, SqlResult, SqlState};
use crate::exec::MemoryLimits;
use crate::functions::{Interrupts, LargeValues};
use crate::memory_budget::MemoryBudget;

/// What bounds the expressions of a statement.
pub(super) struct Bounds {
    pub(super) interrupts: Interrupts,
    pub(super) large_values: LargeValues,
}

impl Session {
    /// The session, whose statements take no more memory for rows together with those of all others
    /// that share the budget. What they would take beyond it goes to temporary files, or is 53200.
    #[must_use]
    pub fn with_memory(self, budget: &Arc<MemoryBudget>) -> Self {
        Self { memory: Arc::clone(budget), ..self }
    }

    /// What bounds the expressions of a statement that begins now.
    pub(super) fn bounds(&self) -> Bounds {
        Bounds { interrupts: self.interrupts(), large_values: LargeValues::new(&self.memory) }
    }

    /// What a statement that begins now may take.
    pub(super) fn memory_limits(&self) -> MemoryLimits {
        self.files.set_limit(self.settings.temp_file_limit_bytes);
        MemoryLimits::new(self.settings.work_memory_bytes, &self.memory, &self.files)
    }
}

impl Settings {
    /// A value of `temp_file_limit`, which only a superuser may set.
    pub(super) fn temp_file_limit(&self, name: &str, value: &str) -> SqlResult<Option<u64>> {
        if !self.role.as_ref().map_or(self.is_superuser, |own| own.is_superuser) {
            let message = format!("permission denied to set parameter \"{name}\"");
            return Err(SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, message));
        }
        let kilobytes = number(name, value, Unit::Kilobytes, (-1, i32::MAX.into()))?;
        Ok(u64::try_from(kilobytes).ok().map(|kilobytes| kilobytes << 10))
    }
}

/// A value of `work_mem`.
pub(super) fn work_memory(name: &str, value: &str) -> SqlResult<usize> {
    let kilobytes = number(name, value, Unit::Kilobytes, (64, i32::MAX.into()))?;
    Ok(usize::try_from(kilobytes << 10).unwrap_or(usize::MAX))
}

/// So many bytes, as parameters show them.
pub(super) fn shown_memory(bytes: u64) -> String {
    shown_number(i64::try_from(bytes >> 10).unwrap_or(i64::MAX), Unit::Kilobytes)
}
