//! Coded pages: a read returns what was written, whichever memory nodes are lost or damage it.

mod all_gone;
mod damage;
mod many_lost;
mod memory_loss;
mod regeneration;
