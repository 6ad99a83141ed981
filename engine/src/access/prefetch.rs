//! Fetching a page that no caller waits for yet.
//!
//! It is the access of a caller that is dropped at once: the operation belongs to the line, and
//! what it leaves is a cached page. It asks for no more than a caller that waits for no holder
//! ([`Engine::try_shared`]): a page that another node uses stays where it is.

use crate::coherence::machine::{Event, LocalUse};
use crate::coherence::open_line::OpenLine;
use crate::core::Core;
use crate::telemetry::account::{self, Item};
use crate::telemetry::stats::Counters;
use crate::{Coherence, Engine, GAddr};

impl Engine {
    /// Begins to fetch a page to be read, and returns whether it has begun: the page is not cached,
    /// and nothing is under way for it. Waits for nothing, latches nothing; the fetch ends in the
    /// background, and if it fails the next access finds out. The caller holds an epoch pin as for
    /// an access, until this returns.
    ///
    /// Not begun while free frames run short: a caller that asks for many pages takes none of the
    /// last ones from those that wait for theirs.
    pub fn prefetch(&self, addr: GAddr) -> bool {
        let core = self.core();
        let is_served = core.config.coherence == Coherence::Selcc
            && !core.lifecycle.is_suspended()
            && core.lifecycle.check_alive().is_ok()
            && core.memory.placement.home(addr).is_some();
        if !is_served || core.cache.frame_of(addr).is_some() || !core.cache.has_room_ahead() {
            return false;
        }
        let refused = || core.lifecycle.check_alive().is_err() || core.lifecycle.is_suspended();
        core.with_line_unless(
            addr,
            || refused().then_some(false),
            |open| core.begin_fetch(addr, open),
        )
    }
}

impl Engine {
    /// As [`Engine::prefetch`], of several pages; how many were begun. Where free frames run short
    /// it begins to evict others first: the evictor may not have had a turn.
    pub fn prefetch_all(&self, pages: &[GAddr]) -> usize {
        let core = self.core();
        let is_missing = |page: &&GAddr| core.cache.frame_of(**page).is_none();
        let Some(first) = pages.iter().position(|page| is_missing(&page)) else { return 0 };
        if !core.cache.has_room_ahead() && core.config.coherence == Coherence::Selcc {
            core.evict_batch();
        }
        let rest = pages.iter().skip(first);
        rest.filter(|page| self.prefetch(**page)).count()
    }
}

impl Core {
    /// Begins to fetch the page of an open line, if there is no copy and nobody else does.
    fn begin_fetch(&self, addr: GAddr, open: &mut OpenLine) -> bool {
        let is_at_rest = open.line.phase.without_copy() && open.waiters.is_empty();
        let is_doubtful = open.damaged.is_some()
            || open.deaths.backs_off.is_some()
            || open.deaths.doubted.is_some()
            // A guard from before the page was lost still reads it.
            || open.seen != LocalUse::Idle;
        if !is_at_rest || is_doubtful || !self.cache.ensure_frame(addr, open) {
            return false;
        }
        let look =
            self.config.looks && self.telemetry.contention.in_the_way(false, open.line.phase);
        let want = Event::Want { exclusive: false, nowait: true, look };
        self.run(addr, open, want, None);
        if let Some(frame) = open.frame {
            // Not the first to be evicted, before it is used.
            self.cache.frames.get(frame).latch.refer();
        }
        Counters::add(&self.telemetry.counters.prefetches);
        account::note(Item::Prefetch);
        self.telemetry.hottest.note(addr);
        true
    }
}
