//! SELECT without what stands around it.

use std::sync::Arc;

use sqlparser::ast::{
    self, Distinct, Expr as Ast, GroupByExpr, LockType, NonBlock, OrderByExpr, Select,
};

use super::aggregate::has_aggregate;
use super::grouping_sets::{input_of_sets, lists_of, plan_of_sets};
use super::groups::{NamedColumns, add_dependent, are_same, grouped_scope};
use super::open_type::is_open;
use super::query::{LockableTable, Tail, limited, sort_key};
use super::scope::Scope;
use super::select_list::{Item, output_position, without_parentheses};
use super::stage::{Grouping, Stage, settle, settle_compared, with_applies};
use super::{Binder, Bound, OutputColumn, fold, name_parts, origin_of, refuse};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::plan::{Expr, LockRows, Locking, Plan, SortKey, Typed};
use crate::roles::Privileges;

/// The parts of a SELECT that are looked at.
struct Parts<'q> {
    distinct: Option<&'q Distinct>,
    projection: &'q [ast::SelectItem],
    from: &'q [ast::TableWithJoins],
    selection: Option<&'q Ast>,
    group_by: &'q [Ast],
    having: Option<&'q Ast>,
    named_windows: &'q [ast::NamedWindowDefinition],
}

impl Parts<'_> {
    /// The columns that are named where only groups can be named.
    fn named_behind_groups(&self, items: &[Item], order: &[OrderByExpr]) -> NamedColumns {
        let mut named = NamedColumns::default();
        items.iter().for_each(|item| named.add(&item.expr));
        self.having.iter().for_each(|having| named.add(*having));
        order.iter().for_each(|key| named.add(key));
        self.named_windows.iter().for_each(|window| named.add(window));
        if let Some(Distinct::On(keys)) = self.distinct {
            keys.iter().for_each(|key| named.add(key));
        }
        named
    }
}

/// The parts of a SELECT, if it has no others.
fn parts(select: &Select) -> SqlResult<Parts<'_>> {
    let Select {
        select_token: _,
        optimizer_hints: _,
        distinct,
        select_modifiers,
        top,
        top_before_distinct: _,
        projection,
        exclude,
        into,
        from,
        lateral_views,
        prewhere,
        selection,
        connect_by,
        group_by,
        cluster_by,
        distribute_by,
        sort_by,
        having,
        named_window,
        qualify,
        window_before_qualify: _,
        value_table_mode,
        flavor: _,
    } = select;
    refuse(select_modifiers.is_some() || top.is_some(), "a modifier of SELECT")?;
    refuse(exclude.is_some(), "EXCLUDE")?;
    refuse(into.is_some(), "SELECT INTO")?;
    refuse(!lateral_views.is_empty() || prewhere.is_some(), "LATERAL VIEW or PREWHERE")?;
    refuse(!connect_by.is_empty(), "CONNECT BY")?;
    let is_hive = !cluster_by.is_empty() || !distribute_by.is_empty() || !sort_by.is_empty();
    refuse(is_hive, "CLUSTER BY, DISTRIBUTE BY or SORT BY")?;
    refuse(qualify.is_some() || value_table_mode.is_some(), "QUALIFY")?;
    let GroupByExpr::Expressions(group_by, modifiers) = group_by else {
        return Err(SqlError::unsupported("GROUP BY ALL"));
    };
    refuse(!modifiers.is_empty(), "a modifier of GROUP BY")?;
    let (distinct, selection, having) = (distinct.as_ref(), selection.as_ref(), having.as_ref());
    let named_windows = named_window;
    Ok(Parts { distinct, projection, from, selection, group_by, having, named_windows })
}

/// What a SELECT gives, before its order and limit are seen to.
struct Output {
    /// What is asked for, then what its order needs.
    exprs: Vec<Expr>,
    columns: Vec<OutputColumn>,
    order: Vec<SortKey>,
    distinct: Option<Vec<Expr>>,
    /// The locks, what rows have to pass again, and whether they may not have changed.
    locks: Option<(Vec<Locking>, Option<Expr>, bool)>,
}

