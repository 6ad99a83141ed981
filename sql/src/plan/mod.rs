//! Plans: what is to be done for a statement, with all names and types resolved.
//!
//! The binder makes a tree of [`Plan`]s out of a statement, [`crate::plan`]'s optimizer puts
//! conditions where they cost least and chooses keys, and the executor runs the outcome. A row is
//! a list of values; what each node gives is said at its variant.

mod access;
mod advisory;
mod conditions;
mod depth;
mod expr;
mod key_conditions;
mod needed;
mod node;
mod optimize;
mod order;
mod semi_join;

pub(crate) use advisory::{AdvisoryCall, AdvisoryFunction};
pub(crate) use depth::check_depth;
pub(crate) use expr::{Branch, Comparison, Expr, Quantifier, Typed};
pub(crate) use node::{
    Access, AggregateCall, ApplyKind, Assignments, ConflictAction, Frame, FrameBound, FrameOffset,
    FrameUnits, Insert, Join, JoinKind, KeyBound, KeyItem, LockRows, Locking, Modify, Plan, Scan,
    SequenceCall, SequenceFunction, SetOperator, SortKey, WindowCall,
};
pub(crate) use optimize::optimize;
