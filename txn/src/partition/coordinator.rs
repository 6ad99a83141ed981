//! The coordinator: a transaction from its beginning to its end in all partitions that it involves.
//! [`partition`](super) has the protocol.

use std::sync::Arc;

use smallvec::SmallVec;

use super::error::PartitionError;
use super::inbox::{Inbox, InboxMessage};
use super::ledger::{LedgerState, record};
use super::member::Procedures;
use super::message::{MessageKind, TransactionId};
use super::state::{MESSAGE_TIMEOUT, PartitionState};
use crate::error::{AbortCause, TxnError};
use crate::transaction::retry::{RetryPolicy, retry};
use crate::transaction::txn::Txn;

/// Partitions that a transaction involves beside its own; a few of them without an allocation.
type Participants = SmallVec<[usize; 4]>;

/// A transaction that may involve several partitions. Dropping it without [`commit`](Self::commit)
/// rolls it back in all of them.
pub struct DistributedTxn<'p, P: Procedures> {
    state: &'p Arc<PartitionState<P>>,
    id: TransactionId,
    /// Its part in the partition where it began; `None` once that has ended.
    own: Option<Txn<'p>>,
    participants: Participants,
    inbox: Arc<Inbox>,
    stage: CommitStage,
}

/// How far the commit has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CommitStage {
    /// Nothing is decided: participants would have to roll back.
    Undecided,
    /// It has committed here, and participants have to be told.
    Decided,
    /// Participants were told.
    Finished,
}

impl<'p, P: Procedures> DistributedTxn<'p, P> {
    pub(super) fn new(state: &'p Arc<PartitionState<P>>, id: TransactionId) -> Self {
        let own = Some(state.member.db.begin());
        let (participants, inbox) = (Participants::new(), Arc::default());
        Self { state, id, own, participants, inbox, stage: CommitStage::Undecided }
    }

    /// Its part in the partition where it began.
    ///
    /// # Errors
    /// [`TxnError::RolledBack`] once it has ended.
    pub fn own(&mut self) -> Result<&mut Txn<'p>, TxnError> {
        self.own.as_mut().ok_or(TxnError::RolledBack { cause: AbortCause::Requested })
    }

    /// Has other partitions, each named once, execute a request each at the same time; the answers
    /// in the same order. A message to each and one back.
    ///
    /// # Errors
    /// The first of a participant: [`PartitionError::Refused`] is to be retried, all others are
    /// not. The transaction has to be dropped then.
    pub async fn call(
        &mut self,
        requests: &[(usize, Vec<u8>)],
    ) -> Result<Vec<Box<[u8]>>, PartitionError> {
        for (partition, request) in requests {
            if self.participants.is_empty() {
                self.state.enter(self.id, &self.inbox);
            }
            if !self.participants.contains(partition) {
                self.participants.push(*partition);
            }
            self.state.send(*partition, MessageKind::Execute, self.id, request)?;
        }
        let mut answers = vec![None; requests.len()];
        for _ in requests {
            let message = self.next(MessageKind::Answer).await?;
            let mut asked = requests.iter().zip(&mut answers);
            let (_, answer) = asked
                .find(|((partition, _), _)| *partition == message.from)
                .ok_or_else(|| unexpected_answer(message.from))?;
            if answer.replace(message.payload).is_some() {
                return Err(unexpected_answer(message.from));
            }
        }
        // As many answers as requests, one for each.
        Ok(answers.into_iter().flatten().collect())
    }

    /// Commits everywhere or nowhere. Where only its own partition is involved, as [`Txn::commit`];
    /// else two messages to each participant and two back, and three waits for a log in a row. If
    /// the future is dropped after the decision, the transaction is committed nevertheless.
    ///
    /// # Errors
    /// What a vote against it was for, [`PartitionError::Refused`] if it is to be retried, and what
    /// [`Txn::commit`] reports; [`PartitionError::Unfinished`] if it has committed and a
    /// participant cannot say that it has.
    pub async fn commit(mut self) -> Result<(), PartitionError> {
        if !self.participants.is_empty() {
            self.tell_all(MessageKind::Prepare)?;
            for _ in 0..self.participants.len() {
                self.next(MessageKind::VoteYes).await?;
            }
            let (id, member) = (self.id, &self.state.member);
            record((&member.db, member.ledger), self.own()?, id, LedgerState::Committed, &[])
                .await?;
            self.stage = CommitStage::Decided;
        }
        let Some(own) = self.own.take() else { return Ok(()) };
        let committed = own.commit().await;
        if self.participants.is_empty() {
            return Ok(committed?);
        }
        if let Err(error) = &committed
            && error.abort_cause().is_some()
        {
            self.stage = CommitStage::Undecided;
            return Ok(committed?);
        }
        let finished = self.finish().await;
        committed?;
        finished
    }

    /// Rolls back here and tells the participants to do so.
    pub async fn rollback(mut self) {
        if let Some(own) = self.own.take() {
            own.rollback().await;
        }
    }

    /// Tells the participants of the decision, and waits until all have acknowledged it.
    async fn finish(&mut self) -> Result<(), PartitionError> {
        self.tell_all(MessageKind::Commit)?;
        self.stage = CommitStage::Finished;
        for _ in 0..self.participants.len() {
            self.next(MessageKind::Acknowledged).await.map_err(|error| match error {
                PartitionError::Failed { partition, what } => {
                    PartitionError::Unfinished { partition, what }
                }
                other => other,
            })?;
        }
        Ok(())
    }

    fn tell_all(&self, kind: MessageKind) -> Result<(), PartitionError> {
        let mut participants = self.participants.iter();
        participants.try_for_each(|participant| self.state.send(*participant, kind, self.id, &[]))
    }

    /// The next message, which has to be of that kind.
    async fn next(&self, expected: MessageKind) -> Result<InboxMessage, PartitionError> {
        let env = self.state.member.db.engine().env();
        let Some(message) = self.inbox.next_within(env, MESSAGE_TIMEOUT).await else {
            let partition = self.participants.first().copied().unwrap_or(self.id.coordinator);
            return Err(PartitionError::Silent { partition, waited: MESSAGE_TIMEOUT });
        };
        let partition = message.from;
        match message.kind {
            kind if kind == expected => Ok(message),
            MessageKind::Refused => Err(PartitionError::Refused { partition }),
            MessageKind::Failed => {
                let what = String::from_utf8_lossy(&message.payload).into_owned();
                Err(PartitionError::Failed { partition, what })
            }
            kind => {
                let what = format!("says {kind:?} where it should say {expected:?}");
                Err(PartitionError::Failed { partition, what })
            }
        }
    }
}

