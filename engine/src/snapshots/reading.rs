//! Images: kept by the node that changes a page, read by any.

use std::sync::atomic::Ordering;

use selkie_fabric::{Buf, Chain, FabricError, PeerId, RegionKey, RemoteAddr, Verb};
use selkie_pool::layout;

use super::active::ActiveSnapshots;
use super::arena::{Arena, HEADER_BYTES, ImageHeader, slot_bytes};
use super::images::{Follow, follow};
use super::link::{ImageLink, ImageName};
use super::remote_arenas::RemoteArena;
use super::slot::INCARNATION_AT;
use super::stamp::Stamp;
use crate::EngineError;
use crate::addressing::executed::{read_at, word_at};
use crate::core::Core;
use crate::telemetry::account::{self, Item};
use selkie_wal::PSN_BYTES;

impl Core {
    /// Most bytes of an image.
    fn image_page_bytes(&self) -> usize {
        self.cache.gcl_bytes() - PSN_BYTES
    }

    /// Takes memory for images, and tells the others where it is, unless that is done. A node for
    /// which that fails keeps no images; it tries again with the next commit.
    pub(super) async fn make_room_for_images(&self) {
        let state = &self.snapshots;
        let is_settled = state.is_arena_published.load(Ordering::Acquire)
            || state.has_no_room.load(Ordering::Relaxed);
        if !is_settled && self.config.image_bytes > 0 {
            Box::pin(self.publish_room()).await;
        }
    }

    #[cold]
    async fn publish_room(&self) {
        let state = &self.snapshots;
        let _turn = state.turn.lock().await;
        if state.is_arena_published.load(Ordering::Acquire) || self.lifecycle.is_closed() {
            return;
        }
        let Some(arena) = self.arena() else { return };
        match self.publish_arena(u64::from(arena.region().key().to_raw())).await {
            // Release: a commit that finds it may hand out links.
            Ok(()) => state.is_arena_published.store(true, Ordering::Release),
            Err(error) => tracing::debug!(%error, "no other node knows where images are"),
        }
    }

    fn arena(&self) -> Option<&Arena> {
        let state = &self.snapshots;
        if let Some(arena) = state.arena.get() {
            return Some(arena);
        }
        let (bytes, page) = (self.config.image_bytes, self.image_page_bytes());
        let incarnation = self.lifecycle.incarnation()?;
        match self.endpoint.register(bytes as usize) {
            Ok(region) => {
                Some(state.arena.get_or_init(|| Arena::new(region, bytes, page, incarnation)))
            }
            Err(error) => {
                tracing::warn!(%error, bytes, "no memory for images of pages: snapshots will be too old soon");
                state.has_no_room.store(true, Ordering::Relaxed);
                None
            }
        }
    }

    pub(super) fn keep_image(
        &self,
        page: &[u8],
        from: Stamp,
        until: Stamp,
        previous: ImageLink,
        active: &ActiveSnapshots,
    ) -> ImageLink {
        let state = &self.snapshots;
        let arena = match state.arena.get() {
            Some(arena) if state.is_arena_published.load(Ordering::Acquire) => arena,
            _ => return ImageLink::NONE,
        };
        let (room, previous) = {
            let mut images = arena.images().lock();
            let own = |link: ImageLink| {
                let name = link.name().filter(|name| name.node == self.me)?;
                Some((name.slot, name.sequence))
            };
            let previous = images.shortened(from, previous, own, active);
            (images.room(), previous)
        };
        let Some(room) = room else {
            state.dropped.fetch_add(1, Ordering::Relaxed);
            return ImageLink::NONE;
        };
        arena.write(room, &ImageHeader { from, until, previous, bytes: page.len() }, page);
        arena.images().lock().fill(room, from, until, previous);
        state.kept.fetch_add(1, Ordering::Relaxed);
        state.dropped.fetch_add(u64::from(room.dropped), Ordering::Relaxed);
        arena.link(self.me, room)
    }

    pub(super) async fn image_at(
        &self,
        mut link: ImageLink,
        at: Stamp,
        into: &mut Vec<u8>,
    ) -> Result<Option<()>, EngineError> {
        let mut since = None;
        loop {
            self.lifecycle.check_failed()?;
            let Some(name) = link.name() else { return Ok(None) };
            let Some(header) = self.read_image(name, into).await? else { return Ok(None) };
            match follow(header.from, header.until, since, at) {
                Follow::This => {
                    into.truncate(HEADER_BYTES + header.bytes);
                    into.drain(..HEADER_BYTES);
                    return Ok(Some(()));
                }
                Follow::Gone => return Ok(None),
                Follow::Previous => (link, since) = (header.previous, Some(header.from)),
            }
        }
    }

