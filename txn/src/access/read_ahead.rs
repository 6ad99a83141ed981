//! Reading ahead: pages that a walk will probably come to are fetched before it does, several at a
//! time, so that it does not wait for each of them.
//!
//! A walk that has gone on from its first leaf to a second one is taken to go on. It then asks for
//! the leaves ahead, which their parents name: first two, then twice as many each time, up to a
//! bound. So a walk that ends soon has fetched few pages in vain. Where all that lies ahead is
//! cached it asks for nothing for a while, and forwards as long as the right link of its leaf leads
//! to a leaf that is cached. The same goes for the rows that the entries of an index
//! lead to.
//!
//! A page is only fetched: it is not latched, not stamped and not recorded as read. One that would
//! have to be latched exclusively when it is read is not fetched ahead: the right to write it would
//! take as long again.

use selkie_engine::GAddr;
use smallvec::SmallVec;

use crate::access::walk::Walk;
use crate::access::walk_state::EntryPosition;
use crate::catalogue::table_info::{IndexInfo, TableInfo};
use crate::error::TxnError;
use crate::protocol::choice::ReadRule;
use crate::protocol::leaf_latch::LatchMode;
use crate::transaction::database_state::READ_AHEAD;
use crate::transaction::txn::Txn;

/// Pages that a walk asks for first.
const FIRST: usize = 2;
/// Steps without another look where all pages were cached.
const RESTS: usize = 16;

/// How far ahead pages were asked for.
#[derive(Clone, Copy, Debug)]
struct ReadAhead {
    /// Pages to ask for next.
    window: usize,
    /// Steps to the last page that was asked for, or up to which none need be.
    left: usize,
    /// All that it looked at last was cached, or it has not looked.
    is_cached: bool,
}

/// How far ahead a walk has asked for leaves, and for leaves of rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WalkAhead {
    leaves: ReadAhead,
    rows: ReadAhead,
}

impl WalkAhead {
    /// Of a walk that has not begun: the first entry is no sign that it goes on.
    pub(crate) const NONE: Self = Self {
        leaves: ReadAhead { window: 0, left: 0, is_cached: true },
        rows: ReadAhead { window: 0, left: 2, is_cached: true },
    };
}

impl ReadAhead {
    /// The walk has come one step further. The window of steps ahead to look at now, of which the
    /// first [`left`](Self::left) were asked for; 0 if it need not look. `most` are allowed.
    /// `is_next_cached` says whether the next page is, where that is known without a look.
    fn step(&mut self, most: usize, is_next_cached: impl FnOnce() -> bool) -> usize {
        self.left = self.left.saturating_sub(1);
        if self.left > self.window / 2 || (self.is_cached && is_next_cached()) {
            return 0;
        }
        self.window = self.window.max(FIRST).min(most);
        self.window
    }

    /// It has looked at so many steps ahead, and asked for those that it had not asked for before,
    /// of which some are being fetched now.
    fn asked(&mut self, steps: usize, is_fetching: bool) {
        if steps <= self.left {
            // There is no more to be seen from here.
            return;
        }
        self.is_cached = !is_fetching;
        if is_fetching {
            (self.left, self.window) = (steps, 2 * self.window);
        } else {
            (self.left, self.window) = (RESTS.max(steps), FIRST);
        }
    }
}

impl<'db> Txn<'db> {
    /// Whether a leaf that is read in this mode is latched shared.
    pub(super) fn reads_shared(&self, mode: LatchMode) -> bool {
        match self.rules().reads() {
            ReadRule::HoldLatch => mode == LatchMode::Shared,
            ReadRule::Stamp => !self.must_stamp(mode),
            ReadRule::RecordPsn | ReadRule::RecordRows => self.only_reads_leaves(),
        }
    }
}

impl<'db> Walk<'_, 'db> {
    /// Fetches leaves ahead. The walk has come to another leaf, and goes on behind it.
    pub(super) fn read_leaves_ahead(&mut self, txn: &Txn<'db>) -> Result<(), TxnError> {
        if !txn.reads_shared(self.mode()) {
            return Ok(());
        }
        let mut ahead = self.ahead.leaves;
        let most = ahead.step(txn.db.read_ahead(), || self.is_right_cached(txn));
        self.ahead.leaves = ahead;
        if most == 0 {
            return Ok(());
        }
        let Some(rest) = self.rest_of_range(txn)? else { return Ok(()) };
        let engine = &txn.db.engine;
        let _pin = engine.pin();
        let mut pages = Vec::with_capacity(most);
        let leads_on = self.index().tree.leaves_ahead(engine, rest, most, &mut pages);
        let new = pages.get(self.ahead.leaves.left..).unwrap_or_default();
        self.ahead.leaves.asked(pages.len(), engine.prefetch_all(new) > 0 || leads_on);
        Ok(())
    }

    /// Fetches leaves of the rows that the next entries lead to; the walk over an index stands on
    /// the entry before them.
    pub(super) fn read_rows_ahead(
        &mut self,
        txn: &Txn<'db>,
        info: &TableInfo,
        mode: LatchMode,
    ) -> Result<(), TxnError> {
        if !txn.reads_shared(mode) {
            return Ok(());
        }
        let most = self.ahead.rows.step(txn.db.read_ahead(), || false);
        if most == 0 {
            return Ok(());
        }
        let (mut keys, mut ends, mut key) = (Vec::new(), vec![0], Vec::new());
        let slots = self.next_slots(most);
        let new = slots.get(self.ahead.rows.left..).unwrap_or_default();
        for &slot in new {
            let at = EntryPosition::Slot(slot);
            self.key_into(txn, &at, &mut key)?;
            let primary = self.index().primary_key(&key, self.value(txn, &at)?);
            keys.extend_from_slice(primary.ok_or_else(|| info.inconsistent(self.index()))?);
            ends.push(keys.len());
        }
        let primary_keys = ends.windows(2).filter_map(|ends| match ends {
            [start, end] => keys.get(*start..*end),
            _ => None,
        });
        let is_fetching = txn.fetch_leaves_of(&info.primary, primary_keys, |_, _| {});
        self.ahead.rows.asked(slots.len(), is_fetching);
        Ok(())
    }
}

impl<'db> Txn<'db> {
    /// Fetches the leaves that hold these keys, as far as they can be found without a wait. Calls
    /// `found` with the number of the key and the leaf; the caller that uses that holds a pin.
    /// Returns whether a leaf was not cached.
    pub(super) fn fetch_leaves_of<'k>(
        &self,
        index: &IndexInfo,
        keys: impl IntoIterator<Item = &'k [u8]>,
        mut found: impl FnMut(usize, GAddr),
    ) -> bool {
        let engine = &self.db.engine;
        let _pin = engine.pin();
        let mut leaves: SmallVec<[GAddr; READ_AHEAD]> = SmallVec::new();
        index.tree.locate_cached(engine, keys, |at, leaf| {
            if leaves.last() != Some(&leaf) {
                leaves.push(leaf);
            }
            found(at, leaf);
        });
        engine.prefetch_all(&leaves) > 0
    }
}
