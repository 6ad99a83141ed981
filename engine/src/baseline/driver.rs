//! Drives a node's lines under a directory: the counterpart of `coherence::driving`.

use super::client::{ClientAction, ClientEvent, step};
use super::message::{FromNode, ToNode, decode_to, encode_from};
use crate::coherence::machine::{Event, Phase};
use crate::coherence::open_line::OpenLine;
use crate::core::Core;
use crate::telemetry::stats::Counters;
use crate::{EngineError, GAddr};
use selkie_wal::Dirty;

impl Core {
    /// Feeds an event of the driver's; those of latch operations do not happen here.
    pub(crate) fn run_client(&self, addr: GAddr, open_line: &mut OpenLine, event: Event) {
        let event = match event {
            Event::Want { exclusive, nowait, .. } => ClientEvent::Want { exclusive, nowait },
            Event::Evict | Event::Leave => ClientEvent::Evict,
            Event::LocalFree => ClientEvent::LocalFree,
            // Without logs nothing goes home to stay.
            Event::WriteBack
            | Event::Completed { .. }
            | Event::Received { .. }
            | Event::Lost { .. } => return,
        };
        let fed = self.feed(addr, open_line, event);
        assert!(fed.is_ok(), "only a message can be unexpected");
    }

    fn feed(&self, addr: GAddr, open_line: &mut OpenLine, event: ClientEvent) -> Result<(), ()> {
        let local = self.refresh_use(open_line);
        let actions = step(&mut open_line.line, self.me, event, local).map_err(drop)?;
        let mut wake = false;
        for action in actions {
            match action {
                ClientAction::Send(message) => self.send_to_directory(addr, open_line, message),
                ClientAction::Wake => wake = true,
                ClientAction::Refuse => {
                    open_line.effects.refused = true;
                    wake = true;
                }
            }
        }
        if wake {
            open_line.effects.woken = true;
            open_line.waiters.signal_all(open_line.effects.refused);
        }
        Ok(())
    }

    fn send_to_directory(&self, addr: GAddr, open_line: &mut OpenLine, message: FromNode) {
        let counters = &self.telemetry.counters;
        match message {
            FromNode::Gave { .. } => self.count_invalidation(addr),
            FromNode::Kept => Counters::add(&counters.downgrades),
            FromNode::Evict { page: true } => Counters::add(&counters.write_backs),
            _ => {}
        }
        Counters::add(&counters.messages);
        let mut page: &[u8] = &[];
        if let Some(id) = open_line.frame.filter(|_| message.carries_page()) {
            // SAFETY: the latch is sealed and no writer is in (a copy in use is not given), so the
            // bytes are stable while the shard's lock is held.
            page = unsafe { self.cache.page(id) };
            self.cache.frames.get(id).set_dirty(Dirty::NONE);
        }
        let header = encode_from(addr, message);
        let sent = match self.memory.placement.home(addr) {
            Some(home) => self.messenger.deliver_to_directory(home.node, &header, page),
            None => Err(EngineError::BadAddress { addr }),
        };
        if let Err(error) = sent {
            self.fail_line(addr, open_line, &error);
        }
    }

    /// A message from a memory node's directory.
    pub(crate) fn receive_from_directory(
        &self,
        from: usize,
        bytes: &[u8],
    ) -> Result<(), EngineError> {
        let mail = |what| EngineError::Mail { from, what };
        let (addr, message, page) = decode_to(bytes, self.cache.gcl_bytes()).map_err(mail)?;
        let home =
            self.memory.placement.home(addr).ok_or(mail("about an address outside the pool"))?;
        if home.node + self.pool.descriptor().max_compute_nodes != from {
            return Err(mail("about a page of another memory node"));
        }
        let fed = self.with_line(addr, |open_line| {
            let waits =
                matches!(open_line.line.phase, Phase::WaitRead { .. } | Phase::WaitWrite { .. });
            if let (ToNode::Grant { page: true, .. }, Some(id), true) =
                (message, open_line.frame, waits)
            {
                // SAFETY: a line that waits for its page is not readable and has no local users;
                // the shard's lock is held.
                unsafe { self.cache.page_mut(id) }.copy_from_slice(page);
                self.cache.frames.get(id).set_dirty(Dirty::NONE);
            }
            self.feed(addr, open_line, ClientEvent::Told(message))
        });
        fed.map_err(|()| mail("does not follow from what was asked"))
    }
}
