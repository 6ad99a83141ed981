//! The format of shares, and the choice of the image of a write-back that was cut short.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Range;

use selkie_fabric::Buf;
use selkie_pool::layout::{MAX_SPLITS, SHARE_HEADER_BYTES};

use crate::GAddr;
use crate::coding::header_versions::versions_bytes;
use crate::coding::tag::{SplitSet, Version, Versions, set_version, version_of};
use selkie_pool::checksum;

/// Offset of the checksum in a share.
const CHECKSUM_AT: usize = 32;

/// Offset of the checksum of the versions before.
const ALL_BEFORE_AT: usize = 36;

const _: () = assert!(ALL_BEFORE_AT + 4 == SHARE_HEADER_BYTES as usize);

/// The identity of a write-back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WriteAttempt {
    pub(crate) addr: GAddr,
    /// The version of the splits after it.
    pub(crate) version: Version,
    /// The version of the first parity split before it.
    pub(super) before: Version,
    /// The checksum of all versions before it.
    pub(super) all_before: u32,
    /// The incarnation of the writer and the number of its images before. A later write-back has a
    /// larger pair. It tells two write-backs apart that have the same versions, because the first
    /// failed before it changed a split.
    pub(super) number: (u32, u64),
}

/// The new payload of one split.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct JournalShare {
    attempt: WriteAttempt,
    split: usize,
    payload: Vec<u8>,
}

/// The image of the last write-back of a page over the same versions, in one journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JournalImage {
    pub(crate) attempt: WriteAttempt,
    splits: BTreeMap<usize, Vec<u8>>,
}

impl JournalShare {
    pub(super) fn to_buf(attempt: WriteAttempt, split: usize, payload: &[u8]) -> Buf {
        let header = SHARE_HEADER_BYTES as usize;
        let mut buf = Buf::zeroed(header + payload.len());
        let WriteAttempt { addr, version, before, all_before, number } = attempt;
        let versions = u64::from(version.to_bits()) | u64::from(before.to_bits()) << 32;
        let which = u64::from(number.0) | (split as u64) << 32;
        let words = [addr.to_u64(), versions, number.1, which];
        for (to, word) in buf.words_mut().iter_mut().zip(words) {
            *to = word.to_le();
        }
        if let Some(to) = buf.get_mut(header..) {
            to.copy_from_slice(payload);
        }
        if let Some(to) = buf.get_mut(ALL_BEFORE_AT..ALL_BEFORE_AT + 4) {
            to.copy_from_slice(&all_before.to_le_bytes());
        }
        let checksum = checksum(&buf);
        if let Some(to) = buf.get_mut(CHECKSUM_AT..CHECKSUM_AT + 4) {
            to.copy_from_slice(&checksum.to_le_bytes());
        }
        buf
    }

    /// `None` if the bytes are no intact share.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut copy = bytes.to_vec();
        let field = copy.get_mut(CHECKSUM_AT..CHECKSUM_AT + 4)?;
        let known = u32::from_le_bytes(field.try_into().ok()?);
        field.fill(0);
        let word = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        let (addr, versions, count, which) = (word(0)?, word(8)?, word(16)?, word(24)?);
        let split = (which >> 32) as usize;
        if addr == 0 || split >= MAX_SPLITS || checksum(&copy) != known {
            return None;
        }
        let all_before = bytes.get(ALL_BEFORE_AT..ALL_BEFORE_AT + 4)?.try_into().ok()?;
        let attempt = WriteAttempt {
            addr: GAddr::from_u64(addr),
            version: Version::from_bits(versions as u32),
            before: Version::from_bits((versions >> 32) as u32),
            all_before: u32::from_le_bytes(all_before),
            number: (which as u32, count),
        };
        let payload = bytes.get(SHARE_HEADER_BYTES as usize..)?.to_vec();
        Some(Self { attempt, split, payload })
    }
}

impl JournalImage {
    /// The splits of which the image has shares.
    pub(crate) fn splits(&self) -> SplitSet {
        self.splits.keys().copied().collect()
    }

    pub(crate) fn payload(&self, split: usize) -> Option<&[u8]> {
        self.splits.get(&split).map(Vec::as_slice)
    }

