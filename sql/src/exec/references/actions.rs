//! Checks of keys, and what is done with children.

use super::super::build::build;
use super::super::context::{ExecContext, Row};
use super::super::row_key::{KeySet, RowKey};
use super::super::stored_row::types_of;
use super::lookup::{Constraint, converted};
use super::pending::Gone;
use crate::bind::{ChildChange, change_children};
use crate::catalogue::ReferenceAction;
use crate::error::{SqlError, SqlResult, SqlState};
use crate::plan::optimize;
use crate::types::Datum;

/// These keys of rows of the child need a parent.
pub(super) async fn require_parents(
    constraint: &Constraint,
    keys: &[Row],
    context: &mut ExecContext<'_, '_>,
) -> SqlResult<()> {
    for key in keys {
        let has_null = key.iter().any(Datum::is_null);
        if !has_null && constraint.has_parent(key, true, context).await? {
            context.breathe(1).await;
            continue;
        }
        return Err(orphan(constraint, key, context));
    }
    Ok(())
}

/// The error for a key of a row of the child.
pub(super) fn orphan(
    constraint: &Constraint,
    key: &[Datum],
    context: &ExecContext<'_, '_>,
) -> SqlError {
    let (child, name) = (&constraint.child, &constraint.own.name);
    let message = format!(
        "insert or update on table \"{}\" violates foreign key constraint \"{name}\"",
        child.name
    );
    let detail = if key.iter().any(Datum::is_null) {
        "MATCH FULL does not allow mixing of null and nonnull key values.".to_owned()
    } else {
        let shown = Constraint::shown(child, &constraint.columns, key, context);
        format!("{shown} is not present in table \"{}\".", constraint.parent.name)
    };
    let error = SqlError::new(SqlState::FOREIGN_KEY_VIOLATION, message).detail(detail);
    error.of_table(&child.key).of_constraint(name)
}

/// Does what the constraint says with the children of keys that a parent has no more.
pub(super) async fn children_of(
    constraint: &Constraint,
    mut gone: Vec<Gone>,
    context: &mut ExecContext<'_, '_>,
) -> SqlResult<()> {
    let mut deleted = Vec::new();
    let mut updated = Vec::new();
    let mut seen = KeySet::default();
    for own in gone.drain(..) {
        if seen.insert(RowKey(own.old.clone())) {
            if own.new.is_some() { updated.push(own) } else { deleted.push(own) }
        }
    }
    act(constraint, constraint.own.on_delete, deleted, context).await?;
    act(constraint, constraint.own.on_update, updated, context).await
}

async fn act(
    constraint: &Constraint,
    action: ReferenceAction,
    gone: Vec<Gone>,
    context: &mut ExecContext<'_, '_>,
) -> SqlResult<()> {
    if gone.is_empty() {
        return Ok(());
    }
    let is_check = matches!(action, ReferenceAction::NoAction | ReferenceAction::Restrict);
    let keys: Vec<&[Datum]> = gone.iter().map(|own| &*own.old).collect();
    let found = constraint.with_children(&keys, !is_check, context).await?;
    if found.is_empty() {
        return Ok(());
    }
    if is_check {
        let may_return = action == ReferenceAction::NoAction;
        let (child, own) = (&constraint.child.key, &constraint.own);
        let deferred = context.deferred;
        if may_return && deferred.lock().is_deferred(child, own) {
            for key in found.iter().filter_map(|(at, _)| gone.get(*at)) {
                let key = key.old.clone();
                deferred.lock().add(constraint, key, false, context.limits)?;
            }
            return Ok(());
        }
        return refuse_orphans(constraint, &gone, &found, may_return, context).await;
    }
    let mut rows = Vec::with_capacity(found.len());
    let (from, to) = (
        types_of(&constraint.parent, &constraint.parent_columns),
        types_of(&constraint.child, &constraint.columns),
    );
    for (at, key) in &found {
        let mut row = key.clone();
        if let Some(new) = gone.get(*at).and_then(|own| own.new.as_ref())
            && action == ReferenceAction::Cascade
        {
            // What is no value of the child is an error there.
            let new = converted(new, &from, &to, context).ok_or_else(|| {
                let message = "a key of the parent is no value of the column that refers to it";
                SqlError::new(SqlState::NUMERIC_OUT_OF_RANGE, message)
            })?;
            row.extend(new);
        }
        rows.push(row);
    }
    let is_delete = gone.iter().all(|own| own.new.is_none());
    let change = match action {
        ReferenceAction::Cascade if is_delete => ChildChange::Delete,
        ReferenceAction::Cascade => ChildChange::Follow,
        ReferenceAction::SetNull => ChildChange::SetNull,
        _ => ChildChange::SetDefault,
    };
    let (child, columns) = (&constraint.child, &constraint.columns);
    let set = match is_delete && !constraint.own.set_columns.is_empty() {
        true => child.positions(&constraint.own.set_columns),
        false => None,
    };
    let (change_of, settings) = ((change, set.as_deref()), context.call.settings);
    let plan = change_children(child, columns, rows, change_of, settings, context.path)?;
    let mut operator = build(&optimize(plan));
    while operator.next(context).await?.is_some() {}
    if change == ChildChange::SetDefault {
        // The default may be the key that is gone.
        let keys: Vec<&[Datum]> =
            found.iter().filter_map(|(at, _)| gone.get(*at).map(|own| &*own.old)).collect();
        let left = constraint.with_children(&keys, false, context).await?;
        let gone: Vec<Gone> =
            keys.iter().map(|key| Gone { old: key.to_vec(), new: None }).collect();
        refuse_orphans(constraint, &gone, &left, true, context).await?;
    }
    Ok(())
}

/// An error if a key that has children is one of no parent; without `may_return` also if another
/// parent has it.
async fn refuse_orphans(
    constraint: &Constraint,
    gone: &[Gone],
    found: &[(usize, Row)],
    may_return: bool,
    context: &mut ExecContext<'_, '_>,
) -> SqlResult<()> {
    for (at, _) in found {
        let Some(Gone { old, .. }) = gone.get(*at) else { continue };
        if may_return && constraint.has_parent(old, false, context).await? {
            continue;
        }
        return Err(refused(constraint, old, context));
    }
    Ok(())
}

/// The error for a key of a parent that has children.
pub(super) fn refused(
    constraint: &Constraint,
    key: &[Datum],
    context: &ExecContext<'_, '_>,
) -> SqlError {
    let Constraint { child, parent, own, parent_columns, .. } = constraint;
    let message = format!(
        "update or delete on table \"{}\" violates foreign key constraint \"{}\" on table \"{}\"",
        parent.name, own.name, child.name
    );
    let shown = Constraint::shown(parent, parent_columns, key, context);
    let detail = format!("{shown} is still referenced from table \"{}\".", child.name);
    let error = SqlError::new(SqlState::FOREIGN_KEY_VIOLATION, message).detail(detail);
    // The constraint is the child's.
    error.of_table(&child.key).of_constraint(&own.name)
}
