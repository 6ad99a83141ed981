//! How the processes of a coded pool agree on the move of a slab from one living memory node to
//! another.
//!
//! ```text
//! clearing   the headers leave the slab, the place it goes to is cleared
//! copying    all write to both; one fills in what was there before
//! switching  as before, but counters stand still
//! switched   the new slab is the range's; all write to both
//! settling   all write to the new one alone; who began before may still use the old one
//! ```
//! Each stage begins when all processes have taken note of the one before, and have ended what they
//! began before that (see [`crate::Observer::changed`]). So at any time the slab that is read has
//! all that was written, and the pages have all their splits. If one of the two nodes dies, the
//! range continues with the other's slab as far as that is whole, and the rest is that of a loss.

mod draining;
mod steps;
#[cfg(test)]
mod tests;

pub use draining::{DrainProgress, drain};
