//! A participant: what a partition does about a transaction of another.

use std::sync::Arc;

use super::inbox::Inbox;
use super::ledger::{MAX_REQUEST_BYTES, State, record};
use super::member::{PATIENCE, Procedures, Shared};
use super::message::{Step, TransactionId};
use crate::error::TxnError;
use crate::retry::Retryable;
use crate::transaction::Txn;

/// Executes, votes, and does what is decided.
pub(super) async fn run<P: Procedures>(
    shared: Arc<Shared<P>>,
    id: TransactionId,
    inbox: Arc<Inbox>,
) {
    let (step, why) = take_part(&shared, id, &inbox).await;
    shared.leave(id);
    if let Some(step) = step {
        // Who cannot be told has no use for it.
        let _ = shared.send(id.coordinator, step, id, why.as_bytes());
    }
}

/// The last word on a transaction, if the coordinator waits for one, and why.
type LastWord = (Option<Step>, String);

async fn take_part<P: Procedures>(
    shared: &Shared<P>,
    id: TransactionId,
    inbox: &Inbox,
) -> LastWord {
    let db = &shared.member.db;
    let mut txn = db.begin();
    let requests = match execute(shared, &mut txn, id, inbox).await {
        Ok(requests) => requests,
        Err(last_word) => {
            txn.rollback().await;
            return last_word;
        }
    };
    if let Err(error) = prepare(shared, &mut txn, id, &requests).await {
        txn.rollback().await;
        return refusal(&error);
    }
    if let Err(error) = shared.send(id.coordinator, Step::Yes, id, &[]) {
        // The coordinator waits for the vote in vain, and aborts.
        txn.rollback().await;
        return (None, error.to_string());
    }
    loop {
        // Only the coordinator may end it now.
        match inbox.next().await.step {
            Step::Commit => break,
            Step::Abort => {
                txn.rollback().await;
                return (None, String::new());
            }
            _ => {}
        }
    }
    match txn.commit().await {
        Ok(()) => (Some(Step::Done), String::new()),
        Err(error) => (Some(Step::Failed), error.to_string()),
    }
}

/// Executes requests until the coordinator asks for the vote: all of them, each behind its length.
/// The error is the last word.
async fn execute<P: Procedures>(
    shared: &Shared<P>,
    txn: &mut Txn<'_>,
    id: TransactionId,
    inbox: &Inbox,
) -> Result<Vec<u8>, LastWord> {
    let env = shared.member.db.engine().env();
    let mut requests = Vec::new();
    loop {
        let Some(letter) = inbox.next_within(env, PATIENCE).await else {
            return Err((None, String::new()));
        };
        match letter.step {
            Step::Work => {
                let length = u16::try_from(letter.payload.len()).unwrap_or(u16::MAX);
                requests.extend_from_slice(&length.to_le_bytes());
                requests.extend_from_slice(&letter.payload);
                if requests.len() > MAX_REQUEST_BYTES {
                    let what = format!("requests of more than {MAX_REQUEST_BYTES} bytes");
                    return Err((Some(Step::Failed), what));
                }
                let executed = shared.member.procedures.execute(txn, &letter.payload).await;
                let answer = executed.map_err(|error| refusal(&error))?;
                let sent = shared.send(id.coordinator, Step::Answer, id, &answer);
                sent.map_err(|error| (Some(Step::Failed), error.to_string()))?;
            }
            Step::Prepare => return Ok(requests),
            _ => return Err((None, String::new())),
        }
    }
}

/// Makes what was executed last until the decision, whatever happens: the record is durable, and
/// the page that says how it ends is latched.
async fn prepare<P: Procedures>(
    shared: &Shared<P>,
    txn: &mut Txn<'_>,
    id: TransactionId,
    requests: &[u8],
) -> Result<(), TxnError> {
    let place = (&shared.member.db, shared.member.ledger);
    let mut forced = shared.member.db.begin();
    record(place, &mut forced, id, State::Prepared, requests).await?;
    forced.commit().await?;
    record(place, txn, id, State::Committed, &[]).await
}

fn refusal(error: &(impl Retryable + std::error::Error)) -> LastWord {
    match error.retry_cause() {
        Some(_) => (Some(Step::Refused), String::new()),
        None => (Some(Step::Failed), error.to_string()),
    }
}
