//! Validation: whether the rows and ranges that were read are as they were.
//!
//! A leaf with the page sequence number under which it was read is unchanged. Else the rows and
//! ranges that were read there are looked for again, and their digests compared
//! ([`row_reads`](crate::protocol::row_reads)). A row that was found again may have had another
//! value in between, so all is looked at once more: validation ends with a pass in which no leaf
//! has changed. At the beginning of that pass all that was read was current.
//!
//! Leaves that change all the time would make passes without end. After a few of them, those that
//! had changed are latched during the next ones, shared, all at the same time, in the order of
//! their addresses as at commit.
//!
//! Before commit a transaction holds no leaf, and waits for those that others hold. While it holds
//! some, at commit or for such a pass, it waits for no other: a leaf that another holds, or that
//! changes too often, is *contended*, and the next attempt latches it as well
//! ([`commit_rows`](crate::transaction)).

use std::ops::Range;

use selkie_btree::{KeyLocation, LeafView};
use selkie_engine::{EngineError, GAddr, SharedGuard};

use crate::access::leaf::{LOCATE_ATTEMPTS, RIGHT_HOPS, no_stable_leaf};
use crate::catalogue::handles::Table;
use crate::catalogue::table_info::IndexInfo;
use crate::error::TxnError;
use crate::protocol::leaf_latch::{LatchMode, LeafLatch};
use crate::protocol::read_set::psn_if_here;
use crate::protocol::row_reads::{ColumnsRead, Digest, LeafVersion, Read};
use crate::transaction::txn::Txn;

/// Passes after which leaves that have changed are latched.
const PASSES: u32 = 3;

/// Reads of which no leaves are fetched ahead: they were read just now.
const FEW_READS: usize = 64;

/// Leaves that a pass has found unchanged, and does not look at again.
const REMEMBERED: usize = 4;

/// Attempts with leaves latched: each latches those that the last one could not compare.
const ATTEMPTS: u32 = 32;

/// A leaf that was looked at: held by the transaction, or latched for the moment.
pub(crate) enum PeekedLeaf<'db> {
    Held(usize, LeafVersion),
    Latched(SharedGuard<'db>),
}

impl PeekedLeaf<'_> {
    pub(crate) fn version(&self) -> LeafVersion {
        match self {
            Self::Held(_, version) => *version,
            Self::Latched(guard) => LeafVersion { addr: guard.addr(), psn: Some(guard.psn()) },
        }
    }
}

/// A part of a range that was read, in one leaf.
struct Part {
    /// Where it ends; `None`: where the range does.
    high: Option<Box<[u8]>>,
    leaf: LeafVersion,
    digest: Digest,
}

impl<'db> Txn<'db> {
    /// Fails unless all that was read is as it was.
    ///
    /// # Errors
    /// `Stale` if it is not. `Conflict` if leaves are contended, and the transaction holds some.
    pub(crate) async fn validate_rows(&mut self) -> Result<(), TxnError> {
        // It waits for leaves that others hold, and holds none that they may wait for.
        self.work.last_read = None;
        let holds_leaves = self.work.locks.len() > 0;
        if !holds_leaves {
            self.contended.clear();
        }
        let mut conflict = TxnError::Conflict { leaf: GAddr::NULL, upgrade: false };
        for _ in 0..PASSES {
            let known = self.contended.len();
            self.validate_pass().await?;
            let Some((_, leaf)) = self.contended.get(known) else { return Ok(()) };
            conflict = TxnError::Conflict { leaf: *leaf, upgrade: false };
        }
        if holds_leaves {
            return Err(conflict);
        }
        let validated = Box::pin(self.validate_latched()).await;
        self.work.locks.release();
        self.contended.clear();
        validated
    }

    /// Validates with all contended leaves latched.
    async fn validate_latched(&mut self) -> Result<(), TxnError> {
        let mut conflict = TxnError::Conflict { leaf: GAddr::NULL, upgrade: false };
        for _ in 0..ATTEMPTS {
            match self.latch_in_order(Vec::new()).await {
                Ok(()) => {}
                Err(error @ TxnError::Conflict { .. }) => {
                    conflict = error;
                    // Whatever the conflict was: the next attempt latches them again.
                    self.work.locks.release();
                    continue;
                }
                Err(error) => return Err(error),
            }
            for _ in 0..PASSES {
                let known = self.contended.len();
                match self.validate_pass().await {
                    Ok(()) if self.contended.len() == known => return Ok(()),
                    Ok(()) => {}
                    Err(error @ TxnError::Conflict { .. }) => {
                        conflict = error;
                        break;
                    }
                    Err(error) => return Err(error),
                }
            }
            self.work.locks.release();
        }
        Err(conflict)
    }

