//! Makes a plan cheaper: conditions go where they leave out most, equal columns of two tables make
//! a join by hash or by key, and reads of tables go by keys where they can.

use std::sync::Arc;

use super::access::{choose_access, is_key_expr};
use super::conditions::{all_of, conjuncts, equal_sides, shifted};
use super::expr::{Comparison, Expr};
use super::key_conditions::key_type;
use super::needed::need_all;
use super::node::{Join, JoinKind, Plan, Scan};
use super::order::gives_order;
use super::semi_join::semi_join;
use crate::types::Datum;

/// The plan with its conditions where they cost least.
pub(crate) fn optimize(plan: Plan) -> Plan {
    let mut plan = push(plan, Vec::new());
    need_all(&mut plan);
    plan
}

#[expect(clippy::boxed_local, reason = "what is given back is boxed as well")]
fn boxed(plan: Box<Plan>) -> Box<Plan> {
    Box::new(push(*plan, Vec::new()))
}

fn is_never_true(condition: &Expr) -> bool {
    matches!(condition, Expr::Const(Datum::Null | Datum::Bool(false)))
}

fn filtered(plan: Plan, conditions: Vec<Expr>) -> Plan {
    match all_of(conditions) {
        None => plan,
        Some(condition) => Plan::Filter { input: Box::new(plan), condition },
    }
}

/// The plan, optimized, with only the rows for which these hold.
#[recursive::recursive]
fn push(plan: Plan, mut conditions: Vec<Expr>) -> Plan {
    if conditions.iter().any(is_never_true) {
        return Plan::Nothing { width: plan.width() };
    }
    match plan {
        Plan::Filter { input, condition } => {
            conjuncts(condition, &mut conditions);
            push(*input, conditions)
        }
        Plan::Scan(scan) => {
            let mut scan = Arc::unwrap_or_clone(scan);
            if let Some(filter) = scan.filter.take() {
                conjuncts(filter, &mut conditions);
            }
            choose_access(&mut scan, &mut conditions);
            scan.filter = all_of(conditions);
            Plan::Scan(Arc::new(scan))
        }
        Plan::Join(join) => push_join(*join, conditions),
        Plan::Project { input, exprs } => {
            // A condition on columns that are passed on goes below.
            let passed = |at: &usize| matches!(exprs.get(*at), Some(Expr::Column(_)));
            let (mut below, above): (Vec<Expr>, Vec<Expr>) =
                conditions.into_iter().partition(|own| own.columns().iter().all(passed));
            for condition in &mut below {
                condition.visit_mut(&mut |own| {
                    if let Expr::Column(at) = own
                        && let Some(Expr::Column(from)) = exprs.get(*at)
                    {
                        *at = *from;
                    }
                });
            }
            let input = Box::new(push(*input, below));
            filtered(Plan::Project { input, exprs }, above)
        }
        Plan::Apply { input, query, kind, is_correlated } => {
            if let Some(join) = semi_join(&input, &query, &kind, is_correlated, &mut conditions) {
                return push(join, conditions);
            }
            let width = input.width();
            let (below, above): (Vec<Expr>, Vec<Expr>) = conditions
                .into_iter()
                .partition(|own| own.columns().iter().all(|column| *column < width));
            let (input, query) = (Box::new(push(*input, below)), boxed(query));
            filtered(Plan::Apply { input, query, kind, is_correlated }, above)
        }
        plan => filtered(below(plan), conditions),
    }
}

