//! What a statement notes of the rows that it changes.

use std::sync::Arc;

use super::super::build::build;
use super::super::context::{ExecContext, Row};
use super::super::memory::{MemoryUse, row_bytes};
use super::super::row_key::{KeySet, RowKey, is_same};
use super::lookup::{Constraint, picked};
use super::pending::{Gone, Pending, settle};
use crate::bind::scan_of;
use crate::catalogue::TableDef;
use crate::error::SqlResult;
use crate::types::Datum;

/// Keys that are looked up at once while an INSERT runs.
const BATCH_KEYS: usize = 1_024;

/// Keys that are remembered as looked up.
const MOST_KNOWN: usize = 8_192;

/// Which changes of rows a statement makes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Tracked<'t> {
    Insert,
    Delete,
    /// Of these columns.
    Update(&'t [usize]),
    /// An INSERT that may update columns of rows that are there.
    Upsert(&'t [usize]),
}

/// A constraint of the table itself.
struct OwnKey {
    constraint: Constraint,
    keys: KeySet,
    /// Keys whose parents were found, where nothing takes them away.
    known: KeySet,
    /// Whether the statement may take parents away.
    is_held: bool,
}

/// A constraint that refers to the table.
struct Referring {
    constraint: Constraint,
    gone: Vec<Gone>,
}

/// Notes the keys of rows that a statement changes.
#[derive(Default)]
pub(crate) struct Tracker {
    own: Vec<OwnKey>,
    referring: Vec<Referring>,
    used: MemoryUse,
}

impl Tracker {
    /// For a statement that changes rows of a table in this way.
    pub(crate) async fn begin(
        table: &Arc<TableDef>,
        changes: Tracked<'_>,
        context: &mut ExecContext<'_, '_>,
    ) -> SqlResult<Self> {
        let mut tracker = Self::default();
        let is_changed = |columns: &[usize]| match changes {
            Tracked::Insert | Tracked::Delete => true,
            Tracked::Update(own) | Tracked::Upsert(own) => {
                columns.iter().any(|at| own.contains(at))
            }
        };
        if !matches!(changes, Tracked::Delete) {
            for at in 0..table.foreign_keys.len() {
                let constraint = Constraint::of(table, at, context).await?;
                let is_new = matches!(changes, Tracked::Insert | Tracked::Upsert(_));
                if is_new || is_changed(&constraint.columns) {
                    let is_held = constraint.own.is_deferrable
                        || !matches!(changes, Tracked::Insert)
                            && constraint.own.parent == table.key;
                    let (keys, known) = (KeySet::default(), KeySet::default());
                    tracker.own.push(OwnKey { constraint, keys, known, is_held });
                }
            }
        }
        if !matches!(changes, Tracked::Insert) {
            for reference in &table.referenced_by {
                let constraint =
                    Constraint::named(&reference.child, &reference.name, context).await?;
                if is_changed(&constraint.parent_columns) {
                    tracker.referring.push(Referring { constraint, gone: Vec::new() });
                }
            }
        }
        Ok(tracker)
    }

    /// A row was inserted.
    pub(crate) fn inserted(
        &mut self,
        row: &[Datum],
        context: &ExecContext<'_, '_>,
    ) -> SqlResult<()> {
        for own in &mut self.own {
            own.add(row, &mut self.used, context)?;
        }
        Ok(())
    }

    /// A row was deleted.
    pub(crate) fn deleted(
        &mut self,
        row: &[Datum],
        context: &ExecContext<'_, '_>,
    ) -> SqlResult<()> {
        for referring in &mut self.referring {
            let old = picked(row, &referring.constraint.parent_columns);
            if !old.iter().any(Datum::is_null) {
                self.used.add(row_bytes(&old), context.limits)?;
                referring.gone.push(Gone { old, new: None });
            }
        }
        Ok(())
    }

    /// A row was changed.
    pub(crate) fn updated(
        &mut self,
        old: &[Datum],
        new: &[Datum],
        context: &ExecContext<'_, '_>,
    ) -> SqlResult<()> {
        for own in &mut self.own {
            let columns = &own.constraint.columns;
            if !same(&picked(old, columns), &picked(new, columns)) {
                own.add(new, &mut self.used, context)?;
            }
        }
        for referring in &mut self.referring {
            let columns = &referring.constraint.parent_columns;
            let (old, new) = (picked(old, columns), picked(new, columns));
            if !old.iter().any(Datum::is_null) && !same(&old, &new) {
                self.used.add(row_bytes(&old) + row_bytes(&new), context.limits)?;
                referring.gone.push(Gone { old, new: Some(new) });
            }
        }
        Ok(())
    }

    /// Looks up keys and forgets them, if there are many and the statement takes no parent away.
    /// What is not found may come with a later row, or have been committed since the statement
    /// began.
    pub(crate) async fn advance(&mut self, context: &mut ExecContext<'_, '_>) -> SqlResult<()> {
        for own in &mut self.own {
            if own.is_held || own.keys.len() < BATCH_KEYS {
                continue;
            }
            let keys = std::mem::take(&mut own.keys);
            for RowKey(key) in keys {
                let bytes = row_bytes(&key);
                if !own.constraint.has_parent(&key, true, context).await? {
                    own.keys.insert(RowKey(key));
                    continue;
                }
                self.used.subtract(bytes);
                if own.known.len() >= MOST_KNOWN {
                    own.known.clear();
                }
                own.known.insert(RowKey(key));
            }
        }
        Ok(())
    }

    /// The rows are changed: what was noted is settled, or will be by the statement that this one
    /// is an action of.
    pub(crate) async fn end(self, context: &mut ExecContext<'_, '_>) -> SqlResult<()> {
        let mut bytes = self.used.bytes();
        for OwnKey { constraint, keys, .. } in self.own {
            let mut keys: Vec<Row> = keys.into_iter().map(|RowKey(key)| key).collect();
            let deferred = context.deferred;
            if deferred.lock().is_deferred(&constraint.child.key, &constraint.own) {
                // One that mixes NULL with values is wrong whatever comes.
                let is_mixed = |key: &Row| key.iter().any(Datum::is_null);
                let (now, later): (Vec<Row>, Vec<Row>) = keys.into_iter().partition(is_mixed);
                keys = now;
                for key in later {
                    deferred.lock().add(&constraint, key, true, context.limits)?;
                }
            }
            if !keys.is_empty() {
                let (pending, own) = (Pending::Parents { constraint, keys }, bytes);
                context.references.add(pending, own, context.limits)?;
                bytes = 0;
            }
        }
        for Referring { constraint, gone } in self.referring {
            if !gone.is_empty() {
                let (pending, own) = (Pending::Children { constraint, gone }, bytes);
                context.references.add(pending, own, context.limits)?;
                bytes = 0;
            }
        }
        settle(context).await
    }
}

impl OwnKey {
    fn add(
        &mut self,
        row: &[Datum],
        used: &mut MemoryUse,
        context: &ExecContext<'_, '_>,
    ) -> SqlResult<()> {
        let key = picked(row, &self.constraint.columns);
        let nulls = key.iter().filter(|value| value.is_null()).count();
        if nulls == key.len() || nulls > 0 && !self.constraint.own.is_full {
            return Ok(());
        }
        let key = RowKey(key);
        if self.known.contains(&key) || self.keys.contains(&key) {
            return Ok(());
        }
        used.add(row_bytes(&key.0), context.limits)?;
        self.keys.insert(key);
        Ok(())
    }
}

/// Looks for the parents of all rows of a table, by the constraint at this position.
pub(crate) async fn check_rows(
    table: &Arc<TableDef>,
    at: usize,
    context: &mut ExecContext<'_, '_>,
) -> SqlResult<()> {
    let mut constraint = Constraint::of(table, at, context).await?;
    constraint.own.is_deferrable = false;
    let mut rows = build(&scan_of(Arc::clone(table), false));
    let (keys, known, is_held) = (KeySet::default(), KeySet::default(), false);
    let own = vec![OwnKey { constraint, keys, known, is_held }];
    let mut tracker = Tracker { own, ..Tracker::default() };
    while let Some(batch) = rows.next(context).await? {
        for row in batch {
            tracker.inserted(&row, context)?;
        }
        tracker.advance(context).await?;
    }
    tracker.end(context).await
}

fn same(left: &[Datum], right: &[Datum]) -> bool {
    left.iter().zip(right).all(|(left, right)| is_same(left, right))
}
