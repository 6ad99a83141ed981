//! Wakes those who work on trees while their node is idle, when there is work again.

use std::future::poll_fn;
use std::mem;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Poll, Waker};

use parking_lot::Mutex;

/// How many tasks a backlog has, and who waits for some. It outlives the backlog.
#[derive(Default)]
pub(super) struct BacklogBell {
    tasks: AtomicUsize,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    wakers: Vec<Waker>,
    /// The backlog is gone.
    is_over: bool,
}

impl BacklogBell {
    /// How many tasks there are, or were a moment ago.
    pub(super) fn tasks(&self) -> usize {
        // Relaxed: a task that is missed is taken by a later transaction. Who waits looks with the
        // lock held that the ring behind the first task takes: one of the two sees the other.
        self.tasks.load(Ordering::Relaxed)
    }

    /// Sets how many tasks there are. Whether they are the first: then the caller
    /// [rings](Self::ring), once it holds no lock.
    pub(super) fn set_tasks(&self, tasks: usize) -> bool {
        self.tasks.swap(tasks, Ordering::Relaxed) == 0 && tasks > 0
    }

    /// Wakes those who wait for tasks.
    pub(super) fn ring(&self) {
        let wakers = mem::take(&mut self.waiting.lock().wakers);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// The backlog is gone: nobody waits from now on.
    pub(super) fn end(&self) {
        self.waiting.lock().is_over = true;
        self.ring();
    }

    /// Returns when there are tasks; `false` if the backlog is gone. Cancel safe.
    pub(super) async fn until_some(&self) -> bool {
        poll_fn(|cx| {
            let mut waiting = self.waiting.lock();
            if waiting.is_over || self.tasks() > 0 {
                return Poll::Ready(!waiting.is_over);
            }
            if !waiting.wakers.iter().any(|waker| waker.will_wake(cx.waker())) {
                waiting.wakers.push(cx.waker().clone());
            }
            Poll::Pending
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::Arc;
    use std::task::{Context, Wake};

    use super::*;

    /// Counts how often it is woken.
    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn who_waits_is_woken_by_the_first_task_and_by_the_end() {
        let (bell, woken) = (BacklogBell::default(), Arc::new(Woken::default()));
        let waker = Waker::from(Arc::clone(&woken));
        let (mut context, times) =
            (Context::from_waker(&waker), || woken.0.load(Ordering::Relaxed));
        let mut waits = pin!(bell.until_some());
        for _ in 0..3 {
            assert!(waits.as_mut().poll(&mut context).is_pending());
        }
        assert!(bell.set_tasks(1));
        bell.ring();
        assert_eq!(times(), 1);
        assert_eq!(waits.as_mut().poll(&mut context), Poll::Ready(true));
        assert!(!bell.set_tasks(2), "they are not the first");
        assert_eq!(pin!(bell.until_some()).poll(&mut context), Poll::Ready(true));
        assert!(!bell.set_tasks(0));
        let mut waits = pin!(bell.until_some());
        assert!(waits.as_mut().poll(&mut context).is_pending());
        bell.end();
        assert_eq!(times(), 2);
        assert_eq!(waits.as_mut().poll(&mut context), Poll::Ready(false));
        // Whatever was left.
        bell.set_tasks(1);
        assert_eq!(pin!(bell.until_some()).poll(&mut context), Poll::Ready(false));
    }
}
