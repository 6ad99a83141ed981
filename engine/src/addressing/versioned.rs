//! A value that is replaced as a whole and read without a lock, and whether operations under an
//! older version of it are still under way.
//!
//! A reader looks at the version that is current at that moment. The collector destroys a version
//! once no reader can still look at it.
//!
//! An operation registers as a user of the current version ([`Versioned::using`]) before it looks
//! at the value, so it uses this version or later ones. Users are counted per version; versions
//! that are equal for operations share a count. The caller that replaces a version keeps its count,
//! and is told when all counts of older versions are zero. No user is overlooked: a user counts
//! itself first and looks at the current version afterwards, the other side replaces it first and
//! looks at the count afterwards. A user that finds another version then registers again.

use std::sync::Arc;

use crate::sync::epoch::{self, Atomic, Owned};
use crate::sync::{AtomicUsize, Mutex, Ordering};

/// A value with versions that operations use. Any thread may destroy an old one, some time later.
pub(crate) trait Suits: PartialEq + Send + 'static {
    /// Whether an operation under this version is valid under the other, too.
    fn suits(&self, other: &Self) -> bool;
}

/// The current version of a value, and the users of older ones.
pub(crate) struct Versioned<V: Suits> {
    current: Atomic<CountedValue<V>>,
    /// The counts of older versions that were not zero when they were looked at.
    older: Mutex<Vec<Arc<AtomicUsize>>>,
}

/// A version, and the count of its users.
struct CountedValue<V> {
    value: V,
    /// Users of this version, and of later versions that it suits.
    users: Arc<AtomicUsize>,
}

/// Registers its owner as a user of a version, until it is dropped.
#[must_use]
pub(crate) struct Using(Arc<AtomicUsize>);

impl Drop for Using {
    fn drop(&mut self) {
        // Release pairs with the load in `replace`: operations under the version are over.
        self.0.fetch_sub(1, Ordering::Release);
    }
}

impl<V: Suits> Versioned<V> {
    pub(crate) fn new(value: V) -> Self {
        let first = CountedValue { value, users: Arc::default() };
        Self { current: Atomic::new(first), older: Mutex::default() }
    }

    /// Looks at the current version.
    pub(crate) fn with<T>(&self, look: impl FnOnce(&V) -> T) -> T {
        let guard = epoch::pin();
        // Acquire pairs with the swap in `replace`: the value was made before.
        let current = self.current.load(Ordering::Acquire, &guard);
        // SAFETY: it is never null; what was loaded lives as long as the guard.
        look(&unsafe { current.deref() }.value)
    }

    /// Replaces the current version if the new one differs. Returns whether no user is left of
    /// older versions that do not suit it. Called by one thread at a time.
    pub(crate) fn replace(&self, value: V) -> bool {
        let guard = epoch::pin();
        let known = self.current.load(Ordering::Acquire, &guard);
        // SAFETY: it is never null; what was loaded lives as long as the guard.
        let known = unsafe { known.deref() };
        let mut older = self.older.lock();
        if known.value != value {
            let users = if known.value.suits(&value) {
                Arc::clone(&known.users)
            } else {
                older.push(Arc::clone(&known.users));
                Arc::default()
            };
            let new = Owned::new(CountedValue { value, users });
            // SeqCst with `using`: either that finds the new version, or the loads below find it
            // among the users.
            let before = self.current.swap(new, Ordering::SeqCst, &guard);
            // SAFETY: it is not reachable any more, and destroyed when no thread can still hold
            // a reference from before.
            unsafe { guard.defer_destroy(before) };
        }
        older.retain(|users| users.load(Ordering::SeqCst) > 0);
        older.is_empty()
    }

    /// Registers the caller as a user of the current version, until the result is dropped.
    pub(crate) fn using(&self) -> Using {
        let guard = epoch::pin();
        loop {
            let known = self.current.load(Ordering::SeqCst, &guard);
            // SAFETY: it is never null; what was loaded lives as long as the guard.
            let known = unsafe { known.deref() };
            known.users.fetch_add(1, Ordering::SeqCst);
            let using = Using(Arc::clone(&known.users));
            let now = self.current.load(Ordering::SeqCst, &guard);
            // SAFETY: as above.
            let now = unsafe { now.deref() };
            if Arc::ptr_eq(&now.users, &known.users) {
                return using;
            }
        }
    }
}

impl<V: Suits> Drop for Versioned<V> {
    fn drop(&mut self) {
        let current = std::mem::replace(&mut self.current, Atomic::null());
        // SAFETY: the owner is dropped, so no other reference to the version is left; earlier ones
        // were given to the collector.
        drop(unsafe { current.into_owned() });
    }
}
