//! One tree, many nodes: see [`super::Scenario::Tree`].
//!
//! Each key belongs to one client, the only one to change it, which therefore knows what must be
//! there; every client reads all keys.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use selkie_btree::{Direction, Tree, TreeError};
use selkie_engine::Engine;
use selkie_fabric::env::{Env, SplitMix};
use selkie_fabric::sim::TraceSink;

use super::case::Case;
use super::clients::Clients;
use super::excuses::Excuses;
use super::outcome::RunOutcome;
use super::outcome::done;
use super::random::client_random;
use super::start::Tune;
use super::start::start;
use crate::error::{SimError, ensure};
use crate::plan::Plan;

const WORKERS: usize = 3;
const STEPS: u64 = 120;
/// Longest pause of a client that has made its steps and goes on.
const LINGER_NS: u64 = 800_000;
const KEYS: u64 = 400;
const MAX_VALUE: u64 = 60;
/// What ends in an error that goes away by itself is repeated so often,
const PATIENCE: u32 = 50;
/// and for so long: some waits of the engine, each of which is longer than any trouble. What
/// another node does not give up by then it never does, as one that died while a fence waits for
/// a memory node.
const PATIENT_FOR: Duration = Duration::from_secs(1);

type Oracle = BTreeMap<Vec<u8>, Vec<u8>>;

pub(super) fn run(
    case: Case,
    plan: &Plan,
    tune: &Tune<'_>,
    log: Option<TraceSink>,
) -> Result<RunOutcome, SimError> {
    let mut cluster = start(case, plan, tune, log, |shape| {
        shape.gcl_bytes = 1024;
        shape.engine.cache_bytes *= 2;
    })?;
    let nodes = cluster.engines.len();
    let tree = Arc::new(cluster.run(Tree::create(cluster.engine(0)?, u16::MAX))??);
    let excuses = Excuses::of(case, plan, &cluster);
    plan.arrange_in(&cluster);
    let mut clients = Clients::new(&cluster);
    let oracles: Arc<Mutex<Oracle>> = Arc::default();
    let ended: Arc<Mutex<BTreeSet<u64>>> = Arc::default();
    let clients_of_all = (nodes * WORKERS) as u64;
    for node in 0..nodes {
        for worker in 0..WORKERS {
            let client = node * WORKERS + worker;
            let gardener = Gardener {
                client: client as u64,
                clients: clients_of_all,
                engine: cluster.engine(node)?.clone(),
                env: cluster.env_of(node),
                tree: Arc::clone(&tree),
                random: client_random(case.seed, client),
                own: Oracle::new(),
                clock: cluster.world.env(),
                until: excuses.load_until(&cluster),
            };
            let (oracles, ended) = (Arc::clone(&oracles), Arc::clone(&ended));
            clients.spawn(node, "gardener", async move {
                let (operations, own) = gardener.run().await?;
                oracles.lock().extend(own);
                ended.lock().insert(client as u64);
                Ok(operations)
            });
        }
    }
    let tally = excuses.finish(clients)?;
    if !excuses.loses_data {
        let living = excuses.settle(&mut cluster)?;
        let (oracle, ended) =
            (std::mem::take(&mut *oracles.lock()), std::mem::take(&mut *ended.lock()));
        // Unless it has ended before its time, or with its node, before all was durable.
        let is_right =
            |client: &u64| ended.contains(client) && living.contains(&(*client as usize / WORKERS));
        let is_known = |key: &[u8]| client_of(key, clients_of_all).as_ref().is_some_and(is_right);
        let oracle: Oracle = oracle.into_iter().filter(|(key, _)| is_known(key)).collect();
        for engine in living.iter().filter_map(|node| cluster.engines.get(*node)) {
            let mut found = cluster.run(everything(&tree, engine))??;
            let all = found.len();
            found.retain(|key, _| is_known(key));
            ensure(found == oracle, || {
                format!(
                    "{} sees {} rows, the oracle has {}",
                    engine.node(),
                    found.len(),
                    oracle.len()
                )
            })?;
            let entries = cluster.run(tree.verify(engine))??.entries;
            ensure(entries == all, || format!("verify() counts {entries} of {all} rows"))?;
        }
        excuses.close(&cluster, &living)?;
    }
    Ok(done(&cluster, &tally))
}

async fn everything(tree: &Tree, engine: &Engine) -> Result<Oracle, TreeError> {
    let mut found = Oracle::new();
    tree.scan(engine, (Bound::Unbounded, Bound::Unbounded), Direction::Forward, |key, value| {
        found.insert(key.to_vec(), value.to_vec());
        ControlFlow::Continue(())
    })
    .await?;
    Ok(found)
}

