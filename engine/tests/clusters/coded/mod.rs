//! Coded pages: a read returns what was written, whichever memory nodes are lost or damage it.

mod damage;
mod memory_loss;
mod regeneration;
