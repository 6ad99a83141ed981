//! No wake-up of a doorbell is lost: every interleaving of ringers and waiters, searched by loom.
//!
//! The test compiles the doorbell's own source against loom's primitives: inside this crate,
//! `crate::sync` is the module below.

#![expect(clippy::unwrap_used, reason = "helpers of tests may fail like tests")]

#[path = "../src/doorbell.rs"]
#[expect(unreachable_pub, reason = "public in its own crate, private in this one")]
mod doorbell;

/// Stands in for `selkie_fabric`'s module of the same name.
mod sync {
    pub(crate) use loom::sync::atomic::{AtomicU64, Ordering};

    #[derive(Clone)]
    pub(crate) struct Word(loom::sync::Arc<AtomicU64>);

    impl Word {
        pub(crate) fn own() -> Self {
            Self(loom::sync::Arc::new(AtomicU64::new(0)))
        }
    }

    impl std::ops::Deref for Word {
        type Target = AtomicU64;

        fn deref(&self) -> &AtomicU64 {
            &self.0
        }
    }

    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(loom::sync::Mutex::new(value))
        }

        pub(crate) fn with<R>(&self, action: impl FnOnce(&mut T) -> R) -> R {
            action(&mut self.0.lock().unwrap())
        }
    }
}

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Wake, Waker};

use doorbell::{Doorbell, ring_word};
use loom::sync::Arc;
use loom::sync::Notify;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;
use sync::Word;

struct Unpark(Notify);

impl Wake for Unpark {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.notify();
    }
}

/// Runs `future` to its end; a lost wake-up is a deadlock, which loom reports.
fn block_on<F: Future>(future: F) -> F::Output {
    let unpark = std::sync::Arc::new(Unpark(Notify::new()));
    let waker = Waker::from(std::sync::Arc::clone(&unpark));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => unpark.0.wait(),
        }
    }
}

#[test]
fn a_ring_reaches_a_waiter_and_publishes_what_was_written_before() {
    loom::model(|| {
        let shared = Arc::new((Doorbell::new(), AtomicUsize::new(0)));
        let ringer = Arc::clone(&shared);
        let thread = thread::spawn(move || {
            ringer.1.store(1, Ordering::Relaxed);
            ringer.0.ring();
        });
        assert_eq!(block_on(shared.0.wait_past(0)), 1);
        assert_eq!(shared.1.load(Ordering::Relaxed), 1);
        thread.join().unwrap();
    });
}

/// Searches the interleavings of three threads, with at most three preemptions in each: without
/// that bound the search takes minutes.
fn model_of_three_threads(body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(body);
}

fn ringing(doorbell: &Arc<Doorbell>) -> thread::JoinHandle<()> {
    let doorbell = Arc::clone(doorbell);
    thread::spawn(move || doorbell.ring())
}

#[test]
fn every_ring_of_two_ringers_is_heard_by_a_waiter_that_looks_in_between() {
    model_of_three_threads(|| {
        let doorbell = Arc::new(Doorbell::new());
        let ringers = [ringing(&doorbell), ringing(&doorbell)];
        let mut seen = 0;
        while seen < 2 {
            let count = block_on(doorbell.wait_past(seen));
            assert!(count > seen);
            seen = count;
        }
        for ringer in ringers {
            ringer.join().unwrap();
        }
    });
}

#[test]
fn one_ring_wakes_two_waiters_though_a_third_gives_up() {
    model_of_three_threads(|| {
        let doorbell = Arc::new(Doorbell::new());
        let other = Arc::clone(&doorbell);
        let waiter = thread::spawn(move || assert_eq!(block_on(other.wait_past(0)), 1));
        {
            let mut context = Context::from_waker(Waker::noop());
            let polled = pin!(doorbell.wait_past(0)).poll(&mut context);
            assert_eq!(polled, Poll::Pending);
        }
        let ringer = ringing(&doorbell);
        assert_eq!(block_on(doorbell.wait_past(0)), 1);
        waiter.join().unwrap();
        ringer.join().unwrap();
    });
}

#[test]
fn rings_from_outside_reach_a_waiter_through_whoever_is_told_of_them() {
    loom::model(|| {
        let word = Word::own();
        let doorbell = Arc::new(Doorbell::at(word.clone()));
        let told = Arc::clone(&doorbell);
        let ringer = thread::spawn(move || {
            for _ in 0..2 {
                if ring_word(&word) {
                    told.wake_passed();
                }
            }
        });
        assert_eq!(block_on(doorbell.wait_past(1)), 2);
        ringer.join().unwrap();
    });
}