    /// Latches leaves exclusively, and those that are contended shared, in the order of their
    /// addresses. Waits for other holders, but not for the recovery from a node's death with leaves
    /// latched: the recovery may need one of those home. Then it lets them go, and waits for the
    /// leaf that was in the way.
    ///
    /// # Errors
    /// `Conflict` after such a wait: no leaf is held, and another attempt may succeed.
    pub(crate) async fn latch_in_order(
        &mut self,
        changed: Vec<(GAddr, usize)>,
    ) -> Result<(), TxnError> {
        let changed = changed.into_iter();
        let mut wanted: Vec<_> =
            changed.map(|(addr, tree)| (addr.to_u64(), LatchMode::Exclusive, tree)).collect();
        let read = self.contended.iter();
        wanted.extend(read.map(|(tree, addr)| (addr.to_u64(), LatchMode::Shared, *tree)));
        // A leaf that is to change before the same leaf that was read.
        wanted.sort_unstable_by_key(|(addr, mode, _)| (*addr, *mode == LatchMode::Shared));
        wanted.dedup_by_key(|(addr, ..)| *addr);
        let engine = &self.db.engine;
        for (addr, mode, tree) in wanted {
            let addr = GAddr::from_u64(addr);
            let latched = match mode {
                LatchMode::Shared => engine.shared_in_order(addr).await.map(LeafLatch::Shared),
                LatchMode::Exclusive => {
                    engine.exclusive_in_order(addr).await.map(LeafLatch::Exclusive)
                }
            };
            let latch = match latched {
                Ok(latch) => latch,
                Err(EngineError::Busy { .. } | EngineError::LogFull) => {
                    self.work.locks.release();
                    return Err(self.until_had(addr, mode).await?);
                }
                Err(error) => return Err(error.into()),
            };
            self.work.locks.add(tree, addr, latch);
            self.fit_leaves()?;
        }
        Ok(())
    }

    /// Waits, with no leaf latched, until a leaf can be latched. Returns what the attempt met.
    async fn until_had(&self, addr: GAddr, mode: LatchMode) -> Result<TxnError, EngineError> {
        let engine = &self.db.engine;
        match mode {
            LatchMode::Shared => drop(engine.shared(addr).await?),
            LatchMode::Exclusive => drop(engine.exclusive(addr).await?),
        }
        Ok(TxnError::Conflict { leaf: addr, upgrade: false })
    }

    /// Compares all that was read. Leaves that had changed are contended from then on.
    async fn validate_pass(&mut self) -> Result<(), TxnError> {
        let (mut at, mut unchanged) = (0, [LeafVersion::NONE; REMEMBERED]);
        // Which of them is the oldest.
        let mut oldest = (0..REMEMBERED).cycle();
        let ahead = match self.work.rows.len() {
            0..=FEW_READS => 0,
            _ => self.db.read_ahead(),
        };
        while let Some(leaf) = self.work.rows.leaf_of(at) {
            if ahead > 0 && at.is_multiple_of(ahead) {
                self.fetch_read_leaves(at..at + ahead);
            }
            // What was read one after the other is often in one leaf, and tables in one of the
            // catalogue.
            if leaf.psn.is_none() || !unchanged.contains(&leaf) {
                let now = psn_if_here(&self.db.engine, &self.work.locks, leaf.addr);
                if now.is_none() || now != leaf.psn {
                    self.compare(at).await?;
                    self.yield_now_and_then().await;
                } else {
                    let place = oldest.next().and_then(|oldest| unchanged.get_mut(oldest));
                    place.into_iter().for_each(|oldest| *oldest = leaf);
                }
            }
            at += 1;
        }
        Ok(())
    }

    /// Fetches the leaves of these of the things that were read.
    fn fetch_read_leaves(&self, numbers: Range<usize>) {
        let leaves = numbers.map_while(|at| self.work.rows.leaf_of(at));
        let mut leaves: Vec<GAddr> = leaves.map(|leaf| leaf.addr).collect();
        leaves.dedup();
        self.db.engine.prefetch_all(&leaves);
    }

