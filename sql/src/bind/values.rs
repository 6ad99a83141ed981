//! VALUES: rows of expressions, each with subqueries of its own.

use sqlparser::ast;

use super::scope::Scope;
use super::stage::{PendingApply, Stage, with_applies};
use super::{Binder, Bound, OutputColumn};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::plan::{Expr, Plan, SetOperator, Typed};
use crate::types::SqlType;
use crate::types::cast::{CastContext, common_type};

/// Expressions over no input row, and the subqueries whose columns they name.
pub(super) type ValuesRow<E> = (Vec<E>, Vec<PendingApply>);

impl Binder<'_> {
    /// VALUES as a query.
    pub(super) fn values(
        &mut self,
        values: &ast::Values,
        outer: Option<&Scope<'_>>,
    ) -> SqlResult<Bound> {
        let rows = self.rows_of_values(values, outer)?;
        let width = rows.first().map_or(0, |(row, _)| row.len());
        let mut columns = Vec::new();
        for at in 0..width {
            let types: Vec<SqlType> =
                rows.iter().filter_map(|(row, _)| Some(row.get(at)?.ty)).collect();
            let ty = common_type(&types)?;
            columns.push(OutputColumn::new(format!("column{}", at + 1), ty));
        }
        let mut cast = Vec::with_capacity(rows.len());
        for (row, applies) in rows {
            let row = row.into_iter().zip(&columns);
            let row = row.map(|(value, to)| self.coerce(value, to.ty, CastContext::Implicit));
            cast.push((row.collect::<SqlResult<_>>()?, applies));
        }
        Ok(Bound { plan: plan_of_rows(cast, width), columns })
    }

    /// The rows of VALUES, each as long as the others.
    fn rows_of_values(
        &mut self,
        values: &ast::Values,
        outer: Option<&Scope<'_>>,
    ) -> SqlResult<Vec<ValuesRow<Typed>>> {
        let ast::Values { explicit_row: _, value_keyword: _, rows } = values;
        let scope = Scope::inside(outer);
        let mut all: Vec<ValuesRow<Typed>> = Vec::new();
        for row in rows {
            let mut stage = Stage::new(&scope, "VALUES");
            let row = row.content.iter().map(|value| self.expr(value, &mut stage));
            let row = row.collect::<SqlResult<Vec<_>>>()?;
            if all.first().is_some_and(|(first, _)| first.len() != row.len()) {
                let message = "VALUES lists must all be the same length";
                return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
            }
            all.push((row, stage.applies));
        }
        Ok(all)
    }
}

/// The plan that gives these rows, in this order.
pub(super) fn plan_of_rows(rows: Vec<ValuesRow<Expr>>, width: usize) -> Plan {
    let (mut parts, mut plain) = (Vec::new(), Vec::new());
    for (exprs, applies) in rows {
        if applies.is_empty() {
            plain.push(exprs);
            continue;
        }
        if !plain.is_empty() {
            parts.push(Plan::Values { rows: std::mem::take(&mut plain), width });
        }
        let input = Box::new(with_applies(Plan::One, applies));
        parts.push(Plan::Project { input, exprs: exprs.into() });
    }
    if !plain.is_empty() || parts.is_empty() {
        parts.push(Plan::Values { rows: plain, width });
    }
    // Pairs of pairs: the plan of many rows is not as deep as they are many.
    while parts.len() > 1 {
        let mut pairs = Vec::with_capacity(parts.len().div_ceil(2));
        let mut each = parts.into_iter();
        while let Some(left) = each.next() {
            pairs.push(match each.next() {
                Some(right) => {
                    let (operator, all) = (SetOperator::Union, true);
                    let (left, right) = (Box::new(left), Box::new(right));
                    Plan::Set { operator, all, left, right }
                }
                None => left,
            });
        }
        parts = pairs;
    }
    parts.pop().unwrap_or(Plan::Nothing { width })
}