impl Output {
    /// Notes of columns of tables which these are.
    fn trace(&mut self, tables: &[LockableTable]) {
        for (expr, column) in self.exprs.iter().zip(&mut self.columns) {
            let Expr::Column(at) = expr else { continue };
            column.origin = tables
                .iter()
                .find_map(|own| origin_of(&own.table, at.checked_sub(own.first_column)?));
        }
    }
}

impl Binder<'_> {
    pub(super) fn select(
        &mut self,
        select: &Select,
        tail: Tail<'_>,
        outer: Option<&Scope<'_>>,
    ) -> SqlResult<Bound> {
        let rewritten = super::row_functions::rewritten(select);
        let parts = parts(rewritten.as_ref().unwrap_or(select))?;
        let mut lockable = Vec::new();
        let (mut plan, scope) = self.from(parts.from, outer, &mut lockable)?;
        let (mut width, mut passed) = (scope.width, None);
        if let Some(selection) = parts.selection {
            let mut stage = Stage::new(&scope, "WHERE");
            let condition = self.expr(selection, &mut stage)?;
            let condition = self.condition(condition, "WHERE")?;
            width += stage.applies.len();
            plan = with_applies(plan, stage.applies);
            passed = Some(condition.clone());
            plan = Plan::Filter { input: Box::new(plan), condition };
        }
        let items = self.items(parts.projection, &scope)?;
        let mut stage = Stage { width, ..Stage::new(&scope, "GROUP BY") };
        let (mut keys, sets) = match lists_of(parts.group_by)? {
            None => (self.group_keys(parts.group_by, &items, &mut stage)?, None),
            Some(lists) => {
                let (keys, sets) = self.keys_of_lists(&lists, &items, &mut stage)?;
                (keys, Some(sets))
            }
        };
        if !keys.is_empty() && sets.is_none() {
            let named = parts.named_behind_groups(&items, tail.order);
            add_dependent(&mut keys, &scope, &lockable, &named.0);
        }
        width += stage.applies.len();
        plan = with_applies(plan, stage.applies);
        let is_grouped = !keys.is_empty()
            || parts.having.is_some()
            || tail.order.iter().any(|key| has_aggregate(&key.expr))
            || items.iter().any(|item| has_aggregate(&item.expr));
        let groups = if is_grouped { grouped_scope(&scope, &keys) } else { Scope::default() };
        let mut stage = Stage { width, ..Stage::new(&scope, "HAVING") };
        if is_grouped {
            stage.scope = &groups;
            let (input, applies, calls) = (&scope, Vec::new(), Vec::new());
            stage.grouping = Some(Grouping { input, keys, sets, width, applies, calls });
        }
        let having = match parts.having {
            Some(having) => {
                let condition = self.expr(having, &mut stage)?;
                Some(self.condition(condition, "HAVING")?)
            }
            None => None,
        };
        (stage.clause, stage.windows) = ("SELECT", Some(Vec::new()));
        stage.named_windows = parts.named_windows.to_vec();
        let order = (tail.order, tail.is_open);
        let mut output = self.output(parts.distinct, &items, order, &mut stage)?;
        if !is_grouped {
            output.trace(&lockable);
        }
        if !tail.locks.is_empty() {
            let is_plain = stage.is_plain() && output.distinct.is_none();
            refuse(!is_plain, "locks of rows of groups, windows or distinct rows")?;
            let locks = locking(tail.locks, &lockable, scope.tables.len())?;
            for own in &locks {
                self.need(&own.table, Privileges::UPDATE);
            }
            let has_subquery = width > scope.width || !stage.applies.is_empty();
            let is_strict = scope.tables.len() > 1 || has_subquery;
            output.locks = Some((locks, passed, is_strict));
        }
        plan = placed(plan, having, stage, &mut self.shared);
        Ok(finished(plan, output, tail))
    }

    /// What is given; columns of subqueries and window functions have their numbers.
    fn output(
        &mut self,
        distinct: Option<&Distinct>,
        items: &[Item],
        (order, may_be_open): (&[OrderByExpr], bool),
        stage: &mut Stage<'_>,
    ) -> SqlResult<Output> {
        let (mut exprs, mut columns) = (Vec::new(), Vec::new());
        let may_be_open = may_be_open && matches!(distinct, None | Some(Distinct::All));
        for Item { expr, name } in items {
            let bound = self.expr(expr, stage)?;
            let is_open = may_be_open && is_open(&bound);
            let Typed { expr, ty } = if is_open { bound } else { self.settle_type(bound)? };
            exprs.push(expr);
            columns.push(OutputColumn::new(&**name, ty));
        }
        let mut given = Given { items, columns: &columns, exprs: &mut exprs, added: Vec::new() };
        let mut keys = Vec::new();
        for key in order {
            let expr = self.output_expr((&key.expr, "ORDER BY"), &mut given, stage)?;
            keys.push(sort_key(expr, key)?);
        }
        let (order, is_wider) = (keys, !given.added.is_empty());
        let distinct = match distinct {
            None | Some(Distinct::All) => None,
            Some(Distinct::Distinct) => {
                if is_wider {
                    let message =
                        "for SELECT DISTINCT, ORDER BY expressions must appear in select list";
                    return Err(SqlError::new(SqlState::INVALID_COLUMN_REFERENCE, message));
                }
                Some((0..columns.len()).map(Expr::Column).collect::<Vec<_>>())
            }
            Some(Distinct::On(on)) => {
                let mut keys = Vec::new();
                for key in on {
                    keys.push(self.output_expr((key, "DISTINCT ON"), &mut given, stage)?);
                }
                check_first_of_order(&keys, &order)?;
                Some(keys)
            }
        };
        // What rows are sorted by has a type.
        for at in order.iter().filter_map(|key| column_at(&key.expr)) {
            if let (Some(column), Some(expr)) = (columns.get_mut(at), exprs.get_mut(at)) {
                let settled = self.settle_type(Typed::new(expr.clone(), column.ty))?;
                (*expr, column.ty) = (settled.expr, settled.ty);
            }
        }
        let (width, applied) = stage.settled();
        exprs.iter_mut().for_each(|expr| settle(expr, width, applied));
        Ok(Output { exprs, columns, order, distinct, locks: None })
    }

    /// An expression over the output: a column of it by number or name or by what it is, or a
    /// column that is added behind.
    fn output_expr(
        &mut self,
        (ast, clause): (&Ast, &str),
        given: &mut Given<'_>,
        stage: &mut Stage<'_>,
    ) -> SqlResult<Expr> {
        if let Some(at) = output_position(ast, given.columns, clause)? {
            given.check_name(at, ast, clause, stage.scope)?;
            return Ok(Expr::Column(at));
        }
        if let Some(at) = given.position(ast, stage.scope) {
            return Ok(Expr::Column(at));
        }
        let bound = self.expr(ast, stage)?;
        let bound = self.settle_type(bound)?.expr;
        if let Some(column) = column_at(&bound)
            && let Some(at) = given.exprs.iter().position(|own| column_at(own) == Some(column))
        {
            return Ok(Expr::Column(at));
        }
        given.exprs.push(bound);
        given.added.push(ast.clone());
        Ok(Expr::Column(given.exprs.len() - 1))
    }
}