/// The plan with its inputs optimized.
fn below(plan: Plan) -> Plan {
    match plan {
        Plan::Shared { number, plan } => {
            Plan::Shared { number, plan: Arc::new(push((*plan).clone(), Vec::new())) }
        }
        Plan::Recursive { number, first, next, all } => {
            Plan::Recursive { number, first: boxed(first), next: boxed(next), all }
        }
        Plan::Aggregate { input, keys, calls } => {
            Plan::Aggregate { input: boxed(input), keys, calls }
        }
        Plan::Window { input, calls } => Plan::Window { input: boxed(input), calls },
        Plan::Sort { input, keys, first } => {
            let mut input = boxed(input);
            match gives_order(&mut input, &keys, first.is_some()) {
                true => *input,
                false => Plan::Sort { input, keys, first },
            }
        }
        Plan::Limit { mut input, limit, offset } => {
            first_rows(&mut input, &limit, &offset);
            Plan::Limit { input: boxed(input), limit, offset }
        }
        Plan::Distinct { input, keys, is_sorted } => {
            Plan::Distinct { input: boxed(input), keys, is_sorted }
        }
        Plan::Set { operator, all, left, right } => {
            Plan::Set { operator, all, left: boxed(left), right: boxed(right) }
        }
        Plan::Lock(mut lock) => {
            lock.input = push(lock.input, Vec::new());
            Plan::Lock(lock)
        }
        Plan::Insert(mut insert) => {
            insert.source = push(insert.source, Vec::new());
            Plan::Insert(insert)
        }
        Plan::Modify(mut modify) => {
            modify.source = push(modify.source, Vec::new());
            Plan::Modify(modify)
        }
        plan => plan,
    }
}

/// A sort below a limit needs to keep the first rows only, and no rows are locked beyond it.
fn first_rows(plan: &mut Plan, limit: &Option<Expr>, offset: &Option<Expr>) {
    match (plan, limit, offset) {
        (Plan::Sort { first, .. }, Some(limit), None) => *first = Some(limit.clone()),
        (Plan::Lock(lock), Some(_), _) => lock.is_one_by_one = true,
        _ => {}
    }
}

fn push_join(mut join: Join, conditions: Vec<Expr>) -> Plan {
    let (left_width, is_inner) = (join.left_width, join.kind == JoinKind::Inner);
    let is_left = |own: &Expr| own.columns().iter().all(|column| *column < left_width);
    let is_right = |own: &Expr| own.columns().iter().all(|column| *column >= left_width);
    let mut own = Vec::new();
    if let Some(condition) = join.condition.take() {
        conjuncts(condition, &mut own);
    }
    let mut above = Vec::new();
    let (mut to_left, mut to_right) = (Vec::new(), Vec::new());
    for condition in conditions {
        let keeps_left =
            matches!(join.kind, JoinKind::Inner | JoinKind::Left | JoinKind::Semi | JoinKind::Anti);
        match join.kind {
            _ if is_left(&condition) && keeps_left => to_left.push(condition),
            JoinKind::Right if is_right(&condition) => {
                to_right.push(shifted(condition, left_width))
            }
            JoinKind::Inner => own.push(condition),
            _ => above.push(condition),
        }
    }
    let mut rest = Vec::new();
    for condition in own {
        // What an outer join does not find, it gives with NULLs.
        let right_may =
            matches!(join.kind, JoinKind::Inner | JoinKind::Left | JoinKind::Semi | JoinKind::Anti);
        match equal_sides(&condition, left_width) {
            _ if is_inner && is_left(&condition) => to_left.push(condition),
            _ if right_may && is_right(&condition) => to_right.push(shifted(condition, left_width)),
            Some(pair) => join.equal.push(pair),
            None => rest.push(condition),
        }
    }
    join.condition = all_of(rest);
    if join.is_lateral {
        to_right.iter_mut().for_each(outward);
    }
    let right = whole_scan(&join.right, &to_right);
    join.left = push(join.left, to_left);
    join.right = push(join.right, to_right);
    if let Some((scan, conditions)) = right {
        by_key(&mut join, scan, conditions);
    }
    filtered(Plan::Join(Box::new(join)), above)
}

/// Seen from the right side of a lateral join, the row of the left is the innermost outer row.
fn outward(expr: &mut Expr) {
    expr.visit_mut(&mut |own| {
        if let Expr::Outer { level, .. } = own {
            *level += 1;
        }
    });
}

/// A table that is read as a whole as yet, and the conditions of its rows, with these.
fn whole_scan(plan: &Plan, conditions: &[Expr]) -> Option<(Scan, Vec<Expr>)> {
    match plan {
        Plan::Scan(scan) if !scan.access.is_keyed() => {
            Some((Scan::clone(scan), conditions.to_vec()))
        }
        Plan::Filter { input, condition } => {
            let (scan, mut all) = whole_scan(input, conditions)?;
            conjuncts(condition.clone(), &mut all);
            Some((scan, all))
        }
        _ => None,
    }
}

