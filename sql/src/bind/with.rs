//! WITH: common table expressions.

use std::sync::Arc;

use sqlparser::ast::{self, Query, SetExpr, SetQuantifier};

use super::query::rename;
use super::scope::Scope;
use super::{Binder, Bound, NamedQuery, fold, refuse};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::plan::{Plan, SetOperator};

impl Binder<'_> {
    pub(super) fn with(&mut self, with: &ast::With, outer: Option<&Scope<'_>>) -> SqlResult<()> {
        let ast::With { with_token: _, recursive, cte_tables } = with;
        for cte in cte_tables {
            let ast::Cte { alias, query, from, materialized: _, closing_paren_token: _ } = cte;
            refuse(from.is_some(), "FROM of a common table expression")?;
            let name = fold(&alias.name);
            let names: Vec<String> = alias.columns.iter().map(|own| fold(&own.name)).collect();
            let (number, is_recursive) = (self.shared, *recursive && names_itself(query, &name));
            self.shared += 1;
            let mut bound = if is_recursive {
                self.recursive_query((&name, &names), query, number, outer)?
            } else {
                self.query(query, outer)?
            };
            rename(&mut bound.columns, &names, &name)?;
            let Bound { plan, columns } = bound;
            let plan = Plan::Shared { number, plan: Arc::new(plan) };
            self.queries.push(NamedQuery { name, columns, plan });
        }
        Ok(())
    }

    fn recursive_query(
        &mut self,
        (name, names): (&str, &[String]),
        query: &Query,
        number: usize,
        outer: Option<&Scope<'_>>,
    ) -> SqlResult<Bound> {
        let SetExpr::SetOperation { left, op: ast::SetOperator::Union, set_quantifier, right } =
            &*query.body
        else {
            let message = format!(
                "recursive query \"{name}\" does not have the form non-recursive-term UNION [ALL] recursive-term"
            );
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
        };
        let is_bare = query.order_by.is_none() && query.limit_clause.is_none();
        refuse(!is_bare, "ORDER BY or LIMIT in a recursive query")?;
        let mut first = self.part(left, outer)?;
        rename(&mut first.columns, names, name)?;
        let plan = Plan::Working { number, width: first.columns.len() };
        let (name, columns) = (name.to_owned(), first.columns.clone());
        self.queries.push(NamedQuery { name, columns, plan });
        let next = self.part(right, outer);
        self.queries.pop();
        let (first, next) = self.same_columns(first, next?, SetOperator::Union)?;
        let all = *set_quantifier == SetQuantifier::All;
        let (columns, next) = (first.columns, Box::new(next.plan));
        let plan = Plan::Recursive { number, first: Box::new(first.plan), next, all };
        Ok(Bound { plan, columns })
    }
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