    /// Compares one thing that was read.
    async fn compare(&mut self, at: usize) -> Result<(), TxnError> {
        let item = self.work.rows.of_number(at);
        let (tree, leaf, digest) = (item.tree, item.leaf, item.digest);
        if leaf.psn.is_some() && self.peek_at(tree, leaf.addr).await?.version() == leaf {
            return Ok(());
        }
        let item = self.work.rows.of_number(at);
        let index = self.index_of_tree(tree)?;
        #[cfg(feature = "planted")]
        if self.db.engine.planted() == selkie_engine::Planted::UncheckedRanges
            && matches!(item.read, Read::Keys(..))
        {
            return Ok(());
        }
        match item.read {
            Read::Point(key, columns) => {
                let key: Box<[u8]> = key.into();
                let Some(peeked) = self.peek_same(index, &key, columns, digest).await? else {
                    self.db.turns.heat(self.db.digester.name_of(tree, &key));
                    return Err(TxnError::Stale { leaf: leaf.addr });
                };
                let version = self.note_peeked(tree, &peeked)?;
                self.work.rows.found_again(at, version);
            }
            Read::Keys(low, high) => {
                let (low, high): (Box<[u8]>, Option<Box<[u8]>>) =
                    (low.into(), high.map(Into::into));
                let parts = self.peek_range(index, &low, high.as_deref()).await?;
                let sum = parts.iter().fold(Digest::default(), |sum, part| sum.and(part.digest));
                if sum != digest {
                    return Err(TxnError::Stale { leaf: leaf.addr });
                }
                self.replace_by_parts(at, &parts, high.as_deref());
            }
        }
        Ok(())
    }

