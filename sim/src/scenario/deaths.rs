//! Deaths of nodes in scenarios on coded pools, and the checks after recovery.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use selkie_fabric::PeerId;
use selkie_fabric::env::Env;
use selkie_fabric::sim::Controls;
use selkie_pool::control::PoolState;
use selkie_pool::{ComputeIndex, Journal, Pool};

use super::lost_nodes::LostNodes;
use super::page_client::HOT_PAGES;
use super::pages::CounterPages;
use crate::cluster::{SimCluster, writer_of};
use crate::error::{SimError, ensure};
use crate::plan::{Plan, Trouble};

/// Time after which a dead compute node is declared dead.
pub(super) const LEASE: Duration = Duration::from_millis(5);
/// Virtual time of a load in which memory nodes are lost: the rebuild of slabs runs meanwhile.
pub(super) const LOSS_LOAD: Duration = Duration::from_millis(75);
/// Interval at which the work that a death interrupts is polled.
const LOOK_EVERY: Duration = Duration::from_micros(20);
/// Interval at which pages are polled whose write-back a death interrupts: their splits are written
/// within a microsecond.
const LOOK_AT_WRITES_EVERY: Duration = Duration::from_nanos(50);
/// Largest number of these polls.
const LOOKS_AT_WRITES: usize = 100_000;
/// Time within which all slabs are regenerated.
const MADE_AGAIN_WITHIN: Duration = Duration::from_secs(20);

/// Declares the compute nodes that `plan` kills dead, a lease after their death.
pub(super) fn bury(cluster: &SimCluster, plan: &Plan, gone: &LostNodes) {
    let (env, now) = (cluster.world.env(), cluster.world.now());
    for (at, trouble) in plan.troubles.iter().copied() {
        let Trouble::Kill(peer) = trouble else { continue };
        let (pool, gone, own) = (Arc::clone(&cluster.pool), gone.clone(), env.clone());
        drop(env.spawn("undertaker", async move {
            own.sleep(at + now - own.now()).await;
            if !gone.add(peer) {
                return;
            }
            own.sleep(LEASE).await;
            // In a pool of one process this cannot fail.
            let _ = pool.declare_dead(ComputeIndex::new(peer.index())).await;
        }));
    }
}

/// Declares each compute node that dies dead, a lease after its death.
pub(super) fn bury_all(cluster: &SimCluster, gone: &LostNodes) {
    let (env, pool, controls) =
        (cluster.world.env(), Arc::clone(&cluster.pool), cluster.world.controls());
    let mut living: Vec<u16> = (0..cluster.engines.len() as u16).collect();
    let (gone, has_leases) = (gone.clone(), cluster.memory.plane().is_some());
    drop(env.clone().spawn("undertaker", async move {
        while !living.is_empty() {
            let lives = |node: &u16| controls.lives(PeerId::compute(*node));
            let (live, dead): (Vec<u16>, Vec<u16>) = living.into_iter().partition(lives);
            living = live;
            for node in dead {
                gone.add(PeerId::compute(node));
                if has_leases {
                    // The others miss it.
                    continue;
                }
                let (pool, own) = (Arc::clone(&pool), env.clone());
                drop(env.spawn("undertaker", async move {
                    own.sleep(LEASE).await;
                    // As above.
                    let _ = pool.declare_dead(ComputeIndex::new(node)).await;
                }));
            }
            env.sleep(LOOK_EVERY).await;
        }
    }));
}

/// Kills the first compute node that `who` finds at work in the state of the pool.
pub(super) fn interrupt(
    cluster: &SimCluster,
    gone: &LostNodes,
    after: Duration,
    who: impl Fn(&PoolState) -> Option<u16> + Send + 'static,
) {
    let (pool, controls, env) =
        (Arc::clone(&cluster.pool), cluster.world.controls(), cluster.world.env());
    let gone = gone.clone();
    drop(env.clone().spawn("assassin", async move {
        loop {
            if let Some(node) = who(&pool.state()) {
                env.sleep(after).await;
                return kill(&pool, &controls, &env, &gone, node).await;
            }
            env.sleep(LOOK_EVERY).await;
        }
    }));
}

