//! The slots for images in a node's own journal.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use selkie_pool::layout::JOURNAL_IMAGES;

/// The slots for images in a node's own journal. They are given in the order of requests: thousands
/// of write-backs wait while a cache is emptied.
pub(crate) struct JournalSlots {
    queue: Mutex<SlotQueue>,
    /// The number of images that this node has written.
    pub(super) count: AtomicU64,
}

struct SlotQueue {
    /// Free slots. Empty while a write-back waits.
    free: Vec<u64>,
    waiting: VecDeque<Arc<Mutex<SlotTurn>>>,
}

/// The place of a write-back in the queue.
#[derive(Default)]
struct SlotTurn {
    given: Option<u64>,
    /// The write-back waits no more.
    is_over: bool,
    waker: Option<Waker>,
}

/// A slot in use; free again when this is dropped.
pub(crate) struct JournalSlot<'a> {
    all: &'a JournalSlots,
    pub(super) number: u64,
}

/// Waits for a slot.
struct SlotWait<'a> {
    all: &'a JournalSlots,
    turn: Arc<Mutex<SlotTurn>>,
}

impl Default for JournalSlots {
    fn default() -> Self {
        let queue = SlotQueue { free: (0..JOURNAL_IMAGES).collect(), waiting: VecDeque::new() };
        Self { queue: Mutex::new(queue), count: AtomicU64::new(0) }
    }
}

impl JournalSlots {
    /// Waits for a slot. Each is in use for as long as a write-back, which is bounded.
    pub(super) async fn take(&self) -> JournalSlot<'_> {
        let turn = Arc::default();
        {
            let mut queue = self.queue.lock();
            if let Some(number) = queue.free.pop() {
                return JournalSlot { all: self, number };
            }
            queue.waiting.push_back(Arc::clone(&turn));
        }
        SlotWait { all: self, turn }.await
    }

    fn give_back(&self, number: u64) {
        let mut queue = self.queue.lock();
        while let Some(next) = queue.waiting.pop_front() {
            let mut turn = next.lock();
            if turn.is_over {
                continue;
            }
            turn.given = Some(number);
            let waker = turn.waker.take();
            drop(turn);
            drop(queue);
            // Without the lock: the woken task may call this at once.
            return waker.into_iter().for_each(Waker::wake);
        }
        queue.free.push(number);
    }
}

impl<'a> Future for SlotWait<'a> {
    type Output = JournalSlot<'a>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<JournalSlot<'a>> {
        let mut turn = self.turn.lock();
        let Some(number) = turn.given.take() else {
            turn.waker = Some(context.waker().clone());
            return Poll::Pending;
        };
        turn.is_over = true;
        Poll::Ready(JournalSlot { all: self.all, number })
    }
}

impl Drop for SlotWait<'_> {
    fn drop(&mut self) {
        let mut turn = self.turn.lock();
        turn.is_over = true;
        let given = turn.given.take();
        drop(turn);
        if let Some(number) = given {
            self.all.give_back(number);
        }
    }
}

impl Drop for JournalSlot<'_> {
    fn drop(&mut self) {
        self.all.give_back(self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use super::*;

    #[test]
    fn places_are_given_in_turn() {
        let all = JournalSlots::default();
        let mut context = Context::from_waker(Waker::noop());
        let mut taken = Vec::new();
        for _ in 0..JOURNAL_IMAGES {
            let Poll::Ready(place) = pin!(all.take()).poll(&mut context) else { panic!("free") };
            taken.push(place);
        }
        let (mut first, mut second) = (Box::pin(all.take()), Box::pin(all.take()));
        let mut third = Box::pin(all.take());
        for waiting in [&mut first, &mut second, &mut third] {
            assert!(waiting.as_mut().poll(&mut context).is_pending());
        }
        let number = taken.pop().unwrap().number;
        assert!(second.as_mut().poll(&mut context).is_pending(), "it is not its turn");
        // A write-back that is cancelled leaves its turn to the next.
        drop(first);
        let Poll::Ready(place) = second.as_mut().poll(&mut context) else { panic!("its turn") };
        assert_eq!(place.number, number);
        drop(third);
        drop(place);
        drop(taken);
        assert_eq!(all.queue.lock().free.len() as u64, JOURNAL_IMAGES, "none is lost");
    }
}
