//! The address table: what a lookup without a lock finds while entries come, go and are moved.

use std::sync::Arc;

use loom::thread;

use crate::GAddr;
use crate::address_table::AddressTable;
use crate::frame::FrameId;
use crate::frames::Frames;
use crate::sync::Mutex;
use crate::{joined, model};

const GCL_BYTES: usize = 512;
/// Frames that the smallest table is made for that has room for three entries: it has four slots.
const FRAMES: usize = 2;
const SLOTS: usize = 4;

/// A table, its frames, and the lock of its shard.
pub(crate) struct Cached {
    pub(crate) table: AddressTable,
    pub(crate) frames: Frames,
    pub(crate) shard: Mutex<()>,
}

impl Cached {
    pub(crate) fn new() -> Self {
        let table = AddressTable::new(FRAMES, GCL_BYTES);
        Self { table, frames: Frames::new(SLOTS - 1), shard: Mutex::default() }
    }

    /// The lines whose searches start at this slot, in a fixed order.
    pub(crate) fn starting_at(&self, slot: usize) -> impl Iterator<Item = GAddr> + '_ {
        let lines = (1..).map(|line| GAddr::from_u64(line * GCL_BYTES as u64));
        lines.filter(move |addr| self.table.start_of(*addr) == slot % SLOTS)
    }

    pub(crate) fn lookup(&self, addr: GAddr) -> Option<FrameId> {
        self.table.lookup(&self.frames, addr)
    }

    /// The caller has the lock of the shard.
    pub(crate) fn enter(&self, addr: GAddr, frame: FrameId) {
        self.frames.get(frame).set_addr(addr);
        assert!(self.table.insert(addr, frame));
    }

    /// The caller has the lock of the shard.
    pub(crate) fn leave(&self, addr: GAddr, frame: FrameId) {
        self.table.remove(&self.frames, addr, frame);
        self.frames.get(frame).set_addr(GAddr::NULL);
    }
}

const FIRST: FrameId = FrameId(0);
const SECOND: FrameId = FrameId(1);
const THIRD: FrameId = FrameId(2);

/// What a lookup of a line may find that comes, goes or is moved meanwhile.
fn assert_none_or(found: Option<FrameId>, frame: FrameId) {
    assert!(found.is_none_or(|found| found == frame), "{found:?} instead of {frame:?}");
}

#[test]
fn a_line_is_found_while_another_enters_and_leaves_behind_it() {
    model(3, || {
        let cached = Arc::new(Cached::new());
        let (stays, comes) = {
            let mut lines = cached.starting_at(0);
            (lines.next().unwrap(), lines.next().unwrap())
        };
        cached.enter(stays, FIRST);
        let reader = Arc::clone(&cached);
        let reader = thread::spawn(move || {
            assert_eq!(reader.lookup(stays), Some(FIRST));
            assert_none_or(reader.lookup(comes), SECOND);
            assert_eq!(reader.lookup(stays), Some(FIRST));
        });
        cached.enter(comes, SECOND);
        assert_eq!(cached.lookup(comes), Some(SECOND));
        cached.leave(comes, SECOND);
        assert_eq!(cached.lookup(comes), None);
        assert_eq!(cached.lookup(stays), Some(FIRST));
        reader.join().unwrap();
    });
}

/// A cluster of three that begins at a slot: the first leaves, so the second is moved; the third is
/// where its search starts, and stays. Then another line enters the frame that has become free.
fn a_line_in_front_leaves(slot: usize) {
    model(2, move || {
        let cached = Arc::new(Cached::new());
        let (leaves, moves, enters) = {
            let mut lines = cached.starting_at(slot);
            (lines.next().unwrap(), lines.next().unwrap(), lines.next().unwrap())
        };
        let stays = cached.starting_at(slot + 2).next().unwrap();
        cached.enter(leaves, FIRST);
        cached.enter(moves, SECOND);
        cached.enter(stays, THIRD);
        let readers = [leaves, moves].map(|line| {
            let (reader, own) = (Arc::clone(&cached), if line == leaves { FIRST } else { SECOND });
            thread::spawn(move || {
                assert_none_or(reader.lookup(line), own);
                assert_eq!(reader.lookup(stays), Some(THIRD));
                assert_none_or(reader.lookup(enters), FIRST);
            })
        });
        {
            let _shard = cached.shard.lock();
            cached.leave(leaves, FIRST);
            assert_eq!(cached.lookup(leaves), None);
            assert_eq!(cached.lookup(moves), Some(SECOND), "missed under the lock");
            cached.enter(enters, FIRST);
        }
        joined(readers);
        let found = [leaves, moves, stays, enters].map(|line| cached.lookup(line));
        assert_eq!(found, [None, Some(SECOND), Some(THIRD), Some(FIRST)]);
    });
}

#[test]
fn a_line_that_keeps_its_slot_is_found_while_others_are_moved() {
    a_line_in_front_leaves(0);
}

#[test]
fn a_cluster_around_the_end_of_a_shard_is_as_any_other() {
    a_line_in_front_leaves(SLOTS - 1);
}
