//! Takes the messages of a partition in, and hands each to the task of its transaction.

use std::future::Future;
use std::sync::{Arc, Weak};

use selkie_channels::{ChannelError, Mailbox};
use selkie_fabric::env::yield_now;

use super::error::PartitionError;
use super::inbox::{Inbox, InboxMessage};
use super::member::Procedures;
use super::message::{MessageKind, decode};
use super::participant;
use super::state::PartitionState;

/// Messages taken in before other tasks get a turn.
const MAIL_BUDGET: usize = 64;

/// Takes messages in until the partition is closed or gone.
pub(super) async fn run_mail<P: Procedures>(partition: Weak<PartitionState<P>>) {
    let Some((mailbox, stop)) =
        partition.upgrade().map(|state| (Arc::clone(state.mailbox()), Arc::clone(state.stop())))
    else {
        return;
    };
    loop {
        let Some(state) = partition.upgrade() else { return };
        let polled = poll(&state, &mailbox);
        let taken = match polled {
            Ok(taken) => taken,
            Err(error) => {
                tracing::error!(partition = state.me, %error, "no more messages are taken in");
                return state.fail_all(&error);
            }
        };
        drop(state);
        if taken == MAIL_BUDGET {
            yield_now().await;
            continue;
        }
        either(mailbox.wait_mail(), async {
            stop.wait_past(0).await;
        })
        .await;
        if stop.count() > 0 {
            return;
        }
    }
}

/// Hands a message to the task of its transaction. A request of a transaction that is unknown here
/// begins that transaction.
fn receive<P: Procedures>(
    state: &Arc<PartitionState<P>>,
    from: usize,
    bytes: &[u8],
) -> Result<(), PartitionError> {
    let Some((kind, id, payload)) = decode(bytes, from, state.me) else {
        let what = "a damaged message".to_owned();
        return Err(PartitionError::Failed { partition: from, what });
    };
    let message = InboxMessage { from, kind, payload: payload.into() };
    let inbox = state.inbox(id);
    match (inbox, kind) {
        (Some(inbox), _) => inbox.push(message),
        (None, MessageKind::Execute) => {
            let inbox = Arc::new(Inbox::default());
            inbox.push(message);
            state.enter(id, &inbox);
            let env = state.member.db.engine().env();
            drop(env.spawn("participant", participant::run(Arc::clone(state), id, inbox)));
        }
        // It was rolled back here before.
        (None, MessageKind::Prepare) => state.send(from, MessageKind::Refused, id, &[])?,
        // The transaction has ended here.
        (None, _) => {}
    }
    Ok(())
}

/// Takes in the messages that have arrived, up to the budget; how many there were.
fn poll<P: Procedures>(
    state: &Arc<PartitionState<P>>,
    mailbox: &Mailbox,
) -> Result<usize, PartitionError> {
    let mut broken = None;
    let polled = mailbox.poll(MAIL_BUDGET, &mut |from, bytes| {
        if let Err(error) = receive(state, from, bytes) {
            broken.get_or_insert(error);
        }
    });
    let failed = |source: ChannelError| PartitionError::Message { partition: state.me, source };
    broken.map_or_else(|| polled.map_err(failed), Err)
}

/// Waits for the first of two futures.
async fn either(a: impl Future<Output = ()>, b: impl Future<Output = ()>) {
    let (mut a, mut b) = (std::pin::pin!(a), std::pin::pin!(b));
    std::future::poll_fn(|context| {
        let is_over = a.as_mut().poll(context).is_ready() || b.as_mut().poll(context).is_ready();
        if is_over { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
}
