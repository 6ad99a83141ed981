//! Common table expressions that need not be kept: those that only one reader has, and those that
//! are said to be NOT MATERIALIZED.
//!
//! What stands in place of the reader can take its conditions, and gives its rows as they are asked
//! for. Nothing of it may change what rows there are, so it stays as it is
//!
//! - where it would be run for each row of another plan, or in each round of a recursion,
//! - if it has an effect, or other rows each time that it is run,
//! - where its outer rows are not those of its reader.
//!
//! A recursive one takes no conditions. With one reader, which reads it once, it is run as far as
//! that reader goes: a LIMIT ends a recursion that has no end.

use std::collections::HashMap;
use std::sync::Arc;

use super::node::{ApplyKind, Plan, Reuse};
use super::walk::{exprs, inputs, inputs_mut, is_open};

/// Most copies of common table expressions that several readers have. Those that are made of each
/// other would double a plan with each of them.
const MOST_COPIES: usize = 32;

/// How often a part of a plan is run, and what its outer rows are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Once, with the outer rows of the plan.
    Same,
    /// Once, with another outer row.
    Deeper,
    /// Maybe often.
    Repeated,
}

/// The plan with common table expressions in place of their readers, where that is right.
pub(super) fn inline(plan: &mut Plan) {
    let mut readers = HashMap::new();
    count(plan, &mut readers);
    if !readers.is_empty() {
        Inlining { readers, kept: HashMap::new(), copies: 0 }.go(plan, Place::Same);
    }
}

/// Counts the readers of each common table expression, by its number.
#[recursive::recursive]
fn count(plan: &Plan, readers: &mut HashMap<usize, usize>) {
    if let Plan::Shared { number, .. } = plan {
        let known = readers.entry(*number).or_default();
        *known += 1;
        // What it reads was counted.
        if *known > 1 {
            return;
        }
    }
    inputs(plan, &mut |input, _| count(input, readers));
}

struct Inlining {
    readers: HashMap<usize, usize>,
    /// Those that stay, as they are for all their readers.
    kept: HashMap<usize, Arc<Plan>>,
    copies: usize,
}

impl Inlining {
    #[recursive::recursive]
    fn go(&mut self, plan: &mut Plan, place: Place) {
        while let Plan::Shared { number, plan: query, reuse } = plan {
            if !self.is_inlined(*number, query, *reuse, place) {
                let known = match self.kept.get(number) {
                    Some(known) => Arc::clone(known),
                    None => {
                        let mut own = Plan::clone(query);
                        let inner = if is_open(&own) { Place::Repeated } else { Place::Same };
                        self.go(&mut own, inner);
                        let own = Arc::new(own);
                        self.kept.insert(*number, Arc::clone(&own));
                        own
                    }
                };
                *query = known;
                return;
            }
            *plan = Plan::clone(query);
        }
        let is_once = match plan {
            Plan::Apply { is_correlated, .. } => !*is_correlated,
            _ => false,
        };
        let is_recursive = matches!(plan, Plan::Recursive { .. });
        let mut is_first = true;
        inputs_mut(plan, &mut |input, is_deeper| {
            let is_round = is_recursive && !is_first;
            is_first = false;
            let own = match place {
                Place::Repeated => Place::Repeated,
                _ if is_round => Place::Repeated,
                _ if is_deeper && is_once => Place::Deeper,
                _ if is_deeper => Place::Repeated,
                place => place,
            };
            self.go(input, own);
        });
    }

    fn is_inlined(&mut self, number: usize, query: &Plan, reuse: Reuse, place: Place) -> bool {
        let is_only = self.readers.get(&number) == Some(&1);
        let is_in_place = match place {
            Place::Same => true,
            Place::Deeper => !is_open(query),
            Place::Repeated => false,
        };
        if !is_in_place {
            return false;
        }
        if matches!(query, Plan::Recursive { .. }) {
            return is_only;
        }
        let is_wanted = match reuse {
            Reuse::Always => false,
            Reuse::IfShared => is_only,
            Reuse::Never => is_only || self.copies < MOST_COPIES,
        };
        if !is_wanted || !is_fixed(query) {
            return false;
        }
        self.copies += usize::from(!is_only);
        true
    }
}

/// Whether a plan has no effect, and the same rows each time that it is run.
#[recursive::recursive]
pub(crate) fn is_fixed(plan: &Plan) -> bool {
    let mut fixed = match plan {
        Plan::Sequence(_)
        | Plan::Advisory(_)
        | Plan::CopyIn { .. }
        | Plan::Lock(_)
        | Plan::Together { .. }
        | Plan::Insert(_)
        | Plan::Modify(_) => false,
        Plan::Apply { kind: ApplyKind::Compare { comparison, .. }, .. } => {
            !comparison.is_volatile()
        }
        Plan::Rows { function, .. } => function.pause.is_none(),
        // What others keep is the same for all.
        Plan::Shared { .. } => return true,
        _ => true,
    };
    exprs(plan, &mut |own| fixed = fixed && !own.is_volatile());
    inputs(plan, &mut |input, _| fixed = fixed && is_fixed(input));
    fixed
}
