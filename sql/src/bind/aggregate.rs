//! Aggregates and groups.

use sqlparser::ast::{
    self, DuplicateTreatment, FunctionArg, FunctionArgExpr, FunctionArgumentClause,
    FunctionArguments,
};

use super::stage::Stage;
use super::{Binder, refuse};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::functions::{ResolvedAggregate, is_aggregate, is_ordered_set, resolve_aggregate};
use crate::plan::{AggregateCall, Expr, SortKey, Typed};
use crate::types::SqlType;
use crate::types::cast::CastContext;

impl Binder<'_> {
    /// Adds what WITHIN GROUP orders by to the arguments and the order of a call.
    fn within_group(
        &mut self,
        key: &ast::OrderByExpr,
        (given, order): (&mut Vec<Typed>, &mut Vec<SortKey>),
        stage: &mut Stage<'_>,
    ) -> SqlResult<()> {
        // What is in the parentheses is the same for all rows.
        let is_same = given.iter().all(|own| own.expr.columns().is_empty());
        refuse(!is_same, "columns as direct arguments of an ordered-set aggregate")?;
        let value = self.expr(&key.expr, stage)?;
        let value = self.settle_type(value)?;
        order.push(super::query::sort_key(value.expr.clone(), key)?);
        given.push(value);
        Ok(())
    }

    /// A call of an aggregate: a column behind the keys of the groups. `None` if there is no
    /// aggregate of that name.
    pub(super) fn aggregate(
        &mut self,
        name: &str,
        function: &ast::Function,
        stage: &mut Stage<'_>,
    ) -> SqlResult<Option<Typed>> {
        if !is_aggregate(name) {
            return Ok(None);
        }
        let Some(grouping) = &stage.grouping else {
            let message = format!("aggregate functions are not allowed in {}", stage.clause);
            return Err(SqlError::new(SqlState::GROUPING_ERROR, message));
        };
        let first = grouping.keys.len();
        if let Some(at) = grouping.calls.iter().position(|(own, ..)| own == function) {
            let ty = grouping.calls.get(at).map_or(SqlType::UNKNOWN, |(.., ty)| *ty);
            return Ok(Some(Typed::new(Expr::Column(first + at), ty)));
        }
        let ast::Function {
            name: _,
            uses_odbc_syntax: _,
            parameters,
            args,
            within_group,
            filter,
            null_treatment,
            over: _,
        } = function;
        refuse(*parameters != FunctionArguments::None, "parameters of a function")?;
        check_within_group(name, function)?;
        refuse(null_treatment.is_some(), "IGNORE NULLS")?;
        let FunctionArguments::List(list) = args else {
            return Err(SqlError::unsupported("an aggregate without arguments in parentheses"));
        };
        let width = grouping.width + grouping.applies.len();
        let clause = "an aggregate function's arguments";
        let mut inner = Stage { width, ..Stage::new(grouping.input, clause) };
        let ast::FunctionArgumentList { duplicate_treatment, args, clauses } = list;
        let (mut given, mut order) = self.aggregate_arguments(args, clauses, &mut inner)?;
        if let [key] = within_group.as_slice() {
            self.within_group(key, (&mut given, &mut order), &mut inner)?;
        }
        let is_distinct = *duplicate_treatment == Some(DuplicateTreatment::Distinct);
        let filter = match filter {
            Some(filter) => {
                let filter = self.expr(filter, &mut inner)?;
                Some(self.condition(filter, "FILTER")?)
            }
            None => None,
        };
        if inner.applies.is_empty() && is_of_outer(given.iter().map(|own| &own.expr).chain(&filter))
        {
            let what = "an aggregate over columns of an outer query only";
            return Err(SqlError::unsupported(what));
        }
        let applies = inner.applies;
        let types: Vec<SqlType> = given.iter().map(|own| own.ty).collect();
        let resolved = resolve_aggregate(name, &types)?
            .ok_or_else(|| SqlError::internal(format!("{name} is no aggregate")))?;
        if is_ordered_set(name) && within_group.is_empty() {
            let message = format!("WITHIN GROUP is required for ordered-set aggregate {name}");
            return Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message));
        }
        let mut arguments = self.taken_by(given, &resolved)?;
        if !is_distinct {
            self.as_documents(name, &mut arguments, &resolved)?;
        }
        let ty = resolved.returns;
        let call = AggregateCall { function: resolved, arguments, is_distinct, filter, order };
        let Some(grouping) = &mut stage.grouping else {
            return Err(SqlError::internal("groups are gone"));
        };
        grouping.applies.extend(applies);
        grouping.calls.push((function.clone(), call, ty));
        Ok(Some(Typed::new(Expr::Column(first + grouping.calls.len() - 1), ty)))
    }

    /// Arguments as an aggregate takes them.
    pub(super) fn taken_by(
        &mut self,
        given: Vec<Typed>,
        aggregate: &ResolvedAggregate,
    ) -> SqlResult<Vec<Expr>> {
        let types = aggregate.arguments.iter();
        let taken = given.into_iter().zip(types);
        taken.map(|(own, ty)| self.coerce(own, *ty, CastContext::Implicit)).collect()
    }

    /// The arguments of an aggregate, and the order in which it takes them.
    fn aggregate_arguments(
        &mut self,
        args: &[FunctionArg],
        clauses: &[FunctionArgumentClause],
        inner: &mut Stage<'_>,
    ) -> SqlResult<(Vec<Typed>, Vec<SortKey>)> {
        let is_star = matches!(args, [FunctionArg::Unnamed(FunctionArgExpr::Wildcard)]);
        let given = if is_star { Vec::new() } else { self.arguments(args, inner)? };
        let mut order = Vec::new();
        for clause in clauses {
            let FunctionArgumentClause::OrderBy(keys) = clause else {
                return Err(SqlError::unsupported(format!("{clause} of an aggregate")));
            };
            for key in keys {
                let expr = self.expr(&key.expr, inner)?;
                order.push(super::query::sort_key(self.settle_type(expr)?.expr, key)?);
            }
        }
        Ok((given, order))
    }
}

