//! Makes a plan cheaper: conditions go where they leave out most, equal columns of two tables make
//! a join by hash or by key, and reads of tables go by keys where they can.

use std::collections::HashMap;
use std::sync::Arc;

use super::access::{choose_access, is_key_expr};
use super::conditions::{all_of, conjuncts, equal_sides, only_compares, shifted};
use super::estimate::Statistics;
use super::expr::{Comparison, Expr};
use super::inline::inline;
use super::join_order::{Ordered, is_by_key, is_free, ordered};
use super::key_conditions::key_type;
use super::needed::need_all;
use super::node::{Join, JoinKind, Plan, Scan, SetOperator};
use super::order::gives_order;
use super::physical::settle;
use super::semi_join::semi_join;
use crate::types::{Datum, SqlType};

/// The plan with its conditions where they cost least, of whose tables nothing is known.
pub(crate) fn optimize(plan: Plan) -> Plan {
    optimize_by(plan, &Statistics::default())
}

/// The plan with its conditions where they cost least, and its joins in the order that does.
pub(crate) fn optimize_by(mut plan: Plan, statistics: &Statistics) -> Plan {
    inline(&mut plan);
    let mut plan = push(plan, Vec::new(), &mut Known { queries: HashMap::new(), statistics });
    finish(&mut plan);
    plan
}

/// What comes when conditions are where they belong.
fn finish(plan: &mut Plan) {
    need_all(plan);
    settle(plan);
}

/// What is known while a plan is optimized.
struct Known<'s> {
    /// The common table expressions that stay, by their numbers, as they are for all their readers.
    queries: HashMap<usize, Arc<Plan>>,
    statistics: &'s Statistics,
}

