//! The journal: what a write-back is about to write, where it would not outlive its writer
//! otherwise.
//!
//! ```text
//! [a share of each split that will be written, at its memory node] -> [the splits] -> versions in the header, latch
//! ```
//! Together the shares are the *image* of a write-back. They are there before the first split
//! changes, and stand until others take their place; whoever looks after the writer's death tells
//! by the versions whether they are of the write-back that was cut short. With the data splits that
//! did not change they are a coded page: it survives the writer together with as many memory nodes
//! as there are parity splits, but for the home, without which nobody knows what the page was
//! before. Where shares lie, and how they look, is in [`selkie_memnode::layout`].

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use selkie_fabric::{Buf, Chain, Completion, Verb};
use selkie_memnode::layout::{JOURNAL_IMAGES, MAX_SPLITS, SHARE_HEADER_BYTES, TAG_BYTES};

use super::access::versions_bytes;
use super::placed::placed;
use super::tag::{SplitSet, Version, Versions};
use crate::addressing::placement::SplitsAt;
use crate::coherence::word::ComputeId;
use crate::core::Core;
use crate::{EngineError, GAddr};

/// Offset of the checksum in a share.
const CHECKSUM_AT: usize = 32;
/// Offset of what the versions before sum up to.
const ALL_BEFORE_AT: usize = 36;
const _: () = assert!(ALL_BEFORE_AT + 4 == SHARE_HEADER_BYTES as usize);

/// The places for images in a node's own journal. Who has waited longest is next: thousands do
/// while a cache is emptied.
pub(crate) struct Places {
    queue: Mutex<Queue>,
    /// Images so far.
    count: AtomicU64,
}

struct Queue {
    /// None while somebody waits.
    free: Vec<u64>,
    waiting: VecDeque<Arc<Mutex<Turn>>>,
}

/// Of one that waits for a place.
#[derive(Default)]
struct Turn {
    given: Option<u64>,
    /// It does not wait any more.
    is_over: bool,
    waker: Option<Waker>,
}

/// A place in use.
pub(crate) struct Place<'a> {
    all: &'a Places,
    number: u64,
}

/// One that waits for a place.
struct Waiting<'a> {
    all: &'a Places,
    turn: Arc<Mutex<Turn>>,
}

impl Default for Places {
    fn default() -> Self {
        let queue = Queue { free: (0..JOURNAL_IMAGES).collect(), waiting: VecDeque::new() };
        Self { queue: Mutex::new(queue), count: AtomicU64::new(0) }
    }
}

impl Places {
    /// Waits for a place. Each is in use for as long as a write-back takes, which ends.
    async fn take(&self) -> Place<'_> {
        let turn = Arc::default();
        {
            let mut queue = self.queue.lock();
            if let Some(number) = queue.free.pop() {
                return Place { all: self, number };
            }
            queue.waiting.push_back(Arc::clone(&turn));
        }
        Waiting { all: self, turn }.await
    }

    fn give_back(&self, number: u64) {
        let mut queue = self.queue.lock();
        while let Some(next) = queue.waiting.pop_front() {
            let mut turn = next.lock();
            if turn.is_over {
                continue;
            }
            turn.given = Some(number);
            let waker = turn.waker.take();
            drop(turn);
            drop(queue);
            // Under no lock: whoever is woken may come here at once.
            return waker.into_iter().for_each(Waker::wake);
        }
        queue.free.push(number);
    }
}

impl<'a> Future for Waiting<'a> {
    type Output = Place<'a>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Place<'a>> {
        let mut turn = self.turn.lock();
        let Some(number) = turn.given.take() else {
            turn.waker = Some(context.waker().clone());
            return Poll::Pending;
        };
        turn.is_over = true;
        Poll::Ready(Place { all: self.all, number })
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut turn = self.turn.lock();
        turn.is_over = true;
        let given = turn.given.take();
        drop(turn);
        if let Some(number) = given {
            self.all.give_back(number);
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.all.give_back(self.number);
    }
}

fn sum_of(versions: &Versions) -> u32 {
    super::checksum(&versions_bytes(versions))
}

/// Of which write-back something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Attempt {
    pub(crate) addr: GAddr,
    /// Of the splits after it.
    pub(crate) version: Version,
    /// Of the first parity split before it.
    before: Version,
    /// What all versions before it sum up to.
    all_before: u32,
    /// Incarnation of the writer, and its images before: later is larger. A write-back that failed
    /// before it changed a split has the same versions as the next.
    number: (u32, u64),
}

/// What is to become of a split.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Share {
    attempt: Attempt,
    split: usize,
    payload: Vec<u8>,
}

