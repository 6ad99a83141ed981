//! What plans contain: which tables they read, and whether they depend on rows outside of them.

use std::collections::HashSet;
use std::sync::Arc;

use selkie_txn::Table;

use super::expr::Expr;
use super::node::{ApplyKind, Join, Plan, WindowCall};

/// Calls `visit` for the plans that a plan has as inputs. The second argument says whether the
/// input sees a row more of enclosing queries than the plan itself.
pub(super) fn inputs<'p>(plan: &'p Plan, visit: &mut dyn FnMut(&'p Plan, bool)) {
    match plan {
        Plan::One
        | Plan::Nothing { .. }
        | Plan::Values { .. }
        | Plan::CopyIn { .. }
        | Plan::Scan(_)
        | Plan::Rows { .. }
        | Plan::Sequence(_)
        | Plan::Advisory(_)
        | Plan::Working { .. } => {}
        Plan::Shared { plan, .. } => visit(plan, false),
        Plan::Recursive { first, next, .. } => {
            visit(first, false);
            visit(next, false);
        }
        Plan::Measured { input, .. }
        | Plan::Filter { input, .. }
        | Plan::Project { input, .. }
        | Plan::Aggregate { input, .. }
        | Plan::Grouped { input, .. }
        | Plan::Window { input, .. }
        | Plan::Sort { input, .. }
        | Plan::Limit { input, .. }
        | Plan::Distinct { input, .. } => visit(input, false),
        Plan::Lock(lock) => visit(&lock.input, false),
        Plan::Join(join) => {
            visit(&join.left, false);
            visit(&join.right, join.is_lateral);
        }
        Plan::Merge(merge) => {
            visit(&merge.join.left, false);
            visit(&merge.join.right, false);
        }
        Plan::Apply { input, query, .. } => {
            visit(input, false);
            visit(query, true);
        }
        Plan::Set { left, right, .. } => {
            visit(left, false);
            visit(right, false);
        }
        Plan::Together { changes, main } => {
            changes.iter().for_each(|change| visit(change, false));
            visit(main, false);
        }
        Plan::Insert(insert) => visit(&insert.source, false),
        Plan::Modify(modify) => visit(&modify.source, false),
    }
}

/// As [`inputs`], with the right to change each.
pub(crate) fn inputs_mut(plan: &mut Plan, visit: &mut dyn FnMut(&mut Plan, bool)) {
    match plan {
        Plan::One
        | Plan::Nothing { .. }
        | Plan::Values { .. }
        | Plan::CopyIn { .. }
        | Plan::Scan(_)
        | Plan::Rows { .. }
        | Plan::Sequence(_)
        | Plan::Advisory(_)
        | Plan::Working { .. } => {}
        Plan::Shared { plan, .. } => visit(Arc::make_mut(plan), false),
        Plan::Recursive { first, next, .. } => {
            visit(first, false);
            visit(next, false);
        }
        Plan::Measured { input, .. }
        | Plan::Filter { input, .. }
        | Plan::Project { input, .. }
        | Plan::Aggregate { input, .. }
        | Plan::Grouped { input, .. }
        | Plan::Window { input, .. }
        | Plan::Sort { input, .. }
        | Plan::Limit { input, .. }
        | Plan::Distinct { input, .. } => visit(input, false),
        Plan::Lock(lock) => visit(&mut lock.input, false),
        Plan::Join(join) => {
            let is_deeper = join.is_lateral;
            visit(&mut join.left, false);
            visit(&mut join.right, is_deeper);
        }
        Plan::Merge(merge) => {
            visit(&mut merge.join.left, false);
            visit(&mut merge.join.right, false);
        }
        Plan::Apply { input, query, .. } => {
            visit(input, false);
            visit(query, true);
        }
        Plan::Set { left, right, .. } => {
            visit(left, false);
            visit(right, false);
        }
        Plan::Together { changes, main } => {
            changes.iter_mut().for_each(|change| visit(change, false));
            visit(main, false);
        }
        Plan::Insert(insert) => visit(&mut insert.source, false),
        Plan::Modify(modify) => visit(&mut modify.source, false),
    }
}

