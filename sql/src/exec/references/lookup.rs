//! Looking for parents and for children.

use std::sync::Arc;

use selkie_txn::{KeyRange, Source};

use super::super::context::{BATCH_ROWS, ExecContext, Row};
use super::super::row_key::{KeySet, RowKey};
use super::super::stored_row::{encode_key, read_row, types_of};
use super::super::txn_error::from_txn;
use super::relations::relation;
use crate::catalogue::{ForeignKey, TableDef};
use crate::error::{SqlError, SqlResult};
use crate::types::cast::{CastContext, cast};
use crate::types::{Datum, SqlType, order};

/// A constraint with both of its tables.
pub(crate) struct Constraint {
    pub(super) child: Arc<TableDef>,
    pub(super) parent: Arc<TableDef>,
    pub(super) own: ForeignKey,
    /// Of the child.
    pub(super) columns: Vec<usize>,
    /// Of the parent, in the same order.
    pub(super) parent_columns: Vec<usize>,
}

impl Constraint {
    /// The constraint of a table at this position.
    pub(super) async fn of(
        child: &Arc<TableDef>,
        at: usize,
        context: &mut ExecContext<'_, '_>,
    ) -> SqlResult<Self> {
        let gone = || SqlError::internal("a foreign key that is not there");
        let own = child.foreign_keys.get(at).cloned().ok_or_else(gone)?;
        let parent = match own.parent == child.key {
            true => Arc::clone(child),
            false => relation(context, &own.parent).await?,
        };
        let columns = child.positions(&own.columns).ok_or_else(gone)?;
        let parent_columns = parent.positions(&own.parent_columns).ok_or_else(gone)?;
        Ok(Self { child: Arc::clone(child), parent, own, columns, parent_columns })
    }

    /// The constraint of a name of another table.
    pub(super) async fn named(
        child: &str,
        name: &str,
        context: &mut ExecContext<'_, '_>,
    ) -> SqlResult<Self> {
        let child = relation(context, child).await?;
        let at = child.foreign_keys.iter().position(|own| own.name == name);
        let missing = || SqlError::internal(format!("no foreign key {name} of {}", child.key));
        Self::of(&child, at.ok_or_else(missing)?, context).await
    }

    /// Whether there is a parent with a key, in types of the child if `of_child` says so. If there
    /// is, it stays until the transaction has committed.
    pub(super) async fn has_parent(
        &self,
        key: &[Datum],
        of_child: bool,
        context: &mut ExecContext<'_, '_>,
    ) -> SqlResult<bool> {
        let parent = &*self.parent;
        let to = types_of(parent, &self.parent_columns);
        let key = match of_child {
            true => converted(key, &types_of(&self.child, &self.columns), &to, context),
            false => Some(key.to_vec()),
        };
        let Some(key) = key else { return Ok(false) };
        let Some(index) = parent.unique_key(&self.parent_columns) else {
            return Err(SqlError::internal("a foreign key whose parent has no such key"));
        };
        let (columns, _) = parent.key(index).unwrap_or_default();
        let Finder { source, types, .. } = Finder::of(parent, index, context).await?;
        let values = in_order(columns, &self.parent_columns, &key);
        let Some(key) = encode_key(context.txn, source, &types, &values, parent)? else {
            return Ok(false);
        };
        let found = match index {
            None => context.txn.keep_row(parent.table, &key).await,
            Some(_) => context.txn.keep_range(source, &KeyRange::prefix(&key), false).await,
        };
        found.map_err(|error| from_txn(error, Some(parent)))
    }

    /// Those of these keys of the parent, by their positions, that have children, with the keys in
    /// the types of the child. What was looked at stays until the transaction has committed: all
    /// children if `whole` says so.
    pub(super) async fn with_children(
        &self,
        keys: &[&[Datum]],
        whole: bool,
        context: &mut ExecContext<'_, '_>,
    ) -> SqlResult<Vec<(usize, Row)>> {
        let from = types_of(&self.parent, &self.parent_columns);
        let to = types_of(&self.child, &self.columns);
        let mut wanted = Vec::new();
        for (at, key) in keys.iter().enumerate() {
            wanted.extend(converted(key, &from, &to, context).map(|key| (at, key)));
        }
        self.find_children(wanted, whole, context).await
    }

    /// Whether rows of the child have a key, which is in types of it if `of_child` says so.
    pub(super) async fn has_child(
        &self,
        key: &[Datum],
        of_child: bool,
        context: &mut ExecContext<'_, '_>,
    ) -> SqlResult<bool> {
        let found = match of_child {
            true => self.find_children(vec![(0, key.to_vec())], false, context).await,
            false => self.with_children(&[key], false, context).await,
        };
        Ok(!found?.is_empty())
    }

    /// Those of these keys that rows of the child have.
    async fn find_children(
        &self,
        mut wanted: Vec<(usize, Row)>,
        whole: bool,
        context: &mut ExecContext<'_, '_>,
    ) -> SqlResult<Vec<(usize, Row)>> {
        let child = &*self.child;
        let Some(index) = self.index_of_children() else {
            let there = self.scan_children(&wanted, context).await?;
            wanted.retain(|(_, key)| there.contains(&RowKey(key.clone())));
            return Ok(wanted);
        };
        let (columns, _) = child.key(index).unwrap_or_default();
        let columns: Vec<usize> = columns.iter().copied().take(self.columns.len()).collect();
        let Finder { source, types, .. } = Finder::of(child, index, context).await?;
        let mut found = Vec::new();
        for (at, key) in wanted {
            let values = in_order(&columns, &self.columns, &key);
            let encoded = encode_key(context.txn, source, &types, &values, child)?;
            let Some(encoded) = encoded else { continue };
            let range = KeyRange::prefix(&encoded);
            let is_there = context.txn.keep_range(source, &range, whole).await;
            if is_there.map_err(|error| from_txn(error, Some(child)))? {
                found.push((at, key));
            }
            context.breathe(1).await;
        }
        Ok(found)
    }

