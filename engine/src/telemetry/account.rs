//! What is done for one future, apart from what the node does meanwhile for others.
//!
//! While the future is polled, its thread knows the account, and what is rare is added to it where
//! it is counted for the node: pages that are fetched, requests to other nodes, round trips. The
//! operation on a page belongs to its line, and goes on in a task of its own when others have to
//! answer: that task takes the account along. Hits are not counted once more, as a thread counts
//! its hits apart from other threads: those of a poll are the difference.
//!
//! What the node does in its own tasks is on no account, as evictions and the writing of its log.

use std::cell::RefCell;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use crate::Engine;

/// What an engine did for one future ([`Engine::account`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkDone {
    /// Accesses served by the cached copy.
    pub hits: u64,
    /// Accesses that fetched the page or a right to it.
    pub misses: u64,
    /// Shared copies that became exclusive.
    pub upgrades: u64,
    /// Pages that were fetched before an access asked for them.
    pub prefetches: u64,
    /// Requests to other nodes to give their copies up.
    pub invalidations_sent: u64,
    /// Chains of verbs that were posted to memory nodes, and requests to other nodes.
    pub round_trips: u64,
}

/// What is added up.
#[derive(Default)]
pub(crate) struct Account {
    misses: AtomicU64,
    upgrades: AtomicU64,
    prefetches: AtomicU64,
    invalidations_sent: AtomicU64,
    round_trips: AtomicU64,
}

/// Something that is on an account.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Item {
    Miss,
    Upgrade,
    Prefetch,
    InvalidationSent,
    RoundTrip,
}

thread_local! {
    /// That of the future that is polled.
    static CURRENT: RefCell<Option<Arc<Account>>> = const { RefCell::new(None) };
}

/// Adds to the account of the future that is polled, if it has one.
pub(crate) fn note(item: Item) {
    // A thread that ends has none.
    let _ = CURRENT.try_with(|current| {
        if let Some(account) = &*current.borrow() {
            let counter = match item {
                Item::Miss => &account.misses,
                Item::Upgrade => &account.upgrades,
                Item::Prefetch => &account.prefetches,
                Item::InvalidationSent => &account.invalidations_sent,
                Item::RoundTrip => &account.round_trips,
            };
            counter.fetch_add(1, Ordering::Relaxed);
        }
    });
}

/// The account of the future that is polled, for a task that goes on with what it has begun.
pub(crate) fn current() -> Option<Arc<Account>> {
    CURRENT.try_with(|current| current.borrow().clone()).ok().flatten()
}

/// A future with its account.
pub(crate) struct OnAccount<F> {
    account: Arc<Account>,
    work: Pin<Box<F>>,
}

impl<F: Future> OnAccount<F> {
    pub(crate) fn new(account: Arc<Account>, work: F) -> Self {
        Self { account, work: Box::pin(work) }
    }
}

impl<F: Future> Future for OnAccount<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let _before = Entered::new(Arc::clone(&self.account));
        self.work.as_mut().poll(cx)
    }
}

/// Has the thread know an account, until it is dropped.
struct Entered(Option<Arc<Account>>);

impl Entered {
    fn new(account: Arc<Account>) -> Self {
        Self(CURRENT.try_with(|current| current.replace(Some(account))).ok().flatten())
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let before = self.0.take();
        let _ = CURRENT.try_with(|current| current.replace(before));
    }
}

/// Runs a future on an account, and counts the hits of its polls.
struct Accounted<'e, F> {
    engine: &'e Engine,
    hits: u64,
    work: OnAccount<F>,
}

impl<F: Future> Future for Accounted<'_, F> {
    type Output = (F::Output, u64);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let counters = &self.engine.core().telemetry.counters;
        let before = counters.hits_of_thread();
        let polled = Pin::new(&mut self.work).poll(cx);
        let new = self.engine.core().telemetry.counters.hits_of_thread() - before;
        self.hits += new;
        polled.map(|output| (output, self.hits))
    }
}

impl Engine {
    /// Runs a future, and says what this node did for it: what others did meanwhile does not count.
    /// What is still under way when it ends, as a page that is read ahead, counts as far as it has
    /// come.
    pub async fn account<F: Future>(&self, work: F) -> (F::Output, WorkDone) {
        let account = Arc::new(Account::default());
        let work = OnAccount::new(Arc::clone(&account), work);
        let (output, hits) = Accounted { engine: self, hits: 0, work }.await;
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let done = WorkDone {
            hits,
            misses: read(&account.misses),
            upgrades: read(&account.upgrades),
            prefetches: read(&account.prefetches),
            invalidations_sent: read(&account.invalidations_sent),
            round_trips: read(&account.round_trips),
        };
        (output, done)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::pin::pin;
    use std::task::Waker;

    use super::*;

    fn trips(account: &Account) -> u64 {
        account.round_trips.load(Ordering::Relaxed)
    }

    /// Two futures on one thread, and a task that one of them has begun.
    #[test]
    fn what_is_noted_is_on_the_account_of_the_future_that_is_polled() {
        let [first, second] = [(); 2].map(|()| Arc::new(Account::default()));
        let work = || {
            let mut polls = 0;
            poll_fn(move |_| {
                note(Item::RoundTrip);
                polls += 1;
                if polls == 2 { Poll::Ready(current()) } else { Poll::Pending }
            })
        };
        let mut one = pin!(OnAccount::new(Arc::clone(&first), work()));
        let mut other = pin!(OnAccount::new(Arc::clone(&second), work()));
        let mut none = pin!(work());
        let mut cx = Context::from_waker(Waker::noop());
        assert!(one.as_mut().poll(&mut cx).is_pending());
        assert!(other.as_mut().poll(&mut cx).is_pending());
        assert!(none.as_mut().poll(&mut cx).is_pending());
        note(Item::RoundTrip);
        assert_eq!((trips(&first), trips(&second)), (1, 1));
        let Poll::Ready(Some(begun)) = one.as_mut().poll(&mut cx) else { panic!("it has ended") };
        assert!(Arc::ptr_eq(&begun, &first) && current().is_none());
        let mut task = pin!(OnAccount::new(begun, work()));
        assert!(task.as_mut().poll(&mut cx).is_pending());
        assert_eq!((trips(&first), trips(&second)), (3, 1));
    }

    /// The account of what is around comes back.
    #[test]
    fn accounts_are_within_each_other() {
        let [outer, inner] = [(); 2].map(|()| Arc::new(Account::default()));
        let mut cx = Context::from_waker(Waker::noop());
        let within = Arc::clone(&inner);
        let work = async move {
            note(Item::RoundTrip);
            OnAccount::new(within, async { note(Item::RoundTrip) }).await;
            note(Item::RoundTrip);
        };
        let mut work = pin!(OnAccount::new(Arc::clone(&outer), work));
        assert!(work.as_mut().poll(&mut cx).is_ready());
        assert_eq!((trips(&outer), trips(&inner)), (2, 1));
    }
}
