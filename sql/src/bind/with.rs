//! WITH: common table expressions.

use std::sync::Arc;

use sqlparser::ast::{self, CteAsMaterialized, Query, SetExpr, SetQuantifier, Statement};

use super::query::rename;
use super::scope::Scope;
use super::{Binder, Bound, NamedQuery, fold, refuse};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::plan::{Plan, Reuse, SetOperator};

/// The statement behind WITH that changes rows, if a query is none but that.
pub(crate) fn changed_by(query: &Query) -> Option<&Statement> {
    match &*query.body {
        SetExpr::Insert(change) | SetExpr::Update(change) | SetExpr::Delete(change) => Some(change),
        _ => None,
    }
}

impl Binder<'_> {
    /// What stands around a statement that changes rows ([`changed_by`]): it can name common table
    /// expressions from here on.
    pub(crate) fn before_change(&mut self, query: &Query) -> SqlResult<()> {
        let is_bare = query.order_by.is_none() && query.limit_clause.is_none();
        refuse(!is_bare, "ORDER BY or LIMIT of a statement that changes rows")?;
        refuse_others(query)?;
        let may_change = std::mem::take(&mut self.may_change);
        query.with.iter().try_for_each(|with| self.with(with, None, may_change))
    }

    /// The common table expressions of a WITH, which may be such that change rows.
    pub(super) fn with(
        &mut self,
        with: &ast::With,
        outer: Option<&Scope<'_>>,
        may_change: bool,
    ) -> SqlResult<()> {
        let ast::With { with_token: _, recursive, cte_tables } = with;
        for (at, cte) in cte_tables.iter().enumerate() {
            let ast::Cte { alias, query, from, materialized, closing_paren_token: _ } = cte;
            refuse(from.is_some(), "FROM of a common table expression")?;
            let name = fold(&alias.name);
            if cte_tables.iter().take(at).any(|own| fold(&own.alias.name) == name) {
                let message = format!("WITH query name \"{name}\" specified more than once");
                let error = SqlError::new(SqlState::DUPLICATE_ALIAS, message);
                return Err(self.place(error, &ast::ObjectName::from(vec![alias.name.clone()])));
            }
            let names: Vec<String> = alias.columns.iter().map(|own| fold(&own.name)).collect();
            let (number, is_recursive) = (self.shared, *recursive && names_itself(query, &name));
            self.shared += 1;
            let mut bound = if is_recursive {
                let known = self.queries.len();
                let bound = self.recursive_query((&name, &names), query, number, outer);
                self.queries.truncate(known);
                bound?
            } else if let Some(change) = changed_by(query) {
                if !may_change {
                    let message = "WITH clause containing a data-modifying statement must be at \
                                   the top level";
                    let error = SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message);
                    return Err(self.place(error, &ast::ObjectName::from(vec![alias.name.clone()])));
                }
                self.changing_query(query, change)?
            } else {
                self.query(query, outer)?
            };
            rename(&mut bound.columns, &names, &name)?;
            let Bound { plan, columns } = bound;
            let changes = matches!(plan, Plan::Insert(_) | Plan::Modify(_));
            let reuse = match materialized {
                _ if changes => Reuse::Always,
                Some(CteAsMaterialized::Materialized) => Reuse::Always,
                Some(CteAsMaterialized::NotMaterialized) => Reuse::Never,
                None => Reuse::IfShared,
            };
            let plan = Plan::Shared { number, plan: Arc::new(plan), reuse };
            if changes {
                self.changes.push(plan.clone());
            }
            self.queries.push(NamedQuery { name, columns, plan });
        }
        Ok(())
    }

    /// A common table expression that changes rows.
    fn changing_query(&mut self, query: &Query, change: &Statement) -> SqlResult<Bound> {
        let known = self.queries.len();
        let bound = self.before_change(query).and_then(|()| match change {
            Statement::Insert(insert) => self.insert(insert),
            Statement::Update(update) => self.update(update),
            Statement::Delete(delete) => self.delete(delete),
            other => Err(SqlError::unsupported(format!("{other} in WITH"))),
        });
        self.queries.truncate(known);
        bound
    }

    fn recursive_query(
        &mut self,
        (name, names): (&str, &[String]),
        query: &Query,
        number: usize,
        outer: Option<&Scope<'_>>,
    ) -> SqlResult<Bound> {
        if changed_by(query).is_some() {
            let message =
                format!("recursive query \"{name}\" must not contain data-modifying statements");
            return Err(SqlError::new(SqlState::INVALID_RECURSION, message));
        }
        let SetExpr::SetOperation { left, op: ast::SetOperator::Union, set_quantifier, right } =
            &*query.body
        else {
            let message = format!(
                "recursive query \"{name}\" does not have the form non-recursive-term UNION [ALL] recursive-term"
            );
            return Err(SqlError::new(SqlState::INVALID_RECURSION, message));
        };
        let is_bare = query.order_by.is_none() && query.limit_clause.is_none();
        refuse(!is_bare, "ORDER BY or LIMIT in a recursive query")?;
        refuse_others(query)?;
        if let Some(with) = &query.with {
            let is_within = with.cte_tables.iter().any(|own| names_itself(&own.query, name));
            refuse(is_within, "a recursive query that is named within its WITH")?;
            self.with(with, outer, false)?;
        }
        let mut first = self.part(left, outer)?;
        rename(&mut first.columns, names, name)?;
        let plan = Plan::Working { number, width: first.columns.len() };
        let columns = first.columns.clone();
        self.queries.push(NamedQuery { name: name.to_owned(), columns: columns.clone(), plan });
        let next = self.part_for(right, outer, true);
        self.queries.pop();
        let (first, next) = self.same_columns(first, next?, SetOperator::Union)?;
        // The rows of a round are read by the next, which was bound by the types of the first.
        for (at, (own, overall)) in (1..).zip(columns.iter().zip(&first.columns)) {
            if own.ty.plain() != overall.ty.plain() {
                let (own, overall) = (own.ty.plain().name(), overall.ty.plain().name());
                let message = format!(
                    "recursive query \"{name}\" column {at} has type {own} in non-recursive term but type {overall} overall"
                );
                let hint = "Cast the output of the non-recursive term to the correct type.";
                return Err(SqlError::new(SqlState::DATATYPE_MISMATCH, message).hint(hint));
            }
        }
        let all = *set_quantifier == SetQuantifier::All;
        let (columns, next) = (first.columns, Box::new(next.plan));
        let plan = Plan::Recursive { number, first: Box::new(first.plan), next, all };
        Ok(Bound { plan, columns })
    }
}

/// Refuses what stands behind the order and the limit of a query.
fn refuse_others(query: &Query) -> SqlResult<()> {
    let Query {
        with: _,
        body: _,
        order_by: _,
        limit_clause: _,
        fetch,
        locks,
        for_clause,
        settings,
        format_clause,
        pipe_operators,
    } = query;
    refuse(fetch.is_some(), "FETCH here")?;
    refuse(!locks.is_empty(), "FOR UPDATE or FOR SHARE here")?;
    let is_odd = for_clause.is_some() || settings.is_some() || format_clause.is_some();
    refuse(is_odd || !pipe_operators.is_empty(), "a clause behind this query")
}

fn names_itself(query: &Query, name: &str) -> bool {
    let mut found = false;
    let _ = ast::visit_relations(query, |own| {
        let is_it = matches!(&*own.0, [ast::ObjectNamePart::Identifier(own)] if fold(own) == name);
        found |= is_it;
        std::ops::ControlFlow::<()>::Continue(())
    });
    found
}
