//! A load under way, and its end.

use std::future::Future;
use std::mem;
use std::pin::Pin;

use selkie_engine::log::LogReservation;
use selkie_engine::{Engine, EngineError, ExclusiveGuard, GAddr, change_together};

use super::built::{BuiltTree, NewPages, YIELD_PAGES, is_empty_leaf};
use super::level::Level;
use crate::error::TreeError;
use crate::latch::{ExclusiveLatch, SharedLatch, latch};
use crate::leaf::{LeafView, leaf_stamp};
use crate::ops::check_size;
use crate::page::{self, PageSpec, PageView, Stamps};
use crate::reclaim::StampRule;
use crate::tree::Tree;

/// How full pages are, in percent, unless the caller says otherwise: some inserts between the rows
/// find room.
pub const DEFAULT_FILL: u8 = 90;
/// Least fill that a caller may ask for, in percent.
const LEAST_FILL: u8 = 20;
/// Bytes of one page's changes in the log, in pages, with what surrounds them.
const LOG_PAGES: u64 = 2;

/// A load under way: rows are [pushed](Self::push) in the order of their keys.
#[must_use = "a load that is dropped leaves nothing behind"]
pub struct BulkLoad<'e> {
    engine: &'e Engine,
    tree: Tree,
    /// The tree's only leaf.
    leaf: GAddr,
    /// Of all new inner pages: later than that of the root (see [`crate::post`]).
    removals: u32,
    /// Bytes and rows of a page that is full enough.
    full: (usize, usize),
    /// From the leaves up. Before the pages: their latches go first.
    levels: Vec<Level<'e>>,
    /// The first leaf, once it is complete, but for its stamps.
    first: Option<Vec<u8>>,
    leaves: Vec<GAddr>,
    pages: NewPages,
    rows: u64,
    last: Vec<u8>,
    /// Of the leaf of the empty tree.
    old: Stamps,
    /// Of new leaves, unless they get theirs later.
    stamps: Option<Stamps>,
}

impl Tree {
    /// Begins to load this tree, which is empty, with pages that are `fill` percent full
    /// ([`DEFAULT_FILL`]; 100 for tables that only grow at the end). The most rows of a leaf count
    /// as its bytes do. `rule` is for leaves without rows that are left of earlier ones.
    ///
    /// # Errors
    /// [`TreeError::NotEmpty`]; as [`Tree::locate`].
    pub async fn bulk_load<'e>(
        &self,
        engine: &'e Engine,
        fill: u8,
        rule: StampRule,
    ) -> Result<BulkLoad<'e>, TreeError> {
        self.reclaim(engine, &[], rule).await?;
        let _pin = engine.pin();
        let removals = {
            let root = latch::<SharedLatch>(engine, self.root()).await?;
            PageView::parse(&root).map_err(TreeError::damaged(self.root()))?.header().extra
        };
        let leaf = self.locate(engine, &[]).await?;
        let guard = latch::<SharedLatch>(engine, leaf).await?;
        if !is_empty_leaf(&guard).map_err(|error| error.at(leaf))? {
            return Err(TreeError::NotEmpty);
        }
        let old = LeafView::new(&guard).map_err(|error| error.at(leaf))?.stamps();
        let fill = usize::from(fill.clamp(LEAST_FILL, 100));
        let most = usize::try_from(self.most_rows()).unwrap_or(usize::MAX);
        Ok(BulkLoad {
            engine,
            tree: *self,
            leaf,
            removals: removals.wrapping_add(1),
            full: (engine.page_bytes() * fill / 100, (most.saturating_mul(fill) / 100).max(1)),
            levels: vec![Level::new(0, None, Vec::new())],
            first: None,
            leaves: Vec::new(),
            pages: NewPages { engine: engine.clone(), pages: Vec::new() },
            rows: 0,
            last: Vec::new(),
            old,
            stamps: None,
        })
    }
}

impl<'e> BulkLoad<'e> {
    /// Rows so far.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Gives new leaves the stamps of the leaf of the empty tree: of a tree that the caller alone
    /// knows, as if all rows had been there when it was created.
    pub fn with_old_stamps(mut self) -> Self {
        self.stamps = Some(self.old);
        self
    }

