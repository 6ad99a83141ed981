//! Protection domains: which bytes of a node's memory a guest may access, and how (MIND §4.2).
//!
//! A [`Domain`] is a sorted list of byte ranges, each with [`Rights`]. Every verb is checked as a
//! whole where it executes, before any part of it executes. An access may cross ranges if every
//! byte of it has the right. Bytes that no range covers are forbidden. MIND keeps such a table in
//! the switch and finds entries by their longest prefix. Here each node keeps the table of each
//! guest and finds ranges by binary search, so they need not be powers of two.
//!
//! Ranges are offsets that hold for all regions of the node alike. A node that lends memory to
//! guests of different rights lays its regions out accordingly, or lends another region from
//! another endpoint.

use std::ops::Range;

use crate::access::Access;
use crate::buf::WORD_BYTES;
use crate::error::FabricError;
use crate::id::PeerId;
use crate::verb::Verb;

/// Most ranges in the grants of one domain.
pub const MAX_GRANTS: usize = 1 << 20;

/// The kinds of access that are allowed. No kind includes another: an atomic needs `atomic` only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Rights {
    /// Reads.
    pub read: bool,
    /// Writes, with and without doorbell.
    pub write: bool,
    /// Compare-and-swap and fetch-and-add, which both read and write.
    pub atomic: bool,
}

impl Rights {
    /// Reads alone.
    pub const READ: Self = Self { read: true, write: false, atomic: false };
    /// Writes alone.
    pub const WRITE: Self = Self { read: false, write: true, atomic: false };
    /// Atomics alone.
    pub const ATOMIC: Self = Self { read: false, write: false, atomic: true };
    /// Everything.
    pub const ALL: Self = Self { read: true, write: true, atomic: true };

    /// Whether accesses of this kind are allowed.
    pub fn allow(self, what: Access) -> bool {
        match what {
            Access::Read => self.read,
            Access::Write => self.write,
            Access::Atomic => self.atomic,
        }
    }
}

/// The rights of a guest, by byte range.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Domain {
    /// Sorted and disjoint. None is empty or without rights, and neighbours that touch have
    /// different rights.
    ranges: Vec<(Range<u64>, Rights)>,
}

/// Why grants make no domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DomainError {
    /// A range ends before it begins.
    #[error("the range of {start} to {end} ends before it begins")]
    Backwards {
        /// Its first byte.
        start: u64,
        /// The byte behind its last byte.
        end: u64,
    },
    /// There are too many grants.
    #[error("more than {MAX_GRANTS} ranges")]
    TooMany,
}

/// How many grants of each kind cover an offset.
#[derive(Clone, Copy, Default)]
struct GrantCounts {
    read: usize,
    write: usize,
    atomic: usize,
}

impl GrantCounts {
    fn add(&mut self, rights: Rights) {
        self.read += usize::from(rights.read);
        self.write += usize::from(rights.write);
        self.atomic += usize::from(rights.atomic);
    }

    fn subtract(&mut self, rights: Rights) {
        self.read -= usize::from(rights.read);
        self.write -= usize::from(rights.write);
        self.atomic -= usize::from(rights.atomic);
    }

    fn rights(self) -> Rights {
        Rights { read: self.read > 0, write: self.write > 0, atomic: self.atomic > 0 }
    }
}

impl Domain {
    /// The domain of the union of these grants: where ranges overlap, their rights add up.
    /// `0..u64::MAX` covers all memory, also memory that is registered later.
    ///
    /// # Errors
    /// If a range is backwards, or there are more than [`MAX_GRANTS`].
    pub fn new(
        grants: impl IntoIterator<Item = (Range<u64>, Rights)>,
    ) -> Result<Self, DomainError> {
        let mut ends = Vec::new();
        for (count, (range, rights)) in grants.into_iter().enumerate() {
            if count >= MAX_GRANTS {
                return Err(DomainError::TooMany);
            }
            let Range { start, end } = range;
            if start > end {
                return Err(DomainError::Backwards { start, end });
            }
            // At one offset starts come before ends, so that no count falls below 0.
            ends.extend([(start, false, rights), (end, true, rights)]);
        }
        ends.sort_by_key(|(at, is_end, _)| (*at, *is_end));
        let (mut domain, mut counts, mut from) = (Self::default(), GrantCounts::default(), 0);
        for (at, is_end, rights) in ends {
            domain.append(from..at, counts.rights());
            from = at;
            if is_end {
                counts.subtract(rights);
            } else {
                counts.add(rights);
            }
        }
        Ok(domain)
    }

    /// Appends a range that begins where the last one ends, or later.
    fn append(&mut self, range: Range<u64>, rights: Rights) {
        if range.is_empty() || rights == Rights::default() {
            return;
        }
        match self.ranges.last_mut() {
            Some((last, same)) if last.end == range.start && *same == rights => {
                last.end = range.end
            }
            _ => self.ranges.push((range, rights)),
        }
    }

    /// The ranges that have rights: sorted, disjoint, and as few as possible.
    pub fn ranges(&self) -> &[(Range<u64>, Rights)] {
        &self.ranges
    }

