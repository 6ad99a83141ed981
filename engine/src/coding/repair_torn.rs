//! Repair of pages whose writer died in a write-back: makes their splits those of one page again
//! (docs/design.md, Coded pages).
//!
//! [`resolve_torn_write`] says which page that is. The repair does what the writer would have done,
//! or undoes it, with the same versions. So a node that repairs may die as well, and the next one
//! repeats the repair.

use selkie_fabric::{Buf, Chain, RemoteAddr, Verb};
use selkie_pool::layout;

use super::coded::CodingState;
use super::half_done::before_half_done;
use super::header_versions::versions_bytes;
use super::journal::share::JournalImage;
use super::placed::placed;
use super::tag::{SplitSet, Tag, Version, Versions, set_version, version_of};
use super::torn_write::{ResolvedPage, SplitFinding, resolve_torn_write};
use super::write_back::read_versions;
use crate::addressing::executed::first_word;
use crate::addressing::locations::Written;
use crate::core::Core;
use crate::{EngineError, GAddr};

/// The outcome of a repair.
#[must_use]
pub(crate) enum RepairedPage {
    /// The page is whole; its line.
    Whole(Vec<u8>),
    /// Too few splits are left for a page.
    Lost,
    /// The page is not coded, or its home is not known.
    NotCoded,
}

/// A split in its place.
struct FoundSplit {
    payload: Buf,
    tag: Tag,
}

impl Core {
    /// Repairs the splits of a page that a dead node held: the page is that before or after the
    /// node's last write-back. `images` are those in its journal. No other node reads or writes the
    /// page meanwhile.
    pub(crate) async fn repair_torn_page(
        &self,
        addr: GAddr,
        images: &[JournalImage],
    ) -> Result<RepairedPage, EngineError> {
        let (Some(coded), Some(home)) = (&self.memory.coded, self.memory.placement.home(addr))
        else {
            return Ok(RepairedPage::NotCoded);
        };
        let _using = self.memory.placement.using();
        let coding = self.pool.descriptor().coding;
        let header_at = |offset| {
            let at = home.latch.offset - layout::LATCH_AT + offset;
            RemoteAddr::new(home.latch.region, at)
        };
        let known = read_versions(self, home.node, header_at(0)).await?;
        let header = before_half_done(coding, &known);
        let seen = self.read_all_splits(addr).await?;
        let found: Vec<SplitFinding> = seen.iter().map(finding).collect();
        let Some((versions, splits)) = resolve(coded, addr, &header, (&seen, &found), images)?
        else {
            return Ok(RepairedPage::Lost);
        };
        let line = splits.split_at(coding.data()).0.concat();
        let Some(places) = self.memory.placement.written(addr) else {
            return Ok(RepairedPage::Whole(line));
        };
        let versions = self.write_splits(&places, &found, &splits, versions).await?;
        if versions != known {
            let bytes = Buf::copy_of(&versions_bytes(&versions));
            let write = placed(header_at(layout::SPLIT_VERSION_AT), bytes);
            let written = self.memory.queue_pair(home.node).post(write).await;
            written.map_err(|error| error.error)?;
        }
        Ok(RepairedPage::Whole(line))
    }

    /// Writes the splits that are not in their places. Returns the versions for the header.
    async fn write_splits(
        &self,
        places: &Written,
        found: &[SplitFinding],
        splits: &[Vec<u8>],
        mut versions: Versions,
    ) -> Result<Versions, EngineError> {
        let data = self.pool.descriptor().coding.data();
        for (split, payload) in splits.iter().enumerate() {
            let known = version_of(&versions, split);
            let is_there = found.get(split) == Some(&SplitFinding::Whole(known));
            let version = version_to_write(known, payload, &versions, data);
            let buf = Tag::append(version, payload);
            // A split that migrates may be in its old place and not in its new one.
            for place in places.places_of(split).skip(usize::from(is_there)) {
                let write = placed(place.at, Buf::copy_of(&buf));
                let written = self.memory.queue_pair(place.node).post(write).await;
                match written.map_err(|error| error.error) {
                    Ok(_) => set_version(&mut versions, split, version),
                    Err(error) => self.confirm_memory_death(error).await?,
                }
            }
        }
        Ok(versions)
    }