    /// The key of the row that came last; empty before the first.
    #[must_use]
    pub fn last_key(&self) -> &[u8] {
        &self.last
    }

    /// Leaves so far, but for the one of the empty tree.
    #[must_use]
    pub fn leaves(&self) -> usize {
        self.leaves.len()
    }

    /// Adds a row. Waits only when a page is full: to allocate the next one, and for room in the
    /// log.
    ///
    /// # Errors
    /// [`TreeError::OutOfOrder`] if the key is not above the one before;
    /// [`TreeError::KeyTooLong`], [`TreeError::ValueTooLong`]; the row is not in the load then,
    /// which may go on. [`TreeError::Engine`] (the pool is full): the load cannot go on.
    pub async fn push(&mut self, key: &[u8], value: &[u8]) -> Result<(), TreeError> {
        check_size(self.engine, key, value)?;
        if self.rows > 0 && key <= self.last.as_slice() {
            return Err(TreeError::OutOfOrder { position: self.rows });
        }
        self.add(0, key, value).await?;
        self.rows += 1;
        self.last.clear();
        self.last.extend_from_slice(key);
        Ok(())
    }

    /// Adds an entry to a level, which has a page.
    async fn add(&mut self, at: usize, key: &[u8], value: &[u8]) -> Result<(), TreeError> {
        let (full, rows) = self.full;
        let Some(level) = self.levels.get_mut(at) else { return Ok(()) };
        // An inner page with one child is of no use.
        let least = 1 + usize::from(at > 0);
        let is_full = level.bytes_with(key, value) > full || at == 0 && level.entries.len() >= rows;
        if is_full && level.entries.len() >= least {
            self.complete(at, Some(key)).await?;
            if let Some(level) = self.levels.get_mut(at) {
                level.bytes_with(key, value);
                level.push(key, value);
            }
        } else {
            level.push(key, value);
        }
        Ok(())
    }