    /// Checks that the verb may access every one of its bytes in the memory of `peer`.
    ///
    /// # Errors
    /// `Forbidden` with the first byte that it may not access.
    pub fn check(&self, peer: PeerId, verb: &Verb) -> Result<(), FabricError> {
        let (what, at) = (verb.access(), verb.at());
        let bytes = verb.buf().map_or(WORD_BYTES, |buf| buf.len()) as u64;
        let end = at.offset.saturating_add(bytes);
        let mut offset = at.offset;
        let first = self.ranges.partition_point(|(range, _)| range.end <= offset);
        for (range, rights) in self.ranges.iter().skip(first) {
            if offset >= end || range.start > offset || !rights.allow(what) {
                break;
            }
            offset = range.end;
        }
        if offset >= end {
            return Ok(());
        }
        Err(FabricError::Forbidden { peer, region: at.region, offset, what })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::buf::Buf;
    use crate::id::{RegionKey, RemoteAddr};

    const PEER: PeerId = PeerId::memory(4);
    const REGION: RegionKey = RegionKey::from_raw(9);

    fn read(offset: u64, bytes: usize) -> Verb {
        Verb::read(RemoteAddr::new(REGION, offset), Buf::zeroed(bytes))
    }

    fn write(offset: u64, bytes: usize) -> Verb {
        Verb::write(RemoteAddr::new(REGION, offset), Buf::zeroed(bytes))
    }

    fn add(offset: u64) -> Verb {
        Verb::fetch_and_add(RemoteAddr::new(REGION, offset), 1)
    }

    fn forbidden(offset: u64, what: Access) -> Result<(), FabricError> {
        Err(FabricError::Forbidden { peer: PEER, region: REGION, offset, what })
    }

    #[test]
    fn a_reader_that_may_add_in_one_place_does_nothing_else() {
        let domain = Domain::new([(0..u64::MAX, Rights::READ), (0..4096, Rights::ATOMIC)]).unwrap();
        let check = |verb: Verb| domain.check(PEER, &verb);
        for verb in [read(0, 8192), read(4088, 16), read(1 << 40, 1 << 10), add(0), add(4088)] {
            assert_eq!(check(verb), Ok(()));
        }
        let swap = Verb::compare_and_swap(RemoteAddr::new(REGION, 4096), 0, 1);
        assert_eq!(check(add(4096)), forbidden(4096, Access::Atomic));
        assert_eq!(check(swap), forbidden(4096, Access::Atomic));
        assert_eq!(check(add(4092)), forbidden(4096, Access::Atomic), "half outside");
        assert_eq!(check(write(0, 8)), forbidden(0, Access::Write));
        let rings = Verb::write_with_doorbell(RemoteAddr::new(REGION, 8), Buf::zeroed(8));
        assert_eq!(check(rings), forbidden(8, Access::Write));
        assert_eq!(check(write(0, 0)), Ok(()), "no byte is written");
    }

    #[test]
    fn what_no_range_covers_is_forbidden_and_said_to_the_byte() {
        let nothing = Domain::default();
        assert_eq!(nothing.check(PEER, &read(0, 8)), forbidden(0, Access::Read));
        let gap = Domain::new([(8..64, Rights::ALL), (72..128, Rights::ALL)]).unwrap();
        assert_eq!(gap.check(PEER, &write(8, 56)), Ok(()));
        assert_eq!(gap.check(PEER, &write(0, 16)), forbidden(0, Access::Write));
        assert_eq!(gap.check(PEER, &write(56, 32)), forbidden(64, Access::Write));
        assert_eq!(gap.check(PEER, &read(120, 16)), forbidden(128, Access::Read));
        assert_eq!(gap.check(PEER, &add(200)), forbidden(200, Access::Atomic));
        assert_eq!(gap.check(PEER, &read(u64::MAX - 7, 64)), forbidden(u64::MAX - 7, Access::Read));
    }

    #[test]
    fn domains_are_normal_bounded_and_never_backwards() {
        let read_write = Rights { atomic: false, ..Rights::ALL };
        let domain = Domain::new([
            (64..128, Rights::READ),
            (0..64, Rights::READ),
            (32..96, Rights::WRITE),
            (32..48, Rights::WRITE),
            (256..512, Rights::default()),
            (200..200, Rights::ALL),
        ]);
        let expected = [(0..32, Rights::READ), (32..96, read_write), (96..128, Rights::READ)];
        assert_eq!(domain.unwrap().ranges(), expected);
        let backwards = Range { start: 9, end: 8 };
        let error = Domain::new([(backwards, Rights::ALL)]);
        assert_eq!(error, Err(DomainError::Backwards { start: 9, end: 8 }));
        let grants = |count: usize| Domain::new(vec![(0..8, Rights::ALL); count]);
        assert!(grants(MAX_GRANTS).is_ok());
        assert_eq!(grants(MAX_GRANTS + 1), Err(DomainError::TooMany));
    }

    fn rights() -> impl Strategy<Value = Rights> {
        any::<[bool; 3]>().prop_map(|[read, write, atomic]| Rights { read, write, atomic })
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn every_byte_has_the_right_that_some_grant_gives_it(
            grants in prop::collection::vec((0..100_u64, 0..40_u64, rights()), 0..12),
            offset in 0..150_u64,
            words in 0..5_usize,
            kind in 0..3,
        ) {
            let granted =
                || grants.iter().map(|(start, bytes, rights)| (*start..start + bytes, *rights));
            let domain = Domain::new(granted()).unwrap();
            for pair in domain.ranges().windows(2) {
                let ((one, its), (two, theirs)) = (&pair[0], &pair[1]);
                prop_assert!(one.end < two.start || (one.end == two.start && its != theirs));
            }
            let verb = match kind {
                0 => read(offset, 8 * words),
                1 => write(offset, 8 * words),
                _ => add(offset),
            };
            let (what, bytes) = (verb.access(), verb.buf().map_or(8, |buf| buf.len() as u64));
            let has_right =
                |byte| granted().any(|(range, rights)| range.contains(&byte) && rights.allow(what));
            let first = (offset..offset + bytes).find(|byte| !has_right(*byte));
            let expected = first.map_or(Ok(()), |byte| forbidden(byte, what));
            prop_assert_eq!(domain.check(PEER, &verb), expected);
        }
    }
}