/// The output so far.
struct Given<'o> {
    items: &'o [Item],
    columns: &'o [OutputColumn],
    /// Those of the items, then those that were added.
    exprs: &'o mut Vec<Expr>,
    added: Vec<Ast>,
}

impl Given<'_> {
    /// The column that is the same expression.
    fn position(&self, ast: &Ast, scope: &Scope<'_>) -> Option<usize> {
        let items = self.items.iter().map(|item| &item.expr);
        items.chain(&self.added).position(|own| are_same(own, ast, scope))
    }

    /// Refuses the name of a column that is also that of another, unless both are the same.
    fn check_name(&self, at: usize, ast: &Ast, clause: &str, scope: &Scope<'_>) -> SqlResult<()> {
        let (Ast::Identifier(name), Some(item)) = (without_parentheses(ast), self.items.get(at))
        else {
            return Ok(());
        };
        let is_other =
            |own: &&Item| own.name == item.name && !are_same(&own.expr, &item.expr, scope);
        if !self.items.iter().any(|own| is_other(&own)) {
            return Ok(());
        }
        let message = format!("{clause} \"{}\" is ambiguous", fold(name));
        Err(SqlError::new(SqlState::AMBIGUOUS_COLUMN, message))
    }
}

/// The keys of DISTINCT ON are the first of the order, as far as there is one.
fn check_first_of_order(keys: &[Expr], order: &[SortKey]) -> SqlResult<()> {
    let is_key = |own: &SortKey| keys.iter().any(|key| column_at(key) == column_at(&own.expr));
    let first = order.iter().take_while(|own| is_key(own));
    let first: Vec<Option<usize>> = first.map(|own| column_at(&own.expr)).collect();
    if first.len() == order.len() || keys.iter().all(|key| first.contains(&column_at(key))) {
        return Ok(());
    }
    let message = "SELECT DISTINCT ON expressions must match initial ORDER BY expressions";
    Err(SqlError::new(SqlState::INVALID_COLUMN_REFERENCE, message))
}