/// Whose key it is.
fn client_of(key: &[u8], clients: u64) -> Option<u64> {
    key.first_chunk().map(|key| u64::from_be_bytes(*key) % clients)
}

struct Gardener {
    client: u64,
    clients: u64,
    engine: Engine,
    env: Env,
    tree: Arc<Tree>,
    random: SplitMix,
    /// What its own keys must hold.
    own: Oracle,
    clock: Env,
    /// When it may stop, if it has made its steps.
    until: Duration,
}

impl Gardener {
    async fn run(mut self) -> Result<(u64, Oracle), SimError> {
        let mut step = 0;
        while step < STEPS || self.clock.now() < self.until {
            if step >= STEPS {
                self.env.sleep(Duration::from_nanos(self.random.below(LINGER_NS))).await;
            }
            step += 1;
            match self.random.below(10) {
                0..=5 => self.change().await?,
                6..=7 => self.look().await?,
                _ => self.scan().await?,
            }
            if self.random.below(4) == 0 {
                self.env.sleep(Duration::from_nanos(self.random.below(20_000))).await;
            }
        }
        Ok((step, self.own))
    }

    /// A key of this client's.
    fn own_key(&self) -> Vec<u8> {
        let number = self.random.below(KEYS) * self.clients + self.client;
        number.to_be_bytes().to_vec()
    }

    fn value(&self) -> Vec<u8> {
        let bytes = self.random.below(MAX_VALUE) as usize;
        std::iter::repeat_with(|| self.random.next_u64() as u8).take(bytes).collect()
    }

    async fn change(&mut self) -> Result<(), SimError> {
        let (key, value) = (self.own_key(), self.value());
        let there = self.own.contains_key(&key);
        let started = self.clock.now();
        for attempt in 0..PATIENCE {
            let result = if there && value.len().is_multiple_of(3) {
                self.tree.delete(&self.engine, &key).await.map(|gone| (gone, None))
            } else if there {
                self.tree.update(&self.engine, &key, &value).await.map(|was| (was, Some(&value)))
            } else {
                self.tree.insert(&self.engine, &key, &value).await.map(|()| (true, Some(&value)))
            };
            match result {
                Ok((changed, now)) => {
                    ensure(changed, || {
                        format!("key {key:?} was gone before its owner deleted it")
                    })?;
                    match now {
                        Some(value) => self.own.insert(key, value.clone()),
                        None => self.own.remove(&key),
                    };
                    return Ok(());
                }
                Err(error)
                    if error.is_retryable()
                        && attempt + 1 < PATIENCE
                        && self.clock.now() - started < PATIENT_FOR =>
                {
                    self.env.sleep(Duration::from_micros(u64::from(attempt) * 10)).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    async fn look(&self) -> Result<(), SimError> {
        let key = self.own_key();
        let found = self.tree.get(&self.engine, &key).await?;
        ensure(found.as_ref() == self.own.get(&key), || {
            format!("key {key:?} holds {found:?}, its owner wrote {:?}", self.own.get(&key))
        })
    }

    /// Scans a stretch: in order, within its bounds, and right about this client's own keys.
    async fn scan(&self) -> Result<(), SimError> {
        let start = self.random.below(KEYS * self.clients);
        let (low, high) = (start.to_be_bytes(), (start + 200).to_be_bytes());
        let reverse = self.random.below(2) == 0;
        let direction = if reverse { Direction::Reverse } else { Direction::Forward };
        let mut seen: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        let range = (Bound::Included(&low[..]), Bound::Excluded(&high[..]));
        self.tree
            .scan(&self.engine, range, direction, |key, value| {
                seen.push((key.to_vec(), value.to_vec()));
                ControlFlow::Continue(())
            })
            .await?;
        if reverse {
            seen.reverse();
        }
        let keys = seen.iter().map(|(key, _)| key);
        ensure(keys.clone().is_sorted() && seen.is_sorted_by(|a, b| a.0 < b.0), || {
            format!("a scan from {start} is out of order: {:?}", keys.collect::<Vec<_>>())
        })?;
        let own = |key: &[u8]| client_of(key, self.clients) == Some(self.client);
        let mine: Vec<_> = seen.iter().filter(|(key, _)| own(key)).cloned().collect();
        let (low, high) = (low.to_vec(), high.to_vec());
        let expected: Vec<_> =
            self.own.range(low..high).map(|(key, value)| (key.clone(), value.clone())).collect();
        ensure(mine == expected, || {
            format!("a scan from {start} found {mine:?} of its owner's {expected:?}")
        })
    }
}
