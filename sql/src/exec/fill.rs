//! Filling a table that the transaction has created, with all rows of a plan.
//!
//! Each tree of the table is written from its first entry to its last ([`TableFill`]), so entries
//! are sorted before: those of the rows only if they do not come in the order of the primary key.

use selkie_txn::{EntryBuffer, TableFill, TreeFill, TxnError};

use super::build::build;
use super::context::ExecContext;
use super::entry_sort::EntrySorter;
use super::row_write::{change_error, check_row};
use super::stored_row::{fill_builder, read_row};
use super::txn_error::from_txn;
use crate::catalogue::TableDef;
use crate::error::SqlResult;
use crate::plan::Plan;

/// Gives a table that the transaction has created, and that has no row, those of a plan. They have
/// passed its constraints, but that no column is NULL that may not be, and that no two rows agree
/// in a key. How many there are.
pub(crate) async fn fill_table(
    table: &TableDef,
    source: &Plan,
    is_in_order: bool,
    context: &mut ExecContext<'_, '_>,
) -> SqlResult<u64> {
    let failed = |error| from_txn(error, Some(table));
    let mut fill = context.txn.fill_table(table.table).await.map_err(failed)?;
    let mut rows = match is_in_order {
        true => Some(fill.begin_tree(context.txn, 0).await.map_err(failed)?),
        false => None,
    };
    let first_sorted = usize::from(is_in_order);
    let trees = first_sorted..fill.trees();
    let mut sorters: Vec<EntrySorter> =
        trees.clone().map(|_| EntrySorter::new(context.limits)).collect();
    let mut builder = context.txn.row(table.table).await.map_err(failed)?;
    let (mut input, mut entries, mut count) = (build(source), EntryBuffer::default(), 0);
    while let Some(batch) = input.next(context).await? {
        for row in batch {
            count += 1;
            check_row(table, &[], &row, None, context)?;
            fill_builder(&mut builder, table, &row)?;
            let entered = match builder.finish() {
                Ok(stored) => fill.enter(context.txn, stored, &mut entries).await,
                Err(error) => Err(error.into()),
            };
            entered.map_err(|error| change_error(error, table, &row, &context.call))?;
            let mut of_row = entries.entries();
            if let Some(tree) = &mut rows
                && let Some(entry) = of_row.next()
            {
                push(&fill, (tree, 0), table, entry, context).await?;
            }
            for (sorter, (key, value)) in sorters.iter_mut().zip(of_row) {
                sorter.push(key, value)?;
            }
        }
    }
    if let Some(tree) = rows {
        fill.end_tree(context.txn, tree).await.map_err(failed)?;
    }
    for (number, sorter) in trees.zip(sorters) {
        let mut tree = fill.begin_tree(context.txn, number).await.map_err(failed)?;
        let mut sorted = sorter.finish()?;
        while let Some(entry) = sorted.next()? {
            push(&fill, (&mut tree, number), table, entry, context).await?;
            context.breathe(1).await;
        }
        fill.end_tree(context.txn, tree).await.map_err(failed)?;
    }
    fill.finish(context.txn).await.map_err(failed)?;
    Ok(count)
}

/// Adds an entry to a tree of this number. A duplicate key is shown as that of a row.
async fn push<'db>(
    fill: &TableFill<'db>,
    (tree, number): (&mut TreeFill<'db>, usize),
    table: &TableDef,
    (key, value): (&[u8], &[u8]),
    context: &mut ExecContext<'_, 'db>,
) -> SqlResult<()> {
    let Err(error) = tree.push(context.txn, key, value).await else { return Ok(()) };
    if !matches!(error, TxnError::Duplicate { .. }) {
        return Err(from_txn(error, Some(table)));
    }
    let columns = match number.checked_sub(1) {
        None => Some(&table.primary_key),
        Some(at) => table.indexes.get(at).map(|own| &own.columns),
    };
    let needed: Vec<bool> =
        (0..table.columns.len()).map(|at| columns.is_some_and(|own| own.contains(&at))).collect();
    let read = |bytes: Vec<u8>| {
        let row = fill.row(&bytes).ok()?;
        read_row(row, table, Some(&needed), &mut Vec::new()).ok()
    };
    match fill.row_of(number, (key, value)).ok().and_then(read) {
        Some(row) => Err(change_error(error, table, &row, &context.call)),
        // Of a key that does not tell its values.
        None => Err(from_txn(error, Some(table))),
    }
}
