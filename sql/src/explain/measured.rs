//! Plans that are measured while they run.

use std::mem;

use crate::plan::Plan;
use crate::plan::walk::inputs_mut;

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
    if !matches!(plan, Plan::Measured { .. }) {
        inputs_mut(plan, &mut |input, _| measure(input, count));
    }
    let input = Box::new(mem::replace(plan, Plan::One));
    *plan = Plan::Measured { number, input };
}
