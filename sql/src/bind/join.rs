//! Joins: which rows go together, and what their columns are called.
//!
//! USING and NATURAL make one column of two that are called alike. It comes first in what `*`
//! shows, before the others of the left side and then of the right, whatever kind of join it is.
//! Both columns are still there under the names of their tables.

use sqlparser::ast::{JoinConstraint, JoinOperator};

use super::from::Part;
use super::outer_condition::{NUMBERS, joined};
use super::scope::{SchemaName, Scope, ScopeColumn, TableName};
use super::stage::{Stage, with_applies};
use super::{Binder, name_parts};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::plan::{Expr, JoinKind, Plan, Typed};
use crate::types::SqlType;
use crate::types::cast::{CastContext, common_type};

impl Binder<'_> {
    pub(super) fn joined<'s>(
        &mut self,
        mut left: Part<'s>,
        mut right: Part<'s>,
        kind: JoinKind,
        constraint: &JoinConstraint,
    ) -> SqlResult<Part<'s>> {
        let (left_width, right_width) = (left.scope.width, right.scope.width);
        let names = merged_names(constraint, &left.scope, &right.scope)?;
        let mut merged = Merged::default();
        for name in &names {
            let pair = (
                merged_column(&left.scope.columns, name, "left")?,
                merged_column(&right.scope.columns, name, "right")?,
            );
            self.merge(name, pair, (left_width, kind), &mut merged)?;
        }
        for (part, is_filled) in [
            (&mut left, matches!(kind, JoinKind::Right | JoinKind::Full)),
            (&mut right, matches!(kind, JoinKind::Left | JoinKind::Full)),
        ] {
            part.scope.columns.iter_mut().for_each(|own| own.may_be_filled |= is_filled);
        }
        let mut scope = combined(left.scope, right.scope)?;
        for column in scope.columns.iter_mut().filter(|own| merged.hidden.contains(&own.at)) {
            column.is_plain = false;
        }
        let (mut condition, mut applies) = (None, Vec::new());
        if let JoinConstraint::On(on) = constraint {
            let mut stage = Stage::new(&scope, "JOIN/ON");
            if kind != JoinKind::Inner {
                stage.width += NUMBERS;
            }
            let on = self.expr(on, &mut stage)?;
            condition = Some(self.condition(on, "JOIN/ON")?);
            applies = stage.applies;
        }
        if !merged.equal.is_empty() {
            condition = Some(Expr::And(merged.equal));
        }
        let (left_plan, right_plan) = ((left.plan, left_width), (right.plan, right_width));
        let is_lateral = right.is_lateral;
        let mut plan = match (applies.is_empty(), kind) {
            (true, _) => joined(left_plan, right_plan, kind, condition, is_lateral),
            (false, JoinKind::Inner) => {
                let width = scope.width;
                let pairs = joined(left_plan, right_plan, kind, None, is_lateral);
                let input = Box::new(with_applies(pairs, applies));
                let condition = condition.unwrap_or(Expr::TRUE);
                let exprs = (0..width).map(Expr::Column).collect();
                Plan::Project { input: Box::new(Plan::Filter { input, condition }), exprs }
            }
            (false, _) => {
                let condition = condition.unwrap_or(Expr::TRUE);
                self.outer_join((left_plan, right_plan), (kind, is_lateral), applies, condition)?
            }
        };
        if !merged.columns.is_empty() {
            self.joins += 1;
            let name = format!("?join{}?", self.joins);
            let table = TableName { name, schema: SchemaName::Join };
            plan = with_merged(plan, merged.columns, &table, &mut scope);
        }
        Ok(Part { plan, scope, is_lateral: left.is_lateral })
    }

    /// A column of both sides that is one in the join.
    fn merge(
        &mut self,
        name: &str,
        (first, second): (&ScopeColumn, &ScopeColumn),
        (left_width, kind): (usize, JoinKind),
        merged: &mut Merged,
    ) -> SqlResult<()> {
        let right_at = second.at + left_width;
        let ty = common_type(&[first.ty, second.ty]).map_err(|_| {
            let (left, right) = (first.ty.plain().name(), second.ty.plain().name());
            let message = format!("JOIN/USING types {left} and {right} cannot be matched");
            SqlError::new(SqlState::DATATYPE_MISMATCH, message)
        })?;
        let left = Typed::new(Expr::Column(first.at), first.ty);
        let right = Typed::new(Expr::Column(right_at), second.ty);
        merged.equal.push(self.operator("=", Some(left.clone()), right.clone())?.expr);
        merged.hidden.extend([first.at, right_at]);
        let is_cast = |own: &Typed| own.ty != ty && own.ty.plain() != ty;
        let value = match kind {
            JoinKind::Full => Expr::Coalesce(self.unify(vec![left, right])?.0),
            JoinKind::Right => self.coerce(right, ty, CastContext::Implicit)?,
            // Either is as good, and one that is of the type already is the column of a table.
            JoinKind::Inner if is_cast(&left) && !is_cast(&right) => right.expr,
            _ => self.coerce(left, ty, CastContext::Implicit)?,
        };
        merged.columns.push((name.to_owned(), value, ty));
        Ok(())
    }
}

