//! What operations are done with: the tree alone, transactions on a table, or SQL.
//!
//! The records of a tree are in the tree that the table would have, and nothing else uses that.

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use selkie_btree::{Tree, TreeError};
use selkie_engine::Engine;
use selkie_txn::{Database, Direction, KeyRange, RowRef, Table, TxnError, key};

use super::record::FIELDS;
use super::rules::RecordRules;
use super::schema::{FIRST_FIELD, KEY, Tables, VERSION};
use super::statement::Statement;
use crate::cluster::Node;
use crate::connection::{SqlConnection, SqlConnector, SqlRow, SqlValue};
use crate::error::TpccError;

/// What operations are done with.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Via {
    /// The tree: each operation is atomic, and there are no transactions.
    Tree,
    /// Transactions on a table, one an operation.
    #[default]
    Table,
    /// SQL, one statement an operation, but for read-modify-writes.
    Sql(Arc<dyn SqlConnector>),
}

impl Via {
    /// As it is written.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Tree => "tree",
            Self::Table => "table",
            Self::Sql(connector) => connector.name(),
        }
    }
}

/// What was found of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finding {
    /// It is as it must be.
    Whole,
    /// There is none.
    Missing,
    /// It holds what was never written together.
    Damaged,
}

impl Finding {
    fn of(whole: bool) -> Self {
        if whole { Self::Whole } else { Self::Damaged }
    }
}

/// What a scan found: how many records, and the first that is damaged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Scanned {
    pub(super) records: u32,
    pub(super) damaged: Option<i64>,
}

impl Scanned {
    /// Notes a record; whether that was the last that was asked for.
    fn note(&mut self, key: i64, whole: bool, most: u32) -> ControlFlow<()> {
        self.records += 1;
        if !whole {
            self.damaged.get_or_insert(key);
        }
        if self.records < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }
}

