//! Once warm, sending and receiving on `mem` allocate nothing.

use selkie_channels::{Mailbox, MailboxConfig};
use selkie_fabric::{Fabric, MemFabric, PeerId};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

struct Counting;

// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn a_warm_mailbox_allocates_nothing() {
    let fabric: Arc<dyn Fabric> = MemFabric::new();
    let config = MailboxConfig { peers: 2, ring_bytes: 64 << 10, outbox_limit: 8 };
    let ends = [0, 1].map(|node| fabric.join(PeerId::compute(node)).unwrap());
    let boxes = [0, 1].map(|me: usize| Mailbox::open(&ends[me], me, config).unwrap());
    for me in [0, 1] {
        boxes[me].connect(1 - me, &boxes[1 - me].descriptor(), &ends[me]).unwrap();
    }
    let page = [7; 2048];
    let mut received = 0;
    let mut exchange = |rounds: usize| {
        for _ in 0..rounds {
            boxes[0].send(1, &[1; 40], &[]).unwrap();
            boxes[1].poll(8, &mut |_, m| received += m.len()).unwrap();
            boxes[1].send(0, &[2; 40], &page).unwrap();
            boxes[0].poll(8, &mut |_, m| received += m.len()).unwrap();
        }
    };
    exchange(100);
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    exchange(10_000);
    let allocations = ALLOCATIONS.load(Ordering::Relaxed) - before;
    // The test harness' own thread may wake once or twice; a single one per lap would be hundreds.
    assert!(allocations < 10, "{allocations} allocations in 20,000 messages");
    assert_eq!(received, 10_100 * (40 + 40 + 2048));
}