/// What the columns of USING become.
#[derive(Default)]
struct Merged {
    /// What has to be equal.
    equal: Vec<Expr>,
    /// The columns of both sides, which are found with their table only.
    hidden: Vec<usize>,
    /// What they are in the join.
    columns: Vec<(String, Expr, SqlType)>,
}

/// The names of columns that are in both sides and one in the join.
fn merged_names(
    constraint: &JoinConstraint,
    left: &Scope<'_>,
    right: &Scope<'_>,
) -> SqlResult<Vec<String>> {
    match constraint {
        JoinConstraint::None | JoinConstraint::On(_) => Ok(Vec::new()),
        JoinConstraint::Using(names) => {
            let mut all = Vec::new();
            for name in names {
                let name = name_parts(name)?.pop().unwrap_or_default();
                if all.contains(&name) {
                    let message =
                        format!("column name \"{name}\" appears more than once in USING clause");
                    return Err(SqlError::new(SqlState::DUPLICATE_COLUMN, message));
                }
                all.push(name);
            }
            Ok(all)
        }
        JoinConstraint::Natural => {
            let is_plain = |own: &&ScopeColumn| own.is_plain;
            let is_right =
                |name: &String| right.columns.iter().filter(is_plain).any(|own| own.name == *name);
            let names = left.columns.iter().filter(is_plain).map(|own| own.name.clone());
            Ok(names.filter(is_right).collect())
        }
        JoinConstraint::UsingAlias(..) => Err(SqlError::unsupported("an alias of USING")),
    }
}

/// The columns of both sides.
fn combined<'s>(mut left: Scope<'s>, right: Scope<'s>) -> SqlResult<Scope<'s>> {
    right.tables.into_iter().try_for_each(|table| left.push_table(table))?;
    let shifted = right.columns.into_iter();
    let width = left.width;
    left.columns.extend(shifted.map(|own| {
        let at = own.at + width;
        ScopeColumn { at, place: at, ..own }
    }));
    left.width += right.width;
    Ok(left)
}

/// The plan with the columns behind it that are of neither side, and the scope with all that USING
/// has made as the first ones.
fn with_merged(
    plan: Plan,
    merged: Vec<(String, Expr, SqlType)>,
    table: &TableName,
    scope: &mut Scope<'_>,
) -> Plan {
    let mut exprs: Vec<Expr> = (0..scope.width).map(Expr::Column).collect();
    let mut columns = Vec::new();
    for (name, expr, ty) in merged {
        let at = match expr {
            Expr::Column(at) => at,
            expr => {
                exprs.push(expr);
                exprs.len() - 1
            }
        };
        columns.push(ScopeColumn {
            table: Some(table.clone()),
            name,
            ty,
            at,
            place: at,
            is_plain: true,
            is_shown: false,
            is_row: false,
            may_be_filled: false,
        });
    }
    columns.append(&mut scope.columns);
    scope.columns = columns;
    if exprs.len() == scope.width {
        return plan;
    }
    scope.width = exprs.len();
    Plan::Project { input: Box::new(plan), exprs: exprs.into() }
}

fn merged_column<'c>(
    columns: &'c [ScopeColumn],
    name: &str,
    side: &str,
) -> SqlResult<&'c ScopeColumn> {
    let mut found = columns.iter().filter(|own| own.is_plain && own.name == name);
    let column = found.next().ok_or_else(|| {
        let message =
            format!("column \"{name}\" specified in USING clause does not exist in {side} table");
        SqlError::new(SqlState::UNDEFINED_COLUMN, message)
    })?;
    if found.next().is_some() {
        let message =
            format!("common column name \"{name}\" appears more than once in {side} table");
        return Err(SqlError::new(SqlState::AMBIGUOUS_COLUMN, message));
    }
    Ok(column)
}

pub(super) fn join_kind(operator: &JoinOperator) -> SqlResult<(JoinKind, &JoinConstraint)> {
    Ok(match operator {
        JoinOperator::Join(own) | JoinOperator::Inner(own) | JoinOperator::CrossJoin(own) => {
            (JoinKind::Inner, own)
        }
        JoinOperator::Left(own) | JoinOperator::LeftOuter(own) => (JoinKind::Left, own),
        JoinOperator::Right(own) | JoinOperator::RightOuter(own) => (JoinKind::Right, own),
        JoinOperator::FullOuter(own) => (JoinKind::Full, own),
        _ => return Err(SqlError::unsupported("this kind of join")),
    })
}
