//! How deep plans are. The operators of a plan run each other, and a plan is dropped, as deep as it
//! is, on the stack of the thread. A text bounds the depth of what is in it; views and common table
//! expressions that are made of each other do not.

use std::collections::HashMap;
use std::sync::Arc;

use super::Plan;
use super::walk::inputs;
use crate::error::{SqlError, SqlResult, SqlState};

/// Greatest depth of a plan, in operators.
const MAX_PLAN_DEPTH: usize = 500;

/// Refuses a plan that is too deep to be run.
pub(crate) fn check_depth(plan: &Plan) -> SqlResult<()> {
    if depth(plan, &mut HashMap::new()) <= MAX_PLAN_DEPTH {
        return Ok(());
    }
    let message = format!("the plan is too deep (allowed: {MAX_PLAN_DEPTH} operations)");
    Err(SqlError::new(SqlState::STATEMENT_TOO_COMPLEX, message)
        .hint("Use fewer views and common table expressions that are made of each other."))
}

/// `shared` are the depths of plans that are known, by their places: one may be used often.
#[recursive::recursive]
fn depth(plan: &Plan, shared: &mut HashMap<usize, usize>) -> usize {
    let below = match plan {
        Plan::Shared { plan, .. } => {
            let place = Arc::as_ptr(plan).addr();
            match shared.get(&place) {
                Some(known) => *known,
                None => {
                    let found = depth(plan, shared);
                    shared.insert(place, found);
                    found
                }
            }
        }
        plan => {
            let mut deepest = 0;
            inputs(plan, &mut |input, _| deepest = deepest.max(depth(input, shared)));
            deepest
        }
    };
    below + 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Reuse, SetOperator};

    #[test]
    fn plans_are_as_deep_as_the_deepest_of_their_parts() {
        let wrap = |plan: Plan| Plan::Limit { input: Box::new(plan), limit: None, offset: None };
        let deep = |levels: usize| (1..levels).fold(Plan::One, |plan, _| wrap(plan));
        assert!(check_depth(&deep(MAX_PLAN_DEPTH)).is_ok());
        let error = check_depth(&deep(MAX_PLAN_DEPTH + 1)).err();
        assert_eq!(error.map(|error| error.state()), Some(SqlState::STATEMENT_TOO_COMPLEX));
    }

    /// Each is used twice by the next: walked as a tree it would have 2^60 parts.
    #[test]
    fn what_is_shared_is_looked_at_once() {
        let twice = |plan: Plan, number: usize| {
            let plan = Arc::new(plan);
            let shared = || {
                let (plan, reuse) = (Arc::clone(&plan), Reuse::IfShared);
                Box::new(Plan::Shared { number, plan, reuse })
            };
            let (left, right) = (shared(), shared());
            Plan::Set { operator: SetOperator::Union, all: true, left, right }
        };
        let plan = (0..60).fold(Plan::One, twice);
        assert_eq!(depth(&plan, &mut HashMap::new()), 121);
        assert!(check_depth(&plan).is_ok());
        assert!(check_depth(&(60..600).fold(plan, twice)).is_err());
    }
}
