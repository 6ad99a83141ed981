//! Queries.

use std::sync::Arc;

use sqlparser::ast::{
    self, Expr as Ast, LimitClause, OrderByExpr, OrderByKind, OrderBySort, Query, SetExpr,
    SetQuantifier,
};

use super::scope::Scope;
use super::select_list::output_position;
use super::stage::Stage;
use super::{Binder, Bound, NamedQuery, OutputColumn, fold, refuse};
use crate::catalogue::TableDef;
use crate::error::{SqlError, SqlResult, SqlState};
use crate::plan::{Expr, Plan, SetOperator, SortKey, Typed, check_depth};
use crate::types::cast::{CastContext, common_type};
use crate::types::{Datum, SqlType};

/// What stands around the body of a query.
pub(super) struct Tail<'q> {
    pub(super) order: &'q [OrderByExpr],
    pub(super) limit: Option<Expr>,
    pub(super) offset: Option<Expr>,
    pub(super) locks: &'q [ast::LockClause],
    /// Whether literals and parameters of the output may be left without a type, which what the
    /// query is for gives them.
    pub(super) is_open: bool,
}

/// The columns of a table that is named in FROM, where it can be locked.
pub(super) struct LockableTable {
    pub(super) name: String,
    pub(super) table: Arc<TableDef>,
    pub(super) first_column: usize,
}

