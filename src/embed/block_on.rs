//! A small executor for synchronous callers.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

/// Wakes the thread that waits in [`block_on`].
struct ThreadWaker {
    thread: Thread,
    is_woken: AtomicBool,
}

impl Wake for ThreadWaker {
    fn wake(self: Arc<Self>) {
        // Pairs with the swap in `block_on`: what was done before the wake is seen by the next
        // poll.
        self.is_woken.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

/// Runs a future on the calling thread until it is done.
///
/// Futures of this crate need no executor: the threads of a pool do what they wait for. So
/// synchronous code can call everything here. Do not call it inside a task of an executor: it would
/// block the executor's thread.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let own = Arc::new(ThreadWaker { thread: thread::current(), is_woken: AtomicBool::new(false) });
    let waker = Waker::from(Arc::clone(&own));
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        // The flag, because anything else on this thread may use up the token of `unpark`.
        while !own.is_woken.swap(false, Ordering::Acquire) {
            thread::park();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_future_that_another_thread_wakes_is_done() {
        let (mut polls, mut thread) = (0, None);
        let output = block_on(std::future::poll_fn(|context| {
            polls += 1;
            if polls == 3 {
                return Poll::Ready(polls);
            }
            let waker = context.waker().clone();
            thread = Some(thread::spawn(move || waker.wake()));
            // A wake-up that is not the future's.
            thread::current().unpark();
            Poll::Pending
        }));
        assert_eq!(output, 3, "it is polled once for each wake");
        thread.unwrap().join().unwrap();
    }
}