    /// The images, of several journals, that were made over a page with this header. Some of its
    /// splits have the versions `torn`, which are not in the header. The image with most shares
    /// comes first: its writer may have written a whole page again, of which another writer had
    /// died in its write-back.
    pub(crate) fn over<'i>(
        images: &'i [Self],
        addr: GAddr,
        header: &Versions,
        torn: &[Version],
        parity: Range<usize>,
    ) -> Vec<&'i Self> {
        let is_lost = |split: &usize| version_of(header, *split) == Version::LOST;
        let latest = parity.clone().find(|split| !is_lost(split)).map(|at| version_of(header, at));
        let is_over = |attempt: &WriteAttempt| {
            // A lost version is the same for all pages: then all versions must be the same. The
            // writer may have known the page before parity was lost with the home.
            let is_same = || {
                let mut before = *header;
                let lost = parity.clone().filter(is_lost);
                lost.for_each(|split| set_version(&mut before, split, attempt.before));
                attempt.all_before == sum_of(&before)
            };
            // Where a write-back was half done when the header was lost, the header has lost what
            // was there before.
            latest == Some(attempt.before) || torn.contains(&attempt.version) || is_same()
        };
        let own = images.iter().filter(|own| own.attempt.addr == addr && is_over(&own.attempt));
        let mut own: Vec<&Self> = own.collect();
        own.sort_by_key(|image| Reverse(image.splits.len()));
        own
    }

    pub(super) fn put(images: &mut Vec<Self>, share: JournalShare) {
        let JournalShare { attempt, split, payload } = share;
        let is_of = |image: &&mut Self| {
            (image.attempt.addr, image.attempt.before) == (attempt.addr, attempt.before)
        };
        let Some(image) = images.iter_mut().find(is_of) else {
            images.push(Self { attempt, splits: BTreeMap::from([(split, payload)]) });
            return;
        };
        if image.attempt.number < attempt.number {
            *image = Self { attempt, splits: BTreeMap::new() };
        }
        if image.attempt == attempt {
            image.splits.insert(split, payload);
        }
    }
}

