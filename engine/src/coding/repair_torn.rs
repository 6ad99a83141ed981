//! Repair of pages whose writer died in a write-back: makes their splits those of one page again
//! (docs/design.md, Coded pages).
//!
//! [`resolve_torn_write`] says which page that is. The repair does what the writer would have done,
//! or undoes it, with the same versions. So a node that repairs may die as well, and the next one
//! repeats the repair.

use selkie_fabric::{Buf, Chain, RemoteAddr, Verb};
use selkie_memnode::layout;

use super::header_versions::versions_bytes;
use super::journal::share::JournalImage;
use super::placed::placed;
use super::tag::{SplitSet, Tag, Version, Versions};
use super::torn_write::{ResolvedPage, SplitFinding, resolve_torn_write};
use super::write_back::read_versions;
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
        let header = read_versions(self, home.node, header_at(0)).await?;
        let seen = self.see_splits(addr).await?;
        let found: Vec<SplitFinding> = seen
            .iter()
            .map(|seen| match seen {
                Some(seen) if seen.tag.is_of(&seen.payload) => {
                    SplitFinding::Whole(seen.tag.version)
                }
                _ => SplitFinding::Nothing,
            })
            .collect();
        let known = JournalImage::over(images, addr, &header, coding.data());
        let candidates = known.into_iter().map(Some).chain([None]);
        let pages = candidates.map(|image| {
            let shares = image.map(|image| (image.attempt.version, image.splits()));
            (image, resolve_torn_write(coding, &header, &found, shares))
        });
        let found_page = pages.into_iter().find(|(_, page)| *page != ResolvedPage::Lost);
        let (image, page) = found_page.unwrap_or((None, ResolvedPage::Lost));
        let (mut versions, splits) = match page {
            ResolvedPage::Before(of) => (header, coded.splits_from(&payloads(&seen, of, None))?),
            ResolvedPage::After(version, of) => (
                with_version(&header, coding.data(), version),
                coded.splits_from(&payloads(&seen, of, image))?,
            ),
            ResolvedPage::Lost => return Ok(RepairedPage::Lost),
        };
        let line = splits.get(..coding.data()).unwrap_or(&splits).concat();
        let Some(places) = self.memory.placement.written(addr) else {
            return Ok(RepairedPage::Whole(line));
        };
        for (split, payload) in splits.iter().enumerate() {
            let known = versions.get(split).copied().unwrap_or_default();
            let is_there = found.get(split) == Some(&SplitFinding::Whole(known));
            // A split that was lost with its home may have a place again.
            let version = match known {
                Version::LOST => Version::after(&versions, coding.data(), SplitSet::EMPTY),
                known => known,
            };
            let buf = Tag::append(version, payload);
            // What is on its way elsewhere may be there and not here.
            for place in places.places_of(split).skip(usize::from(is_there)) {
                let write = placed(place.at, Buf::copy_of(&buf));
                match self
                    .memory
                    .queue_pair(place.node)
                    .post(write)
                    .await
                    .map_err(|error| error.error)
                {
                    Ok(_) => {
                        if let Some(own) = versions.get_mut(split) {
                            *own = version;
                        }
                    }
                    Err(error) => self.gone(error).await?,
                }
            }
        }
        if versions != header {
            let bytes = Buf::copy_of(&versions_bytes(&versions));
            let write = placed(header_at(layout::SPLIT_VERSION_AT), bytes);
            let written = self.memory.queue_pair(home.node).post(write).await;
            written.map_err(|error| error.error)?;
        }
        Ok(RepairedPage::Whole(line))
    }

    /// All splits of a page; `None` for those whose memory is lost.
    async fn see_splits(&self, addr: GAddr) -> Result<Vec<Option<FoundSplit>>, EngineError> {
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
                    self.gone(failed.error).await?;
                    seen.push(None);
                    continue;
                }
            };
            let mut bufs = read.verbs.into_iter().filter_map(Verb::into_buf);
            let (payload, tag) = (bufs.next(), bufs.next());
            let word = tag.and_then(|tag| tag.words().first().copied()).unwrap_or_default();
            let tag = Tag::from_word(u64::from_le(word));
            seen.push(payload.map(|payload| FoundSplit { payload, tag }));
        }
        Ok(seen)
    }
}

/// The payloads of these splits: from the image if it has them, else from their places.
fn payloads<'a>(
    seen: &'a [Option<FoundSplit>],
    of: SplitSet,
    image: Option<&'a JournalImage>,
) -> Vec<(usize, &'a [u8])> {
    let in_place = |split: usize| Some(&*seen.get(split)?.as_ref()?.payload);
    let payload = |split| image.and_then(|image| image.payload(split)).or_else(|| in_place(split));
    of.iter().filter_map(|split| Some((split, payload(split)?))).collect()
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
