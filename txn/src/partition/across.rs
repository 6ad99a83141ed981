//! The coordinator: a transaction from its beginning to its end in all partitions that it involves.

use std::sync::Arc;

use smallvec::SmallVec;

use super::error::PartitionError;
use super::inbox::{Inbox, Letter};
use super::ledger::{State, record};
use super::member::{PATIENCE, Procedures, Shared};
use super::message::{Step, TransactionId};
use crate::error::{AbortCause, TxnError};
use crate::retry::{RetryPolicy, retry};
use crate::transaction::Txn;

/// Partitions that a transaction involves beside its own, on the stack.
type Participants = SmallVec<[usize; 4]>;

/// A transaction that may involve several partitions. Dropping it without [`commit`](Self::commit)
/// rolls it back in all.
pub struct Across<'p, P: Procedures> {
    shared: &'p Arc<Shared<P>>,
    id: TransactionId,
    /// Its part in the partition where it began; `None` once that has ended.
    own: Option<Txn<'p>>,
    participants: Participants,
    inbox: Arc<Inbox>,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// Nothing is decided: participants are to take everything back.
    Open,
    /// It has committed here, and participants are to be told.
    Decided,
    /// They know.
    Over,
}

impl<'p, P: Procedures> Across<'p, P> {
    pub(super) fn new(shared: &'p Arc<Shared<P>>, id: TransactionId) -> Self {
        let own = Some(shared.member.db.begin());
        let (participants, inbox) = (Participants::new(), Arc::default());
        Self { shared, id, own, participants, inbox, stage: Stage::Open }
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
                self.shared.enter(self.id, &self.inbox);
            }
            if !self.participants.contains(partition) {
                self.participants.push(*partition);
            }
            self.shared.send(*partition, Step::Work, self.id, request)?;
        }
        let mut answers = vec![None; requests.len()];
        for _ in requests {
            let letter = self.next(Step::Answer).await?;
            let place = requests.iter().position(|(partition, _)| *partition == letter.from);
            if let Some(answer) = place.and_then(|place| answers.get_mut(place)) {
                *answer = Some(letter.payload);
            }
        }
        Ok(answers.into_iter().flatten().collect())
    }

    /// Commits everywhere or nowhere. Where only its own partition is involved, as [`Txn::commit`];
    /// else two messages to each participant and two back, and three times that somebody waits for
    /// a log. If the future is dropped after the decision, the transaction is committed
    /// nevertheless.
    ///
    /// # Errors
    /// What a vote against it was for, [`PartitionError::Refused`] if it is to be retried, and what
    /// [`Txn::commit`] reports; [`PartitionError::Unfinished`] if it has committed and a
    /// participant cannot say that it has.
    pub async fn commit(mut self) -> Result<(), PartitionError> {
        if !self.participants.is_empty() {
            self.tell_all(Step::Prepare)?;
            for _ in 0..self.participants.len() {
                self.next(Step::Yes).await?;
            }
            let (id, member) = (self.id, &self.shared.member);
            record((&member.db, member.ledger), self.own()?, id, State::Committed, &[]).await?;
            self.stage = Stage::Decided;
        }
        let Some(own) = self.own.take() else { return Ok(()) };
        let committed = own.commit().await;
        if self.participants.is_empty() {
            return Ok(committed?);
        }
        if let Err(error) = &committed
            && error.abort_cause().is_some()
        {
            self.stage = Stage::Open;
            return Ok(committed?);
        }
        let finished = self.finish().await;
        committed?;
        finished
    }

    /// Takes everything back here and tells the participants to do so.
    pub async fn rollback(mut self) {
        if let Some(own) = self.own.take() {
            own.rollback().await;
        }
    }

    /// Tells the participants of the decision, and hears that they have done so.
    async fn finish(&mut self) -> Result<(), PartitionError> {
        self.tell_all(Step::Commit)?;
        self.stage = Stage::Over;
        for _ in 0..self.participants.len() {
            self.next(Step::Done).await.map_err(|error| match error {
                PartitionError::Failed { partition, what } => {
                    PartitionError::Unfinished { partition, what }
                }
                other => other,
            })?;
        }
        Ok(())
    }

    fn tell_all(&self, step: Step) -> Result<(), PartitionError> {
        let mut told = self.participants.iter();
        told.try_for_each(|participant| self.shared.send(*participant, step, self.id, &[]))
    }

    /// The next letter, which has to be that.
    async fn next(&self, expected: Step) -> Result<Letter, PartitionError> {
        let env = self.shared.member.db.engine().env();
        let Some(letter) = self.inbox.next_within(env, PATIENCE).await else {
            let partition = self.participants.first().copied().unwrap_or(self.id.coordinator);
            return Err(PartitionError::Silent { partition, waited: PATIENCE });
        };
        let partition = letter.from;
        match letter.step {
            step if step == expected => Ok(letter),
            Step::Refused => Err(PartitionError::Refused { partition }),
            Step::Failed => {
                let what = String::from_utf8_lossy(&letter.payload).into_owned();
                Err(PartitionError::Failed { partition, what })
            }
            step => {
                let what = format!("says {step:?} where it should say {expected:?}");
                Err(PartitionError::Failed { partition, what })
            }
        }
    }
}

impl<P: Procedures> Drop for Across<'_, P> {
    fn drop(&mut self) {
        // Its latches are free before anybody is told.
        self.own = None;
        if self.participants.is_empty() {
            return;
        }
        self.shared.leave(self.id);
        match self.stage {
            // Who cannot be told is gone, or takes it back when it has heard nothing for long
            // enough.
            Stage::Open => {
                let _ = self.tell_all(Step::Abort);
            }
            Stage::Decided => {
                let (shared, id) = (Arc::clone(self.shared), self.id);
                let participants = std::mem::take(&mut self.participants);
                let env = self.shared.member.db.engine().env();
                drop(env.spawn("decision", tell_decision(shared, id, participants)));
            }
            Stage::Over => {}
        }
    }
}

/// A worker that nobody is: its row in the ledger is there to be changed.
const NOBODY: u32 = u32::MAX;

/// Tells the participants of a decision that nobody waits for any more, once it is durable: the log
/// is in order, so it is when something later is.
async fn tell_decision<P: Procedures>(
    shared: Arc<Shared<P>>,
    id: TransactionId,
    participants: Participants,
) {
    let db = &shared.member.db;
    let later = || async {
        let mut txn = db.begin();
        let place = (db, shared.member.ledger);
        let nobody = TransactionId { worker: NOBODY, ..id };
        record(place, &mut txn, nobody, State::Committed, &[]).await?;
        txn.commit().await
    };
    if let Err(error) = retry(db.engine().env(), &RetryPolicy::default(), later).await {
        tracing::warn!(partition = shared.me, %error, "a decision may not last");
    }
    for participant in participants {
        let _ = shared.send(participant, Step::Commit, id, &[]);
    }
}
