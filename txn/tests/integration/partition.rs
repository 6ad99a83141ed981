//! Two-phase commit between partitions: all or nothing, whatever happens on the way.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use selkie_engine::log::{LogStore, LogTo};
use selkie_txn::partition::{
    DistributedTxn, Member, Partition, PartitionError, Procedures, ledger,
};
use selkie_txn::{
    AbortCause, ColumnType, Database, RetryPolicy, Retryable, RowMut, Table, TableSchema, Txn,
    TxnError, key, retry,
};
use tempfile::TempDir;

use crate::common::{Cluster, poll_times, two_phase};
use crate::logged::Valve;

const ACCOUNTS: i32 = 8;
const EACH: i64 = 100;
const GCL: usize = 2048;
const BALANCE: usize = 1;

/// Adds to the balance of an account, which must not fall below zero.
struct Teller {
    accounts: Table,
}

#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error(transparent)]
    Txn(#[from] TxnError),
    #[error("insufficient funds")]
    Insufficient,
}

impl Retryable for Refusal {
    fn retry_cause(&self) -> Option<AbortCause> {
        match self {
            Self::Txn(error) => error.retry_cause(),
            Self::Insufficient => None,
        }
    }
}

fn request(account: i32, added: i64) -> Vec<u8> {
    [&account.to_le_bytes()[..], &added.to_le_bytes()].concat()
}

async fn add(txn: &mut Txn<'_>, table: Table, account: i32, added: i64) -> Result<i64, Refusal> {
    let change = |row: &mut RowMut<'_>| {
        let balance = row.i64(BALANCE)? + added;
        row.set_i64(BALANCE, balance)?;
        Ok(balance)
    };
    let balance = txn.update(table, &key![account], change).await?;
    if balance < 0 { Err(Refusal::Insufficient) } else { Ok(balance) }
}

impl Procedures for Teller {
    type Error = Refusal;

    async fn execute(&self, txn: &mut Txn<'_>, request: &[u8]) -> Result<Vec<u8>, Refusal> {
        let account = i32::from_le_bytes(request[..4].try_into().unwrap());
        let added = i64::from_le_bytes(request[4..].try_into().unwrap());
        Ok(add(txn, self.accounts, account, added).await?.to_le_bytes().to_vec())
    }
}

/// A bank with as many branches as there are nodes, each with accounts of its own.
struct Bank {
    cluster: Cluster,
    databases: Vec<Database>,
    accounts: Vec<Table>,
    ledgers: Vec<Table>,
    branches: Vec<Partition<Teller>>,
}

impl Bank {
    fn open(nodes: usize) -> Self {
        Self::open_on(Cluster::start(nodes, GCL), nodes)
    }

    fn open_on(cluster: Cluster, nodes: usize) -> Self {
        let schemas = (0..nodes).flat_map(|node| {
            let accounts = TableSchema::new(format!("account@{node}"))
                .column("id", ColumnType::I32)
                .column("balance", ColumnType::I64)
                .primary_key([0])
                .max_rows_per_page(1);
            [accounts, ledger(&format!("ledger@{node}"))]
        });
        let databases = cluster.create(two_phase(schemas.collect()));
        let tables = |name: &str| -> Vec<Table> {
            (0..nodes).map(|node| databases[0].table(&format!("{name}@{node}")).unwrap()).collect()
        };
        let (accounts, ledgers) = (tables("account"), tables("ledger"));
        let branches = cluster.runtime.block_on(async {
            for (db, table) in databases.iter().zip(&accounts) {
                let mut txn = db.begin();
                for id in 0..ACCOUNTS {
                    let mut row = db.row(*table).unwrap();
                    row.i32(id).i64(EACH);
                    txn.insert(*table, row.finish().unwrap()).await.unwrap();
                }
                txn.commit().await.unwrap();
            }
            let members = (0..nodes).map(|node| Member {
                db: databases[node].clone(),
                ledger: ledgers[node],
                procedures: Teller { accounts: accounts[node] },
            });
            Partition::connect(members).unwrap()
        });
        Self { cluster, databases, accounts, ledgers, branches }
    }

    /// The balances of a branch, once no transaction has them latched.
    async fn balances(&self, branch: usize) -> Vec<i64> {
        let db = &self.databases[branch];
        let policy = RetryPolicy { attempts: 10_000, ..RetryPolicy::default() };
        let read = || async {
            let mut txn = db.begin();
            let mut all = Vec::new();
            for id in 0..ACCOUNTS {
                // To write, so that not even a reader is left.
                all.push(add(&mut txn, self.accounts[branch], id, 0).await?);
            }
            txn.rollback().await;
            Ok::<_, Refusal>(all)
        };
        retry(db.engine().env(), &policy, read).await.unwrap()
    }

    /// Whether an account is latched.
    async fn is_latched(&self, branch: usize, account: i32) -> bool {
        let mut txn = self.databases[branch].begin();
        add(&mut txn, self.accounts[branch], account, 0).await.is_err()
    }