pub(super) fn sum_of(versions: &Versions) -> u32 {
    checksum(&versions_bytes(versions))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempt(number: (u32, u64)) -> WriteAttempt {
        WriteAttempt {
            addr: GAddr::from_u64(512 * 77),
            version: Version::from_bits(0x0000_5003),
            before: Version::from_bits(0x0000_4001),
            all_before: 77,
            number,
        }
    }

    #[test]
    fn a_share_is_read_as_it_was_written_or_not_at_all() {
        let payload: Vec<u8> = (0..512_u32).map(|byte| byte as u8).collect();
        let mut bytes = JournalShare::to_buf(attempt((2, 9)), 7, &payload).to_vec();
        let share = JournalShare { attempt: attempt((2, 9)), split: 7, payload };
        assert_eq!(JournalShare::from_bytes(&bytes), Some(share));
        assert_eq!(JournalShare::from_bytes(&vec![0; bytes.len()]), None);
        for at in [0, 9, 13, 17, 24, 28, 32, 36, 64, 550] {
            bytes[at] ^= 1;
            assert_eq!(JournalShare::from_bytes(&bytes), None, "byte {at}");
            bytes[at] ^= 1;
        }
        assert_eq!(JournalShare::from_bytes(&bytes[..100]), None, "torn");
        let none = JournalShare::to_buf(attempt((2, 9)), MAX_SPLITS, &[0; 512]);
        assert_eq!(JournalShare::from_bytes(&none), None, "there is no such split");
    }

    /// Two write-backs of a page can have the same versions: their shares must not be mixed.
    #[test]
    fn an_image_has_the_shares_of_the_last_attempt_alone() {
        let early = [(1, 2, 1), (1, 2, 5)];
        let late = [(1, 3, 2), (1, 3, 5)];
        let next = [(2, 0, 2), (2, 0, 5)];
        let WriteAttempt { addr, version, before, .. } = attempt((0, 0));
        let header = |version| {
            let mut header = Versions::default();
            header[4] = version;
            header
        };
        let over = |images: &[JournalImage], version| {
            let own = JournalImage::over(images, addr, &header(version), &[], 4..6);
            own.into_iter().cloned().collect::<Vec<_>>()
        };
        for (first, second) in [(early, late), (late, early), (late, next), (next, late)] {
            let mut images = Vec::new();
            for (incarnation, count, split) in first.into_iter().chain(second) {
                let payload = vec![10 * incarnation as u8 + count as u8; 8];
                let attempt = attempt((incarnation, count));
                JournalImage::put(&mut images, JournalShare { attempt, split, payload });
            }
            let last = if first == next || second == next { 20 } else { 13 };
            let [image] = &over(&images, before)[..] else { panic!("one image") };
            assert_eq!(image.splits(), [2, 5].into_iter().collect());
            assert_eq!(image.payload(5), Some(&[last; 8][..]));
            assert_eq!((images.len(), image.payload(1)), (1, None));
            assert_eq!(over(&images, version), []);
        }
    }

    /// The version of a split that was lost is the same each time.
    #[test]
    fn an_image_over_a_lost_version_is_of_that_very_header() {
        let mut header = Versions::default();
        header[2] = Version::LOST;
        header[0] = Version::from_bits(0x0000_4001);
        let number = (1, 1);
        let attempt =
            WriteAttempt { before: Version::LOST, all_before: sum_of(&header), ..attempt(number) };
        let mut images = Vec::new();
        JournalImage::put(&mut images, JournalShare { attempt, split: 1, payload: vec![1; 8] });
        assert_eq!(JournalImage::over(&images, attempt.addr, &header, &[], 2..3).len(), 1);
        header[0] = Version::from_bits(0x0000_6001);
        assert_eq!(JournalImage::over(&images, attempt.addr, &header, &[], 2..3).len(), 0);
    }

    /// A writer that had the page before memory was lost does not look at the header again.
    #[test]
    fn an_image_is_over_a_header_that_has_lost_parity_since() {
        let written = Version::from_bits(0x0000_4001);
        let mut header = Versions::default();
        header[..4].fill(written);
        let before =
            WriteAttempt { before: written, all_before: sum_of(&header), ..attempt((1, 1)) };
        let mut images = Vec::new();
        let share = JournalShare { attempt: before, split: 1, payload: vec![1; 8] };
        JournalImage::put(&mut images, share);
        let over = |header| JournalImage::over(&images, before.addr, &header, &[], 2..4).len();
        assert_eq!(over(header), 1);
        header[2] = Version::LOST;
        assert_eq!(over(header), 1, "the other parity has the version");
        header[3] = Version::LOST;
        assert_eq!(over(header), 1);
        header[0] = Version::from_bits(0x0000_6001);
        assert_eq!(over(header), 0, "of another page");
    }

    /// The header was lost when the write-back was half done, and has not what was there before.
    #[test]
    fn an_image_is_known_by_a_split_that_it_wrote() {
        let attempt = attempt((1, 1));
        let mut images = Vec::new();
        JournalImage::put(&mut images, JournalShare { attempt, split: 1, payload: vec![1; 8] });
        let header = [Version::LOST; MAX_SPLITS];
        let over = |torn| JournalImage::over(&images, attempt.addr, &header, torn, 4..6).len();
        let other = attempt.version.next(SplitSet::first(2));
        assert_eq!((over(&[]), over(&[other]), over(&[attempt.version])), (0, 0, 1));
    }

    /// Two nodes have images of the same page if one took over from the other, and died as well.
    #[test]
    fn of_two_images_the_one_that_has_more_of_the_page_is_first() {
        let mut images = Vec::new();
        for (node, splits) in [(1, 0..3), (2, 0..6)] {
            let mut own = Vec::new();
            for split in splits {
                let attempt = attempt((1, node));
                JournalImage::put(
                    &mut own,
                    JournalShare { attempt, split, payload: vec![node as u8; 8] },
                );
            }
            images.append(&mut own);
        }
        let mut header = Versions::default();
        header[4] = attempt((0, 0)).before;
        let own = JournalImage::over(&images, attempt((0, 0)).addr, &header, &[], 4..6);
        let counts: Vec<usize> = own.iter().map(|image| image.splits().len()).collect();
        assert_eq!(counts, [6, 3]);
    }
}
