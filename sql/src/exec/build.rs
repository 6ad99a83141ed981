//! From plans to operators.

use super::advisory::Advisory;
use super::aggregate::Aggregate;
use super::append::Append;
use super::apply::Apply;
use super::basic::{Filter, FunctionRows, Limit, Project, Ready, Values};
use super::context::BoxOperator;
use super::copy_in::CopyIn;
use super::insert::Insert;
use super::join::Join;
use super::lock::Lock;
use super::measured::Measured;
use super::modify::Modify;
use super::scan::Scan;
use super::sequence::Sequence;
use super::set::{Distinct, SetOperation};
use super::shared::{Recursive, Shared, Working};
use super::sort::Sort;
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
        Plan::Shared { number, plan } => Box::new(Shared::new(*number, plan.clone())),
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
        Plan::Project { input, exprs } => {
            Box::new(Project { input: build(input), exprs: exprs.clone() })
        }
        Plan::Join(join) => Box::new(Join::new(join)),
        Plan::Apply { input, query, kind, is_correlated } => {
            Box::new(Apply::new(build(input), query, kind.clone(), *is_correlated))
        }
        Plan::Aggregate { input, keys, calls } => {
            Box::new(Aggregate::new(build(input), keys.clone(), calls.clone()))
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
        Plan::Set { operator, all, left, right } => {
            Box::new(SetOperation::new(*operator, *all, build(left), build(right)))
        }
        Plan::Lock(lock) => Box::new(Lock::new(lock)),
        Plan::Insert(insert) => Box::new(Insert::new(insert)),
        Plan::Modify(modify) => Box::new(Modify::new(modify)),
        Plan::Advisory(call) => Box::new(Advisory::new(call)),
        Plan::Sequence(call) => Box::new(Sequence::new(call)),
    }
}
