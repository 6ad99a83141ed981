//! From plans to operators.

use super::advisory::Advisory;
use super::aggregate::Aggregate;
use super::aggregate_ordered::OrderedAggregate;
use super::append::Append;
use super::apply::Apply;
use super::basic::{Filter, FunctionRows, Limit, OneByOne, Project, Ready, Values};
use super::context::BoxOperator;
use super::copy_in::CopyIn;
use super::count::CountRows;
use super::insert::Insert;
use super::join::Join;
use super::lock::Lock;
use super::measured::Measured;
use super::merge_join::MergeJoin;
use super::modify::Modify;
use super::number_rows::NumberRows;
use super::scan::Scan;
use super::sequence::Sequence;
use super::set::{Distinct, Union};
use super::set_counted::CountedSet;
use super::shared::{Recursive, Shared, Working};
use super::sort::Sort;
use super::together::Together;
use super::window::Window;
use crate::plan::{Plan, SetOperator};

/// The operator that runs a plan. Nothing is read yet.
#[recursive::recursive]
pub(crate) fn build(plan: &Plan) -> BoxOperator {
    match plan {
        Plan::One => Box::new(Ready::new(vec![Vec::new()])),
        Plan::Nothing { .. } => Box::new(Ready::new(Vec::new())),
        Plan::Values { rows, .. } => Box::new(Values::new(rows.clone())),
        Plan::CopyIn { table, columns, format } => Box::new(CopyIn::new(table, columns, format)),
        Plan::Scan(scan) => Box::new(Scan::new(scan)),
        Plan::Rows { function, arguments, ordinality } => {
            Box::new(FunctionRows::new(function.clone(), arguments.clone(), *ordinality))
        }
        Plan::Shared { number, plan, .. } => Box::new(Shared::new(*number, plan.clone())),
        Plan::Working { number, width: _ } => Box::new(Working::new(*number)),
        Plan::Recursive { number, first, next, all } => {
            Box::new(Recursive::new(*number, first, next, *all))
        }
        Plan::Measured { number, input } => {
            Box::new(Measured { number: *number, input: build(input), has_begun: false })
        }
        Plan::Filter { input, condition } => {
            Box::new(Filter { input: build(input), condition: condition.clone() })
        }
        Plan::Project { input, exprs } => Box::new(Project::new(build(input), exprs)),
        Plan::Join(join) => Box::new(Join::new(join)),
        Plan::Merge(merge) => Box::new(MergeJoin::new(merge)),
        Plan::Apply { input, query, kind, is_correlated } => {
            // What one call of a row does to a sequence is seen by the next call of the same row.
            let is_by_row = calls_of_sequences(plan) > 1;
            let input = if is_by_row { by_row(input) } else { build(input) };
            Box::new(Apply::new(input, query, kind.clone(), *is_correlated))
        }
        Plan::Aggregate { input, keys, calls } => {
            if let Some(count) = CountRows::of(input, keys, calls) {
                return Box::new(count);
            }
            Box::new(Aggregate::new(build(input), keys.clone(), calls.clone()))
        }
        Plan::Grouped { input, keys, calls } => {
            Box::new(OrderedAggregate::new(build(input), keys.clone(), calls.clone()))
        }
        Plan::Window { input, calls } if NumberRows::are_it(calls) => {
            Box::new(NumberRows::new(build(input), calls.len()))
        }
        Plan::Window { input, calls } => Box::new(Window::new(build(input), calls.clone())),
        Plan::Sort { input, keys, first } => {
            Box::new(Sort::new(build(input), keys.clone(), first.clone()))
        }
        Plan::Limit { input, limit, offset } => {
            Box::new(Limit::new(build(input), limit.clone(), offset.clone()))
        }
        Plan::Distinct { input, keys, is_sorted } => {
            Box::new(Distinct::new(build(input), keys.clone(), *is_sorted))
        }
        Plan::Set { operator: SetOperator::Union, all: true, left, right } => {
            Box::new(Append::new(left, right))
        }
        Plan::Set { operator: SetOperator::Union, all: false, left, right } => {
            Box::new(Union::new(build(left), build(right)))
        }
        Plan::Set { operator, all, left, right } => {
            let is_intersect = *operator == SetOperator::Intersect;
            Box::new(CountedSet::new(is_intersect, *all, build(left), build(right)))
        }
        Plan::Lock(lock) => Box::new(Lock::new(lock)),
        Plan::Together { changes, main } => Box::new(Together::new(changes, main)),
        Plan::Insert(insert) => Box::new(Insert::new(insert)),
        Plan::Modify(modify) => Box::new(Modify::new(modify)),
        Plan::Advisory(call) => Box::new(Advisory::new(call)),
        Plan::Sequence(call) => Box::new(Sequence::new(call)),
    }
}

/// How many functions of sequences are called for each row of what a plan extends.
#[recursive::recursive]
fn calls_of_sequences(plan: &Plan) -> usize {
    match plan {
        Plan::Apply { input, query, .. } => {
            usize::from(matches!(**query, Plan::Sequence(_))) + calls_of_sequences(input)
        }
        Plan::Measured { input, .. } | Plan::Project { input, .. } => calls_of_sequences(input),
        _ => 0,
    }
}

/// As [`build`], with what a plan extends coming row by row.
#[recursive::recursive]
fn by_row(plan: &Plan) -> BoxOperator {
    match plan {
        Plan::Apply { input, query, kind, is_correlated } => {
            Box::new(Apply::new(by_row(input), query, kind.clone(), *is_correlated))
        }
        Plan::Project { input, exprs } => Box::new(Project::new(by_row(input), exprs)),
        Plan::Measured { number, input } => {
            Box::new(Measured { number: *number, input: by_row(input), has_begun: false })
        }
        plan => Box::new(OneByOne::new(build(plan))),
    }
}
