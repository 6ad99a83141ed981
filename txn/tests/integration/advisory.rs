//! Locks of numbers: over nodes, shared or not, and what becomes of them with their owner.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code")]

use std::time::Duration;

use selkie_txn::{
    AdvisoryLocks, AdvisoryMode, AdvisoryName, Database, LockOutcome, LockWait, Protocol, TxnError,
};

use crate::common::{Cluster, bank};

const A_WHILE: Duration = Duration::from_millis(60);
const LONG: Duration = Duration::from_secs(30);
const NAME: AdvisoryName = AdvisoryName::Number(-7);

fn with_nodes(test: impl AsyncFn(&Cluster, &[Database])) {
    let (cluster, databases, _) = bank(Protocol::Snapshot);
    cluster.runtime.block_on(test(&cluster, &databases));
    drop(databases);
    cluster.close();
}

async fn tries(locks: &mut AdvisoryLocks, name: AdvisoryName, mode: AdvisoryMode) -> bool {
    let outcome = locks.lock(name, mode, LockWait::NoWait, LONG).await.unwrap();
    outcome == LockOutcome::Held
}

/// Waits until a lock is to be had.
async fn until_free(db: &Database, locks: &mut AdvisoryLocks, name: AdvisoryName) {
    for _ in 0..2000 {
        if tries(locks, name, AdvisoryMode::Exclusive).await {
            return;
        }
        db.engine().env().sleep(Duration::from_millis(2)).await;
    }
    panic!("{name:?} stays locked");
}

#[test]
fn numbers_are_locked_for_all_nodes_and_pairs_are_others() {
    use AdvisoryMode::{Exclusive, Shared};
    with_nodes(async |_, databases| {
        let mut one = databases[0].advisory_locks().unwrap();
        let mut other = databases[1].advisory_locks().unwrap();
        assert!(tries(&mut one, NAME, Exclusive).await && one.holds(NAME));
        assert!(!tries(&mut other, NAME, Exclusive).await);
        assert!(!tries(&mut other, NAME, Shared).await && !other.holds(NAME));
        assert!(tries(&mut other, AdvisoryName::Pair(-1, -7), Exclusive).await);
        assert!(tries(&mut other, AdvisoryName::Number(0), Exclusive).await);
        one.unlock([NAME]).await;
        assert!(tries(&mut other, NAME, Shared).await);
        assert!(tries(&mut one, NAME, Shared).await);
        other.unlock([NAME]).await;
        assert!(!tries(&mut other, NAME, Exclusive).await);
        one.unlock([NAME]).await;
        assert!(tries(&mut other, NAME, Exclusive).await);
        other.share(NAME).await.unwrap();
        assert!(tries(&mut one, NAME, Shared).await);
    });
}

#[test]
fn what_is_shared_is_not_had_alone_and_what_is_given_back_is_not_held() {
    use AdvisoryMode::{Exclusive, Shared};
    with_nodes(async |_, databases| {
        let mut one = databases[0].advisory_locks().unwrap();
        let mut other = databases[1].advisory_locks().unwrap();
        let second = AdvisoryName::Number(8);
        assert!(tries(&mut one, NAME, Shared).await && tries(&mut other, NAME, Shared).await);
        assert!(!tries(&mut one, NAME, Exclusive).await && one.holds(NAME));
        assert!(tries(&mut one, second, Exclusive).await && tries(&mut one, second, Shared).await);
        // The tasks that give it back have not run when it is wanted again.
        one.unlock_later([NAME, second]);
        assert!(!one.holds(NAME) && !one.holds(second));
        assert!(!tries(&mut one, NAME, Exclusive).await);
        other.unlock([NAME]).await;
        until_free(&databases[1], &mut other, second).await;
        assert!(tries(&mut one, NAME, Exclusive).await);
        one.unlock([NAME, second]).await;
        assert!(tries(&mut other, NAME, Exclusive).await);
    });
}

#[test]
fn who_waits_gets_the_lock_when_its_owner_is_dropped() {
    with_nodes(async |_, databases| {
        let db = &databases[1];
        let mut one = databases[0].advisory_locks().unwrap();
        assert!(tries(&mut one, NAME, AdvisoryMode::Exclusive).await);
        let mut other = db.advisory_locks().unwrap();
        let waiter = db.engine().env().spawn("waiter", async move {
            let outcome = other.lock(NAME, AdvisoryMode::Exclusive, LockWait::Wait, LONG).await;
            assert_eq!(outcome.unwrap(), LockOutcome::Held);
        });
        db.engine().env().sleep(A_WHILE).await;
        drop(one);
        waiter.join().await.unwrap();
        let mut third = db.advisory_locks().unwrap();
        until_free(db, &mut third, NAME).await;
    });
}

#[test]
fn a_wait_ends_in_time_and_leaves_the_other_locks() {
    with_nodes(async |_, databases| {
        let mut one = databases[0].advisory_locks().unwrap();
        let mut other = databases[1].advisory_locks().unwrap();
        let (own, wanted) = (AdvisoryName::Pair(1, 2), NAME);
        assert!(tries(&mut one, wanted, AdvisoryMode::Shared).await);
        assert!(tries(&mut other, own, AdvisoryMode::Exclusive).await);
        let waited = other.lock(wanted, AdvisoryMode::Exclusive, LockWait::Wait, A_WHILE).await;
        assert!(matches!(waited, Err(TxnError::LockTimeout { .. })), "{waited:?}");
        assert!(!tries(&mut one, own, AdvisoryMode::Exclusive).await);
        // Its place in the queue is gone: others may share the lock.
        let mut third = databases[1].advisory_locks().unwrap();
        assert!(tries(&mut third, wanted, AdvisoryMode::Shared).await);
    });
}

#[test]
fn of_two_that_wait_for_each_other_one_gives_up() {
    with_nodes(async |_, databases| {
        let names = [AdvisoryName::Number(1), AdvisoryName::Number(2)];
        let clients = [0, 1].map(|at| {
            let db = databases[at].clone();
            let (first, second) = (names[at], names[1 - at]);
            async move {
                let mut locks = db.advisory_locks().unwrap();
                assert!(tries(&mut locks, first, AdvisoryMode::Exclusive).await);
                db.engine().env().sleep(A_WHILE).await;
                locks.lock(second, AdvisoryMode::Exclusive, LockWait::Wait, LONG).await
            }
        });
        let env = databases[0].engine().env().clone();
        let [one, other] = clients;
        let (sender, receiver) = std::sync::mpsc::channel();
        let also = sender.clone();
        let tasks = [
            env.spawn("one", async move { sender.send(one.await).unwrap() }),
            env.spawn("other", async move { also.send(other.await).unwrap() }),
        ];
        for task in tasks {
            task.join().await.unwrap();
        }
        let outcomes: Vec<_> = receiver.try_iter().collect();
        let gave_up =
            |own: &&Result<LockOutcome, TxnError>| matches!(own, Err(TxnError::Deadlock { .. }));
        assert_eq!(outcomes.iter().filter(gave_up).count(), 1, "{outcomes:?}");
        assert_eq!(outcomes.iter().filter(|own| own.is_ok()).count(), 1, "{outcomes:?}");
    });
}