/// Reads the right side, which is `scan` with these conditions, by the key that rows of the left
/// give, where the left has few rows.
fn by_key(join: &mut Join, mut scan: Scan, mut conditions: Vec<Expr>) {
    let is_kind =
        matches!(join.kind, JoinKind::Inner | JoinKind::Left | JoinKind::Semi | JoinKind::Anti);
    if !is_kind || join.is_lateral || join.equal.is_empty() || !has_few_rows(&join.left) {
        return;
    }
    if let Some(filter) = scan.filter.take() {
        conjuncts(filter, &mut conditions);
    }
    // The key that it is read by without the rows of the left.
    let alone = choose_access(&mut scan.clone(), &mut conditions.clone());
    conditions.iter_mut().for_each(outward);
    for (left, right) in &join.equal {
        let mut left = left.clone();
        outward(&mut left);
        left.visit_mut(&mut |own| {
            if let Expr::Column(column) = own {
                *own = Expr::Outer { level: 0, column: *column };
            }
        });
        let Some(equal) = join_condition(left, right.clone(), &scan) else { return };
        conditions.push(equal);
    }
    if choose_access(&mut scan, &mut conditions) <= alone {
        return;
    }
    scan.filter = all_of(conditions);
    join.equal.clear();
    join.is_lateral = true;
    join.right = Plan::Scan(Arc::new(scan));
}

/// An equation of a column of the right with a value of the left.
fn join_condition(left: Expr, right: Expr, scan: &Scan) -> Option<Expr> {
    let ty = key_type(&scan.table, &right)?;
    let function = crate::functions::resolve_operator("=", Some(ty), ty).ok()?;
    if !is_key_expr(&left) {
        return None;
    }
    let (function, comparison) = (Box::new(function), Some(Comparison::Equal));
    Some(Expr::Call { function, arguments: vec![right, left], comparison })
}

/// Whether a plan gives few rows: it reads by a key.
fn has_few_rows(plan: &Plan) -> bool {
    match plan {
        Plan::One | Plan::Values { .. } | Plan::Nothing { .. } => true,
        Plan::Scan(scan) => scan.access.is_keyed(),
        Plan::Filter { input, .. } | Plan::Project { input, .. } | Plan::Apply { input, .. } => {
            has_few_rows(input)
        }
        Plan::Limit { limit: Some(_), .. } => true,
        Plan::Join(join) => {
            has_few_rows(&join.left) && (join.is_lateral || has_few_rows(&join.right))
        }
        _ => false,
    }
}

impl Plan {
    /// How many columns its rows have.
    pub(crate) fn width(&self) -> usize {
        match self {
            Self::Sequence(_) | Self::Advisory(_) => 1,
            Self::One => 0,
            Self::Nothing { width } | Self::Values { width, .. } => *width,
            Self::CopyIn { columns, .. } => columns.len(),
            Self::Scan(scan) => scan.table.columns.len(),
            Self::Rows { function, ordinality, .. } => {
                function.columns.len() + usize::from(*ordinality)
            }
            Self::Shared { plan, .. } => plan.width(),
            Self::Working { width, .. } => *width,
            Self::Recursive { first, .. } => first.width(),
            Self::Measured { input, .. }
            | Self::Filter { input, .. }
            | Self::Sort { input, .. }
            | Self::Limit { input, .. }
            | Self::Distinct { input, .. } => input.width(),
            Self::Lock(lock) => lock.input.width(),
            Self::Project { exprs, .. } => exprs.len(),
            Self::Join(join) => match join.kind {
                JoinKind::Semi | JoinKind::Anti => join.left_width,
                _ => join.left_width + join.right_width,
            },
            Self::Apply { input, .. } => input.width() + 1,
            Self::Aggregate { keys, calls, .. } => keys.len() + calls.len(),
            Self::Window { input, calls } => input.width() + calls.len(),
            Self::Set { left, .. } => left.width(),
            Self::Insert(insert) => insert.returning.as_ref().map_or(0, Vec::len),
            Self::Modify(modify) => modify.returning.as_ref().map_or(0, Vec::len),
        }
    }
}
