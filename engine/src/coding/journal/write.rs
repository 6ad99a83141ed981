//! Writes images into this node's journal, and reads the journals of other nodes.

use std::sync::atomic::Ordering;

use selkie_fabric::{Buf, Chain, Completion, Verb};
use selkie_pool::layout::JOURNAL_IMAGES;

use super::share::{JournalImage, JournalShare, WriteAttempt, sum_of};
use super::slots::JournalSlot;
use crate::addressing::executed::read_at;
use crate::addressing::locations::SplitsAt;
use crate::coding::page_write::payload_of;
use crate::coding::placed::placed;
use crate::coding::tag::{Versions, version_of};
use crate::coherence::word::ComputeId;
use crate::core::Core;
use crate::{EngineError, GAddr};

impl Core {
    /// Writes an image into this node's journal: of payloads of splits, with room for their tags.
    /// It stays in place until the slot is dropped. Shares whose memory is lost are left out.
    pub(crate) async fn journal(
        &self,
        addr: GAddr,
        (before, after): (&Versions, &Versions),
        places: &SplitsAt,
        splits: &[(usize, Buf)],
    ) -> Result<JournalSlot<'_>, EngineError> {
        let Some(coded) = &self.memory.coded else { return Err(EngineError::Closed) };
        let own = coded.journal_slots();
        let place = own.take().await;
        // Relaxed: the line orders two write-backs of its page.
        let number = (self.own_incarnation(), own.count.fetch_add(1, Ordering::Relaxed));
        let of = |versions: &Versions| version_of(versions, coded.data());
        let (version, all_before) = (of(after), sum_of(before));
        let attempt = WriteAttempt { addr, version, before: of(before), all_before, number };
        let offset = self.pool.descriptor().geometry().share_offset(self.me.index(), place.number);
        let mut posted: Vec<Completion> = Vec::with_capacity(splits.len());
        for (split, buf) in splits {
            // A split without a place will not be written.
            let Some(at) = places.get(*split).copied().flatten() else { continue };
            let share = placed(
                self.memory.at(at.node, offset)?,
                JournalShare::to_buf(attempt, *split, payload_of(buf)),
            );
            posted.push(self.memory.queue_pair(at.node).post(share));
        }
        for share in posted {
            if let Err(failed) = share.await {
                self.until_memory_is_dead(failed.error).await?;
            }
        }
        Ok(place)
    }

    /// The images in a node's journal, as far as memory nodes live.
    pub(crate) async fn journal_images_of(
        &self,
        node: ComputeId,
    ) -> Result<Vec<JournalImage>, EngineError> {
        let geometry = self.pool.descriptor().geometry();
        let bytes = geometry.share_bytes();
        let mut images: Vec<JournalImage> = Vec::new();
        for number in 0..self.memory.node_count() {
            let at = self.memory.at(number, geometry.share_offset(node.index(), 0))?;
            let all = Buf::zeroed((JOURNAL_IMAGES * bytes) as usize);
            let read = self.memory.queue_pair(number).post(Chain::from(Verb::read(at, all)));
            let chain = match read.await {
                Ok(chain) => chain,
                Err(failed) => {
                    self.confirm_memory_death(failed.error).await?;
                    continue;
                }
            };
            for share in
                read_at(&chain, 0).chunks_exact(bytes as usize).filter_map(JournalShare::from_bytes)
            {
                JournalImage::put(&mut images, share);
            }
        }
        Ok(images)
    }
}