    /// Moves money from an account of branch 0 to the same account of others, in one transaction by
    /// worker 1.
    async fn spread(&self, account: i32, amount: i64, to: &[usize]) -> Result<(), PartitionError> {
        let mut txn = self.branches[0].begin(1);
        let requests: Vec<_> = to.iter().map(|to| (*to, request(account, amount))).collect();
        txn.call(&requests).await?;
        let sum = amount * to.len() as i64;
        take(&mut txn, self.accounts[0], account, sum).await?;
        txn.commit().await
    }

    fn close(self) {
        self.cluster.runtime.block_on(async {
            for branch in &self.branches {
                branch.close().await.unwrap();
            }
        });
        drop((self.branches, self.databases));
        self.cluster.close();
    }
}

/// Takes money from an account of the coordinator's own.
async fn take(
    txn: &mut DistributedTxn<'_, Teller>,
    table: Table,
    account: i32,
    amount: i64,
) -> Result<(), PartitionError> {
    match add(txn.own()?, table, account, -amount).await {
        Ok(_) => Ok(()),
        Err(Refusal::Txn(error)) => Err(error.into()),
        Err(Refusal::Insufficient) => panic!("a test that takes too much"),
    }
}

/// Balances of a branch in which this account has so much more.
fn with(account: i32, more: i64) -> Vec<i64> {
    (0..ACCOUNTS).map(|id| EACH + if id == account { more } else { 0 }).collect()
}

#[test]
fn money_moves_between_partitions_and_none_is_lost() {
    const NODES: usize = 3;
    let bank = Arc::new(Bank::open(NODES));
    let moved: Arc<Mutex<BTreeMap<(usize, i32), i64>>> = Arc::default();
    let env = bank.cluster.runtime.env();
    let workers: Vec<_> = (0..NODES * 4)
        .map(|number| {
            let (bank, moved, env) = (Arc::clone(&bank), Arc::clone(&moved), env.clone());
            bank.cluster.runtime.env().spawn("worker", async move {
                let (node, worker) = (number % NODES, (number / NODES) as u32);
                let policy = RetryPolicy { attempts: 100_000, ..RetryPolicy::default() };
                for step in 0..40_i32 {
                    let account = (step * 3 + number as i32) % ACCOUNTS;
                    let others: Vec<_> = (0..NODES).filter(|other| *other != node).collect();
                    // One other, or all.
                    let to =
                        if step % 4 == 0 { &others[..] } else { &others[step as usize % 2..][..1] };
                    let attempt = || async {
                        let mut txn = bank.branches[node].begin(worker);
                        let requests: Vec<_> =
                            to.iter().map(|to| (*to, request(account, 1))).collect();
                        assert_eq!(txn.call(&requests).await?.len(), to.len());
                        let sum = to.len() as i64;
                        // More than there may be, but what is short comes back from the others.
                        let own = txn.own()?;
                        own.update(bank.accounts[node], &key![account], |row| {
                            Ok(row.set_i64(BALANCE, row.i64(BALANCE)? - sum)?)
                        })
                        .await?;
                        txn.commit().await
                    };
                    retry(&env, &policy, attempt).await.unwrap();
                    let mut moved = moved.lock();
                    *moved.entry((node, account)).or_default() -= to.len() as i64;
                    to.iter().for_each(|to| *moved.entry((*to, account)).or_default() += 1);
                }
            })
        })
        .collect();
    bank.cluster.runtime.block_on(async {
        for worker in workers {
            worker.join().await.unwrap();
        }
        let refused = |db: &Database| db.stats().aborts.of(AbortCause::Conflict);
        assert!(bank.databases.iter().map(refused).sum::<u64>() > 0, "no transaction met another");
        for node in 0..NODES {
            for (id, balance) in (0..).zip(bank.balances(node).await) {
                let moved = moved.lock().get(&(node, id)).copied().unwrap_or(0);
                assert_eq!(balance, EACH + moved, "account {id} of branch {node}");
            }
        }
    });
    Arc::into_inner(bank).unwrap().close();
}

#[test]
fn a_vote_against_it_undoes_everything() {
    let bank = Bank::open(3);
    bank.cluster.runtime.block_on(async {
        bank.spread(2, 10, &[1, 2]).await.unwrap();
        // A transaction that has the page of its record latched keeps branch 2 from voting, after
        // branch 1 has voted or before.
        let mut in_the_way = bank.databases[2].begin();
        in_the_way.get(bank.ledgers[2], &key![0, 1]).await.unwrap().unwrap();
        let error = bank.spread(2, 5, &[1, 2]).await.unwrap_err();
        assert!(matches!(error, PartitionError::Refused { partition: 2 }), "{error}");
        assert!(error.is_retryable());
        for (branch, more) in [(0, -20), (1, 10), (2, 10)] {
            assert_eq!(bank.balances(branch).await, with(2, more), "branch {branch}");
        }
        in_the_way.rollback().await;
        bank.spread(2, 5, &[1, 2]).await.unwrap();
        for (branch, more) in [(0, -30), (1, 15), (2, 15)] {
            assert_eq!(bank.balances(branch).await, with(2, more), "branch {branch}");
        }
    });
    bank.close();
}

