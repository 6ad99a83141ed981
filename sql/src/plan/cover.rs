//! Reads of indexes without the rows that their entries lead to.
//!
//! The entry of an index has the columns of the index and those of the primary key, so a read that
//! needs no others need not look at the row. It has them as its key has them: a type whose keys
//! tell less than the value, as that 1.0 and 1.00 are equal, is read from the row.

use std::sync::Arc;

use selkie_txn::ColumnType;

use super::node::{Access, Scan};
use super::scan_order::{all_columns, prefix_by};
use crate::catalogue::TableDef;
use crate::types::stored::column_type;

/// Whether a read could do with the entries of an index.
pub(super) fn is_covered(scan: &Scan, index: Option<usize>) -> bool {
    let tells = |index| tells(&scan.table, index, &scan.needed);
    !scan.for_update && index.is_some_and(tells)
}

/// Whether entries of an index tell these columns of the table.
fn tells(table: &TableDef, index: usize, needed: &[bool]) -> bool {
    let Some(index) = table.indexes.get(index) else { return false };
    let mut columns = needed.iter().enumerate().filter(|(_, is_needed)| **is_needed);
    columns.all(|(at, _)| {
        let is_there = index.columns.contains(&at) || table.primary_key.contains(&at);
        let ty = table.columns.get(at).map(|column| column_type(column.ty));
        is_there && ty.is_some_and(|ty| ty.is_ok_and(ColumnType::has_exact_keys))
    })
}

/// Has a read do with the entries of its index, if they tell what is needed, or with those of
/// another one that finds the same rows.
pub(super) fn cover(scan: &mut Arc<Scan>) {
    let (Access::Range { index: Some(own), .. } | Access::Each { index: Some(own), .. }) =
        &scan.access
    else {
        return;
    };
    let mut all = std::iter::once(*own).chain(0..scan.table.indexes.len());
    let found = all.find_map(|index| {
        let access = is_covered(scan, Some(index)).then(|| by_index(scan, *own, index));
        access.flatten()
    });
    let Some(access) = found else { return };
    let scan = Arc::make_mut(scan);
    scan.access = access;
    scan.index_only = true;
}

/// The access by another index than its own, if that finds the same rows, in the same order if that
/// is counted on.
fn by_index(scan: &Scan, own: usize, other: usize) -> Option<Access> {
    let ((columns, _), (others, _)) = (scan.table.key(Some(own))?, scan.table.key(Some(other))?);
    if scan.is_ordered && own != other {
        // Rows whose columns of the index are the same come by what stands behind these.
        let (of_own, of_other) =
            (all_columns(&scan.table, Some(own))?, all_columns(&scan.table, Some(other))?);
        if !of_other.0.starts_with(&of_own.0) || !of_other.1.starts_with(&of_own.1) {
            return None;
        }
    }
    let mut access = scan.access.clone();
    match &mut access {
        Access::Range { index, prefix, low, high, .. } => {
            let is_bounded = low.is_some() || high.is_some();
            *prefix = prefix_by(&scan.table, (Some(own), prefix), Some(other), is_bounded)?;
            *index = Some(other);
        }
        Access::Each { index, prefix, suffix, .. } => {
            let used = columns.get(..prefix.len() + 1 + suffix.len())?;
            if !others.starts_with(used) {
                return None;
            }
            *index = Some(other);
        }
    }
    Some(access)
}

/// Has a whole table read by the entries of an index, where these tell what is needed, and the
/// order of the rows does not matter.
pub(super) fn read_narrow(scan: &mut Arc<Scan>) {
    let table = &scan.table;
    let Access::Range { index: None, .. } = &scan.access else { return };
    if scan.access.is_keyed() || scan.is_ordered {
        return;
    }
    let width = |index: &usize| {
        let columns = table.indexes.get(*index).map_or(&[][..], |index| &index.columns);
        let others = table.primary_key.iter().filter(|column| !columns.contains(column));
        columns.len() + others.count()
    };
    let narrow = (0..table.indexes.len())
        .filter(|at| width(at) < table.columns.len() && is_covered(scan, Some(*at)));
    let Some(narrowest) = narrow.min_by_key(width) else { return };
    if let Access::Range { index, .. } = &mut Arc::make_mut(scan).access {
        *index = Some(narrowest);
    }
}