    /// The leaf of a key that was read, if what it has now, of these columns, has this digest.
    async fn peek_same(
        &mut self,
        index: &IndexInfo,
        key: &[u8],
        columns: ColumnsRead,
        digest: Digest,
    ) -> Result<Option<PeekedLeaf<'db>>, TxnError> {
        let (peeked, slot) = self.peek(index, key).await?;
        let view = LeafView::new(self.peeked_bytes(&peeked))?;
        let value = slot.ok().map(|slot| view.value(slot)).transpose()?;
        let is_same = self.digest_of(index.number, value, columns) == Some(digest);
        Ok(is_same.then_some(peeked))
    }

    /// The digest of what a key has now, of these columns if it is a row of which only some were
    /// read. `None` if the row has a later layout than the definition knows: its table was changed.
    fn digest_of(&self, tree: usize, value: Option<&[u8]>, columns: ColumnsRead) -> Option<Digest> {
        match (value, columns) {
            (Some(row), ColumnsRead::Some { columns, definition }) => {
                let info = self.definition_at(Table::of_tree(tree), definition).ok()?;
                self.db.digester.of_columns(info.row(row).ok()?, columns).ok()
            }
            (value, _) => Some(self.db.digester.of_value(value)),
        }
    }

    /// Compares the single rows of a tree that were read. Those that are found again count as read
    /// when they were before: what else was read is not looked at.
    ///
    /// # Errors
    /// `Stale` if one has changed; `Conflict` as of [`validate_rows`](Self::validate_rows).
    pub(crate) async fn compare_points_of(&mut self, tree: usize) -> Result<(), TxnError> {
        let mut at = 0;
        while let Some(item) = self.work.rows.get(at) {
            at += 1;
            let (Read::Point(key, columns), leaf, digest) = (item.read, item.leaf, item.digest)
            else {
                continue;
            };
            if item.tree != tree {
                continue;
            }
            let key: Box<[u8]> = key.into();
            let now = psn_if_here(&self.db.engine, &self.work.locks, leaf.addr);
            if now.is_some() && now == leaf.psn {
                continue;
            }
            let index = self.index_of_tree(tree)?;
            if self.peek_same(index, &key, columns, digest).await?.is_none() {
                return Err(TxnError::Stale { leaf: leaf.addr });
            }
        }
        Ok(())
    }

    /// Digests of all parts of a range, leaf by leaf.
    async fn peek_range(
        &mut self,
        index: &IndexInfo,
        low: &[u8],
        high: Option<&[u8]>,
    ) -> Result<Vec<Part>, TxnError> {
        let (mut parts, mut from, mut key) = (Vec::new(), low.to_vec(), Vec::new());
        loop {
            let (peeked, first) = self.peek(index, &from).await?;
            let leaf = LeafView::new(self.peeked_bytes(&peeked))?;
            let (Ok(first) | Err(first)) = first;
            let ends_here = match (high, leaf.high_fence()) {
                (_, None) => true,
                (None, Some(_)) => false,
                (Some(high), Some(fence)) => high <= fence,
            };
            let end = match high.filter(|_| ends_here) {
                Some(high) => match leaf.where_is(high)? {
                    KeyLocation::Here(Ok(slot) | Err(slot)) => slot,
                    KeyLocation::Right(_) | KeyLocation::Elsewhere => leaf.len(),
                },
                None => leaf.len(),
            };
            let digest = self.db.digester.of_slots(&leaf, first..end.max(first), &mut key)?;
            let fence = leaf.high_fence().filter(|_| !ends_here).map(Box::from);
            let version = self.note_peeked(index.number, &peeked)?;
            drop(peeked);
            parts.push(Part { high: fence.clone(), leaf: version, digest });
            let Some(fence) = fence else { return Ok(parts) };
            from.clear();
            from.extend_from_slice(&fence);
            self.yield_now_and_then().await;
        }
    }

    /// Notes in which leaves a range was found again.
    fn replace_by_parts(&mut self, at: usize, parts: &[Part], high: Option<&[u8]>) {
        let Some((first, others)) = parts.split_first() else { return };
        let tree = self.work.rows.of_number(at).tree;
        match &first.high {
            None => self.work.rows.found_again(at, first.leaf),
            Some(end) => self.work.rows.cut(at, end, first.leaf, first.digest),
        }
        let mut low = first.high.as_deref();
        for part in others {
            let Some(from) = low else { return };
            let read = Read::Keys(from, part.high.as_deref().or(high));
            self.work.rows.add(tree, read, part.leaf, part.digest);
            low = part.high.as_deref();
        }
    }

    /// Notes a leaf that has changed, and that what was compared in it is the state at its stamp.
    fn note_peeked(
        &mut self,
        tree: usize,
        peeked: &PeekedLeaf<'db>,
    ) -> Result<LeafVersion, TxnError> {
        if let PeekedLeaf::Latched(guard) = peeked {
            self.work.reads.rely_on(guard.lsn());
        }
        let leaf = LeafView::new(self.peeked_bytes(peeked))?;
        let (version, stamp) = (peeked.version(), leaf.stamps().write);
        self.raise_view(stamp);
        self.work.catalogue_leaf = LeafVersion::NONE;
        self.contended.push((tree, version.addr));
        Ok(version)
    }

    pub(crate) fn peeked_bytes<'a>(&'a self, peeked: &'a PeekedLeaf<'db>) -> &'a [u8] {
        match peeked {
            PeekedLeaf::Held(held, _) => self.work.locks.bytes(*held),
            PeekedLeaf::Latched(guard) => guard,
        }
    }

    /// The leaf that holds `key` or the gap where it would be, and the slot there. It waits for a
    /// leaf that others hold only if the transaction holds none.
    pub(crate) async fn peek(
        &mut self,
        index: &IndexInfo,
        key: &[u8],
    ) -> Result<(PeekedLeaf<'db>, Result<usize, usize>), TxnError> {
        let engine = &self.db.engine;
        for _ in 0..LOCATE_ATTEMPTS {
            let _pin = engine.pin();
            let mut addr = self.locate(index, key).await?;
            for _ in 0..RIGHT_HOPS {
                let peeked = self.peek_at(index.number, addr).await?;
                match LeafView::new(self.peeked_bytes(&peeked))?.where_is(key)? {
                    KeyLocation::Here(slot) => return Ok((peeked, slot)),
                    KeyLocation::Right(next) => addr = next,
                    KeyLocation::Elsewhere => break,
                }
                drop(peeked);
                self.yield_now_and_then().await;
            }
        }
        Err(no_stable_leaf(index))
    }

    async fn peek_at(&mut self, tree: usize, addr: GAddr) -> Result<PeekedLeaf<'db>, TxnError> {
        let locks = &self.work.locks;
        if let Some(held) = locks.position(addr) {
            let version = LeafVersion { addr, psn: Some(locks.latch(held).psn()) };
            return Ok(PeekedLeaf::Held(held, version));
        }
        let engine = &self.db.engine;
        if locks.len() == 0 {
            return Ok(PeekedLeaf::Latched(engine.shared(addr).await?));
        }
        match engine.try_shared(addr).await {
            Ok(guard) => Ok(PeekedLeaf::Latched(guard)),
            Err(EngineError::Busy { addr }) => {
                self.contended.push((tree, addr));
                Err(TxnError::Conflict { leaf: addr, upgrade: false })
            }
            Err(error) => Err(error.into()),
        }
    }
}