impl Share {
    fn to_buf(attempt: Attempt, split: usize, payload: &[u8]) -> Buf {
        let header = SHARE_HEADER_BYTES as usize;
        let mut buf = Buf::zeroed(header + payload.len());
        let Attempt { addr, version, before, all_before, number } = attempt;
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
        let checksum = super::checksum(&buf);
        if let Some(to) = buf.get_mut(CHECKSUM_AT..CHECKSUM_AT + 4) {
            to.copy_from_slice(&checksum.to_le_bytes());
        }
        buf
    }

    /// `None` if there is none, or not a whole one.
    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut copy = bytes.to_vec();
        let field = copy.get_mut(CHECKSUM_AT..CHECKSUM_AT + 4)?;
        let checksum = u32::from_le_bytes(field.try_into().ok()?);
        field.fill(0);
        let word = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        let (addr, versions, count, which) = (word(0)?, word(8)?, word(16)?, word(24)?);
        let split = (which >> 32) as usize;
        if addr == 0 || split >= MAX_SPLITS || super::checksum(&copy) != checksum {
            return None;
        }
        let all_before = bytes.get(ALL_BEFORE_AT..ALL_BEFORE_AT + 4)?.try_into().ok()?;
        let attempt = Attempt {
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

/// The last image of a page in a journal that was made over the same versions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Image {
    pub(crate) attempt: Attempt,
    splits: BTreeMap<usize, Vec<u8>>,
}

impl Image {
    /// The splits of which it has shares.
    pub(crate) fn splits(&self) -> SplitSet {
        self.splits.keys().copied().collect()
    }

    pub(crate) fn payload(&self, split: usize) -> Option<&[u8]> {
        self.splits.get(&split).map(Vec::as_slice)
    }