impl Binder<'_> {
    /// A query that is a statement of its own.
    pub(crate) fn statement(&mut self, query: &Query) -> SqlResult<Bound> {
        self.query(query, None)
    }

    /// The same, and those of its common table expressions that change rows.
    pub(crate) fn changing_statement(&mut self, query: &Query) -> SqlResult<(Bound, Vec<Plan>)> {
        self.may_change = true;
        let bound = self.statement(query)?;
        Ok((bound, std::mem::take(&mut self.changes)))
    }

    /// A query within an expression, and whether it names columns of the row there.
    pub(super) fn subquery(
        &mut self,
        query: &Query,
        stage: &Stage<'_>,
    ) -> SqlResult<(Bound, bool)> {
        self.inner_query(query, Some(stage.scope))
    }

    /// A query inside of a scope, and whether it names columns of that.
    pub(super) fn inner_query(
        &mut self,
        query: &Query,
        outer: Option<&Scope<'_>>,
    ) -> SqlResult<(Bound, bool)> {
        let before = std::mem::replace(&mut self.reached, usize::MAX);
        let bound = self.query(query, outer);
        let is_correlated = outer.is_some_and(|outer| self.reached <= outer.depth);
        self.reached = self.reached.min(before);
        Ok((bound?, is_correlated))
    }

    pub(super) fn query(&mut self, query: &Query, outer: Option<&Scope<'_>>) -> SqlResult<Bound> {
        self.query_for(query, outer, false)
    }

    /// As [`query`](Self::query), of which literals and parameters may be left without a type.
    #[recursive::recursive]
    pub(super) fn query_for(
        &mut self,
        query: &Query,
        outer: Option<&Scope<'_>>,
        is_open: bool,
    ) -> SqlResult<Bound> {
        let known = self.queries.len();
        let bound = self.query_with(query, outer, is_open);
        self.queries.truncate(known);
        // Before others are made of it.
        bound.and_then(|bound| check_depth(&bound.plan).map(|()| bound))
    }

    fn query_with(
        &mut self,
        query: &Query,
        outer: Option<&Scope<'_>>,
        is_open: bool,
    ) -> SqlResult<Bound> {
        let Query {
            with,
            body,
            order_by,
            limit_clause,
            fetch,
            locks,
            for_clause,
            settings,
            format_clause,
            pipe_operators,
        } = query;
        let may_change = std::mem::take(&mut self.may_change);
        refuse(for_clause.is_some(), "FOR XML or JSON")?;
        refuse(settings.is_some() || format_clause.is_some(), "SETTINGS or FORMAT")?;
        refuse(!pipe_operators.is_empty(), "a pipe")?;
        if let Some(with) = with {
            self.with(with, outer, may_change)?;
        }
        let order = match order_by {
            None => &[][..],
            Some(ast::OrderBy { kind, interpolate }) => {
                refuse(interpolate.is_some(), "INTERPOLATE")?;
                match kind {
                    OrderByKind::Expressions(order) => order,
                    OrderByKind::All(_) => return Err(SqlError::unsupported("ORDER BY ALL")),
                }
            }
        };
        let (mut limit, mut offset) = (None, None);
        match limit_clause {
            None => {}
            Some(LimitClause::LimitOffset { limit: most, offset: left_out, limit_by }) => {
                refuse(!limit_by.is_empty(), "LIMIT BY")?;
                limit = most.as_ref().map(|most| self.count(most, "LIMIT")).transpose()?;
                let left_out = left_out.as_ref().map(|own| self.count(&own.value, "OFFSET"));
                offset = left_out.transpose()?;
            }
            Some(LimitClause::OffsetCommaLimit { .. }) => {
                let message = "LIMIT #,# syntax is not supported";
                let hint = "Use separate LIMIT and OFFSET clauses.";
                return Err(SqlError::new(SqlState::SYNTAX_ERROR, message).hint(hint));
            }
        }
        if let Some(ast::Fetch { with_ties, percent, quantity }) = fetch {
            refuse(*with_ties, "FETCH WITH TIES")?;
            refuse(*percent, "FETCH PERCENT")?;
            let one = || Ok(Expr::Const(Datum::I64(1)));
            limit = Some(quantity.as_ref().map_or_else(one, |own| self.count(own, "FETCH"))?);
        }
        let tail = Tail { order, limit, offset, locks, is_open };
        self.body(body, tail, outer)
    }

    /// A number of rows.
    fn count(&mut self, ast: &Ast, clause: &'static str) -> SqlResult<Expr> {
        let scope = Scope::inside(None);
        let mut stage = Stage::new(&scope, clause);
        let count = self.expr(ast, &mut stage)?;
        refuse(!stage.applies.is_empty(), "a subquery as a number of rows")?;
        self.coerce(count, SqlType::INT8, CastContext::Assignment)
    }

    #[recursive::recursive]
    fn body(
        &mut self,
        body: &SetExpr,
        tail: Tail<'_>,
        outer: Option<&Scope<'_>>,
    ) -> SqlResult<Bound> {
        match body {
            SetExpr::Select(select) => self.select(select, tail, outer),
            SetExpr::Query(query) => {
                let bound = self.query_for(query, outer, tail.is_open)?;
                self.tail_of_output(bound, tail)
            }
            SetExpr::Values(values) => {
                let bound = self.values(values, outer)?;
                self.tail_of_output(bound, tail)
            }
            SetExpr::SetOperation { left, op, set_quantifier, right } => {
                let bound = self.set_operation((left, right), *op, *set_quantifier, outer)?;
                self.tail_of_output(bound, tail)
            }
            SetExpr::Table(_)
            | SetExpr::Insert(_)
            | SetExpr::Update(_)
            | SetExpr::Delete(_)
            | SetExpr::Merge(_) => {
                Err(SqlError::unsupported("a statement that changes rows within a query"))
            }
        }
    }

    pub(super) fn part(&mut self, body: &SetExpr, outer: Option<&Scope<'_>>) -> SqlResult<Bound> {
        self.part_for(body, outer, false)
    }

    pub(super) fn part_for(
        &mut self,
        body: &SetExpr,
        outer: Option<&Scope<'_>>,
        is_open: bool,
    ) -> SqlResult<Bound> {
        self.body(body, Tail { order: &[], limit: None, offset: None, locks: &[], is_open }, outer)
    }

    fn set_operation(
        &mut self,
        (left, right): (&SetExpr, &SetExpr),
        op: ast::SetOperator,
        quantifier: SetQuantifier,
        outer: Option<&Scope<'_>>,
    ) -> SqlResult<Bound> {
        let all = match quantifier {
            SetQuantifier::All => true,
            SetQuantifier::Distinct | SetQuantifier::None => false,
            _ => return Err(SqlError::unsupported("a set operation BY NAME")),
        };
        let operator = match op {
            ast::SetOperator::Union => SetOperator::Union,
            ast::SetOperator::Intersect => SetOperator::Intersect,
            ast::SetOperator::Except | ast::SetOperator::Minus => SetOperator::Except,
        };
        let (left, right) = (self.part_for(left, outer, true)?, self.part_for(right, outer, true)?);
        let (left, right) = self.same_columns(left, right, operator)?;
        let (columns, left, right) = (left.columns, Box::new(left.plan), Box::new(right.plan));
        Ok(Bound { plan: Plan::Set { operator, all, left, right }, columns })
    }

    /// Both sides with columns of the same types, and the names of the left.
    pub(super) fn same_columns(
        &mut self,
        mut left: Bound,
        mut right: Bound,
        operator: SetOperator,
    ) -> SqlResult<(Bound, Bound)> {
        let name = match operator {
            SetOperator::Union => "UNION",
            SetOperator::Intersect => "INTERSECT",
            SetOperator::Except => "EXCEPT",
        };
        if left.columns.len() != right.columns.len() {
            let message = format!("each {name} query must have the same number of columns");
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
        }
        let mut common = Vec::new();
        for at in 0..left.columns.len() {
            let types = [&left, &right].map(|own| own.columns.get(at).map(|own| own.ty));
            let types: Vec<SqlType> = types.into_iter().flatten().collect();
            let ty = common_type(&types).map_err(|_| unlike(name, &types))?;
            self.give_type(&mut left, at, ty, CastContext::Implicit)?;
            self.give_type(&mut right, at, ty, CastContext::Implicit)?;
            common.push(ty);
        }
        left.plan = self.cast_columns(left.plan, &left.columns, &common)?;
        right.plan = self.cast_columns(right.plan, &right.columns, &common)?;
        for (column, ty) in left.columns.iter_mut().zip(common) {
            (column.ty, column.origin) = (ty, None);
        }
        Ok((left, right))
    }

    fn cast_columns(
        &mut self,
        input: Plan,
        columns: &[OutputColumn],
        types: &[SqlType],
    ) -> SqlResult<Plan> {
        if columns.iter().zip(types).all(|(column, ty)| column.ty == *ty) {
            return Ok(input);
        }
        let cast = columns.iter().zip(types).enumerate().map(|(at, (column, ty))| {
            self.coerce(Typed::new(Expr::Column(at), column.ty), *ty, CastContext::Implicit)
        });
        let exprs = cast.collect::<SqlResult<_>>()?;
        Ok(Plan::Project { input: Box::new(input), exprs })
    }

    /// ORDER BY and LIMIT behind a query that has no FROM of its own: columns are named by what
    /// they are called in the output.
    fn tail_of_output(&mut self, bound: Bound, tail: Tail<'_>) -> SqlResult<Bound> {
        let Tail { order, limit, offset, locks, is_open: _ } = tail;
        refuse(!locks.is_empty(), "locks of rows of a set operation or VALUES")?;
        let mut bound = bound;
        let mut keys = Vec::new();
        for key in order {
            let at = match output_position(&key.expr, &bound.columns, "ORDER BY")? {
                Some(at) => at,
                None => {
                    return Err(SqlError::unsupported(
                        "an ORDER BY of a set operation by something else than its columns",
                    ));
                }
            };
            let is_like = |own: &&OutputColumn| matches!(&key.expr, Ast::Identifier(name) if own.name == fold(name));
            if bound.columns.iter().filter(is_like).count() > 1 {
                let message = format!("ORDER BY {} is ambiguous", key.expr);
                return Err(SqlError::new(SqlState::AMBIGUOUS_COLUMN, message));
            }
            self.give_type(&mut bound, at, SqlType::TEXT, CastContext::Implicit)?;
            keys.push(sort_key(Expr::Column(at), key)?);
        }
        let Bound { mut plan, columns } = bound;
        if !keys.is_empty() {
            plan = Plan::Sort { input: Box::new(plan), keys, first: None };
        }
        Ok(Bound { plan: limited(plan, limit, offset), columns })
    }

    /// A common table expression by its name, the innermost first.
    pub(super) fn named_query(&self, name: &str) -> Option<NamedQuery> {
        self.queries.iter().rev().find(|query| query.name == name).cloned()
    }
}

