//! How a plan is run: what is merged, grouped as it comes, or read from indexes alone. This comes
//! last, when it is known which columns are needed, and changes no columns and no rows.

use super::arrange::{arrange, group};
use super::cover::{cover, read_narrow};
use super::first_value::read_ends;
use super::merge::merge;
use super::node::{AggregateCall, Plan};
use super::scan_order::Wanted;
use super::walk::inputs_mut;
use crate::types::Scalar;

/// The plan as it is run.
pub(super) fn settle(plan: &mut Plan) {
    choose(plan);
    cover_all(plan);
}

#[recursive::recursive]
fn choose(plan: &mut Plan) {
    if let Plan::Sort { input, keys, first } = plan
        && arrange(input, &Wanted::sorted(keys, first.is_some())).is_some()
    {
        let sorted = std::mem::replace(&mut **input, Plan::One);
        *plan = sorted;
        return choose(plan);
    }
    read_ends(plan);
    if let Plan::Aggregate { input, keys, calls } = plan
        && keys.is_empty()
        && calls.iter().all(takes_any_order)
        && let Plan::Scan(scan) = below_projections(input)
    {
        read_narrow(scan);
    }
    each_input(plan, &mut choose);
    match plan {
        Plan::Join(_) => merge(plan),
        Plan::Aggregate { .. } | Plan::Distinct { is_sorted: false, .. } => {
            group(plan, Vec::new());
        }
        _ => {}
    }
}

/// Lets reads of tables do with their indexes, where these have what is needed.
#[recursive::recursive]
fn cover_all(plan: &mut Plan) {
    if let Plan::Scan(scan) = plan {
        cover(scan);
    }
    each_input(plan, &mut cover_all);
}

#[recursive::recursive]
fn below_projections(plan: &mut Plan) -> &mut Plan {
    match plan {
        Plan::Project { input, .. } => below_projections(input),
        plan => plan,
    }
}

/// Whether a call gives the same for rows in any order.
fn takes_any_order(call: &AggregateCall) -> bool {
    match &*call.function.name {
        "count" | "min" | "max" | "bool_and" | "bool_or" | "every" | "bit_and" | "bit_or"
        | "bit_xor" => true,
        // Sums of floats are rounded on their way.
        "sum" | "avg" => {
            let is_float = |scalar| matches!(scalar, Scalar::Float4 | Scalar::Float8);
            !call.function.arguments.iter().any(|own| is_float(own.scalar))
        }
        _ => false,
    }
}

/// Calls `visit` for the inputs of a plan.
fn each_input(plan: &mut Plan, visit: &mut dyn FnMut(&mut Plan)) {
    // It was settled when it was made, for all that read it.
    if !matches!(plan, Plan::Shared { .. }) {
        inputs_mut(plan, &mut |input, _| visit(input));
    }
}