    /// All splits of a page; `None` for those whose memory is lost.
    async fn read_all_splits(&self, addr: GAddr) -> Result<Vec<Option<FoundSplit>>, EngineError> {
        let bytes = self.pool.descriptor().geometry().payload_bytes();
        let places = self.memory.placement.splits(addr).ok_or(EngineError::BadAddress { addr })?;
        let mut seen = Vec::new();
        for place in places.iter().flatten() {
            let tag_at = RemoteAddr::new(place.at.region, place.at.offset + bytes as u64);
            let chain = Chain::from([
                Verb::read(place.at, Buf::zeroed(bytes)),
                Verb::read(tag_at, Buf::zeroed(8)),
            ]);
            let read = match self.memory.queue_pair(place.node).post(chain).await {
                Ok(chain) => chain,
                Err(failed) => {
                    self.confirm_memory_death(failed.error).await?;
                    seen.push(None);
                    continue;
                }
            };
            let mut bufs = read.verbs.into_iter().filter_map(Verb::into_buf);
            let (Some(payload), Some(tag)) = (bufs.next(), bufs.next()) else {
                panic!("a split is read by two reads");
            };
            let tag = Tag::from_word(first_word(&tag));
            seen.push(Some(FoundSplit { payload, tag }));
        }
        Ok(seen)
    }
}

/// The version that a split is written with of which the header says that one.
fn version_to_write(known: Version, payload: &[u8], versions: &Versions, data: usize) -> Version {
    let is_zero = || payload.iter().all(|byte| *byte == 0);
    match known {
        // It was lost with its home, and may have a place again.
        Version::LOST => Version::after(versions, data, SplitSet::EMPTY),
        // The dead node's write of the header was torn, behind the versions of other splits.
        Version::NEVER if !is_zero() => Version::after(versions, data, SplitSet::EMPTY),
        known => known,
    }
}

/// Whether a split is intact, by its tag.
fn finding(seen: &Option<FoundSplit>) -> SplitFinding {
    match seen {
        Some(seen) if seen.tag.is_of(&seen.payload) => SplitFinding::Whole(seen.tag.version),
        _ => SplitFinding::Nothing,
    }
}

/// The versions of a page's splits, and the payloads of all of them.
type ResolvedSplits = (Versions, Vec<Vec<u8>>);

/// The versions and all splits of the page that these splits are, with the first image that gives a
/// page; `None` if the page is lost.
fn resolve(
    coded: &CodingState,
    addr: GAddr,
    header: &Versions,
    (seen, found): (&[Option<FoundSplit>], &[SplitFinding]),
    images: &[JournalImage],
) -> Result<Option<ResolvedSplits>, EngineError> {
    let parity = coded.data()..coded.coding().splits();
    let torn = torn_versions(header, seen);
    let known = JournalImage::over(images, addr, header, &torn, parity);
    for image in known.into_iter().map(Some).chain([None]) {
        let shares = image.map(|image| (image.attempt.version, image.splits()));
        let resolved = match resolve_torn_write(coded.coding(), header, found, shares) {
            ResolvedPage::Before(of) => (*header, coded.splits_from(&payloads(seen, of, None))?),
            ResolvedPage::After(version, of) => (
                with_version(header, coded.data(), version),
                coded.splits_from(&payloads(seen, of, image))?,
            ),
            ResolvedPage::Lost => continue,
        };
        return Ok(Some(resolved));
    }
    Ok(None)
}

/// The versions of splits of which the header has lost the version.
fn torn_versions(header: &Versions, seen: &[Option<FoundSplit>]) -> Vec<Version> {
    let both = seen.iter().zip(header);
    let torn = both.filter(|(_, known)| **known == Version::LOST);
    torn.filter_map(|(seen, _)| Some(seen.as_ref()?.tag.version)).collect()
}

/// The payloads of these splits: from the image if it has them, else from their places.
fn payloads<'a>(
    seen: &'a [Option<FoundSplit>],
    of: SplitSet,
    image: Option<&'a JournalImage>,
) -> Vec<(usize, &'a [u8])> {
    let in_place = |split: usize| Some(&*seen.get(split)?.as_ref()?.payload);
    let payload = |split| {
        let share = image.and_then(|image| image.payload(split));
        let Some(payload) = share.or_else(|| in_place(split)) else {
            panic!("split {split} was found, and has no payload");
        };
        (split, payload)
    };
    of.iter().map(payload).collect()
}

/// The versions after a write-back of this version.
fn with_version(header: &Versions, data: usize, version: Version) -> Versions {
    let mut versions = *header;
    for (split, own) in versions.iter_mut().enumerate() {
        if split >= data || version.dirty().contains(split) {
            *own = version;
        }
    }
    versions
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory-loss seed 58096: parity was as its node had written it, under the version of splits
    /// that were never written, which are zero.
    #[test]
    fn a_split_that_is_not_zero_is_not_said_to_be_never_written() {
        let first = Version::NEVER.next(SplitSet::EMPTY.with(0));
        let mut versions = Versions::default();
        versions[0] = first;
        let written = |known, payload: &[u8]| version_to_write(known, payload, &versions, 2);
        assert_eq!(written(first, &[1; 8]), first);
        assert_eq!(written(Version::NEVER, &[0; 8]), Version::NEVER);
        let parity = written(Version::NEVER, &[0, 1]);
        assert!(parity != Version::NEVER && !versions.contains(&parity));
        assert_eq!(parity.dirty(), SplitSet::EMPTY, "it says of no data split that it was written");
    }
}
