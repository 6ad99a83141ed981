//! What plans contain: which tables they read, and whether they depend on rows outside of them.

use crate::plan::{ApplyKind, Expr, Plan, WindowCall};
use selkie_txn::Table;

/// Calls `visit` for the plans that a plan has as inputs. The second argument says whether the
/// input sees a row more of enclosing queries than the plan itself.
fn inputs<'p>(plan: &'p Plan, visit: &mut dyn FnMut(&'p Plan, bool)) {
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
        | Plan::Window { input, .. }
        | Plan::Sort { input, .. }
        | Plan::Limit { input, .. }
        | Plan::Distinct { input, .. } => visit(input, false),
        Plan::Lock(lock) => visit(&lock.input, false),
        Plan::Join(join) => {
            visit(&join.left, false);
            visit(&join.right, join.is_lateral);
        }
        Plan::Apply { input, query, .. } => {
            visit(input, false);
            visit(query, true);
        }
        Plan::Set { left, right, .. } => {
            visit(left, false);
            visit(right, false);
        }
        Plan::Insert(insert) => visit(&insert.source, false),
        Plan::Modify(modify) => visit(&modify.source, false),
    }
}

/// Calls `visit` for the expressions of a node itself.
fn exprs<'p>(plan: &'p Plan, visit: &mut dyn FnMut(&'p Expr)) {
    match plan {
        Plan::One
        | Plan::Nothing { .. }
        | Plan::CopyIn { .. }
        | Plan::Measured { .. }
        | Plan::Shared { .. }
        | Plan::Working { .. }
        | Plan::Recursive { .. }
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
        Plan::Join(join) => {
            for (left, right) in &join.equal {
                visit(left);
                visit(right);
            }
            join.condition.iter().for_each(visit);
        }
        Plan::Apply { kind: ApplyKind::Compare { comparison, .. }, .. } => visit(comparison),
        Plan::Apply { .. } => {}
        Plan::Aggregate { keys, calls, .. } => {
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

/// Whether a plan reads a table.
pub(crate) fn reads_table(plan: &Plan, table: Table) -> bool {
    let mut reads = matches!(plan, Plan::Scan(scan) if scan.table.table == table);
    inputs(plan, &mut |input, _| reads = reads || reads_table(input, table));
    reads
}

/// The numbers of the common table expressions in a plan whose rows are not the same each time
/// that the plan is run, as they depend on rows outside of them.
pub(crate) fn shared_to_forget(plan: &Plan) -> Vec<usize> {
    let mut found = Vec::new();
    find_shared(plan, &mut found);
    found
}

fn find_shared(plan: &Plan, found: &mut Vec<usize>) {
    if let Plan::Shared { number, plan } = plan
        && depends_on_outside(plan, 0, &mut Vec::new())
    {
        found.push(*number);
    }
    inputs(plan, &mut |input, _| find_shared(input, found));
}

/// Whether a plan reads outer rows, or rows of a recursion, that are not of itself. It has entered
/// `depth` subqueries and the recursions `entered`.
fn depends_on_outside(plan: &Plan, depth: usize, entered: &mut Vec<usize>) -> bool {
    if let Plan::Working { number, .. } = plan {
        return !entered.contains(number);
    }
    let mut depends = false;
    exprs(plan, &mut |expr| {
        expr.visit(&mut |own| {
            depends = depends || matches!(own, Expr::Outer { level, .. } if *level >= depth);
        });
    });
    let is_recursive = match plan {
        Plan::Recursive { number, .. } => {
            entered.push(*number);
            true
        }
        _ => false,
    };
    inputs(plan, &mut |input, is_deeper| {
        depends = depends || depends_on_outside(input, depth + usize::from(is_deeper), entered);
    });
    if is_recursive {
        entered.pop();
    }
    depends
}
