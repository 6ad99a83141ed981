//! The regions of a peer, as a queue pair reaches them: windows with keys of their own.
//!
//! A card says only that an access was refused, and the queue pair is lost with it. So the poster
//! checks first, and finds the same errors as on fabrics where the peer checks. What the peer
//! allows is enforced by its card, whatever the poster believes.

use std::collections::BTreeMap;

use super::setup::Window;
use crate::buf::WORD_BYTES;
use crate::error::FabricError;
use crate::id::{PeerId, RegionKey, RemoteAddr};
use crate::verb::Verb;

/// A region and its windows: sorted, and disjoint.
#[derive(Debug, Clone, Default)]
pub(super) struct RemoteRegion {
    pub(super) bytes: u64,
    pub(super) windows: Vec<Window>,
}

/// Regions by key: few, and looked up for every verb. A region keeps its key, so what is known
/// stays true.
pub(super) type RemoteRegions = BTreeMap<RegionKey, RemoteRegion>;

/// Bytes that a verb moves.
pub(super) fn bytes_of(verb: &Verb) -> usize {
    verb.buf().map_or(WORD_BYTES, |buf| buf.len())
}

impl RemoteRegion {
    /// Checks a verb as its target would.
    pub(super) fn check(&self, peer: PeerId, verb: &Verb) -> Result<(), FabricError> {
        let (at, bytes) = (verb.at(), bytes_of(verb) as u64);
        if !at.offset.is_multiple_of(WORD_BYTES as u64) {
            return Err(FabricError::Misaligned { at });
        }
        let end = at.offset.checked_add(bytes).filter(|end| *end <= self.bytes);
        let Some(end) = end else {
            return Err(FabricError::OutOfBounds { at, bytes, region_bytes: self.bytes });
        };
        let mut offset = at.offset;
        while offset < end {
            match self.window(offset).filter(|window| window.rights.allow(verb.access())) {
                Some(window) => offset = window.offset + window.bytes,
                None => {
                    let (region, what) = (at.region, verb.access());
                    return Err(FabricError::Forbidden { peer, region, offset, what });
                }
            }
        }
        Ok(())
    }

    /// The window of this byte.
    fn window(&self, offset: u64) -> Option<&Window> {
        let index = self.windows.partition_point(|window| window.offset + window.bytes <= offset);
        self.windows.get(index).filter(|window| window.offset <= offset)
    }

    /// Where the peer has this byte: address, key, and how many bytes go on from there.
    pub(super) fn locate(&self, offset: u64) -> Option<(u64, u32, u64)> {
        let window = self.window(offset)?;
        let within = offset - window.offset;
        Some((window.address + within, window.key, window.bytes - within))
    }
}

/// Whether a write of these bytes may overtake a read or an atomic of the same bytes before it.
pub(super) fn overlaps(earlier: &Verb, at: RemoteAddr, bytes: u64) -> bool {
    let is_read = !matches!(earlier, Verb::Write { .. } | Verb::WriteWithDoorbell { .. });
    let (other, length) = (earlier.at(), bytes_of(earlier) as u64);
    is_read
        && other.region == at.region
        && other.offset < at.offset.saturating_add(bytes)
        && at.offset < other.offset.saturating_add(length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Access;
    use crate::buf::Buf;
    use crate::domain::Rights;

    const PEER: PeerId = PeerId::memory(2);
    const KEY: RegionKey = RegionKey::from_raw(0x0007_0001);

    fn region() -> RemoteRegion {
        let window = |offset, bytes, key, rights| Window {
            offset,
            bytes,
            address: 0x10_000 + offset,
            key,
            rights,
        };
        let windows = vec![
            window(0, 64, 5, Rights::READ),
            window(64, 64, 6, Rights { atomic: true, ..Rights::READ }),
            window(192, 64, 7, Rights::ALL),
        ];
        RemoteRegion { bytes: 256, windows }
    }

    fn at(offset: u64) -> RemoteAddr {
        RemoteAddr::new(KEY, offset)
    }

    #[test]
    fn a_poster_finds_the_errors_that_its_target_would() {
        let check = |verb: Verb| region().check(PEER, &verb);
        let read = |offset, bytes| Verb::read(at(offset), Buf::zeroed(bytes));
        assert_eq!(check(read(0, 128)), Ok(()), "over two windows");
        assert_eq!(check(Verb::fetch_and_add(at(120), 1)), Ok(()));
        assert_eq!(check(read(256, 0)), Ok(()), "nothing, at the end");
        assert_eq!(check(read(4, 8)), Err(FabricError::Misaligned { at: at(4) }));
        for offset in [256, 1 << 40, u64::MAX - 7] {
            let at = at(offset);
            let expected = FabricError::OutOfBounds { at, bytes: 8, region_bytes: 256 };
            assert_eq!(check(read(offset, 8)), Err(expected));
        }
        let forbidden =
            |offset, what| Err(FabricError::Forbidden { peer: PEER, region: KEY, offset, what });
        assert_eq!(check(read(64, 128)), forbidden(128, Access::Read), "a gap");
        assert_eq!(check(Verb::fetch_and_add(at(0), 1)), forbidden(0, Access::Atomic));
        assert_eq!(check(Verb::write(at(184), Buf::zeroed(16))), forbidden(184, Access::Write));
    }

    #[test]
    fn places_are_found_with_what_goes_on_from_there() {
        let locate = |offset| region().locate(offset);
        assert_eq!(locate(8), Some((0x10_008, 5, 56)));
        assert_eq!(locate(64), Some((0x10_040, 6, 64)));
        assert_eq!(locate(128), None);
        assert_eq!(locate(255), Some((0x10_0ff, 7, 1)));
        assert_eq!(locate(256), None);
    }

    #[test]
    fn a_write_waits_for_reads_of_what_it_writes_only() {
        let read = Verb::read(at(64), Buf::zeroed(64));
        assert!(overlaps(&read, at(120), 8) && overlaps(&read, at(0), 72));
        assert!(!overlaps(&read, at(128), 8) && !overlaps(&read, at(0), 64));
        assert!(overlaps(&Verb::fetch_and_add(at(64), 1), at(64), 8));
        assert!(!overlaps(&Verb::write(at(64), Buf::zeroed(8)), at(64), 8));
        let other = RemoteAddr::new(RegionKey::from_raw(9), 64);
        assert!(!overlaps(&read, other, 8));
    }
}