/// Gives columns the names of an alias, the first ones first.
pub(super) fn rename(columns: &mut [OutputColumn], names: &[String], table: &str) -> SqlResult<()> {
    if names.len() > columns.len() {
        let message = format!(
            "table \"{table}\" has {} columns available but {} columns specified",
            columns.len(),
            names.len()
        );
        return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
    }
    for (column, name) in columns.iter_mut().zip(names) {
        name.clone_into(&mut column.name);
    }
    Ok(())
}

/// The error of two columns of a set operation that have no type in common.
fn unlike(operator: &str, types: &[SqlType]) -> SqlError {
    let names: Vec<String> = types.iter().map(|ty| ty.plain().name()).collect();
    let message = format!("{operator} types {} cannot be matched", names.join(" and "));
    SqlError::new(SqlState::DATATYPE_MISMATCH, message)
}

pub(super) fn sort_key(expr: Expr, key: &OrderByExpr) -> SqlResult<SortKey> {
    let OrderByExpr { expr: _, options, with_fill } = key;
    refuse(with_fill.is_some(), "WITH FILL")?;
    let descending = match &options.sort {
        None | Some(OrderBySort::Asc) => false,
        Some(OrderBySort::Desc) => true,
        Some(OrderBySort::Using(_)) => return Err(SqlError::unsupported("ORDER BY USING")),
    };
    Ok(SortKey { expr, descending, nulls_first: options.nulls_first.unwrap_or(descending) })
}

pub(super) fn limited(plan: Plan, limit: Option<Expr>, offset: Option<Expr>) -> Plan {
    if limit.is_none() && offset.is_none() {
        return plan;
    }
    Plan::Limit { input: Box::new(plan), limit, offset }
}