/// The records, as a worker reaches them.
pub(super) enum RecordStore<'a> {
    Tree { engine: &'a Engine, tree: Tree },
    Table { db: &'a Database, table: Table },
    Sql(Box<dyn SqlConnection>),
}

impl<'a> RecordStore<'a> {
    /// The records of a node.
    pub(super) async fn open(via: &Via, node: &'a Node<Tables>) -> Result<Self, TpccError> {
        Ok(match via {
            Via::Sql(connector) => Self::Sql(connector.connect(&node.db).await?),
            Via::Tree => {
                Self::Tree { engine: &node.engine, tree: node.db.tree(node.tables.records)? }
            }
            Via::Table => Self::Table { db: &node.db, table: node.tables.records },
        })
    }

    /// Reads a record.
    pub(super) async fn read(&self, rules: RecordRules, key: i64) -> Result<Finding, TpccError> {
        let whole = match self {
            Self::Tree { engine, tree } => {
                let look = |record: &[u8]| is_whole(rules, key, record);
                tree.get_with(engine, &key![key], look).await?
            }
            Self::Table { db, table } => {
                let mut txn = db.begin_to_read();
                let row = txn.get(*table, &key![key]).await?;
                let whole = row.map(|row| is_whole_row(rules, key, row)).transpose()?;
                txn.commit().await?;
                whole
            }
            Self::Sql(connection) => {
                let rows = connection.run(&Statement::Read, &[SqlValue::Int(key)]).await?;
                rows.first().map(|row| is_whole_sql(rules, key, row))
            }
        };
        Ok(whole.map_or(Finding::Missing, Finding::of))
    }

    /// Writes a field of a record.
    pub(super) async fn update(
        &self,
        rules: RecordRules,
        key: i64,
        (field, value): (usize, &[u8]),
    ) -> Result<Finding, TpccError> {
        match self {
            Self::Tree { engine, tree } => {
                Ok(change(rules, (engine, *tree), key, (field, value)).await?.0)
            }
            Self::Table { db, table } => {
                let mut txn = db.begin();
                let updated = update_row(&mut txn, *table, key, (field, value)).await?;
                txn.commit().await?;
                Ok(updated)
            }
            Self::Sql(connection) => update_sql(&**connection, key, (field, value)).await,
        }
    }

    /// Reads a record and writes one of its fields, which is one transaction where there are such;
    /// in the tree it is one change of the leaf.
    pub(super) async fn read_modify_write(
        &self,
        rules: RecordRules,
        key: i64,
        (field, value): (usize, &[u8]),
    ) -> Result<Finding, TpccError> {
        match self {
            Self::Tree { engine, tree } => {
                let (updated, whole) = change(rules, (engine, *tree), key, (field, value)).await?;
                Ok(if whole { updated } else { Finding::Damaged })
            }
            Self::Table { db, table } => {
                let mut txn = db.begin();
                let row = txn.get_for_update(*table, &key![key]).await?;
                let Some(row) = row else { return Ok(Finding::Missing) };
                let whole = is_whole_row(rules, key, row)?;
                update_row(&mut txn, *table, key, (field, value)).await?;
                txn.commit().await?;
                Ok(Finding::of(whole))
            }
            Self::Sql(connection) => {
                connection.run(&Statement::Begin, &[]).await?;
                let done = async {
                    let rows = connection.run(&Statement::Read, &[SqlValue::Int(key)]).await?;
                    let Some(row) = rows.first() else { return Ok(Finding::Missing) };
                    let whole = is_whole_sql(rules, key, row);
                    update_sql(&**connection, key, (field, value)).await?;
                    Ok(Finding::of(whole))
                };
                match done.await {
                    Ok(found) => {
                        connection.run(&Statement::Commit, &[]).await?;
                        Ok(found)
                    }
                    Err(error) => {
                        // Why it failed says more than why that could not be rolled back.
                        let _ = connection.run(&Statement::Rollback, &[]).await;
                        Err(error)
                    }
                }
            }
        }
    }

    /// Inserts a record.
    pub(super) async fn insert(&self, rules: RecordRules, key: i64) -> Result<(), TpccError> {
        match self {
            Self::Tree { engine, tree } => {
                let mut record = Vec::with_capacity(8 + rules.fields.sum());
                rules.encode_loaded(key, &mut record);
                Ok(tree.insert(engine, &key![key], &record).await?)
            }
            Self::Table { db, table } => {
                let mut txn = db.begin();
                let mut row = db.row(*table)?;
                txn.insert(*table, loaded_row(rules, key, &mut row, &mut Vec::new())?).await?;
                Ok(txn.commit().await?)
            }
            Self::Sql(connection) => {
                let mut buffer = Vec::new();
                let fields = (0..FIELDS).map(|field| {
                    buffer.clear();
                    rules.write_loaded(key, field, &mut buffer);
                    text_of(&buffer)
                });
                let values: Vec<_> = [SqlValue::Int(key)].into_iter().chain(fields).collect();
                connection.run(&Statement::Insert, &values).await.map(drop)
            }
        }
    }

    /// Reads up to so many records from a key on.
    pub(super) async fn scan(
        &self,
        rules: RecordRules,
        from: i64,
        most: u32,
    ) -> Result<Scanned, TpccError> {
        let mut seen = Scanned::default();
        match self {
            Self::Tree { engine, tree } => {
                let low = key![from];
                let range = (Bound::Included(&*low), Bound::Unbounded);
                let see = |key: &[u8], record: &[u8]| {
                    let Some(key) = decode_key(key) else { return ControlFlow::Break(()) };
                    seen.note(key, is_whole(rules, key, record), most)
                };
                tree.scan(engine, range, Direction::Forward, see).await?;
            }
            Self::Table { db, table } => {
                let mut txn = db.begin_to_read();
                let see = |row: RowRef<'_>| {
                    let key = row.i64(KEY)?;
                    Ok(seen.note(key, is_whole_row(rules, key, row)?, most))
                };
                txn.scan(*table, &KeyRange::from(&key![from]), Direction::Forward, see).await?;
                txn.commit().await?;
            }
            Self::Sql(connection) => {
                let values = [SqlValue::Int(from), SqlValue::Int(most.into())];
                for row in connection.run(&Statement::Scan, &values).await? {
                    let Some((SqlValue::Int(key), row)) = row.split_first() else { continue };
                    let _ = seen.note(*key, is_whole_sql(rules, *key, row), most);
                }
            }
        }
        Ok(seen)
    }
}

