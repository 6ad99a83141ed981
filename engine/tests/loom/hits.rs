//! A hit: lookup, latch, and a second look at the address, while frames change hands.

use std::sync::Arc;

use loom::thread;

use crate::GAddr;
use crate::coherence::machine::LocalUse;
use crate::frame::FrameId;
use crate::latch::{Permissions, Released};
use crate::lookups::Cached;
use crate::{joined, model};

impl Cached {
    /// What a reader reads that finds the line cached. As `Engine::shared_hit`.
    fn hit(&self, addr: GAddr) -> Option<u64> {
        let frame = self.frames.get(self.lookup(addr)?);
        if !frame.latch.try_shared_fast() {
            return None;
        }
        let value = (frame.addr() == addr).then(|| frame.page.read());
        assert_eq!(frame.latch.unlock_shared(), Released::Quiet, "there is no waiter");
        value
    }

    /// Takes a line out of its frame if no access holds it. As `PageCache::vacate`.
    fn vacate(&self, addr: GAddr, id: FrameId) -> bool {
        let frame = self.frames.get(id);
        if frame.latch.seal() != LocalUse::Idle {
            let to = Permissions { readable: true, writable: false, pending: false };
            let _ = frame.latch.publish(to);
            return false;
        }
        self.leave(addr, id);
        let _ =
            frame.latch.publish(Permissions { readable: false, writable: false, pending: false });
        true
    }

    /// Fetches a line into a free frame. As `PageCache::occupy`, and what follows a fetch.
    fn occupy(&self, addr: GAddr, id: FrameId) {
        let frame = self.frames.get(id);
        self.enter(addr, id);
        if frame.latch.seal() == LocalUse::Idle {
            frame.page.write(addr.to_u64());
        }
        let _ =
            frame.latch.publish(Permissions { readable: true, writable: false, pending: false });
    }
}

/// Two lines whose searches start at the same slot; the first is cached.
fn cached() -> (Arc<Cached>, GAddr, GAddr) {
    let cached = Arc::new(Cached::new());
    let (old, new) = {
        let mut lines = cached.starting_at(0);
        (lines.next().unwrap(), lines.next().unwrap())
    };
    cached.occupy(old, FrameId(0));
    (cached, old, new)
}

/// A reader that either misses the line, or reads its page.
fn reads(cached: &Arc<Cached>, line: GAddr) -> thread::JoinHandle<()> {
    let cached = Arc::clone(cached);
    thread::spawn(move || {
        let value = cached.hit(line);
        assert!(value.is_none_or(|value| value == line.to_u64()), "the page of another line");
    })
}

#[test]
fn a_hit_reads_its_own_line_though_the_frame_is_given_to_another() {
    model(3, || {
        let (cached, old, new) = cached();
        let readers = [reads(&cached, old), reads(&cached, new)];
        {
            let _shard = cached.shard.lock();
            if cached.vacate(old, FrameId(0)) {
                cached.occupy(new, FrameId(0));
            }
        }
        joined(readers);
    });
}

#[test]
fn a_hit_reads_its_own_line_though_it_goes_to_another_frame() {
    model(2, || {
        let (cached, old, new) = cached();
        let readers = [reads(&cached, old), reads(&cached, new)];
        {
            let _shard = cached.shard.lock();
            if cached.vacate(old, FrameId(0)) {
                cached.occupy(old, FrameId(1));
                cached.occupy(new, FrameId(0));
            }
        }
        joined(readers);
    });
}
