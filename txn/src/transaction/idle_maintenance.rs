//! Work on trees that is done although no transaction ends: before a node closes, and while it is
//! idle.
//!
//! What transactions leave to trees ([`maintenance`](crate::transaction::maintenance)) later ones
//! of the same node do. With snapshots most merges have to wait until no snapshot wants the leaves
//! as they were: so what the last transactions leave would stay for good, as only this node knows
//! of it. What a node has left that has died others find ([`Walk`](crate::access::walk)).

use std::sync::{Arc, Weak};
use std::time::Duration;

use selkie_fabric::env::{Env, yield_now};

use crate::transaction::backlog_bell::BacklogBell;
use crate::transaction::commit_bound::before;
use crate::transaction::database::Database;
use crate::transaction::database_state::DatabaseState;
use crate::transaction::maintenance::RanTask;

/// Between two looks whether the node is idle, while there is something to do.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Tasks that a look runs at most.
const TASKS_A_LOOK: usize = 64;
/// Between two looks for a task that may be tried, before a node closes.
const PAUSE: Duration = Duration::from_millis(5);

impl Database {
    /// Does what the transactions of this node have left to trees, such as giving empty leaves
    /// back, until nothing is left, at most for so long. Whether nothing is left: leaves that a
    /// snapshot still wants as they were stay. For a node that is about to close; what it leaves
    /// is wasted room, and no damage. May be dropped.
    pub async fn finish_maintenance(&self, at_most: Duration) -> bool {
        let (state, env) = (self.state(), self.engine().env());
        let all = async {
            while state.backlog.len() > 0 {
                match state.backlog.run_one(state.tree_site()).await {
                    RanTask::None => env.sleep(PAUSE).await,
                    // Tasks on cached pages never wait.
                    _ => yield_now().await,
                }
            }
        };
        before(env, env.now().saturating_add(at_most), all).await.is_some()
    }

    /// As [`finish_maintenance`](Self::finish_maintenance), of what can be done now: it waits for
    /// no snapshot, and for no page that is in use.
    pub async fn maintain(&self, at_most: Duration) {
        let (state, env) = (self.state(), self.engine().env());
        let all = async {
            while state.backlog.run_one(state.tree_site()).await != RanTask::None {
                yield_now().await;
            }
        };
        // What is left then is left to later transactions.
        let _ = before(env, env.now().saturating_add(at_most), all).await;
    }

    /// From now on a task of the node does such work while no transaction of this node ends. It
    /// ends with the last handle of the database. For a program that stays, such as a server.
    pub fn maintain_when_idle(&self) {
        let (env, state) = (self.engine().env(), self.state());
        let looks = look_now_and_then(env.clone(), state.backlog.bell(), state.this.clone());
        env.spawn("idle_maintenance", looks).detach();
    }
}

/// Wakes up only while there is something to do, and when the database is gone.
async fn look_now_and_then(env: Env, bell: Arc<BacklogBell>, state: Weak<DatabaseState>) {
    let mut ended = None;
    while bell.until_some().await {
        env.sleep(LOOK_EVERY).await;
        let Some(state) = state.upgrade() else { return };
        let now = Some(ended_transactions(&state));
        if std::mem::replace(&mut ended, now) == now {
            maintain(&state).await;
        }
    }
}

fn ended_transactions(state: &DatabaseState) -> u64 {
    let stats = state.stats.snapshot();
    stats.commits.wrapping_add(stats.aborts.total())
}

async fn maintain(state: &Arc<DatabaseState>) {
    for _ in 0..TASKS_A_LOOK {
        // A part of a sweep is enough for one look.
        if state.backlog.run_one(state.tree_site()).await != RanTask::Single {
            return;
        }
        yield_now().await;
    }
}