    /// A key of the child that begins with the columns of the constraint.
    fn index_of_children(&self) -> Option<Option<usize>> {
        let keys = std::iter::once(None).chain((0..self.child.indexes.len()).map(Some));
        let mut keys = keys.filter(|index| {
            let (columns, _) = self.child.key(*index).unwrap_or_default();
            let first = columns.get(..self.columns.len());
            first.is_some_and(|first| self.columns.iter().all(|own| first.contains(own)))
        });
        keys.next()
    }

    /// Those of these keys that rows of the child have: without an index all of them are looked at,
    /// and have to stay as they are.
    async fn scan_children(
        &self,
        wanted: &[(usize, Row)],
        context: &mut ExecContext<'_, '_>,
    ) -> SqlResult<KeySet> {
        let child = &*self.child;
        let failed = |error| from_txn(error, Some(child));
        let wanted: KeySet = wanted.iter().map(|(_, key)| RowKey(key.clone())).collect();
        let needed: Vec<bool> =
            (0..child.columns.len()).map(|at| self.columns.contains(&at)).collect();
        let direction = selkie_txn::Direction::Forward;
        let cursor = context.txn.cursor_for_update(child.table, KeyRange::all(), direction);
        let (mut cursor, mut found) = (cursor.map_err(failed)?, KeySet::default());
        if wanted.is_empty() {
            return Ok(found);
        }
        loop {
            let fetched = cursor.fetch(context.txn, BATCH_ROWS).await.map_err(failed)?;
            let rows = fetched.len();
            for stored in &fetched {
                let row = read_row(stored, child, Some(&needed), &mut Vec::new())?;
                let key = RowKey(picked(&row, &self.columns));
                if wanted.contains(&key) {
                    found.insert(key);
                }
            }
            context.breathe(rows).await;
            if rows < BATCH_ROWS {
                return Ok(found);
            }
        }
    }

    /// Names of columns, and values, as messages show them.
    pub(super) fn shown(
        table: &TableDef,
        columns: &[usize],
        key: &[Datum],
        context: &ExecContext<'_, '_>,
    ) -> String {
        let names = columns.iter().filter_map(|at| table.columns.get(*at).map(|own| &*own.name));
        let names = names.collect::<Vec<_>>().join(", ");
        let mut values = Vec::with_capacity(key.len());
        for (value, ty) in key.iter().zip(types_of(table, columns)) {
            let mut text = String::new();
            match value.is_null() {
                true => text.push_str("null"),
                false => {
                    crate::types::text_format::to_text(value, ty, context.call.settings, &mut text);
                }
            }
            values.push(text);
        }
        format!("Key ({names})=({})", values.join(", "))
    }
}

/// Where keys of a table or index are looked up.
struct Finder {
    source: Source,
    types: Vec<SqlType>,
}

impl Finder {
    async fn of(
        table: &TableDef,
        index: Option<usize>,
        context: &mut ExecContext<'_, '_>,
    ) -> SqlResult<Self> {
        let failed = |error| from_txn(error, Some(table));
        let (columns, _) = table.key(index).unwrap_or_default();
        let source = match index.and_then(|at| table.indexes.get(at)) {
            None => {
                // That the transaction has used the table makes its keys known.
                context.txn.row(table.table).await.map_err(failed)?;
                table.table.into()
            }
            Some(own) => context.txn.index(table.table, &own.name).await.map_err(failed)?.into(),
        };
        Ok(Self { source, types: types_of(table, columns) })
    }
}

/// The values of these columns of a row.
pub(super) fn picked(row: &[Datum], columns: &[usize]) -> Row {
    columns.iter().map(|at| row.get(*at).cloned().unwrap_or(Datum::Null)).collect()
}

/// The values of a key, in the order of `wanted`; they are in that of `given`.
fn in_order(wanted: &[usize], given: &[usize], key: &[Datum]) -> Row {
    let value = |column: &usize| {
        let at = given.iter().position(|own| own == column);
        at.and_then(|at| key.get(at)).cloned().unwrap_or(Datum::Null)
    };
    wanted.iter().map(value).collect()
}

/// A key in other types; `None` if one of its values is none there.
pub(super) fn converted(
    key: &[Datum],
    from: &[SqlType],
    to: &[SqlType],
    context: &ExecContext<'_, '_>,
) -> Option<Row> {
    let settings = context.call.settings;
    let one = |((value, from), to): ((&Datum, &SqlType), &SqlType)| {
        if value.is_null() || from.scalar == to.scalar && from.is_array == to.is_array {
            return Some(value.clone());
        }
        let (bare, back) = (to.plain(), from.plain());
        let there = cast(value.clone(), *from, bare, CastContext::Explicit, settings).ok()?;
        let again = cast(there.clone(), bare, back, CastContext::Explicit, settings).ok()?;
        order::compare(&again, value).is_eq().then_some(there)
    };
    key.iter().zip(from).zip(to).map(one).collect()
}
