//! Who probably holds the lines this node has given away: a small lossy table.
//!
//! A line that was handed over is wanted back more often than not, and its word would only say who
//! holds it now. Whoever is asked in vain says so, and the word is looked at then; so an entry may
//! be wrong, or gone, at any time.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::GAddr;
use crate::coherence::word::ComputeId;

/// Bits of an entry below a line's address, which is a multiple of 512: the holder plus one.
const HOLDER_BITS: u64 = 0x1FF;

/// One entry a slot, the line's address and its holder; the last to come stays.
pub(crate) struct Hints(Box<[AtomicU64]>);

impl Hints {
    /// A table of `slots` slots or some more; none at all for 0.
    pub(crate) fn new(slots: usize) -> Hints {
        let slots = if slots == 0 { 0 } else { slots.next_power_of_two() };
        Hints((0..slots).map(|_| AtomicU64::new(0)).collect())
    }

    fn slot(&self, addr: GAddr) -> Option<&AtomicU64> {
        let hash = addr.to_u64().wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(32) as usize;
        self.0.get(hash & self.0.len().wrapping_sub(1))
    }

    /// The node that probably holds the line.
    pub(crate) fn get(&self, addr: GAddr) -> Option<ComputeId> {
        // Relaxed, as everywhere here: a hint orders nothing.
        let entry = self.slot(addr)?.load(Ordering::Relaxed);
        let holder = (entry & HOLDER_BITS).checked_sub(1)?;
        (entry & !HOLDER_BITS == addr.to_u64()).then(|| ComputeId::new(holder as usize)).flatten()
    }

    /// `holder` has the line, or is about to.
    pub(crate) fn set(&self, addr: GAddr, holder: ComputeId) {
        if let Some(slot) = self.slot(addr) {
            slot.store(addr.to_u64() | (holder.index() as u64 + 1), Ordering::Relaxed);
        }
    }

    /// `holder` has the line no more.
    pub(crate) fn forget(&self, addr: GAddr, holder: ComputeId) {
        if self.get(addr) == Some(holder)
            && let Some(slot) = self.slot(addr)
        {
            slot.store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_are_for_their_line_and_end_with_their_holder() {
        let hints = Hints::new(5);
        let id = |node| ComputeId::new(node).unwrap();
        let line = |number: u64| GAddr::from_u64(number * 512);
        assert_eq!(hints.get(line(3)), None);
        hints.set(line(3), id(57));
        assert_eq!(hints.get(line(3)), Some(id(57)));
        assert!((4..2000).all(|other| hints.get(line(other)).is_none()), "other lines, same slots");
        hints.forget(line(3), id(1));
        assert_eq!(hints.get(line(3)), Some(id(57)), "another node's word does not count");
        hints.forget(line(3), id(57));
        assert_eq!(hints.get(line(3)), None);
        let none = Hints::new(0);
        none.set(line(3), id(0));
        assert_eq!(none.get(line(3)), None);
    }
}
