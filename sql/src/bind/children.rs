//! What a FOREIGN KEY constraint does with children, as a statement.

use std::sync::Arc;

use selkie_txn::LockWait;

use super::from::scan_of;
use super::stage::with_applies;
use super::{Binder, Tables};
use crate::catalogue::TableDef;
use crate::error::{SqlError, SqlResult};
use crate::functions::resolve_operator;
use crate::plan::{Comparison, Expr, Join, JoinKind, LockRows, Locking, Modify, Plan};
use crate::schemas::SearchPath;
use crate::types::{Datum, FormatSettings};

/// What is done with the children of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChildChange {
    Delete,
    /// They get the new key of their parent.
    Follow,
    SetNull,
    SetDefault,
}

/// The plan that changes all rows of a table whose `columns` are one of these keys, in one go: no
/// row is found by what it was changed to. For [`ChildChange::Follow`] the new key stands behind
/// each key. SET NULL and SET DEFAULT are for the columns of `set` if that says so.
pub(crate) fn change_children(
    table: &Arc<TableDef>,
    columns: &[usize],
    keys: Vec<Vec<Datum>>,
    (change, set): (ChildChange, Option<&[usize]>),
    settings: &FormatSettings,
    path: &SearchPath,
) -> SqlResult<Plan> {
    let path = Arc::new(SearchPath::stored(path.schemas().cloned()));
    let tables = Tables { path, ..Tables::none() };
    let mut binder = Binder::new("", &tables, settings, &[]);
    let (width, key_width) = (table.columns.len(), columns.len());
    let left_width = keys.first().map_or(0, Vec::len);
    let constants = |row: Vec<Datum>| row.into_iter().map(Expr::Const).collect();
    let left = Plan::Values { rows: keys.into_iter().map(constants).collect(), width: left_width };
    let is_key = equal(table, columns, |at| Expr::Outer { level: 0, column: at })?;
    let scan = Box::new(scan_of(Arc::clone(table), true));
    let join = Join {
        left,
        right: Plan::Filter { input: scan, condition: is_key },
        left_width,
        right_width: width,
        kind: JoinKind::Inner,
        equal: Vec::new(),
        condition: None,
        is_lateral: true,
        keeps_order: false,
    };
    let exprs = (left_width..left_width + width).chain(0..left_width).map(Expr::Column).collect();
    let input = Plan::Project { input: Box::new(Plan::Join(Box::new(join))), exprs };
    let still = equal(table, columns, |at| Expr::Column(width + at))?;
    let own = Arc::clone(table);
    let lock = LockRows {
        input,
        locks: vec![Locking { table: own, first_column: 0, wait: LockWait::Wait }],
        condition: Some(still),
        is_strict: false,
        is_for_change: true,
        is_one_by_one: false,
    };
    let mut applies = Vec::new();
    let mut assignments = Vec::new();
    for (number, at) in columns.iter().enumerate() {
        let is_set = matches!(change, ChildChange::SetNull | ChildChange::SetDefault);
        if is_set && set.is_some_and(|set| !set.contains(at)) {
            continue;
        }
        let value = match change {
            ChildChange::Delete => break,
            ChildChange::Follow => Expr::Column(width + key_width + number),
            ChildChange::SetNull => Expr::Const(Datum::Null),
            ChildChange::SetDefault => {
                binder.default_with(table, *at, width + left_width, &mut applies)?
            }
        };
        assignments.push((*at, value));
    }
    let is_delete = change == ChildChange::Delete;
    let checks = if is_delete { Vec::new() } else { binder.checks(table)? };
    Ok(Plan::Modify(Box::new(Modify {
        table: Arc::clone(table),
        source: with_applies(Plan::Lock(Box::new(lock)), applies),
        assignments: (!is_delete).then_some(assignments),
        checks,
        returning: None,
    })))
}

/// That columns of a table are equal to these values.
fn equal(table: &TableDef, columns: &[usize], value: impl Fn(usize) -> Expr) -> SqlResult<Expr> {
    let mut all = Vec::new();
    for (number, at) in columns.iter().enumerate() {
        let missing = || SqlError::internal("a foreign key of a column that is not there");
        let ty = table.columns.get(*at).ok_or_else(missing)?.ty;
        let function = Box::new(resolve_operator("=", Some(ty), ty)?);
        let arguments = vec![Expr::Column(*at), value(number)];
        all.push(Expr::Call { function, arguments, comparison: Some(Comparison::Equal) });
    }
    Ok(Expr::And(all))
}
