//! Stands in for crossbeam-epoch, as far as the engine uses it: a collector that destroys what it
//! was given at the first moment at which no reader is pinned.
//!
//! What is destroyed is marked and kept, so that a test sees who looks at it all the same.

use std::any::Any;
use std::marker::PhantomData;
use std::sync::Mutex;

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

loom::lazy_static! {
    static ref GUARDS: AtomicUsize = AtomicUsize::new(0);
    // Not a mutex of loom: it orders nothing that `GUARDS` does not order.
    static ref RETIRED: Mutex<Retired> = Mutex::default();
}

#[derive(Default)]
struct Retired {
    waiting: Vec<Box<dyn Block>>,
    destroyed: Vec<Box<dyn Any>>,
}

/// A value, and whether it is destroyed.
struct Cell<T> {
    value: T,
    destroyed: UnsafeCell<bool>,
}

trait Block {
    fn destroy(self: Box<Self>) -> Box<dyn Any>;
}

impl<T: 'static> Block for Cell<T> {
    fn destroy(self: Box<Self>) -> Box<dyn Any> {
        // SAFETY: loom fails the test if the cell is accessed otherwise at this time.
        self.destroyed.with_mut(|destroyed| unsafe { *destroyed = true });
        self
    }
}

pub(crate) struct Guard(());

pub(crate) fn pin() -> Guard {
    // Acquire pairs with the drop of guards: what was destroyed by then is not found any more.
    GUARDS.fetch_add(1, Ordering::Acquire);
    Guard(())
}

impl Guard {
    /// # Safety
    /// No new reader finds the value.
    pub(crate) unsafe fn defer_destroy<T: 'static>(&self, value: Shared<'_, T>) {
        // SAFETY: the caller's; all values come from boxes.
        let block = unsafe { Box::from_raw(value.0) };
        RETIRED.lock().unwrap().waiting.push(block);
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // Release and Acquire pair with each other: no reader looks at what is destroyed.
        if GUARDS.fetch_sub(1, Ordering::AcqRel) == 1 {
            let mut retired = RETIRED.lock().unwrap();
            let destroyed: Vec<_> = retired.waiting.drain(..).map(Block::destroy).collect();
            retired.destroyed.extend(destroyed);
        }
    }
}

pub(crate) struct Owned<T>(Box<Cell<T>>);

impl<T> Owned<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Box::new(Cell { value, destroyed: UnsafeCell::new(false) }))
    }
}

pub(crate) struct Shared<'g, T>(*mut Cell<T>, PhantomData<&'g Guard>);

impl<'g, T> Shared<'g, T> {
    /// # Safety
    /// The value is not destroyed, which loom checks, too.
    pub(crate) unsafe fn deref(&self) -> &'g T {
        // SAFETY: the memory is kept until the end of the run.
        let cell = unsafe { &*self.0 };
        // SAFETY: loom fails the test if the cell is written at this time.
        let destroyed = cell.destroyed.with(|destroyed| unsafe { *destroyed });
        assert!(!destroyed, "a reader looks at what is destroyed");
        &cell.value
    }
}

pub(crate) struct Atomic<T>(AtomicPtr<Cell<T>>);

impl<T> Atomic<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(AtomicPtr::new(Box::into_raw(Owned::new(value).0)))
    }

    pub(crate) fn null() -> Self {
        Self(AtomicPtr::new(std::ptr::null_mut()))
    }

    pub(crate) fn load<'g>(&self, order: Ordering, _: &'g Guard) -> Shared<'g, T> {
        let at = match order {
            // As for the counters of `sync`: a read-modify-write returns the last value.
            Ordering::SeqCst => {
                self.0.fetch_update(Ordering::Acquire, Ordering::Acquire, Some).unwrap()
            }
            order => self.0.load(order),
        };
        Shared(at, PhantomData)
    }

    pub(crate) fn swap<'g>(&self, new: Owned<T>, order: Ordering, _: &'g Guard) -> Shared<'g, T> {
        Shared(self.0.swap(Box::into_raw(new.0), order), PhantomData)
    }

    /// # Safety
    /// No other reference to the value is left.
    pub(crate) unsafe fn into_owned(self) -> Owned<T> {
        // SAFETY: the caller's; all values come from boxes.
        Owned(unsafe { Box::from_raw(self.0.into_inner()) })
    }
}
