//! A log that a test holds back, breaks or cuts short.
#![expect(clippy::indexing_slicing, reason = "test support: what goes wrong here shall panic")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use selkie_engine::log::{
    FIRST_LSN, LogError, LogOwner, LogStore, Lsn, Piece, ReadError, Sink, Written,
};
use selkie_fabric::BoxFuture;

/// A log in memory, which makes nothing durable while it is shut, and fails while it is broken.
pub(crate) struct Valve {
    pub(super) bytes: Mutex<Vec<u8>>,
    /// From where it would be kept.
    pub(super) start: AtomicU64,
    pub(super) capacity: AtomicU64,
    pub(super) shut: AtomicBool,
    /// Appends that have met it shut.
    pub(super) waits: AtomicU64,
    pub(super) broken: AtomicBool,
    /// An append panics.
    pub(super) panics: AtomicBool,
    pub(super) appends: AtomicU64,
    /// So many reads of it panic.
    pub(super) reads_that_panic: AtomicU64,
    /// Where others said that it ends.
    pub(super) ended: Mutex<Option<Lsn>>,
    /// What is before its start is gone.
    pub(super) forgets: AtomicBool,
    /// A caller that waits adds to it when that is said.
    pub(super) opens_late: AtomicBool,
    /// It is one piece: it is cut short as a whole or not at all.
    pub(super) is_one_piece: AtomicBool,
}

impl Default for Valve {
    fn default() -> Self {
        Self {
            bytes: Mutex::default(),
            start: AtomicU64::new(FIRST_LSN),
            capacity: AtomicU64::new(u64::MAX),
            shut: AtomicBool::new(false),
            waits: AtomicU64::new(0),
            broken: AtomicBool::new(false),
            panics: AtomicBool::new(false),
            appends: AtomicU64::new(0),
            reads_that_panic: AtomicU64::new(0),
            ended: Mutex::default(),
            forgets: AtomicBool::new(false),
            opens_late: AtomicBool::new(false),
            is_one_piece: AtomicBool::new(false),
        }
    }
}

impl Valve {
    /// Waits until an append waits for it.
    pub(super) async fn until_waited_for(&self) {
        let started = std::time::Instant::now();
        while self.waits.load(Ordering::SeqCst) == 0 {
            assert!(started.elapsed() < Duration::from_secs(120), "no append");
            selkie_fabric::env::yield_now().await;
        }
    }

    /// Where what is left of it begins.
    fn left_from(&self) -> Lsn {
        let forgets = self.forgets.load(Ordering::SeqCst);
        if forgets { self.start.load(Ordering::SeqCst) } else { FIRST_LSN }
    }

    pub(super) fn end(&self) -> Lsn {
        FIRST_LSN + self.bytes.lock().len() as u64
    }
}

/// It is that of the test.
pub(super) struct Tap(Arc<Valve>);

impl Sink for Tap {
    fn append(&self, at: Lsn, bytes: Vec<u8>) -> BoxFuture<'_, Written> {
        Box::pin(async move {
            let valve = &self.0;
            valve.waits.fetch_add(u64::from(valve.shut.load(Ordering::SeqCst)), Ordering::SeqCst);
            while valve.shut.load(Ordering::SeqCst) {
                selkie_fabric::env::yield_now().await;
            }
            if valve.broken.load(Ordering::SeqCst) {
                let source = Arc::new(std::io::ErrorKind::StorageFull.into());
                let error = LogError { what: "write", place: "valve".into(), source };
                return Written { bytes, result: Err(error) };
            }
            assert!(!valve.panics.load(Ordering::SeqCst), "planted");
            let mut all = valve.bytes.lock();
            assert_eq!(at, FIRST_LSN + all.len() as u64, "one after the other");
            all.extend_from_slice(&bytes);
            valve.appends.fetch_add(1, Ordering::SeqCst);
            Written { bytes, result: Ok(()) }
        })
    }

    fn truncate(&self, lsn: Lsn) -> BoxFuture<'_, Result<Lsn, LogError>> {
        Box::pin(async move {
            let valve = &self.0;
            if !valve.is_one_piece.load(Ordering::SeqCst) || lsn == valve.end() {
                valve.start.store(lsn, Ordering::SeqCst);
            }
            Ok(valve.start.load(Ordering::SeqCst))
        })
    }

    fn capacity(&self) -> u64 {
        self.0.capacity.load(Ordering::SeqCst)
    }
}

/// A valve for each node.
pub(crate) struct Valves(pub(crate) Vec<Arc<Valve>>);

impl std::fmt::Debug for Valves {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} valves", self.0.len())
    }
}

impl LogStore for Valves {
    fn create(&self, owner: LogOwner) -> BoxFuture<'_, Result<Arc<dyn Sink>, LogError>> {
        let valve = Arc::clone(&self.0[usize::from(owner.node)]);
        Box::pin(async { Ok(Arc::new(Tap(valve)) as Arc<dyn Sink>) })
    }

    fn pieces(&self, owner: LogOwner) -> BoxFuture<'_, Result<Vec<Lsn>, ReadError>> {
        let from = self.0[usize::from(owner.node)].left_from();
        Box::pin(async move { Ok(vec![from]) })
    }

    fn piece(&self, owner: LogOwner, _: Lsn) -> BoxFuture<'_, Result<Piece, ReadError>> {
        let valve = &self.0[usize::from(owner.node)];
        let left = valve.reads_that_panic.load(Ordering::SeqCst);
        valve.reads_that_panic.store(left.saturating_sub(1), Ordering::SeqCst);
        assert_eq!(left, 0, "planted");
        let from = (valve.left_from() - FIRST_LSN) as usize;
        let bytes = valve.bytes.lock()[from..].to_vec();
        Box::pin(async { Ok(Piece { place: "valve".into(), offset: 0, bytes }) })
    }

    fn end_at(&self, owner: LogOwner, end: Lsn) -> BoxFuture<'_, Result<Lsn, ReadError>> {
        let valve = &self.0[usize::from(owner.node)];
        let end = *valve.ended.lock().get_or_insert(end);
        Box::pin(async move {
            if valve.opens_late.swap(false, Ordering::SeqCst) {
                let appends = valve.appends.load(Ordering::SeqCst);
                valve.shut.store(false, Ordering::SeqCst);
                let started = std::time::Instant::now();
                while valve.appends.load(Ordering::SeqCst) == appends {
                    assert!(started.elapsed() < Duration::from_secs(10), "no append waits");
                    selkie_fabric::env::yield_now().await;
                }
            }
            Ok(end)
        })
    }

    fn ended(&self, owner: LogOwner) -> BoxFuture<'_, Result<Option<Lsn>, ReadError>> {
        let ended = *self.0[usize::from(owner.node)].ended.lock();
        Box::pin(async move { Ok(ended) })
    }

    fn remove(&self, _: LogOwner) -> BoxFuture<'_, Result<(), LogError>> {
        Box::pin(async { Ok(()) })
    }

    fn owners(&self) -> BoxFuture<'_, Result<Vec<LogOwner>, ReadError>> {
        Box::pin(async { Ok(Vec::new()) })
    }
}
