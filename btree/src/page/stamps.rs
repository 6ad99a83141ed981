//! The timestamps that a page carries for transactions that are ordered by them.
//!
//! They are the transaction layer's: the tree keeps them, copies them and never asks what they
//! mean. A leaf's stamps hold for its range of keys, whether there are rows in it or not; so both
//! halves of a split leaf have them, and a leaf that takes over its neighbour's range has the later
//! ones of both. Those of inner pages are zero.

use selkie_engine::Stamp;

/// Bytes of both stamps.
pub(crate) const STAMPS: usize = 16;

/// The latest transactions that have used a leaf.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Stamps {
    /// The latest that has read it.
    pub read: Stamp,
    /// The latest that has changed it.
    pub write: Stamp,
}

const _: () = assert!(STAMPS == size_of::<Stamps>());

impl Stamps {
    /// The later ones of both.
    pub(crate) fn latest(self, other: Self) -> Self {
        Self { read: self.read.max(other.read), write: self.write.max(other.write) }
    }

    /// `read`, then `write`.
    pub(crate) fn encode(self) -> [u8; STAMPS] {
        let both = u128::from(self.write.get()) << u64::BITS | u128::from(self.read.get());
        both.to_le_bytes()
    }

    pub(crate) fn decode(bytes: [u8; STAMPS]) -> Self {
        let both = u128::from_le_bytes(bytes);
        Self { read: Stamp::new(both as u64), write: Stamp::new((both >> u64::BITS) as u64) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_lie_as_the_byte_map_says() {
        let stamps =
            Stamps { read: Stamp::new(0x0102_0304_0506_0708), write: Stamp::new(u64::MAX - 1) };
        let bytes = stamps.encode();
        assert_eq!(bytes[..8], [8, 7, 6, 5, 4, 3, 2, 1]);
        assert_eq!(bytes[8..], (u64::MAX - 1).to_le_bytes());
        assert_eq!(Stamps::decode(bytes), stamps);
    }

    #[test]
    fn the_later_of_each_counts() {
        let [a, b] =
            [(3, 9), (7, 5)].map(|(r, w)| Stamps { read: Stamp::new(r), write: Stamp::new(w) });
        let both = Stamps { read: Stamp::new(7), write: Stamp::new(9) };
        assert_eq!((a.latest(b), b.latest(a)), (both, both));
    }
}
