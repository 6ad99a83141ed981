//! How the processes of a coded pool agree on the move of a slab from one living memory node to
//! another.
//!
//! ```text
//! clearing   the headers leave the slab, the place it moves to is cleared
//! copying    all write to both; one node copies the splits written before
//! switching  as before, but counters stand still
//! switched   the new slab is the range's; all write to both
//! settling   all write to the new one alone; operations that began before may still use the old
//!            one
//! ```
//! Each stage begins when all processes have taken note of the one before, and have ended the
//! operations that they began before that (see [`crate::Observer::changed`]). So at any time the
//! slab that is read has all that was written, and the pages have all their splits. If one of the
//! two nodes dies, the range continues with the other node's slab if that is whole; else the slab
//! is lost, and regenerated.

mod draining;
mod steps;
#[cfg(test)]
mod tests;

pub use draining::{DrainProgress, drain};