    /// Writes the page of a level, and begins the next one, with the entries that did not fit. The
    /// entry that comes after them has the key `next`.
    fn complete<'a>(
        &'a mut self,
        at: usize,
        next: Option<&'a [u8]>,
    ) -> Pin<Box<dyn Future<Output = Result<(), TreeError>> + Send + 'a>> {
        Box::pin(self.complete_page(at, next))
    }

    async fn complete_page(&mut self, at: usize, next: Option<&[u8]>) -> Result<(), TreeError> {
        let engine = self.engine;
        let right = self.allocate().await?;
        let right_addr = right.addr();
        if at == 0 {
            self.leaves.push(right_addr);
        }
        let Some(level) = self.levels.get_mut(at) else { return Ok(()) };
        let (count, high) = level.cut(next, engine.page_bytes());
        let rest = level.entries.split_off(count);
        let next_page = Level::new(level.level, Some(right), high.clone());
        let next_page = next_page.with_room_as(&level.entries);
        let done = mem::replace(level, next_page);
        for (key, value) in rest.iter() {
            level.bytes_with(key, value);
            level.push(key, value);
        }
        let is_first = done.low.is_empty();
        let addr = self.write(at, done, high.clone(), right_addr).await?;
        if is_first {
            let level = u8::try_from(at + 1).unwrap_or(u8::MAX);
            let mut above = Level::new(level, None, Vec::new());
            above.bytes_with(&[], &[0; 8]);
            above.push(&[], &addr.to_u64().to_le_bytes());
            self.levels.push(above);
        }
        self.add(at + 1, &high, &right_addr.to_u64().to_le_bytes()).await
    }

    /// Writes a page. Returns where it is.
    async fn write(
        &mut self,
        at: usize,
        done: Level<'e>,
        high: Vec<u8>,
        right: GAddr,
    ) -> Result<GAddr, TreeError> {
        let Level { level, place, low, entries, .. } = done;
        let extra = if level == 0 { self.tree.most_rows() } else { self.removals };
        let spec =
            PageSpec { level, extra, low, high, right: right.to_u64(), ..PageSpec::default() };
        if at == 0 && place.is_none() {
            let mut image = vec![0; self.engine.page_bytes()];
            page::format(&mut image, &spec, entries.iter())
                .map_err(TreeError::damaged(self.leaf))?;
            self.first = Some(image);
            return Ok(self.leaf);
        }
        let mut guard = match place {
            Some(guard) => guard,
            None => self.allocate().await?,
        };
        let room = self.room().await?;
        let (addr, bytes) = (guard.addr(), guard.len());
        page::format(guard.bytes_mut(0..bytes), &spec, entries.iter())
            .map_err(TreeError::damaged(addr))?;
        if let Some(stamps) = self.stamps.filter(|_| at == 0) {
            leaf_stamp(&mut guard, stamps);
        }
        // In the log with that.
        drop(guard);
        drop(room);
        if self.pages.pages.len().is_multiple_of(YIELD_PAGES) {
            self.engine.env().yield_now().await;
        }
        Ok(addr)
    }

    async fn allocate(&mut self) -> Result<ExclusiveGuard<'e>, TreeError> {
        let guard = self.engine.allocate().await?;
        self.pages.pages.push(guard.addr());
        Ok(guard)
    }

    /// Room in the log for one page. Waits for it: the pages that are latched here are not in the
    /// log yet, and hold nothing of it back.
    async fn room(&self) -> Result<LogReservation, TreeError> {
        let need = LOG_PAGES * self.engine.gcl_bytes() as u64;
        loop {
            let mut room = LogReservation::default();
            match self.engine.reserve_log(&mut room, need) {
                Err(EngineError::LogFull) => self.engine.until_room(need).await?,
                reserved => return Ok(reserved.map(|()| room)?),
            }
        }
    }

    /// Writes the last page of every level. Nothing leads to the tree yet.
    ///
    /// # Errors
    /// [`TreeError::Engine`]; the pages are given back.
    pub async fn build(mut self) -> Result<BuiltTree, TreeError> {
        let mut at = 0;
        let root = loop {
            // The last page of a level has no high fence, so its prefix is empty.
            while self.levels.get(at).is_some_and(|level| {
                level.bytes_of(level.entries.len(), &[]) > self.engine.page_bytes()
            }) {
                self.complete(at, None).await?;
            }
            let Some(level) = self.levels.get_mut(at) else { break None };
            let last = mem::replace(level, Level::new(0, None, Vec::new()));
            let is_first = last.low.is_empty();
            if is_first && at > 0 {
                let mut image = vec![0; self.engine.page_bytes()];
                let (level, extra) = (last.level, self.removals);
                let spec = PageSpec { level, extra, ..PageSpec::default() };
                page::format(&mut image, &spec, last.entries.iter())
                    .map_err(TreeError::damaged(self.tree.root()))?;
                break Some(image);
            }
            self.write(at, last, Vec::new(), GAddr::NULL).await?;
            if is_first {
                break None;
            }
            at += 1;
        };
        let Self { tree, leaf, removals, first, leaves, pages, rows, .. } = self;
        let first = first.ok_or(TreeError::NotEmpty)?;
        Ok(BuiltTree { tree, leaf, removals, first, root, leaves, pages, rows })
    }

    /// Builds the tree and attaches it. The number of its rows.
    ///
    /// # Errors
    /// [`TreeError::NotEmpty`] if others have inserted rows meanwhile; [`TreeError::Engine`], also
    /// if the tree's leaf or root stayed latched. The tree is as it was, and the pages are given
    /// back.
    pub async fn finish(self) -> Result<u64, TreeError> {
        let engine = self.engine;
        let built = self.build().await?;
        let mut leaf = latch::<ExclusiveLatch>(engine, built.leaf()).await?;
        let stamps = LeafView::new(&leaf).map_err(|error| error.at(built.leaf()))?.stamps();
        let mut root = latch::<ExclusiveLatch>(engine, built.tree.root()).await?;
        built.check(&leaf, &root)?;
        let rows = built.rows;
        built.attach(&mut leaf, &mut root, stamps)?;
        change_together([&mut leaf, &mut root]);
        Ok(rows)
    }
}