#[test]
fn work_that_fails_undoes_what_the_others_have_done() {
    let bank = Bank::open(3);
    bank.cluster.runtime.block_on(async {
        let mut txn = bank.branches[0].begin(1);
        take(&mut txn, bank.accounts[0], 3, 60).await.unwrap();
        let requests = [(1, request(3, 160)), (2, request(3, -EACH - 1))];
        let error = txn.call(&requests).await.unwrap_err();
        let PartitionError::Failed { partition: 2, what } = &error else { panic!("{error}") };
        assert!(what == "insufficient funds" && !error.is_retryable());
        drop(txn);
        // A request that is too long for the record is refused, too.
        let mut txn = bank.branches[0].begin(1);
        let error = txn.call(&[(1, [request(3, 1), vec![0; 400]].concat())]).await.unwrap_err();
        assert!(error.to_string().contains("of more than 384 bytes"), "{error}");
        drop(txn);
        for branch in 0..3 {
            assert_eq!(bank.balances(branch).await, with(3, 0), "branch {branch}");
        }
    });
    bank.close();
}

#[test]
fn a_transaction_dropped_at_any_await_is_everywhere_or_nowhere() {
    let bank = Bank::open(3);
    bank.cluster.runtime.block_on(async {
        let (mut given, mut undone, mut done) = (0, 0, 0);
        // How often it is polled on its way is not always the same, so each number has many
        // chances.
        for (round, polls) in (0..40).flat_map(|round| (1..16).map(move |polls| (round, polls))) {
            let amount = if round % 2 == 0 { 1 } else { -1 };
            let output = poll_times(bank.spread(4, amount, &[1, 2]), polls).await;
            // Participants of the transaction dropped before may still be rolling back.
            let conflicts = |output: Result<_, PartitionError>| match output {
                Ok(_) => true,
                Err(error) => error.is_retryable(),
            };
            assert!(output.is_none_or(conflicts), "no other transaction runs");
            let (there, here) =
                (bank.balances(1).await[4] - EACH, bank.balances(0).await[4] - EACH);
            assert_eq!(here, -2 * there, "dropped after {polls} polls");
            assert_eq!(bank.balances(2).await[4] - EACH, there, "dropped after {polls} polls");
            if there == given {
                undone += 1;
            } else {
                done += 1;
            }
            given = there;
        }
        assert!(undone > 5 && done > 5, "{undone} {done}");
        // What the dropped ones have left behind holds nothing up for long.
        let attempt = || bank.spread(4, 1, &[1, 2]);
        let policy = RetryPolicy { attempts: 100, ..RetryPolicy::default() };
        retry(bank.databases[0].engine().env(), &policy, attempt).await.unwrap();
        assert_eq!(bank.balances(1).await[4] - EACH, given + 1);
    });
    bank.close();
}

/// A bank whose branches have logs, with what shuts each.
fn with_logs(nodes: usize) -> (Bank, Vec<Arc<Valve>>, TempDir) {
    let place = tempfile::tempdir().unwrap();
    let valves: Vec<_> =
        (0..nodes).map(|node| Valve::open(&place.path().join(node.to_string()))).collect();
    let store = |valve: &Arc<Valve>| LogTo::Store(Arc::clone(valve) as Arc<dyn LogStore>);
    let logs: Vec<_> = valves.iter().map(|valve| Some(store(valve))).collect();
    (Bank::open_on(Cluster::start_with_logs(&logs, GCL), nodes), valves, place)
}

#[test]
fn no_side_continues_before_the_log_is_durable() {
    let (bank, valves, _place) = with_logs(2);
    let bank = Arc::new(bank);
    let env = bank.cluster.runtime.env();
    let begin = |account| {
        let bank = Arc::clone(&bank);
        env.spawn("spread", async move { bank.spread(account, 1, &[1]).await.unwrap() })
    };
    let long_enough = Duration::from_millis(100);
    bank.cluster.runtime.block_on(async {
        bank.spread(0, 1, &[1]).await.unwrap();
        // The participant's log: there is no vote, so the coordinator keeps its latches.
        valves[1].shut(true);
        let spread = begin(5);
        valves[1].until_append_waits(&env).await;
        env.sleep(long_enough).await;
        assert!(bank.is_latched(0, 5).await && bank.is_latched(1, 5).await);
        valves[1].shut(false);
        spread.join().await.unwrap();
        // The coordinator's: it has decided, and tells no participant.
        valves[0].shut(true);
        let spread = begin(6);
        valves[0].until_append_waits(&env).await;
        env.sleep(long_enough).await;
        assert!(!bank.is_latched(0, 6).await && bank.is_latched(1, 6).await);
        valves[0].shut(false);
        spread.join().await.unwrap();
        assert!(!bank.is_latched(1, 6).await);
        let (here, there) = (bank.balances(0).await, bank.balances(1).await);
        for account in 0..ACCOUNTS as usize {
            let moved = i64::from([0, 5, 6].contains(&account));
            assert_eq!((here[account], there[account]), (EACH - moved, EACH + moved));
        }
    });
    Arc::into_inner(bank).unwrap().close();
}
