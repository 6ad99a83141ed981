//! Plans: what is to be done for a statement, with all names and types resolved.
//!
//! The binder makes a tree of [`Plan`]s out of a statement, [`crate::plan`]'s optimizer puts
//! conditions where they cost least and chooses keys, then says what is merged, grouped as it comes
//! or read from indexes alone, and the executor runs the outcome. A row is a list of values; what
//! each node gives is said at its variant.

mod access;
mod advisory;
mod arrange;
mod conditions;
mod cover;
mod depth;
mod estimate;
mod expr;
mod first_value;
mod inline;
mod join_order;
mod key_conditions;
mod merge;
mod needed;
mod node;
mod optimize;
mod order;
mod physical;
mod scan_order;
mod semi_join;
pub(crate) mod walk;

pub(crate) use advisory::{AdvisoryCall, AdvisoryFunction};
pub(crate) use depth::check_depth;
pub(crate) use estimate::Statistics;
pub(crate) use expr::{Branch, Comparison, Expr, Quantifier, Typed};
pub(crate) use inline::is_fixed;
pub(crate) use node::{
    Access, AggregateCall, ApplyKind, Assignments, ConflictAction, Frame, FrameBound, FrameOffset,
    FrameUnits, Insert, Join, JoinKind, KeyBound, KeyItem, LockRows, Locking, Merge, MergeKey,
    Modify, Plan, Reuse, Scan, SequenceCall, SequenceFunction, SetOperator, SortKey, WindowCall,
};
pub(crate) use optimize::{optimize, optimize_by};
