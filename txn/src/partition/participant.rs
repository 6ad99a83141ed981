//! A participant: a partition's part in a transaction that another one coordinates.
//! [`partition`](super) has the protocol.

use std::sync::Arc;

use super::inbox::Inbox;
use super::ledger::{LedgerState, MAX_REQUEST_BYTES, record};
use super::member::Procedures;
use super::message::{MessageKind, TransactionId};
use super::state::{MESSAGE_TIMEOUT, PartitionState};
use crate::error::TxnError;
use crate::transaction::retry::Retryable;
use crate::transaction::txn::Txn;

/// Executes requests, votes, and follows the decision.
pub(super) async fn run<P: Procedures>(
    state: Arc<PartitionState<P>>,
    id: TransactionId,
    inbox: Arc<Inbox>,
) {
    let (kind, why) = take_part(&state, id, &inbox).await;
    state.leave(id);
    if let Some(kind) = kind
        && let Err(error) = state.send(id.coordinator, kind, id, why.as_bytes())
    {
        // A coordinator that cannot be reached has gone, or fails at its timeout.
        tracing::debug!(partition = state.me, %error, "a coordinator was not told");
    }
}

/// The last message to the coordinator, if it waits for one, and the reason in it.
type FinalReply = (Option<MessageKind>, String);

async fn take_part<P: Procedures>(
    state: &PartitionState<P>,
    id: TransactionId,
    inbox: &Inbox,
) -> FinalReply {
    let db = &state.member.db;
    let mut txn = db.begin();
    let requests = match execute(state, &mut txn, id, inbox).await {
        Ok(requests) => requests,
        Err(reply) => {
            txn.rollback().await;
            return reply;
        }
    };
    if let Err(error) = prepare(state, &mut txn, id, &requests).await {
        txn.rollback().await;
        return refusal(&error);
    }
    if let Err(error) = state.send(id.coordinator, MessageKind::VoteYes, id, &[]) {
        // The coordinator waits for the vote in vain, and aborts.
        txn.rollback().await;
        return (None, error.to_string());
    }
    loop {
        // Only the coordinator may end it now.
        match inbox.next().await.kind {
            MessageKind::Commit => break,
            MessageKind::Abort => {
                txn.rollback().await;
                return (None, String::new());
            }
            _ => {}
        }
    }
    match txn.commit().await {
        Ok(()) => (Some(MessageKind::Acknowledged), String::new()),
        Err(error) => (Some(MessageKind::Failed), error.to_string()),
    }
}

/// Executes requests until the coordinator asks for the vote: all of them, each behind its length.
/// The error is the last word.
async fn execute<P: Procedures>(
    state: &PartitionState<P>,
    txn: &mut Txn<'_>,
    id: TransactionId,
    inbox: &Inbox,
) -> Result<Vec<u8>, FinalReply> {
    let env = state.member.db.engine().env();
    let mut requests = Vec::new();
    loop {
        let Some(message) = inbox.next_within(env, MESSAGE_TIMEOUT).await else {
            return Err((None, String::new()));
        };
        match message.kind {
            MessageKind::Execute => {
                append_request(&mut requests, &message.payload)
                    .map_err(|what| (Some(MessageKind::Failed), what))?;
                let executed = state.member.procedures.execute(txn, &message.payload).await;
                let answer = executed.map_err(|error| refusal(&error))?;
                let sent = state.send(id.coordinator, MessageKind::Answer, id, &answer);
                sent.map_err(|error| (Some(MessageKind::Failed), error.to_string()))?;
            }
            MessageKind::Prepare => return Ok(requests),
            _ => return Err((None, String::new())),
        }
    }
}

/// Appends a request behind its length, two bytes. Fails if the ledger has no room for it.
fn append_request(requests: &mut Vec<u8>, request: &[u8]) -> Result<(), String> {
    let length = u16::try_from(request.len()).ok();
    let length = length.filter(|_| requests.len() + 2 + request.len() <= MAX_REQUEST_BYTES);
    let too_long = || format!("requests of more than {MAX_REQUEST_BYTES} bytes");
    requests.extend_from_slice(&length.ok_or_else(too_long)?.to_le_bytes());
    requests.extend_from_slice(request);
    Ok(())
}

/// Makes what was executed survive until the decision: the record is durable, and the page of the
/// record that will say how it ends is latched.
async fn prepare<P: Procedures>(
    state: &PartitionState<P>,
    txn: &mut Txn<'_>,
    id: TransactionId,
    requests: &[u8],
) -> Result<(), TxnError> {
    let ledger = (&state.member.db, state.member.ledger);
    let mut forced = state.member.db.begin();
    record(ledger, &mut forced, id, LedgerState::Prepared, requests).await?;
    forced.commit().await?;
    record(ledger, txn, id, LedgerState::Committed, &[]).await?;
    // After the vote it can fail no more. All participants have executed all requests by now.
    txn.validate_for_good().await
}

fn refusal(error: &(impl Retryable + std::error::Error)) -> FinalReply {
    match error.retry_cause() {
        Some(_) => (Some(MessageKind::Refused), String::new()),
        None => (Some(MessageKind::Failed), error.to_string()),
    }
}
