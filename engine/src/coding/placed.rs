//! Writes that other nodes may rely on.

use selkie_fabric::{Buf, Chain, RemoteAddr, Verb};

/// A write that is in place when its chain completes. The completion of a write alone does not
/// promise that to readers on other queue pairs; a read behind it waits until the write is in
/// place.
pub(crate) fn placed(at: RemoteAddr, bytes: Buf) -> Chain {
    let last_word = at.offset + (bytes.len() as u64).saturating_sub(8);
    let read = Verb::read(RemoteAddr::new(at.region, last_word), Buf::zeroed(8));
    Chain::from([Verb::write(at, bytes), read])
}