#[expect(clippy::boxed_local, reason = "what is given back is boxed as well")]
fn boxed(plan: Box<Plan>, known: &mut Known<'_>) -> Box<Plan> {
    Box::new(push(*plan, Vec::new(), known))
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
fn push(plan: Plan, mut conditions: Vec<Expr>, known: &mut Known<'_>) -> Plan {
    if conditions.iter().any(is_never_true) {
        return Plan::Nothing { width: plan.width() };
    }
    match plan {
        Plan::Filter { input, condition } => {
            // What is said of rows further below may have to hold for the others to be evaluated.
            let mut own = Vec::new();
            conjuncts(condition, &mut own);
            own.append(&mut conditions);
            push(*input, own, known)
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
        Plan::Join(join) => push_join(*join, conditions, known),
        Plan::Project { input, exprs } => {
            let (below, above) = passed_on(conditions, &exprs);
            let input = Box::new(push(*input, below, known));
            filtered(Plan::Project { input, exprs }, above)
        }
        Plan::Apply { input, query, kind, is_correlated } => {
            if let Some(join) = semi_join(&input, &query, &kind, is_correlated, &mut conditions) {
                return push(join, conditions, known);
            }
            let width = input.width();
            let (below, above): (Vec<Expr>, Vec<Expr>) = conditions
                .into_iter()
                .partition(|own| own.columns().iter().all(|column| *column < width));
            let (input, query) = (Box::new(push(*input, below, known)), boxed(query, known));
            filtered(Plan::Apply { input, query, kind, is_correlated }, above)
        }
        plan => push_into_groups(plan, conditions, known),
    }
}

/// As [`push`], for plans that look at several rows at a time.
fn push_into_groups(plan: Plan, conditions: Vec<Expr>, known: &mut Known<'_>) -> Plan {
    match plan {
        Plan::Aggregate { input, keys, calls } => {
            let (below, above) = settled(conditions);
            let (below, others) = passed_on(below, &keys);
            // Without keys there is a group even if no row is left.
            let (below, above) = match keys.is_empty() {
                true => (Vec::new(), joined([below, others, above])),
                false => (below, joined([others, above])),
            };
            let input = Box::new(push(*input, below, known));
            filtered(Plan::Aggregate { input, keys, calls }, above)
        }
        // Of rows that agree in all keys, all go or none.
        Plan::Distinct { input, keys, is_sorted } => {
            let (below, above) = of_columns(conditions, |column| has_column(&keys, column));
            let input = Box::new(push(*input, below, known));
            filtered(Plan::Distinct { input, keys, is_sorted }, above)
        }
        // Of a partition of each call, all rows go or none.
        Plan::Window { input, calls } => {
            let is_whole = |column| calls.iter().all(|own| has_column(&own.partition, column));
            let width = input.width();
            let (below, above) = of_columns(conditions, |at| at < width && is_whole(at));
            let input = Box::new(push(*input, below, known));
            filtered(Plan::Window { input, calls }, above)
        }
        Plan::Sort { input, keys, first: None } => {
            let (below, above) = settled(conditions);
            let mut input = Box::new(push(*input, below, known));
            let sorted = match gives_order(&mut input, &keys, false) {
                true => *input,
                false => Plan::Sort { input, keys, first: None },
            };
            filtered(sorted, above)
        }
        Plan::Set { operator, all, left, right } => {
            let (mut below, mut above) = settled(conditions);
            let to_right = match operator {
                SetOperator::Union | SetOperator::Intersect => below.clone(),
                // What is taken away without need does no harm; but what is taken away may be what
                // a condition fails for, and must not be asked.
                SetOperator::Except => {
                    let (safe, others) = below.into_iter().partition(only_compares);
                    (below, above) = (safe, joined([others, above]));
                    Vec::new()
                }
            };
            let left = Box::new(push(*left, below, known));
            let right = Box::new(push(*right, to_right, known));
            filtered(Plan::Set { operator, all, left, right }, above)
        }
        plan => filtered(below(plan, known), conditions),
    }
}

/// The conditions that have one value for a row, and the others.
fn settled(conditions: Vec<Expr>) -> (Vec<Expr>, Vec<Expr>) {
    conditions.into_iter().partition(|own| !own.is_volatile())
}

/// The settled conditions that read such columns only, and the others.
fn of_columns(conditions: Vec<Expr>, is_of: impl Fn(usize) -> bool) -> (Vec<Expr>, Vec<Expr>) {
    let is_below = |own: &Expr| !own.is_volatile() && own.columns().into_iter().all(&is_of);
    conditions.into_iter().partition(is_below)
}

fn has_column(exprs: &[Expr], column: usize) -> bool {
    exprs.iter().any(|own| matches!(own, Expr::Column(at) if *at == column))
}

fn joined<const LISTS: usize>(lists: [Vec<Expr>; LISTS]) -> Vec<Expr> {
    lists.into_iter().flatten().collect()
}

/// The conditions on columns that are passed on, as they are below, and the others.
fn passed_on(conditions: Vec<Expr>, exprs: &[Expr]) -> (Vec<Expr>, Vec<Expr>) {
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
    (below, above)
}

/// The plan with its inputs optimized.
fn below(plan: Plan, known: &mut Known<'_>) -> Plan {
    match plan {
        Plan::Shared { number, plan, reuse } => {
            let found = known.queries.get(&number).cloned();
            let plan = found.unwrap_or_else(|| {
                let mut own = push(Arc::unwrap_or_clone(plan), Vec::new(), known);
                finish(&mut own);
                let own = Arc::new(own);
                known.queries.insert(number, Arc::clone(&own));
                own
            });
            Plan::Shared { number, plan, reuse }
        }
        Plan::Recursive { number, first, next, all } => {
            Plan::Recursive { number, first: boxed(first, known), next: boxed(next, known), all }
        }
        Plan::Sort { input, keys, first } => {
            let mut input = boxed(input, known);
            match gives_order(&mut input, &keys, first.is_some()) {
                true => *input,
                false => Plan::Sort { input, keys, first },
            }
        }
        Plan::Limit { mut input, limit, offset } => {
            first_rows(&mut input, limit.as_ref(), offset.as_ref());
            Plan::Limit { input: boxed(input, known), limit, offset }
        }
        Plan::Lock(mut lock) => {
            lock.input = push(lock.input, Vec::new(), known);
            Plan::Lock(lock)
        }
        Plan::Together { changes, main } => {
            let changes = changes.into_iter().map(|own| push(own, Vec::new(), known)).collect();
            Plan::Together { changes, main: boxed(main, known) }
        }
        Plan::Insert(mut insert) => {
            insert.source = push(insert.source, Vec::new(), known);
            Plan::Insert(insert)
        }
        Plan::Modify(mut modify) => {
            modify.source = push(modify.source, Vec::new(), known);
            Plan::Modify(modify)
        }
        plan => plan,
    }
}

/// A sort below a limit needs to keep the first rows only, and no rows are locked beyond it.
fn first_rows(plan: &mut Plan, limit: Option<&Expr>, offset: Option<&Expr>) {
    match (plan, limit) {
        // One that is different each time is not that of the limit.
        (Plan::Sort { first, .. }, Some(limit))
            if !limit.is_volatile() && !offset.is_some_and(Expr::is_volatile) =>
        {
            *first = match offset {
                None => Some(limit.clone()),
                Some(offset) => both(limit.clone(), offset.clone()),
            };
        }
        (Plan::Lock(lock), Some(_)) => lock.is_one_by_one = true,
        _ => {}
    }
}

/// How many rows a limit is for with those that are left out before. No limit, and more than half
/// of all that can be counted, are as many as that: the sum is no error.
fn both(limit: Expr, offset: Expr) -> Option<Expr> {
    const MOST: i64 = i64::MAX / 2;
    let plus = crate::functions::resolve_operator("+", Some(SqlType::INT8), SqlType::INT8).ok()?;
    let most = || Expr::Const(Datum::I64(MOST));
    let bounded = |own| Expr::Extreme { operands: vec![own, most()], greatest: false };
    let offset = Expr::Coalesce(vec![offset, Expr::Const(Datum::I64(0))]);
    let arguments = vec![bounded(limit), bounded(offset)];
    Some(Expr::Call { function: Box::new(plus), arguments, comparison: None })
}

/// A join with only the rows for which these hold, in the order that is best for it and those that
/// stand directly in it.
fn push_join(join: Join, conditions: Vec<Expr>, known: &mut Known<'_>) -> Plan {
    let Some(found) = ordered(&join, &conditions, known.statistics) else {
        return place_join(join, conditions, false, known);
    };
    let Ordered { join, conditions, columns } = found;
    let input = place_join(join, conditions, true, known);
    match columns {
        None => input,
        Some(exprs) => Plan::Project { input: Box::new(input), exprs: exprs.into() },
    }
}

/// An input of a join, which may be another that was put in order with it.
#[recursive::recursive]
fn push_input(plan: Plan, conditions: Vec<Expr>, is_ordered: bool, known: &mut Known<'_>) -> Plan {
    match plan {
        Plan::Join(join) if is_ordered && is_free(&join) => {
            place_join(*join, conditions, true, known)
        }
        plan => push(plan, conditions, known),
    }
}

fn place_join(
    mut join: Join,
    conditions: Vec<Expr>,
    is_ordered: bool,
    known: &mut Known<'_>,
) -> Plan {
    let (left_width, is_inner) = (join.left_width, join.kind == JoinKind::Inner);
    // What may be different each time is asked of each pair, unless it is about one side.
    let is_of_pair = |own: &Expr| own.columns().is_empty() && own.is_volatile();
    let is_of = |own: &Expr, is_in: &dyn Fn(usize) -> bool| {
        own.columns().into_iter().all(is_in) && !is_of_pair(own)
    };
    let is_left = |own: &Expr| is_of(own, &|column| column < left_width);
    let is_right = |own: &Expr| is_of(own, &|column| column >= left_width);
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
    join.left = push_input(join.left, to_left, is_ordered, known);
    join.right = push_input(join.right, to_right, is_ordered, known);
    if let Some((scan, conditions)) = right {
        by_key(&mut join, scan, conditions, known.statistics);
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
fn by_key(join: &mut Join, mut scan: Scan, mut conditions: Vec<Expr>, statistics: &Statistics) {
    let is_kind =
        matches!(join.kind, JoinKind::Inner | JoinKind::Left | JoinKind::Semi | JoinKind::Anti);
    if !is_kind || join.is_lateral || join.equal.is_empty() {
        return;
    }
    if !is_by_key(&join.left, &scan, statistics).unwrap_or_else(|| has_few_rows(&join.left)) {
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
            Self::Join(join) => join.width(),
            Self::Merge(merge) => merge.join.width(),
            Self::Apply { input, .. } => input.width() + 1,
            Self::Aggregate { keys, calls, .. } | Self::Grouped { keys, calls, .. } => {
                keys.len() + calls.len()
            }
            Self::Window { input, calls } => input.width() + calls.len(),
            Self::Set { left, .. } => left.width(),
            Self::Together { main, .. } => main.width(),
            Self::Insert(insert) => insert.returning.as_ref().map_or(0, Vec::len),
            Self::Modify(modify) => modify.returning.as_ref().map_or(0, Vec::len),
        }
    }
}

impl Join {
    fn width(&self) -> usize {
        match self.kind {
            JoinKind::Semi | JoinKind::Anti => self.left_width,
            _ => self.left_width + self.right_width,
        }
    }
}