/// Calls `visit` for the expressions of a node itself.
pub(super) fn exprs<'p>(plan: &'p Plan, visit: &mut dyn FnMut(&'p Expr)) {
    match plan {
        Plan::One
        | Plan::Nothing { .. }
        | Plan::CopyIn { .. }
        | Plan::Measured { .. }
        | Plan::Shared { .. }
        | Plan::Working { .. }
        | Plan::Recursive { .. }
        | Plan::Together { .. }
        | Plan::Set { .. } => {}
        Plan::Lock(lock) => lock.condition.iter().for_each(visit),
        Plan::Values { rows, .. } => rows.iter().flatten().for_each(visit),
        Plan::Scan(scan) => {
            scan.access.each_expr(visit);
            scan.filter.iter().for_each(visit);
        }
        Plan::Rows { arguments, .. } => arguments.iter().for_each(visit),
        Plan::Advisory(call) => call.arguments.iter().for_each(visit),
        Plan::Sequence(call) => call.arguments.iter().chain(&call.when).for_each(visit),
        Plan::Filter { condition, .. } => visit(condition),
        Plan::Project { exprs, .. } => exprs.iter().for_each(visit),
        Plan::Join(join) => exprs_of_join(join, visit),
        Plan::Merge(merge) => exprs_of_join(&merge.join, visit),
        Plan::Apply { kind: ApplyKind::Compare { comparison, .. }, .. } => visit(comparison),
        Plan::Apply { .. } => {}
        Plan::Aggregate { keys, calls, .. } | Plan::Grouped { keys, calls, .. } => {
            keys.iter().for_each(&mut *visit);
            for call in calls {
                call.arguments.iter().chain(&call.filter).for_each(&mut *visit);
                call.order.iter().for_each(|key| visit(&key.expr));
            }
        }
        Plan::Window { calls, .. } => {
            calls.iter().flat_map(WindowCall::exprs).for_each(visit);
        }
        Plan::Sort { keys, first, .. } => {
            keys.iter().for_each(|key| visit(&key.expr));
            first.iter().for_each(visit);
        }
        Plan::Limit { limit, offset, .. } => limit.iter().chain(offset).for_each(visit),
        Plan::Distinct { keys, .. } => keys.iter().for_each(visit),
        Plan::Insert(insert) => {
            insert.checks.iter().for_each(|(_, check)| visit(check));
            insert.returning.iter().flatten().for_each(&mut *visit);
            let update = insert.on_conflict.iter().flat_map(|action| &action.update);
            for (assignments, condition) in update {
                assignments.iter().map(|(_, expr)| expr).chain(condition).for_each(&mut *visit);
            }
        }
        Plan::Modify(modify) => {
            modify.checks.iter().for_each(|(_, check)| visit(check));
            modify.assignments.iter().flatten().for_each(|(_, expr)| visit(expr));
            modify.returning.iter().flatten().for_each(visit);
        }
    }
}

fn exprs_of_join<'p>(join: &'p Join, visit: &mut dyn FnMut(&'p Expr)) {
    for (left, right) in &join.equal {
        visit(left);
        visit(right);
    }
    join.condition.iter().for_each(visit);
}

/// Whether a plan reads a table.
pub(crate) fn reads_table(plan: &Plan, table: Table) -> bool {
    let mut reads = matches!(plan, Plan::Scan(scan) if scan.table.table == table);
    inputs(plan, &mut |input, _| reads = reads || reads_table(input, table));
    reads
}

/// The numbers of the common table expressions in a plan whose rows are not the same each time
/// that the plan is run, as they depend on rows outside of them.
pub(crate) fn shared_to_forget(plan: &Plan) -> Vec<usize> {
    let (mut found, mut seen) = (Vec::new(), HashSet::new());
    find_shared(plan, &mut found, &mut seen);
    found
}

fn find_shared(plan: &Plan, found: &mut Vec<usize>, seen: &mut HashSet<usize>) {
    if let Plan::Shared { number, plan, .. } = plan {
        if !seen.insert(*number) {
            return;
        }
        if is_open(plan) {
            found.push(*number);
        }
    }
    inputs(plan, &mut |input, _| find_shared(input, found, seen));
}

/// Whether a plan reads outer rows, or rows of a recursion, that are not of itself.
pub(super) fn is_open(plan: &Plan) -> bool {
    Outside::default().is_read_by(plan, 0)
}

/// A search for what reads rows outside of a plan.
#[derive(Default)]
struct Outside {
    /// The recursions that it is within.
    entered: Vec<usize>,
    /// Common table expressions that were looked at, and in how many subqueries: several may read
    /// one, which may be made of others that several read.
    seen: HashSet<(usize, usize)>,
}

impl Outside {
    /// Whether a part of the plan does, that is within so many subqueries of it.
    fn is_read_by(&mut self, plan: &Plan, depth: usize) -> bool {
        match plan {
            Plan::Working { number, .. } => return !self.entered.contains(number),
            Plan::Shared { number, .. } if !self.seen.insert((*number, depth)) => return false,
            _ => {}
        }
        let mut is_read = false;
        exprs(plan, &mut |expr| {
            expr.visit(&mut |own| {
                is_read = is_read || matches!(own, Expr::Outer { level, .. } if *level >= depth);
            });
        });
        let is_recursive = match plan {
            Plan::Recursive { number, .. } => {
                self.entered.push(*number);
                true
            }
            _ => false,
        };
        inputs(plan, &mut |input, is_deeper| {
            is_read = is_read || self.is_read_by(input, depth + usize::from(is_deeper));
        });
        if is_recursive {
            self.entered.pop();
        }
        is_read
    }
}