/// Whether expressions name columns of outer queries, and none of their own: an aggregate of them
/// is one of the outer query.
fn is_of_outer<'e>(exprs: impl Iterator<Item = &'e Expr>) -> bool {
    let (mut names_own, mut names_outer) = (false, false);
    for expr in exprs {
        expr.visit(&mut |own| {
            names_own |= matches!(own, Expr::Column(_));
            names_outer |= matches!(own, Expr::Outer { .. });
        });
    }
    names_outer && !names_own
}

/// Refuses a call that has WITHIN GROUP where it may not, or not where it has to.
fn check_within_group(name: &str, function: &ast::Function) -> SqlResult<()> {
    let (is_given, is_needed) = (!function.within_group.is_empty(), is_ordered_set(name));
    if is_given && !is_needed {
        let message =
            format!("{name} is not an ordered-set aggregate, so it cannot have WITHIN GROUP");
        return Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message));
    }
    let FunctionArguments::List(list) = &function.args else { return Ok(()) };
    if is_given && list.duplicate_treatment == Some(DuplicateTreatment::Distinct) {
        let message = "cannot use DISTINCT with WITHIN GROUP";
        return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
    }
    if is_given && !list.clauses.is_empty() {
        let message = "cannot use multiple ORDER BY clauses with WITHIN GROUP";
        return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
    }
    refuse(function.within_group.len() > 1, "an order of several in WITHIN GROUP")
}

/// Whether an expression calls an aggregate of its own query.
pub(super) fn has_aggregate(expr: &ast::Expr) -> bool {
    struct Search(bool, usize);
    impl ast::Visitor for Search {
        type Break = ();
        fn pre_visit_query(&mut self, _: &ast::Query) -> std::ops::ControlFlow<()> {
            self.1 += 1;
            std::ops::ControlFlow::Continue(())
        }
        fn post_visit_query(&mut self, _: &ast::Query) -> std::ops::ControlFlow<()> {
            self.1 -= 1;
            std::ops::ControlFlow::Continue(())
        }
        fn pre_visit_expr(&mut self, expr: &ast::Expr) -> std::ops::ControlFlow<()> {
            if let ast::Expr::Function(function) = expr
                && self.1 == 0
                && function.over.is_none()
                && let Some(ast::ObjectNamePart::Identifier(name)) = function.name.0.last()
                && is_aggregate(&super::fold(name))
            {
                self.0 = true;
            }
            std::ops::ControlFlow::Continue(())
        }
    }
    let mut search = Search(false, 0);
    let _ = ast::Visit::visit(expr, &mut search);
    search.0
}
