//! Stands in for the engine's module of the same name. The address of a frame is Relaxed here and
//! stricter in the engine: nothing that is shown here rests on it.

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU64, Ordering};

use crate::GAddr;
use crate::latch::FrameLatch;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FrameId(pub(crate) u32);

#[derive(Default)]
pub(crate) struct Frame {
    pub(crate) latch: FrameLatch,
    pub(crate) page: Page,
    addr: AtomicU64,
}

impl Frame {
    pub(crate) fn addr(&self) -> GAddr {
        GAddr::from_u64(self.addr.load(Ordering::Relaxed))
    }

    pub(crate) fn set_addr(&self, addr: GAddr) {
        self.addr.store(addr.to_u64(), Ordering::Relaxed);
    }
}

/// The bytes of a page. An access that no latch orders with the others fails the test.
#[derive(Default)]
pub(crate) struct Page(UnsafeCell<u64>);

impl Page {
    pub(crate) fn read(&self) -> u64 {
        // SAFETY: loom fails the test if the cell is written at this time.
        self.0.with(|page| unsafe { *page })
    }

    pub(crate) fn write(&self, value: u64) {
        // SAFETY: loom fails the test if the cell is accessed otherwise at this time.
        self.0.with_mut(|page| unsafe { *page = value });
    }
}
