//! What is settled when the rows of a statement are changed.

use std::collections::VecDeque;

use super::super::context::{ExecContext, Row};
use super::super::memory::{MemoryLimits, MemoryUse};
use super::actions::{children_of, require_parents};
use super::lookup::Constraint;
use crate::error::SqlResult;

/// A key that a parent has no more.
pub(crate) struct Gone {
    pub(super) old: Row,
    /// What it has instead; `None` if the row is gone.
    pub(super) new: Option<Row>,
}

/// What is to be settled.
pub(crate) enum Pending {
    /// Rows of the child have these keys.
    Parents { constraint: Constraint, keys: Vec<Row> },
    /// A parent had these keys.
    Children { constraint: Constraint, gone: Vec<Gone> },
}

/// What a statement, with its actions, has to settle.
#[derive(Default)]
pub(crate) struct PendingReferences {
    /// With the bytes that are given back with them.
    all: VecDeque<(usize, Pending)>,
    is_settling: bool,
    used: MemoryUse,
}

impl PendingReferences {
    /// Adds what takes so many bytes.
    pub(super) fn add(
        &mut self,
        pending: Pending,
        bytes: usize,
        limits: &MemoryLimits,
    ) -> SqlResult<()> {
        self.all.push_back((bytes, pending));
        self.used.add(bytes, limits)
    }
}

/// Settles all that is pending, and what comes of that; within an action nothing.
///
/// The order is that in which it was noted, so a cascade goes level by level. It ends: an action
/// deletes a row, or gives it a value that it has not, which is that of its parent, NULL or its
/// default.
pub(crate) async fn settle(context: &mut ExecContext<'_, '_>) -> SqlResult<()> {
    if context.references.is_settling || context.references.all.is_empty() {
        return Ok(());
    }
    context.references.is_settling = true;
    // From here on the newest state counts. Single keys need no snapshot.
    let only_parents = |(_, own): &(usize, Pending)| matches!(own, Pending::Parents { .. });
    if context.references.all.iter().all(only_parents) {
        context.txn.end_statement();
    } else {
        let begun = context.txn.begin_statement();
        begun.map_err(|error| super::super::txn_error::from_txn(error, None))?;
    }
    let affected = context.affected;
    while let Some((bytes, next)) = context.references.all.pop_front() {
        context.references.used.subtract(bytes);
        match next {
            Pending::Parents { constraint, keys } => {
                require_parents(&constraint, &keys, context).await?;
            }
            Pending::Children { constraint, gone } => {
                children_of(&constraint, gone, context).await?;
            }
        }
    }
    context.affected = affected;
    context.references.is_settling = false;
    Ok(())
}