/// The error for an answer to no request, or a second one to the same.
fn unexpected_answer(partition: usize) -> PartitionError {
    PartitionError::Failed { partition, what: "an answer to no request".to_owned() }
}

impl<P: Procedures> Drop for DistributedTxn<'_, P> {
    fn drop(&mut self) {
        // Release its latches before the participants are told.
        self.own = None;
        if self.participants.is_empty() {
            return;
        }
        self.state.leave(self.id);
        match self.stage {
            // A participant that cannot be told rolls back at its timeout, or is gone: presumed
            // abort.
            CommitStage::Undecided => {
                let _ = self.tell_all(MessageKind::Abort);
            }
            CommitStage::Decided => {
                let (state, id) = (Arc::clone(self.state), self.id);
                let participants = std::mem::take(&mut self.participants);
                let env = self.state.member.db.engine().env();
                drop(env.spawn("decision", tell_decision(state, id, participants)));
            }
            CommitStage::Finished => {}
        }
    }
}

/// The number of no worker. Its row in the ledger is changed only to write to the log.
const NO_WORKER: u32 = u32::MAX;

/// Tells the participants of a decision, once it is durable, for a coordinator that was dropped.
/// The log is in order, so the decision is durable when a later record is.
async fn tell_decision<P: Procedures>(
    state: Arc<PartitionState<P>>,
    id: TransactionId,
    participants: Participants,
) {
    let db = &state.member.db;
    let later = || async {
        let mut txn = db.begin();
        let ledger = (db, state.member.ledger);
        let no_worker = TransactionId { worker: NO_WORKER, ..id };
        record(ledger, &mut txn, no_worker, LedgerState::Committed, &[]).await?;
        txn.commit().await
    };
    if let Err(error) = retry(db.engine().env(), &RetryPolicy::default(), later).await {
        tracing::warn!(partition = state.me, %error, "a decision may not last");
    }
    for participant in participants {
        if let Err(error) = state.send(participant, MessageKind::Commit, id, &[]) {
            tracing::warn!(partition = state.me, participant, %error, "a decision was not sent");
        }
    }
}
