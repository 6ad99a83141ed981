//! One tree, many nodes: see [`super::Scenario::Tree`].
//!
//! Each key belongs to one client, the only one to change it, which therefore knows what must be
//! there; every client reads all keys. In some runs the tree only grows. In the others all clients
//! add rows for a while, and remove most of them for a while, so that leaves and inner pages are
//! merged while others read, split and merge their neighbours.

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
use super::random::{client_random, drawn};
use super::start::Tune;
use super::start::start;
use crate::error::{SimError, ensure};
use crate::plan::Plan;

const WORKERS: usize = 3;
const STEPS: u64 = 120;
/// Longest pause of a client that has made its steps and goes on.
const LINGER_NS: u64 = 800_000;
const KEYS: u64 = 400;
/// Steps of a client in which rows come, or go, one after the other.
const WAVE_STEPS: u64 = 30;
/// Most rows that come in one step of a wave, and most that go.
const COMING: u64 = 4;
const GOING: u64 = 8;
const MAX_VALUE: u64 = 60;
/// What ends in an error that goes away by itself is repeated so often,
const PATIENCE: u32 = 50;
/// and for so long: some waits of the engine, each of which is longer than any trouble. What
/// another node does not give up by then it never does, as one that died while a fence waits for
/// a memory node.
const PATIENT_FOR: Duration = Duration::from_secs(1);

/// The stream that draws what becomes of the rows.
const COURSE_STREAM: u64 = 60;

/// What becomes of the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Course {
    Growth,
    /// On smaller pages, so that there are inner pages to be merged.
    Waves,
}

impl Course {
    fn of(seed: u64) -> Self {
        *drawn(seed, COURSE_STREAM, &[Self::Growth, Self::Waves, Self::Waves])
    }
}

type Oracle = BTreeMap<Vec<u8>, Vec<u8>>;

pub(super) fn run(
    case: Case,
    plan: &Plan,
    tune: &Tune<'_>,
    log: Option<TraceSink>,
) -> Result<RunOutcome, SimError> {
    let course = Course::of(case.seed);
    let mut cluster = start(case, plan, tune, log, |shape| {
        if course == Course::Growth {
            shape.gcl_bytes = 1024;
            shape.engine.cache_bytes *= 2;
        }
    })?;
    let nodes = cluster.engines.len();
    let tree = Arc::new(cluster.run(create(cluster.engine(0)?))??);
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
                course,
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

/// A tree that the other nodes find at its address if the one that created it dies.
async fn create(engine: &Engine) -> Result<Tree, TreeError> {
    let tree = Tree::create(engine, u16::MAX).await?;
    let _pin = engine.pin();
    let leaf = tree.locate(engine, &[]).await?;
    let lsn = engine.shared(leaf).await?.lsn().max(engine.shared(tree.root()).await?.lsn());
    engine.until_durable(lsn).await?;
    Ok(tree)
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
    course: Course,
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
            let is_ebb = self.course == Course::Waves && step / WAVE_STEPS % 2 == 1;
            step += 1;
            match self.random.below(10) {
                0..=5 if is_ebb => self.clear().await?,
                0..=5 if self.course == Course::Waves => {
                    for _ in 0..=self.random.below(COMING) {
                        self.change().await?;
                    }
                }
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
        let goes = self.own.contains_key(&key) && value.len().is_multiple_of(3);
        self.set(key, (!goes).then_some(value)).await
    }

    /// Removes some of its keys that lie side by side, upwards or downwards.
    async fn clear(&mut self) -> Result<(), SimError> {
        let most = 1 + self.random.below(GOING) as usize;
        let from = self.own_key();
        let mut keys: Vec<Vec<u8>> =
            self.own.range(from..).take(most).map(|(key, _)| key.clone()).collect();
        if keys.is_empty() {
            keys.extend(self.own.keys().take(most).cloned());
        }
        if self.random.below(2) == 0 {
            keys.reverse();
        }
        for key in keys {
            self.set(key, None).await?;
        }
        Ok(())
    }

    /// Gives a key of its own a value, or removes one that is there.
    async fn set(&mut self, key: Vec<u8>, value: Option<Vec<u8>>) -> Result<(), SimError> {
        let there = self.own.contains_key(&key);
        let started = self.clock.now();
        for attempt in 0..PATIENCE {
            let (tree, engine) = (&self.tree, &self.engine);
            let result = match &value {
                None => tree.delete(engine, &key).await,
                Some(value) if there => tree.update(engine, &key, value).await,
                Some(value) => tree.insert(engine, &key, value).await.map(|()| true),
            };
            match result {
                Ok(changed) => {
                    ensure(changed, || {
                        format!("key {key:?} was gone before its owner deleted it")
                    })?;
                    match value {
                        Some(value) => self.own.insert(key, value),
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
