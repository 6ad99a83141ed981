//! The messages about one transaction, which wait for the task that runs it.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use parking_lot::Mutex;
use selkie_fabric::Doorbell;
use selkie_fabric::env::Env;

use super::message::MessageKind;

/// A message about a transaction.
pub(super) struct InboxMessage {
    /// The partition that sent it.
    pub(super) from: usize,
    pub(super) kind: MessageKind,
    pub(super) payload: Box<[u8]>,
}

/// Messages in the order in which they arrived. One task reads them.
#[derive(Default)]
pub(super) struct Inbox {
    messages: Mutex<VecDeque<InboxMessage>>,
    bell: Doorbell,
}

impl Inbox {
    pub(super) fn push(&self, message: InboxMessage) {
        self.messages.lock().push_back(message);
        self.bell.ring();
    }

    /// The next message. Cancel safe.
    pub(super) async fn next(&self) -> InboxMessage {
        loop {
            // Before the look: a message that comes after it moves the count.
            let seen = self.bell.count();
            if let Some(message) = self.messages.lock().pop_front() {
                return message;
            }
            self.bell.wait_past(seen).await;
        }
    }

    /// The next message, `None` if there is none within `timeout`.
    pub(super) async fn next_within(&self, env: &Env, timeout: Duration) -> Option<InboxMessage> {
        let (mut next, mut over) = (pin!(self.next()), env.sleep(timeout));
        poll_fn(|context| match next.as_mut().poll(context) {
            Poll::Ready(message) => Poll::Ready(Some(message)),
            Poll::Pending => over.as_mut().poll(context).map(|()| None),
        })
        .await
    }
}
