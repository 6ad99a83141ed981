//! Writes of which others may be told.

use selkie_fabric::{Buf, Chain, RemoteAddr, Verb};

/// A write that is in place when the chain is completed: the completion of a write alone does not
/// say so to those who read on other queue pairs, but a read behind it waits until it is.
pub(crate) fn placed(at: RemoteAddr, bytes: Buf) -> Chain {
    let last_word = at.offset + (bytes.len() as u64).saturating_sub(8);
    let read = Verb::read(RemoteAddr::new(at.region, last_word), Buf::zeroed(8));
    Chain::from([Verb::write(at, bytes), read])
}