/// The key that these bytes are; see [`KeyBuf::i64`](selkie_txn::KeyBuf::i64).
pub(super) fn decode_key(bytes: &[u8]) -> Option<i64> {
    let bytes: [u8; 8] = bytes.try_into().ok()?;
    Some((u64::from_be_bytes(bytes) ^ (1 << 63)).cast_signed())
}

fn is_whole(rules: RecordRules, key: i64, record: &[u8]) -> bool {
    rules.look_at(key, record).is_some_and(|(_, whole)| whole)
}

/// Whether a row is whole.
pub(super) fn is_whole_row(
    rules: RecordRules,
    key: i64,
    row: RowRef<'_>,
) -> Result<bool, TxnError> {
    let version = row.i64(VERSION)?;
    let field = |at| row.text(FIRST_FIELD + at).ok().map(str::as_bytes);
    Ok(rules.is_whole(key, version, field))
}

/// Whether what SQL gives is whole: the version, and the fields.
fn is_whole_sql(rules: RecordRules, key: i64, row: &[SqlValue]) -> bool {
    let Some((SqlValue::Int(version), fields)) = row.split_first() else { return false };
    let field = |at: usize| match fields.get(at) {
        Some(SqlValue::Text(text)) => Some(text.as_bytes()),
        _ => None,
    };
    rules.is_whole(key, *version, field)
}

/// A row as it is loaded or inserted.
pub(super) fn loaded_row<'r>(
    rules: RecordRules,
    key: i64,
    row: &'r mut selkie_txn::RowBuilder<'_>,
    buffer: &mut Vec<u8>,
) -> Result<RowRef<'r>, TxnError> {
    row.clear();
    row.i64(key).i64(0);
    for field in 0..FIELDS {
        buffer.clear();
        rules.write_loaded(key, field, buffer);
        row.text(&String::from_utf8_lossy(buffer));
    }
    Ok(row.finish()?)
}

/// Writes a field of a record of a tree. What was found, and whether the record was whole before.
async fn change(
    rules: RecordRules,
    (engine, tree): (&Engine, Tree),
    key: i64,
    (field, value): (usize, &[u8]),
) -> Result<(Finding, bool), TreeError> {
    use selkie_btree::ValueChange;
    let change = |record: Option<&[u8]>| {
        let Some(record) = record else { return (ValueChange::Keep, (Finding::Missing, true)) };
        let whole = is_whole(rules, key, record);
        match rules.updated(record, field, value) {
            Some(new) => (ValueChange::Set(new), (Finding::Whole, whole)),
            None => (ValueChange::Keep, (Finding::Damaged, false)),
        }
    };
    tree.modify(engine, &key![key], change).await
}

async fn update_row(
    txn: &mut selkie_txn::Txn<'_>,
    table: Table,
    key: i64,
    (field, value): (usize, &[u8]),
) -> Result<Finding, TxnError> {
    let text = String::from_utf8_lossy(value);
    let key = key![key];
    let updated = txn.update(table, &key, |row| {
        row.set_i64(VERSION, row.i64(VERSION)?.wrapping_add(1))?;
        Ok(row.set_text(FIRST_FIELD + field, &text)?)
    });
    match updated.await {
        Ok(()) => Ok(Finding::Whole),
        Err(TxnError::NotFound { .. }) => Ok(Finding::Missing),
        Err(error) => Err(error),
    }
}

async fn update_sql(
    connection: &dyn SqlConnection,
    key: i64,
    (field, value): (usize, &[u8]),
) -> Result<Finding, TpccError> {
    let values = [SqlValue::Int(key), text_of(value)];
    let rows: Vec<SqlRow> = connection.run(&Statement::Update(field), &values).await?;
    Ok(if rows.is_empty() { Finding::Missing } else { Finding::Whole })
}

fn text_of(bytes: &[u8]) -> SqlValue {
    SqlValue::Text(String::from_utf8_lossy(bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_decoded_as_they_were_encoded() {
        for own in [0, 1, -1, 77, i64::MIN, i64::MAX] {
            assert_eq!(decode_key(&key![own]), Some(own));
        }
        assert_eq!(decode_key(b"short"), None);
    }
}