    /// The images, of several journals, that were made of a page with this header: the one with
    /// most shares first, as it may be of who wrote all of a page again of which another had died
    /// in its write-back.
    pub(crate) fn over<'i>(
        images: &'i [Self],
        addr: GAddr,
        header: &Versions,
        data: usize,
    ) -> Vec<&'i Self> {
        let latest = header.get(data).copied().unwrap_or_default();
        let is_over = |attempt: &Attempt| {
            // One that is not known is no one's: then all have to be the same.
            let is_same = || attempt.all_before == sum_of(header);
            attempt.before == latest && (latest != Version::LOST || is_same())
        };
        let own = images.iter().filter(|own| own.attempt.addr == addr && is_over(&own.attempt));
        let mut own: Vec<&Self> = own.collect();
        own.sort_by_key(|image| Reverse(image.splits.len()));
        own
    }

    fn put(images: &mut Vec<Self>, share: Share) {
        let Share { attempt, split, payload } = share;
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

impl Core {
    /// Writes into this node's journal what is going to be written: payloads of splits, with room
    /// for their tags. It is safe there until the place is given back.
    pub(crate) async fn journal(
        &self,
        addr: GAddr,
        (before, after): (&Versions, &Versions),
        places: &SplitsAt,
        splits: &[(usize, Buf)],
    ) -> Result<Place<'_>, EngineError> {
        let Some(coded) = &self.memory.coded else { return Err(EngineError::Closed) };
        let own = coded.journal_places();
        let place = own.take().await;
        // Relaxed: the order of two write-backs of a page is that of their line.
        let number = (self.own_incarnation(), own.count.fetch_add(1, Ordering::Relaxed));
        let of = |versions: &Versions| versions.get(coded.data()).copied().unwrap_or_default();
        let (version, all_before) = (of(after), sum_of(before));
        let attempt = Attempt { addr, version, before: of(before), all_before, number };
        let offset = self.pool.descriptor().geometry().share_offset(self.me.index(), place.number);
        let mut posted: Vec<Completion> = Vec::with_capacity(splits.len());
        for (split, buf) in splits {
            // What has no place will not be written.
            let Some(at) = places.get(*split).copied().flatten() else { continue };
            let payload = buf.get(..buf.len() - TAG_BYTES as usize).unwrap_or_default();
            let share =
                placed(self.memory.at(at.node, offset)?, Share::to_buf(attempt, *split, payload));
            posted.push(self.memory.queue_pair(at.node).post(share));
        }
        let parity = coded.coding().parity();
        let mut lost = 0;
        for share in posted {
            if let Err(failed) = share.await {
                self.gone(failed.error).await?;
                lost += 1;
            }
        }
        if lost > parity {
            return Err(EngineError::TooManyLost { lost, parity });
        }
        Ok(place)
    }

    /// What there is of the images in a node's journal.
    pub(crate) async fn images_of(&self, node: ComputeId) -> Result<Vec<Image>, EngineError> {
        let geometry = self.pool.descriptor().geometry();
        let bytes = geometry.share_bytes();
        let mut images: Vec<Image> = Vec::new();
        for number in 0..self.memory.node_count() {
            let at = self.memory.at(number, geometry.share_offset(node.index(), 0))?;
            let all = Buf::zeroed((JOURNAL_IMAGES * bytes) as usize);
            let read = self.memory.queue_pair(number).post(Chain::from(Verb::read(at, all)));
            let chain = match read.await {
                Ok(chain) => chain,
                Err(failed) => {
                    self.gone(failed.error).await?;
                    continue;
                }
            };
            let read = chain.buf(0).map(|buf| &**buf).unwrap_or_default();
            for share in read.chunks_exact(bytes as usize).filter_map(Share::from_bytes) {
                Image::put(&mut images, share);
            }
        }
        Ok(images)
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use super::*;

    fn attempt(number: (u32, u64)) -> Attempt {
        Attempt {
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
        let mut bytes = Share::to_buf(attempt((2, 9)), 7, &payload).to_vec();
        let share = Share { attempt: attempt((2, 9)), split: 7, payload };
        assert_eq!(Share::from_bytes(&bytes), Some(share));
        assert_eq!(Share::from_bytes(&vec![0; bytes.len()]), None);
        for at in [0, 9, 13, 17, 24, 28, 32, 36, 64, 550] {
            bytes[at] ^= 1;
            assert_eq!(Share::from_bytes(&bytes), None, "byte {at}");
            bytes[at] ^= 1;
        }
        assert_eq!(Share::from_bytes(&bytes[..100]), None, "torn");
        let none = Share::to_buf(attempt((2, 9)), MAX_SPLITS, &[0; 512]);
        assert_eq!(Share::from_bytes(&none), None, "there is no such split");
    }

    /// Two write-backs of a page can have the same versions: their shares must not be mixed.
    #[test]
    fn an_image_has_the_shares_of_the_last_attempt_alone() {
        let early = [(1, 2, 1), (1, 2, 5)];
        let late = [(1, 3, 2), (1, 3, 5)];
        let next = [(2, 0, 2), (2, 0, 5)];
        let Attempt { addr, version, before, .. } = attempt((0, 0));
        let header = |version| {
            let mut header = Versions::default();
            header[4] = version;
            header
        };
        let over = |images: &[Image], version| {
            let own = Image::over(images, addr, &header(version), 4);
            own.into_iter().cloned().collect::<Vec<_>>()
        };
        for (first, second) in [(early, late), (late, early), (late, next), (next, late)] {
            let mut images = Vec::new();
            for (incarnation, count, split) in first.into_iter().chain(second) {
                let payload = vec![10 * incarnation as u8 + count as u8; 8];
                let attempt = attempt((incarnation, count));
                Image::put(&mut images, Share { attempt, split, payload });
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
            Attempt { before: Version::LOST, all_before: sum_of(&header), ..attempt(number) };
        let mut images = Vec::new();
        Image::put(&mut images, Share { attempt, split: 1, payload: vec![1; 8] });
        assert_eq!(Image::over(&images, attempt.addr, &header, 2).len(), 1);
        header[0] = Version::from_bits(0x0000_6001);
        assert_eq!(Image::over(&images, attempt.addr, &header, 2).len(), 0);
    }

    /// Two nodes have images of the same page if one took over from the other, and died as well.
    #[test]
    fn of_two_images_the_one_that_has_more_of_the_page_is_first() {
        let mut images = Vec::new();
        for (node, splits) in [(1, 0..3), (2, 0..6)] {
            let mut own = Vec::new();
            for split in splits {
                let attempt = attempt((1, node));
                Image::put(&mut own, Share { attempt, split, payload: vec![node as u8; 8] });
            }
            images.append(&mut own);
        }
        let mut header = Versions::default();
        header[4] = attempt((0, 0)).before;
        let own = Image::over(&images, attempt((0, 0)).addr, &header, 4);
        let counts: Vec<usize> = own.iter().map(|image| image.splits().len()).collect();
        assert_eq!(counts, [6, 3]);
    }

    #[test]
    fn places_are_given_in_turn() {
        let all = Places::default();
        let mut context = Context::from_waker(Waker::noop());
        let mut taken = Vec::new();
        for _ in 0..JOURNAL_IMAGES {
            let Poll::Ready(place) = pin!(all.take()).poll(&mut context) else { panic!("free") };
            taken.push(place);
        }
        let (mut first, mut second) = (Box::pin(all.take()), Box::pin(all.take()));
        let mut third = Box::pin(all.take());
        for waiting in [&mut first, &mut second, &mut third] {
            assert!(waiting.as_mut().poll(&mut context).is_pending());
        }
        let number = taken.pop().unwrap().number;
        assert!(second.as_mut().poll(&mut context).is_pending(), "it is not its turn");
        // Who goes away leaves its place, and its turn, to the next.
        drop(first);
        let Poll::Ready(place) = second.as_mut().poll(&mut context) else { panic!("its turn") };
        assert_eq!(place.number, number);
        drop(third);
        drop(place);
        drop(taken);
        assert_eq!(all.queue.lock().free.len() as u64, JOURNAL_IMAGES, "none is lost");
    }
}