fn column_at(expr: &Expr) -> Option<usize> {
    if let Expr::Column(at) = expr { Some(*at) } else { None }
}

/// The plan with the groups, subqueries, condition of groups and windows of a clause.
fn placed(mut plan: Plan, having: Option<Expr>, mut stage: Stage<'_>, shared: &mut usize) -> Plan {
    let (width, applied) = stage.settled();
    settle_compared(&mut stage.applies, width);
    if let Some(Grouping { keys, sets, calls, applies, .. }) = stage.grouping {
        plan = with_applies(plan, applies);
        let calls: Vec<_> = calls.into_iter().map(|(_, call, _)| call).collect();
        plan = match sets {
            Some(sets) => plan_of_sets(input_of_sets(plan, shared), keys, &sets, &calls),
            None => {
                let keys = keys.into_iter().map(|own| own.key.expr).collect();
                Plan::Aggregate { input: Box::new(plan), keys, calls }
            }
        };
    }
    plan = with_applies(plan, stage.applies);
    if let Some(mut condition) = having {
        settle(&mut condition, width, applied);
        plan = Plan::Filter { input: Box::new(plan), condition };
    }
    let mut calls = stage.windows.unwrap_or_default();
    if calls.is_empty() {
        return plan;
    }
    for call in &mut calls {
        call.exprs_mut().for_each(|expr| settle(expr, width, applied));
    }
    Plan::Window { input: Box::new(plan), calls }
}

/// The plan with what is given, in its order.
fn finished(plan: Plan, output: Output, tail: Tail<'_>) -> Bound {
    if output.locks.is_some() {
        return locked(plan, output, tail);
    }
    let Output { exprs, columns, order, distinct, .. } = output;
    let is_wider = exprs.len() > columns.len();
    let mut plan = Plan::Project { input: Box::new(plan), exprs: exprs.into() };
    let has_order = !order.is_empty();
    let (mut order, mut is_sorted) = (order, false);
    if let Some(keys) = &distinct {
        is_sorted = has_order && gathers(&mut order, keys);
    }
    let sorted = |plan| Plan::Sort { input: Box::new(plan), keys: order, first: None };
    match distinct {
        // Of rows that agree in the keys, the first in the order stays.
        Some(keys) => {
            plan = if has_order { sorted(plan) } else { plan };
            plan = Plan::Distinct { input: Box::new(plan), keys, is_sorted };
        }
        None if has_order => plan = sorted(plan),
        None => {}
    }
    plan = limited(plan, tail.limit, tail.offset);
    if is_wider {
        let exprs = (0..columns.len()).map(Expr::Column).collect();
        plan = Plan::Project { input: Box::new(plan), exprs };
    }
    Bound { plan, columns }
}

