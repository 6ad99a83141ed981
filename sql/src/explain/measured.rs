//! Plans that are measured while they run.

use std::mem;
use std::sync::Arc;

use crate::plan::Plan;

/// The plan with all nodes measured, and how many they are. Those of common table expressions and
/// of subqueries count as one with what they are in.
pub(crate) fn measured(mut plan: Plan) -> (Plan, usize) {
    let mut count = 0;
    measure(&mut plan, &mut count);
    (plan, count)
}

#[recursive::recursive]
fn measure(plan: &mut Plan, count: &mut usize) {
    let number = *count;
    *count += 1;
    match plan {
        Plan::One
        | Plan::Nothing { .. }
        | Plan::Values { .. }
        | Plan::CopyIn { .. }
        | Plan::Sequence(_)
        | Plan::Advisory(_)
        | Plan::Scan(_)
        | Plan::Rows { .. }
        | Plan::Working { .. }
        | Plan::Measured { .. } => {}
        Plan::Shared { plan, .. } => measure(Arc::make_mut(plan), count),
        Plan::Recursive { first, next, .. } => {
            measure(first, count);
            measure(next, count);
        }
        Plan::Filter { input, .. }
        | Plan::Project { input, .. }
        | Plan::Aggregate { input, .. }
        | Plan::Grouped { input, .. }
        | Plan::Window { input, .. }
        | Plan::Sort { input, .. }
        | Plan::Limit { input, .. }
        | Plan::Distinct { input, .. } => measure(input, count),
        Plan::Lock(lock) => measure(&mut lock.input, count),
        Plan::Join(join) => {
            measure(&mut join.left, count);
            measure(&mut join.right, count);
        }
        Plan::Merge(merge) => {
            measure(&mut merge.join.left, count);
            measure(&mut merge.join.right, count);
        }
        Plan::Apply { input, query, .. } => {
            measure(input, count);
            measure(query, count);
        }
        Plan::Set { left, right, .. } => {
            measure(left, count);
            measure(right, count);
        }
        Plan::Insert(insert) => measure(&mut insert.source, count),
        Plan::Modify(modify) => measure(&mut modify.source, count),
    }
    let input = Box::new(mem::replace(plan, Plan::One));
    *plan = Plan::Measured { number, input };
}
