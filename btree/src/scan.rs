//! Range scans in both directions, one leaf at a time.
//!
//! The rows of a leaf are copied out under its shared latch and handed to the caller without any
//! latch, so the caller may take its time and use the tree. A scan reads each leaf at one point in
//! time and different leaves at different ones; rows that are there throughout are seen exactly
//! once, in order. Forward it follows right links; backward it locates the leaf before the low
//! fence, which needs no left links.

use std::ops::{Bound, ControlFlow};

use selkie_engine::{Engine, GAddr};

use crate::error::TreeError;
use crate::latch::SharedLatch;
use crate::leaf::target_before;
use crate::page::{Damage, PageView, Target};
use crate::tree::Tree;

/// Leaves after which a scan lets other tasks run: on cached pages nothing else would make it wait.
const YIELD_LEAVES: usize = 32;

/// Which way a scan goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Ascending keys.
    Forward,
    /// Descending keys.
    Reverse,
}

/// Rows copied out of one leaf, in scan order.
#[derive(Default)]
struct ScanBatch {
    bytes: Vec<u8>,
    /// Lengths of key and value, one after the other in `bytes`.
    rows: Vec<(usize, usize)>,
    key: Vec<u8>,
    /// Leaves copied so far.
    leaves: usize,
}

impl ScanBatch {
    /// Copies the rows of `slots` that `inside` lets through, up to the first it does not. Returns
    /// whether that one was met.
    fn fill(
        &mut self,
        view: &PageView<'_>,
        slots: impl Iterator<Item = usize>,
        inside: impl Fn(&[u8]) -> bool,
    ) -> Result<bool, Damage> {
        self.bytes.clear();
        self.rows.clear();
        for slot in slots {
            view.key_into(slot, &mut self.key)?;
            if !inside(&self.key) {
                return Ok(true);
            }
            let value = view.cell(slot)?.value;
            self.bytes.extend_from_slice(&self.key);
            self.bytes.extend_from_slice(value);
            self.rows.push((self.key.len(), value.len()));
        }
        Ok(false)
    }

    /// Lets other tasks run now and then.
    async fn breathe(&mut self, engine: &Engine) {
        self.leaves += 1;
        if self.leaves.is_multiple_of(YIELD_LEAVES) {
            engine.env().yield_now().await;
        }
    }

    /// Hands the rows to the caller until it breaks.
    fn deliver(&self, each: &mut impl FnMut(&[u8], &[u8]) -> ControlFlow<()>) -> ControlFlow<()> {
        let mut rest = self.bytes.as_slice();
        for (key_len, value_len) in &self.rows {
            let (key, after) = rest.split_at(*key_len);
            let (value, after) = after.split_at(*value_len);
            rest = after;
            each(key, value)?;
        }
        ControlFlow::Continue(())
    }
}

impl Tree {
    /// Calls `each` with the rows in `range`, in the given order, until it breaks. `each` runs
    /// without latches but under an epoch pin: pages freed meanwhile wait for the scan to end.
    /// Other tasks get their turn every 32 leaves, cached or not.
    ///
    /// # Errors
    /// As [`Tree::locate`], possibly after some rows.
    pub async fn scan(
        &self,
        engine: &Engine,
        range: (Bound<&[u8]>, Bound<&[u8]>),
        direction: Direction,
        mut each: impl FnMut(&[u8], &[u8]) -> ControlFlow<()> + Send,
    ) -> Result<(), TreeError> {
        let _pin = engine.pin();
        match direction {
            Direction::Forward => self.scan_forward(engine, range, &mut each).await,
            Direction::Reverse => self.scan_reverse(engine, range, &mut each).await,
        }
    }

    async fn scan_forward(
        &self,
        engine: &Engine,
        (start, end): (Bound<&[u8]>, Bound<&[u8]>),
        each: &mut (impl FnMut(&[u8], &[u8]) -> ControlFlow<()> + Send),
    ) -> Result<(), TreeError> {
        let inside = |key: &[u8]| match end {
            Bound::Included(end) => key <= end,
            Bound::Excluded(end) => key < end,
            Bound::Unbounded => true,
        };
        let mut batch = ScanBatch::default();
        // The next key to read, whether it is to be skipped, and the leaf it should be in.
        let mut cursor = match start {
            Bound::Included(key) | Bound::Excluded(key) => key.to_vec(),
            Bound::Unbounded => Vec::new(),
        };
        let mut skip = matches!(start, Bound::Excluded(_));
        let mut hint: Option<GAddr> = None;
        loop {
            let done = {
                let target = Target::At(&cursor);
                let (leaf, addr, _) = self.find_leaf::<SharedLatch>(engine, target, hint).await?;
                let copied = PageView::parse(&leaf).and_then(|view| {
                    let first = match view.search(&cursor)? {
                        Ok(slot) => slot + usize::from(skip),
                        Err(slot) => slot,
                    };
                    let beyond = batch.fill(&view, first..view.len(), inside)?;
                    let last = view.high().is_empty();
                    Ok((beyond || last, view.high().to_vec(), view.header().right))
                });
                let (done, high, right) = copied.map_err(TreeError::damaged(addr))?;
                (cursor, skip, hint) = (high, false, Some(GAddr::from_u64(right)));
                done
            };
            if batch.deliver(each).is_break() || done {
                return Ok(());
            }
            batch.breathe(engine).await;
        }
    }

    async fn scan_reverse(
        &self,
        engine: &Engine,
        (start, end): (Bound<&[u8]>, Bound<&[u8]>),
        each: &mut (impl FnMut(&[u8], &[u8]) -> ControlFlow<()> + Send),
    ) -> Result<(), TreeError> {
        let inside = |key: &[u8]| match start {
            Bound::Included(start) => key >= start,
            Bound::Excluded(start) => key > start,
            Bound::Unbounded => true,
        };
        let mut batch = ScanBatch::default();
        let mut bound = end.map(<[u8]>::to_vec);
        loop {
            let done = {
                let target = target_before(bound.as_ref().map(Vec::as_slice));
                let (leaf, addr, _) = self.find_leaf::<SharedLatch>(engine, target, None).await?;
                let copied = PageView::parse(&leaf).and_then(|view| {
                    let above = view.slots_below(target)?;
                    let beyond = batch.fill(&view, (0..above).rev(), inside)?;
                    Ok((beyond || view.low().is_empty(), view.low().to_vec()))
                });
                let (done, low) = copied.map_err(TreeError::damaged(addr))?;
                bound = Bound::Excluded(low);
                done
            };
            if batch.deliver(each).is_break() || done {
                return Ok(());
            }
            batch.breathe(engine).await;
        }
    }
}