/// Has rows that agree in the keys come one behind the other, with more keys of the order if need
/// be. Whether it can: an order by something else before the last key tells such rows apart.
fn gathers(order: &mut Vec<SortKey>, keys: &[Expr]) -> bool {
    let column = |expr: &Expr| match expr {
        Expr::Column(at) => Some(*at),
        _ => None,
    };
    let Some(keys) = keys.iter().map(column).collect::<Option<Vec<_>>>() else { return false };
    let led_by = order.iter().map_while(|key| column(&key.expr).filter(|at| keys.contains(at)));
    let led_by: Vec<_> = led_by.collect();
    let missing: Vec<_> = keys.into_iter().filter(|at| !led_by.contains(at)).collect();
    if !missing.is_empty() && led_by.len() < order.len() {
        return false;
    }
    order.extend(missing.into_iter().map(|at| SortKey {
        expr: Expr::Column(at),
        descending: false,
        nulls_first: false,
    }));
    true
}

/// As [`finished`], with locks: rows are sorted, locked up to the limit, and what is given is of
/// their newest state.
fn locked(mut plan: Plan, output: Output, tail: Tail<'_>) -> Bound {
    let Output { mut exprs, columns, order, locks, .. } = output;
    let of_input = |key: SortKey| {
        let expr = match key.expr {
            Expr::Column(at) => exprs.get(at).cloned().unwrap_or(Expr::Column(at)),
            expr => expr,
        };
        SortKey { expr, ..key }
    };
    let keys: Vec<SortKey> = order.into_iter().map(of_input).collect();
    if !keys.is_empty() {
        plan = Plan::Sort { input: Box::new(plan), keys, first: None };
    }
    let (locks, condition, is_strict) = locks.unwrap_or_default();
    let (input, is_for_change, is_one_by_one) = (plan, false, false);
    plan = Plan::Lock(Box::new(LockRows {
        input,
        locks,
        condition,
        is_strict,
        is_for_change,
        is_one_by_one,
    }));
    plan = limited(plan, tail.limit, tail.offset);
    exprs.truncate(columns.len());
    Bound { plan: Plan::Project { input: Box::new(plan), exprs: exprs.into() }, columns }
}

/// The tables whose rows are locked, of so many in FROM.
fn locking(
    clauses: &[ast::LockClause],
    lockable: &[LockableTable],
    tables: usize,
) -> SqlResult<Vec<Locking>> {
    let mut locks: Vec<Locking> = Vec::new();
    for ast::LockClause { lock_type, of, nonblock } in clauses {
        // A lock for share keeps others from changing the row; so does one for update.
        let (LockType::Share | LockType::Update) = lock_type;
        let wait = match nonblock {
            None => selkie_txn::LockWait::Wait,
            Some(NonBlock::Nowait) => selkie_txn::LockWait::NoWait,
            Some(NonBlock::SkipLocked) => selkie_txn::LockWait::SkipLocked,
        };
        let of = of.as_ref().map(name_parts).transpose()?.and_then(|mut parts| parts.pop());
        // Rows of a subquery would have to be locked in it.
        refuse(
            of.is_none() && lockable.len() != tables,
            "locks of rows of a subquery or function",
        )?;
        let named = lockable.iter().filter(|own| of.as_ref().is_none_or(|of| *of == own.name));
        let before = locks.len();
        locks.extend(named.map(|own| {
            let (table, first_column) = (Arc::clone(&own.table), own.first_column);
            Locking { table, first_column, wait }
        }));
        if let Some(of) = of.filter(|_| locks.len() == before) {
            let message =
                format!("relation \"{of}\" in FOR UPDATE clause not found in FROM clause");
            return Err(SqlError::new(SqlState::UNDEFINED_TABLE, message));
        }
    }
    Ok(locks)
}
