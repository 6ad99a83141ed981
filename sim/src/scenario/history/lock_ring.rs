//! Deadlocks that are made on purpose, of which exactly one transaction gives up.
//!
//! A client on each node. In a round, each locks a row of its own; when all have theirs, each asks
//! for that of the next: a cycle of all. One is to get a deadlock, and the others their locks, one
//! after the other. The rows are not there, and nobody else is interested in them.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use selkie_fabric::env::Env;
use selkie_txn::{AbortCause, Database, LockOutcome, LockWait, Table, TxnError, key};

use super::load::PATIENCE;
use crate::error::{SimError, ensure};

/// Rounds.
const ROUNDS: usize = 2;
/// Lists of this number and beyond are nobody's.
const FIRST_LIST: i64 = 1_000;
/// How often a client looks whether the others have come.
const LOOK_EVERY: Duration = Duration::from_micros(100);
/// How long after the last has come they go on: all know it by then.
const START_AFTER: Duration = Duration::from_millis(1);
/// How long it waits for them: one may never come, as its node has ended.
const COME_WITHIN: Duration = Duration::from_millis(100);

/// How far a round has come.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    /// Clients that have locked their rows.
    ready: usize,
    /// When all ask for the other lock, at once: so more than one may find the cycle.
    starts: Option<Duration>,
    /// It does not take place: one has not come.
    is_off: bool,
    victims: usize,
    /// Those that got the other lock.
    served: usize,
}

/// The rounds of a ring of clients.
pub(super) struct LockRing {
    clients: usize,
    rounds: Mutex<[Round; ROUNDS]>,
}

impl LockRing {
    pub(super) fn new(clients: usize) -> Arc<Self> {
        Arc::new(Self { clients, rounds: Mutex::default() })
    }

    fn round<T>(&self, round: usize, change: impl FnOnce(&mut Round) -> T) -> Option<T> {
        self.rounds.lock().get_mut(round).map(change)
    }

    /// Runs one of the clients; returns how often it got both locks.
    ///
    /// # Errors
    /// [`SimError::NoProgress`] if a lock does not come; other errors of a transaction.
    pub(super) async fn run(
        self: Arc<Self>,
        db: Database,
        (env, clock): (Env, Env),
        number: usize,
    ) -> Result<u64, SimError> {
        let table = db.table("element")?;
        let mut served = 0;
        for round in 0..ROUNDS {
            match self.play(&db, (&env, &clock), table, number, round).await {
                Ok(got_both) => served += u64::from(got_both),
                Err(TxnError::Deadlock { .. }) => {
                    self.round(round, |own| own.victims += 1);
                }
                Err(error) if error.abort_cause() == Some(AbortCause::LockTimeout) => {
                    return Err(SimError::NoProgress(error.to_string()));
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(served)
    }

    async fn play(
        &self,
        db: &Database,
        (env, clock): (&Env, &Env),
        table: Table,
        number: usize,
        round: usize,
    ) -> Result<bool, TxnError> {
        let row = |number: usize| key![FIRST_LIST + round as i64, (number % self.clients) as i64];
        let mut txn = db.begin();
        txn.set_lock_timeout(PATIENCE);
        let _ = txn.lock_row(table, &row(number), LockWait::Wait).await?;
        self.round(round, |own| {
            own.ready += 1;
            own.starts = (own.ready == self.clients).then(|| clock.now() + START_AFTER);
        });
        let late = clock.now() + COME_WITHIN;
        loop {
            let now = clock.now();
            let state = self.round(round, |own| {
                own.is_off |= own.starts.is_none() && now >= late;
                *own
            });
            match state.unwrap_or_default() {
                Round { is_off: true, .. } => return Ok(false),
                Round { starts: Some(starts), .. } => {
                    env.sleep(starts.saturating_sub(now)).await;
                    break;
                }
                _ => env.sleep(LOOK_EVERY).await,
            }
        }
        let outcome = txn.lock_row(table, &row(number + 1), LockWait::Wait).await?;
        txn.commit().await?;
        self.round(round, |own| own.served += 1);
        Ok(outcome == LockOutcome::Held)
    }

    /// Fails if more than one gave up in a round, or none although all lived.
    pub(super) fn check(&self, all_live: bool) -> Result<(), SimError> {
        for round in *self.rounds.lock() {
            let is_right = round.is_off && round.victims == 0
                || round.victims == 1
                || (!all_live && round.victims == 0);
            ensure(is_right, || format!("one of a cycle is to give up: {round:?}"))?;
        }
        Ok(())
    }
}
