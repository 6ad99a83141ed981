//! RETURNING, whose subqueries see the tables as they were before the change.
//!
//! They are applied to the rows of the source, which are all read before the first is changed. What
//! they name of the new row has to be there already: an UPDATE computes it below them.

use sqlparser::ast::SelectItem;

use super::scope::Scope;
use super::select_list::Item;
use super::stage::{PendingApply, Stage, with_applies};
use super::{Binder, OutputColumn};
use crate::catalogue::TableDef;
use crate::error::SqlResult;
use crate::plan::{Assignments, Expr, Plan, Typed};

/// What a statement that changes rows gives of each.
#[derive(Default)]
pub(super) struct Returning {
    /// Over the row that is changed, what its source gives behind it, and what the subqueries give.
    pub(super) exprs: Option<Vec<Expr>>,
    pub(super) columns: Vec<OutputColumn>,
    pub(super) applies: Vec<PendingApply>,
}

/// The rows that an UPDATE or DELETE changes, and how.
pub(super) struct Changed {
    pub(super) source: Plan,
    /// The columns of the source.
    pub(super) width: usize,
    /// `None` deletes.
    pub(super) assignments: Option<Assignments>,
}

impl Binder<'_> {
    /// What RETURNING gives, over rows of `width` columns.
    pub(super) fn returning(
        &mut self,
        items: Option<&[SelectItem]>,
        scope: &Scope<'_>,
        width: usize,
    ) -> SqlResult<Returning> {
        let Some(items) = items else { return Ok(Returning::default()) };
        let items = self.items(items, scope)?;
        let mut stage = Stage { width, ..Stage::new(scope, "RETURNING") };
        let (mut exprs, mut columns) = (Vec::new(), Vec::new());
        for Item { expr, name } in &items {
            let bound = self.expr(expr, &mut stage)?;
            let Typed { expr, ty } = self.settle_type(bound)?;
            exprs.push(expr);
            columns.push(OutputColumn::new(&**name, ty));
        }
        Ok(Returning { exprs: Some(exprs), columns, applies: stage.applies })
    }

    /// What RETURNING gives of the rows that an UPDATE or DELETE changes. Its subqueries become
    /// part of their source.
    pub(super) fn returning_changed(
        &mut self,
        items: Option<&[SelectItem]>,
        scope: &Scope<'_>,
        table: &TableDef,
        changed: &mut Changed,
    ) -> SqlResult<(Option<Vec<Expr>>, Vec<OutputColumn>)> {
        let own = table.columns.len();
        let shift = if changed.assignments.is_some() { own } else { 0 };
        // Between the row and what subqueries give stand the old values, where there are new ones.
        let Returning { mut exprs, columns, applies } =
            self.returning(items, scope, changed.width + shift)?;
        if applies.is_empty() {
            return Ok((exprs, columns));
        }
        let (width, count) = (changed.width, applies.len());
        let source = std::mem::replace(&mut changed.source, Plan::One);
        let Some(assignments) = &mut changed.assignments else {
            changed.source = with_applies(source, applies);
            changed.width += count;
            return Ok((exprs, columns));
        };
        // The new row, what the source gives behind it, and the old row.
        let mut given: Vec<Expr> = (0..width).chain(0..own).map(Expr::Column).collect();
        for (at, value) in &*assignments {
            if let Some(place) = given.get_mut(*at) {
                *place = value.clone();
            }
        }
        let input = Plan::Project { input: Box::new(source), exprs: given.into() };
        let input = Box::new(with_applies(input, applies));
        // The old row first, as it is changed; the new values behind all else.
        let old = width..width + own;
        let behind = (own..width).chain(width + own..width + own + count);
        let new = assignments.iter().map(|(at, _)| *at);
        let given: Vec<Expr> = old.chain(behind).chain(new).map(Expr::Column).collect();
        changed.source = Plan::Project { input, exprs: given.into() };
        for (number, (_, value)) in assignments.iter_mut().enumerate() {
            *value = Expr::Column(width + count + number);
        }
        changed.width = width + count + assignments.len();
        for expr in exprs.iter_mut().flatten() {
            expr.visit_mut(&mut |part| match part {
                Expr::Column(at) if *at >= width + own => *at -= own,
                _ => {}
            });
        }
        Ok((exprs, columns))
    }
}
