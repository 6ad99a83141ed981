//! The write-back of a coded page: its image into the journal if its order says so, then its
//! splits, stage by stage.

use selkie_fabric::{Buf, Chain, Completion, FabricError, RemoteAddr, Verb};
use selkie_pool::layout;

use super::coded::CodingState;
use super::header_versions::found_versions;
use super::journal::slots::JournalSlot;
use super::page_write::PageWrite;
use super::placed::placed;
use super::tag::{Version, Versions};
use super::torn_write::WriteOrder;
use crate::addressing::locations::{Home, SplitAt, Written};
use crate::core::Core;
use crate::{EngineError, GAddr};

/// A page that was written to its splits.
pub(super) struct PageAtHome<'c> {
    /// The new versions of the splits.
    pub(super) versions: Versions,
    /// Its image replaces the splits until the header has the new versions.
    pub(super) journal_slot: Option<JournalSlot<'c>>,
    /// More splits are lost than the others make up for: the page at home cannot be read.
    pub(super) too_many_lost: Option<EngineError>,
}

/// Writes a page to its splits, and to the journal before that if its order says so.
pub(super) async fn write_home<'c>(
    core: &'c Core,
    coded: &CodingState,
    addr: GAddr,
    places: &Written,
    (home, mut write): (Home, PageWrite),
) -> Result<PageAtHome<'c>, EngineError> {
    let header = RemoteAddr::new(home.latch.region, home.latch.offset - layout::LATCH_AT);
    let before = match write.before {
        Some(before) if !before.contains(&Version::LOST) => before,
        // A split that was regenerated since has another version.
        known => match (read_versions(core, home.node, header).await, known) {
            // The page must reach its splits all the same: the header will be made of their tags.
            (Err(EngineError::Fabric(FabricError::PeerDead { peer })), Some(known))
                if peer.is_memory() =>
            {
                known
            }
            (read, _) => read?,
        },
    };
    let versions = write.tag(coded.coding(), &before);
    let stages = WriteOrder::of(coded.coding(), write.dirty);
    #[cfg(feature = "planted")]
    let stages = WriteOrder {
        journal: stages.journal && core.config.planted != crate::Planted::NoJournal,
        ..stages
    };
    let mut journal_slot = None;
    if stages.journal {
        let both = (&before, &versions);
        // The journal loses what the splits lose: they tell whether that is too many.
        journal_slot = Some(core.journal(addr, both, &places.splits, &write.splits).await?);
    }
    let lost = write_splits(core, places, (stages, write)).await?;
    let parity = coded.coding().parity();
    let too_many_lost = (lost > parity).then_some(EngineError::TooManyLost { lost, parity });
    Ok(PageAtHome { versions, journal_slot, too_many_lost })
}

/// Writes the splits of a page, stage by stage. Splits whose memory is lost are left out; returns
/// how many. A split that migrates is written at both memory nodes.
async fn write_splits(
    core: &Core,
    places: &Written,
    (stages, write): (WriteOrder, PageWrite),
) -> Result<usize, EngineError> {
    let (first, second): (Vec<_>, Vec<_>) =
        write.splits.into_iter().partition(|(split, _)| stages.first.contains(*split));
    let mut lost = 0;
    let mut copies: Vec<Completion> = Vec::new();
    for stage in [first, second] {
        let mut posted: Vec<Completion> = Vec::new();
        for (split, buf) in stage {
            if let Some((_, SplitAt { node, at })) = places.also.filter(|(own, _)| *own == split) {
                copies.push(
                    core.memory.queue_pair(node).post(core.write_split(at, Buf::copy_of(&buf))),
                );
            }
            if let Some(SplitAt { node, at }) = places.splits.get(split).copied().flatten() {
                posted.push(core.memory.queue_pair(node).post(core.write_split(at, buf)));
            }
        }
        for written in posted {
            if let Err(failed) = written.await {
                core.until_memory_is_dead(failed.error).await?;
                lost += 1;
            }
        }
    }
    for copy in copies {
        // The split is in its other place.
        if let Err(failed) = copy.await {
            core.until_memory_is_dead(failed.error).await?;
        }
    }
    Ok(lost)
}

impl Core {
    /// The write of a split, which completes when the split is in place.
    #[cfg(not(feature = "planted"))]
    #[expect(clippy::unused_self, reason = "a planted bug is this node's")]
    fn write_split(&self, at: RemoteAddr, split: Buf) -> Chain {
        placed(at, split)
    }

    /// As above, unless a planted bug does not wait until the split is in place.
    #[cfg(feature = "planted")]
    fn write_split(&self, at: RemoteAddr, split: Buf) -> Chain {
        match self.config.planted {
            crate::Planted::UnplacedSplits => Chain::from(Verb::write(at, split)),
            _ => placed(at, split),
        }
    }
}

/// Reads the versions of a page at its home.
pub(crate) async fn read_versions(
    core: &Core,
    node: usize,
    at: RemoteAddr,
) -> Result<Versions, EngineError> {
    let read = Verb::read(at, Buf::zeroed(layout::HEADER_BYTES as usize));
    let chain = core.memory.queue_pair(node).post(Chain::from(read)).await.map_err(|e| e.error)?;
    Ok(found_versions(&chain))
}
