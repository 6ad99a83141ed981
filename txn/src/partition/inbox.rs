//! Where the messages about a transaction wait for whoever works on it.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use parking_lot::Mutex;
use selkie_fabric::Doorbell;
use selkie_fabric::env::Env;

use super::message::Step;

/// A message about a transaction.
pub(super) struct Letter {
    /// The partition it came from.
    pub(super) from: usize,
    pub(super) step: Step,
    pub(super) payload: Box<[u8]>,
}

/// Letters in the order in which they came. One task reads them.
#[derive(Default)]
pub(super) struct Inbox {
    letters: Mutex<VecDeque<Letter>>,
    bell: Doorbell,
}

impl Inbox {
    pub(super) fn push(&self, letter: Letter) {
        self.letters.lock().push_back(letter);
        self.bell.ring();
    }

    /// The next letter. Cancel safe.
    pub(super) async fn next(&self) -> Letter {
        loop {
            // Before the look: a letter that comes after it moves the count.
            let seen = self.bell.count();
            if let Some(letter) = self.letters.lock().pop_front() {
                return letter;
            }
            self.bell.wait_past(seen).await;
        }
    }

    /// The next letter, `None` if there is none for so long.
    pub(super) async fn next_within(&self, env: &Env, patience: Duration) -> Option<Letter> {
        let (mut next, mut over) = (pin!(self.next()), env.sleep(patience));
        poll_fn(|context| match next.as_mut().poll(context) {
            Poll::Ready(letter) => Poll::Ready(Some(letter)),
            Poll::Pending => over.as_mut().poll(context).map(|()| None),
        })
        .await
    }
}
