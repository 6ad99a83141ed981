//! A value that a thread will give to a task.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};

use parking_lot::Mutex;

/// A value that a thread gives to a task, once.
pub(super) fn promise<T>() -> (Giver<T>, impl Future<Output = Option<T>>) {
    let shared = Arc::new(Mutex::new(Promise::Open(None)));
    let giver = Giver(Arc::clone(&shared));
    let taken = poll_fn(move |context| {
        let mut promise = shared.lock();
        match std::mem::replace(&mut *promise, Promise::Broken) {
            Promise::Kept(value) => Poll::Ready(Some(value)),
            Promise::Broken => Poll::Ready(None),
            Promise::Open(_) => {
                *promise = Promise::Open(Some(context.waker().clone()));
                Poll::Pending
            }
        }
    });
    (giver, taken)
}

enum Promise<T> {
    Open(Option<Waker>),
    Kept(T),
    /// It will never be kept, or was taken.
    Broken,
}

pub(super) struct Giver<T>(Arc<Mutex<Promise<T>>>);

impl<T> Giver<T> {
    pub(super) fn give(self, value: T) {
        self.settle(Promise::Kept(value));
    }

    fn settle(&self, settled: Promise<T>) {
        let mut promise = self.0.lock();
        if let Promise::Open(waker) = &mut *promise {
            let waker = waker.take();
            *promise = settled;
            drop(promise);
            waker.iter().for_each(Waker::wake_by_ref);
        }
    }
}

impl<T> Drop for Giver<T> {
    fn drop(&mut self) {
        self.settle(Promise::Broken);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Wake};

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn who_waits_is_woken_when_it_is_kept_and_when_it_is_broken() {
        for expected in [Some(7), None] {
            for polled_before in [false, true] {
                let woken = Arc::new(Count::default());
                let waker = Waker::from(Arc::clone(&woken));
                let mut context = Context::from_waker(&waker);
                let (giver, taken) = promise();
                let mut taken = pin!(taken);
                if polled_before {
                    assert_eq!(taken.as_mut().poll(&mut context), Poll::Pending);
                }
                match expected {
                    Some(value) => giver.give(value),
                    None => drop(giver),
                }
                assert_eq!(woken.0.load(Ordering::Relaxed), usize::from(polled_before));
                assert_eq!(taken.as_mut().poll(&mut context), Poll::Ready(expected));
            }
        }
    }
}
