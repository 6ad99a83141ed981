//! Messages of lines: requests and grants that leave, and those that arrive.

use selkie_channels::ChannelError;
use selkie_fabric::FabricError;

use super::machine::{Event, Message, Phase, RequestKind};
use super::message::{self, Envelope};
use super::open_line::OpenLine;
use super::word::ComputeId;
use crate::coding::header_versions::{self, VERSIONS_BYTES};
use crate::core::Core;
use crate::telemetry::account::{self, Item};
use crate::telemetry::stats::Counters;
use crate::{EngineError, GAddr};
use selkie_wal::Dirty;

impl Core {
    /// Sends a message about a line; grants take the page along.
    pub(super) fn send(&self, addr: GAddr, open: &mut OpenLine, to: ComputeId, message: Message) {
        let mut dirty = Dirty::NONE;
        let mut page: &[u8] = &[];
        self.count_sent(addr, open, message);
        if let Some(id) = open.frame.filter(|_| message::carries_page(message)) {
            if message == Message::GrantModified && !self.rules.home_first {
                dirty = self.cache.frames.get(id).dirty();
            }
            // SAFETY: the latch is sealed and no writer is in (the machine grants only then), so
            // the bytes are stable while the shard's lock is held.
            page = unsafe { self.cache.page(id) };
        }
        let mut header = [0; message::HEADER_BYTES + VERSIONS_BYTES];
        let (own, more) = header.split_at_mut(message::HEADER_BYTES);
        own.copy_from_slice(&message::encode(addr, message, dirty));
        let more = match (&self.memory.coded, open.frame) {
            (Some(coded), Some(id)) if message == Message::GrantModified => {
                let goes_home = self.rules.home_first && !self.dirty_of(id).is_empty();
                // Those that it gets on its way home are in the header then.
                let versions = if goes_home {
                    header_versions::unknown_versions()
                } else {
                    coded.versions_of(id)
                };
                more.copy_from_slice(&header_versions::versions_bytes(&versions));
                VERSIONS_BYTES
            }
            _ => 0,
        };
        let (header, _) = header.split_at(message::HEADER_BYTES + more);
        match self.messenger.deliver(to, header, page) {
            Ok(()) => {}
            Err(error) if is_gone(&error) => {
                // Its death, when that is known, ends the wait; if it has left, this node gives the
                // answer (`recovery::left`), unless it has never known the peer. What a lost peer
                // was to be answered is for a recovery: the line here goes on as if the answer had
                // come, its state is what the word says of this node. The recovery is from the
                // peer's death; or from this node's, if the peer lives (`recovery::unreachable`).
                let is_unknown = self.messenger.known_incarnation(to.index()) == Some(0);
                if matches!(message, Message::Request(_)) && is_unknown && self.has_left(to) {
                    self.fail_line(addr, open, &error);
                }
            }
            Err(error) if matches!(message, Message::Request(_)) => {
                self.fail_line(addr, open, &error);
            }
            // An answer that a living peer does not get would leave it waiting.
            Err(error) => {
                open.waiters.fail_all(&error);
                self.lifecycle.fail(error);
            }
        }
    }

    fn count_sent(&self, addr: GAddr, open: &OpenLine, message: Message) {
        let counters = &self.telemetry.counters;
        Counters::add(&counters.messages);
        if matches!(message, Message::Request(_)) {
            account::note(Item::RoundTrip);
        }
        match message {
            Message::Request(request) if request.kind != RequestKind::Read => {
                Counters::add(&counters.invalidations_sent);
                account::note(Item::InvalidationSent);
            }
            Message::GrantShared if open.frame.is_some() => Counters::add(&counters.downgrades),
            Message::GrantModified if open.frame.is_some() => self.count_invalidation(addr),
            Message::Released => self.count_invalidation(addr),
            _ => {}
        }
    }

    /// A copy is given up because another node asked for it.
    pub(crate) fn count_invalidation(&self, addr: GAddr) {
        Counters::add(&self.telemetry.counters.invalidations);
        self.telemetry.hottest.note(addr);
    }

    /// A message from another node.
    pub(crate) fn receive(&self, from: usize, bytes: &[u8]) -> Result<(), EngineError> {
        let mail = |what| EngineError::Mail { from, what };
        if from >= self.pool.descriptor().max_compute_nodes {
            return self.receive_from_directory(from, bytes);
        }
        let versions = if self.memory.coded.is_some() { VERSIONS_BYTES } else { 0 };
        let (envelope, versions, page) =
            message::decode(bytes, self.cache.gcl_bytes(), versions).map_err(mail)?;
        let Envelope { addr, message, dirty } = envelope;
        let from = ComputeId::new(from).ok_or(mail("sender is no node"))?;
        if self.memory.placement.home(addr).is_none() {
            return Err(mail("about an address outside the pool"));
        }
        self.with_line(addr, |open| {
            if self.recovery.is_answered_for(from) {
                return;
            }
            if message::carries_page(message) {
                self.accept_page(open, from, page, dirty, versions);
            }
            self.run(addr, open, Event::Received { from, message }, None);
        });
        Ok(())
    }

    /// Puts a granted page into the frame that waits for it.
    fn accept_page(
        &self,
        open: &OpenLine,
        sender: ComputeId,
        page: &[u8],
        dirty: Dirty,
        versions: &[u8],
    ) {
        let asked = match open.line.phase {
            Phase::WaitRead { holder } | Phase::WaitWrite { holder } => holder == sender,
            _ => false,
        };
        // The machine refuses a grant that was not asked for; the frame must not take it either.
        let Some(id) = open.frame.filter(|_| asked) else { return };
        // SAFETY: a line that waits for a grant is not readable and has no local users; the
        // shard's lock is held.
        let own = unsafe { self.cache.page_mut(id) };
        own.copy_from_slice(page);
        self.cache.frames.get(id).set_dirty(dirty);
        if let Some(coded) = &self.memory.coded
            && !versions.is_empty()
        {
            coded.set_versions(id, &header_versions::versions_from(versions));
        }
    }

    /// Answers all deferred requests that the line is not held here.
    pub(super) fn answer_not_held(&self, addr: GAddr, open: &mut OpenLine) {
        for asked in std::mem::take(&mut open.line.deferred) {
            let header = message::encode(addr, Message::NotHeld { holder: None }, Dirty::NONE);
            // The asker has its own bound; no other node is to be told.
            let _ = self.messenger.deliver(asked.from, &header, &[]);
        }
    }
}

/// Whether a message could not be delivered because its addressee is not there any more.
fn is_gone(error: &EngineError) -> bool {
    let dead = |source: &ChannelError| {
        matches!(
            source,
            ChannelError::PeerLost { .. }
                | ChannelError::Fabric(
                    FabricError::PeerDead { .. } | FabricError::UnknownPeer { .. }
                )
        )
    };
    match error {
        EngineError::PeerGone { .. } => true,
        EngineError::Message { source, .. } => dead(source),
        _ => false,
    }
}
