//! Constraints that are looked at when the transaction commits.
//!
//! What waits is a key, and whether it holds then is seen from the rows that are there then: if
//! rows of the child have the key, there has to be a parent that has it. So it does not matter what
//! has become of the row that brought the key.

use std::collections::BTreeMap;

use super::super::context::{ExecContext, Row};
use super::super::memory::{MemoryLimits, MemoryUse, row_bytes};
use super::actions::{orphan, refused};
use super::lookup::Constraint;
use crate::catalogue::ForeignKey;
use crate::error::SqlResult;

/// Which constraints are deferred now, where SET CONSTRAINTS has said so.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConstraintModes {
    all: Option<bool>,
    /// By the name of the child in the catalogue, and that of the constraint.
    named: BTreeMap<(String, String), bool>,
}

impl ConstraintModes {
    /// Of all constraints that can be deferred.
    pub(crate) fn set_all(&mut self, is_deferred: bool) {
        self.named.clear();
        self.all = Some(is_deferred);
    }

    pub(crate) fn set(&mut self, child: &str, name: &str, is_deferred: bool) {
        self.named.insert((child.to_owned(), name.to_owned()), is_deferred);
    }
}

/// A key that waits.
#[derive(Clone, Debug)]
struct Waiting {
    child: String,
    name: String,
    /// In types of the child if a row of it brought the key, else of the parent that had it.
    key: Row,
    is_of_child: bool,
}

/// What a transaction looks at when it commits.
#[derive(Debug, Default)]
pub(crate) struct DeferredReferences {
    modes: ConstraintModes,
    waiting: Vec<Waiting>,
    used: MemoryUse,
}

/// How things were at a savepoint.
#[derive(Clone, Debug)]
pub(crate) struct DeferredMark {
    modes: ConstraintModes,
    waiting: usize,
}

impl DeferredReferences {
    pub(crate) fn modes(&mut self) -> &mut ConstraintModes {
        &mut self.modes
    }

    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    pub(crate) fn mark(&self) -> DeferredMark {
        DeferredMark { modes: self.modes.clone(), waiting: self.waiting.len() }
    }

    /// As it was at the mark.
    pub(crate) fn return_to(&mut self, mark: &DeferredMark) {
        self.modes = mark.modes.clone();
        for gone in self.waiting.drain(mark.waiting.min(self.waiting.len())..) {
            self.used.subtract(row_bytes(&gone.key));
        }
    }

    /// All that waited holds, and may be forgotten.
    pub(crate) fn clear(&mut self) {
        self.waiting.clear();
        self.used = MemoryUse::default();
    }

    pub(super) fn is_deferred(&self, child: &str, own: &ForeignKey) -> bool {
        let named = || self.modes.named.get(&(child.to_owned(), own.name.clone())).copied();
        own.is_deferrable && named().or(self.modes.all).unwrap_or(own.is_deferred)
    }

    pub(super) fn add(
        &mut self,
        constraint: &Constraint,
        key: Row,
        is_of_child: bool,
        limits: &MemoryLimits,
    ) -> SqlResult<()> {
        self.used.add(row_bytes(&key), limits)?;
        let (child, name) = (constraint.child.key.clone(), constraint.own.name.clone());
        self.waiting.push(Waiting { child, name, key, is_of_child });
        Ok(())
    }
}

/// Looks at all that waits, in the newest state.
pub(crate) async fn settle_deferred(context: &mut ExecContext<'_, '_>) -> SqlResult<()> {
    let waiting = context.deferred.lock().waiting.clone();
    let mut last: Option<Constraint> = None;
    for own in waiting {
        let is_last = |last: &Constraint| last.child.key == own.child && last.own.name == own.name;
        let constraint = match last.take().filter(is_last) {
            Some(constraint) => constraint,
            None => Constraint::named(&own.child, &own.name, context).await?,
        };
        if !constraint.has_parent(&own.key, own.is_of_child, context).await?
            && constraint.has_child(&own.key, own.is_of_child, context).await?
        {
            return Err(match own.is_of_child {
                true => orphan(&constraint, &own.key, context),
                false => refused(&constraint, &own.key, context),
            });
        }
        context.breathe(1).await;
        last = Some(constraint);
    }
    Ok(())
}