/// Kills, after `after`, the first compute node that has written only some splits of a page.
pub(super) fn interrupt_write_back(
    cluster: &SimCluster,
    gone: &LostNodes,
    pages: &CounterPages,
    after: Duration,
) {
    let memory = Arc::clone(&cluster.memory);
    let (pool, controls, env) =
        (Arc::clone(&cluster.pool), cluster.world.controls(), cluster.world.env());
    let gone = gone.clone();
    let addrs: Vec<u64> = pages.addrs().iter().take(HOT_PAGES).map(|addr| addr.to_u64()).collect();
    drop(env.clone().spawn("assassin", async move {
        env.sleep(after).await;
        for _ in 0..LOOKS_AT_WRITES {
            if let Some(node) = addrs.iter().find_map(|addr| writer_of(&memory, *addr)) {
                return kill(&pool, &controls, &env, &gone, node).await;
            }
            env.sleep(LOOK_AT_WRITES_EVERY).await;
        }
    }));
}

async fn kill(pool: &Pool, controls: &Controls, env: &Env, gone: &LostNodes, node: u16) {
    let peer = PeerId::compute(node);
    if !gone.add(peer) {
        return;
    }
    controls.kill(peer);
    env.sleep(LEASE).await;
    // As above.
    let _ = pool.declare_dead(ComputeIndex::new(node)).await;
}

/// Declares the memory nodes that died dead, also those that no node has accessed since. Waits
/// until no recovery runs; if `whole`, also until all slabs are on living nodes.
pub(super) async fn made_good(
    pool: &Pool,
    env: &Env,
    troubles: &[(Duration, Trouble)],
    whole: bool,
) -> Result<(), SimError> {
    for (_, trouble) in troubles {
        if let Trouble::Crash(peer) = trouble {
            pool.declare_memory_dead(peer.index()).await?;
        }
    }
    let started = env.now();
    loop {
        let state = pool.state();
        let lives = |node: u16| !pool.is_memory_dead(usize::from(node));
        let mut slabs = state.ranges.iter().flat_map(|range| &range.slabs);
        let is_whole = state.regeneration.is_none() && slabs.all(|slab| lives(slab.node));
        let recovers = !state.rebuilds.is_empty() || !state.lost.is_empty();
        if !recovers && (is_whole || !whole) {
            return Ok(());
        }
        if env.now() - started > MADE_AGAIN_WITHIN {
            let (rebuilds, task, lost) = (&state.rebuilds, &state.regeneration, &state.lost);
            return Err(SimError::Broken(format!(
                "{MADE_AGAIN_WITHIN:?} after the last load the losses are not made good: rebuilds {rebuilds:?}, \
                 regeneration {task:?}, recoveries {lost:?}, ranges {:?}",
                state.ranges
            )));
        }
        env.sleep(Duration::from_millis(1)).await;
    }
}

/// Stops the cluster, then checks all pages from a new node, and memory. Returns how many pages are
/// lost with the compute nodes that died.
pub(super) fn check_rest(
    cluster: &mut SimCluster,
    gone: &LostNodes,
    all: &[&CounterPages],
) -> Result<u64, SimError> {
    let env = cluster.world.env();
    let losses = gone.end();
    // The last victim is declared dead within this time.
    cluster.run(env.sleep(2 * LEASE))?;
    cluster.run(made_good(&cluster.pool, &env, &[], true))??;
    if losses.is_empty() {
        let count: usize = all.iter().map(|pages| pages.addrs().len()).sum();
        cluster.run(cluster.check_lines(count as u64))??;
    }
    cluster.run(cluster.close(&losses))??;
    let reader = cluster.start_engine()?;
    let may_be_lost = |pages: &CounterPages, page: usize| pages.may_be_lost_with(page, &losses);
    let mut lost = 0;
    for pages in all {
        lost += cluster.run(pages.check_pages(&reader, may_be_lost))??;
    }
    cluster.run(reader.close())??;
    let lost_pages: BTreeSet<u64> = cluster.pool.lost_pages().into_iter().collect();
    cluster.run(cluster.check_words(&lost_pages))??;
    look(cluster, true)?;
    Ok(lost)
}

/// Checks the splits in memory after a load, when no write-back is under way.
pub(super) fn look(cluster: &SimCluster, whole: bool) -> Result<(), SimError> {
    let mut found = cluster.look_at_splits()?;
    let mut memory = 0..cluster.pool.state().memory_nodes.len();
    let is_memory_lost = memory.any(|node| cluster.pool.is_memory_dead(node));
    if is_memory_lost && cluster.pool.descriptor().coding.journal() != Journal::Always {
        // Memory that was lost with the writer of a page can leave too little of it.
        found.leave_out(&cluster.pool.lost_pages());
    }
    found.is_right()?;
    let incomplete = || format!("{} splits are on dead memory nodes", found.missing);
    ensure(!whole || found.missing == 0, incomplete)
}