    /// Reads an image into `into`, with its header before it; none if it is gone.
    async fn read_image(
        &self,
        name: ImageName,
        into: &mut Vec<u8>,
    ) -> Result<Option<ImageHeader>, EngineError> {
        if name.node == self.me {
            return Ok(self.snapshots.arena.get().and_then(|arena| arena.read(name, into)));
        }
        match self.read_image_of_other(name, into).await {
            Ok(found) => Ok(found),
            Err(error) if is_gone(&error, name) => {
                self.snapshots.remote_arenas.forget(name.node.index());
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    async fn read_image_of_other(
        &self,
        name: ImageName,
        into: &mut Vec<u8>,
    ) -> Result<Option<ImageHeader>, EngineError> {
        let Some(remote) = self.remote_arena(name.node.index()).await? else { return Ok(None) };
        let page_bytes = self.image_page_bytes();
        let at = (name.slot * slot_bytes(page_bytes)) as u64;
        let slot = RemoteAddr::new(remote.region, at);
        let chain = Chain::from([
            Verb::read(slot, Buf::zeroed(slot_bytes(page_bytes))),
            // If it is still that image, what was read before is of it.
            Verb::read(slot, Buf::zeroed(8)),
        ]);
        account::note(Item::RoundTrip);
        let done = remote.queue_pair.post(chain).await.map_err(|error| error.error)?;
        if word_at(&done, 1) != name.sequence {
            return Ok(None);
        }
        let image = read_at(&done, 0);
        into.clear();
        into.extend_from_slice(image);
        Ok(ImageHeader::from_words(image.words(), page_bytes))
    }

    /// Where a member keeps its images; none if it keeps none, or is no member.
    async fn remote_arena(&self, node: usize) -> Result<Option<RemoteArena>, EngineError> {
        let started = self.env.now();
        loop {
            self.lifecycle.check_failed()?;
            let members = &self.pool.state().compute_nodes;
            let Some(member) = members.get(&(node as u16)) else { return Ok(None) };
            let incarnation = member.incarnation;
            if let Some(remote) = self.snapshots.remote_arenas.get(node, incarnation) {
                return Ok(Some(remote));
            }
            let lost = match self.read_arena_key(node, incarnation).await {
                Ok(Some(0)) => return Ok(None),
                Ok(Some(key)) => {
                    let Ok(key) = u32::try_from(key - 1) else { return Ok(None) };
                    let queue_pair = self.endpoint.connect(PeerId::compute(node as u16))?;
                    let region = RegionKey::from_raw(key);
                    let remote = RemoteArena { incarnation, queue_pair, region };
                    self.snapshots.remote_arenas.insert(node, remote.clone());
                    return Ok(Some(remote));
                }
                Ok(None) => None,
                Err(EngineError::Fabric(lost @ FabricError::PeerDead { peer }))
                    if self.memory.coded.is_some() && peer.is_memory() =>
                {
                    Some(lost)
                }
                Err(error) => return Err(error),
            };
            if self.env.now() - started > self.config.request_timeout {
                return lost.map_or(Ok(None), |lost| Err(lost.into()));
            }
            match lost {
                Some(lost) => self.confirm_memory_death(lost).await?,
                None => self.env.sleep(self.config.tick).await,
            }
        }
    }

    /// The first word of a node's slot: the key of its arena, plus one. `None` if the node has not
    /// published itself yet at the memory node that has the epochs now.
    async fn read_arena_key(
        &self,
        node: usize,
        incarnation: u32,
    ) -> Result<Option<u64>, EngineError> {
        let memory = self.snapshot_node()?;
        let slot = self.memory.at(memory, layout::snapshot_slot_offset(node))?;
        let named = RemoteAddr::new(slot.region, slot.offset + INCARNATION_AT);
        let words = [named, slot].map(|at| Verb::read(at, Buf::zeroed(8)));
        let done = self.memory.queue_pair(memory).post(Chain::from(words)).await;
        let done = done.map_err(|error| error.error)?;
        let is_published =
            self.memory.coded.is_none() || word_at(&done, 0) == u64::from(incarnation) + 1;
        Ok(is_published.then(|| word_at(&done, 1)))
    }
}

/// Whether an error says that a node's images are gone, as the node is.
fn is_gone(error: &EngineError, name: ImageName) -> bool {
    let owner = PeerId::compute(name.node.index() as u16);
    match error {
        EngineError::Fabric(FabricError::PeerDead { peer } | FabricError::UnknownPeer { peer })
        | EngineError::Fabric(FabricError::UnknownRegion { peer, .. }) => *peer == owner,
        EngineError::Fabric(FabricError::OutOfBounds { .. }) => true,
        _ => false,
    }
}
