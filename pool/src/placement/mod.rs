//! Which slabs the ranges of a coded pool lie in.
//!
//! ```text
//! coding_sets     which memory nodes the slabs of a range are on, as a pure function
//! free_slabs      which slabs are free
//! ranges          a new range; why there is no place for one
//! balance         which slab is to move, so that memory nodes have like many of them
//! ```

pub(crate) mod balance;
pub mod coding_sets;
pub(crate) mod free_slabs;
pub(crate) mod ranges;
