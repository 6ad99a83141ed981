//! Stands in for the engine's module of the same name.

pub(crate) use loom::sync::atomic::{AtomicU64, Ordering};

pub(crate) use crate::epoch;

/// A counter. loom takes a load that is sequentially consistent for one that may return an old
/// value. A read-modify-write does not. So a load that is weaker than the sources say is found, and
/// an addition or a swap that is weaker is not.
#[derive(Default)]
pub(crate) struct AtomicUsize(loom::sync::atomic::AtomicUsize);

impl AtomicUsize {
    pub(crate) fn load(&self, order: Ordering) -> usize {
        match order {
            Ordering::SeqCst => self.0.fetch_add(0, Ordering::Acquire),
            order => self.0.load(order),
        }
    }

    pub(crate) fn fetch_add(&self, value: usize, order: Ordering) -> usize {
        self.0.fetch_add(value, order)
    }

    pub(crate) fn fetch_sub(&self, value: usize, order: Ordering) -> usize {
        self.0.fetch_sub(value, order)
    }
}

#[derive(Default)]
pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn lock(&self) -> loom::sync::MutexGuard<'_, T> {
        self.0.lock().unwrap()
    }
}
