//! Futures dropped at every await point leak nothing: latch words and frames return to rest.
//!
//! The fabric delays every completion, so an access really waits at home, for its answer, for its
//! Confirm; the test polls it some number of times, drops it, and goes on until it once completed.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "test support: what goes wrong here shall panic"
)]

use std::task::Poll;
use std::time::Duration;

use selkie_engine::{Engine, EngineError, GAddr};
use selkie_fabric::env::Env;
use selkie_fabric::fault::{Delay, FaultFabric, FaultPlan};
use selkie_fabric::mem::MemFabric;

use crate::common::drops::poll_times;
use crate::common::{Cluster, engine_config, get, page, pool_config};

fn delayed(engines: usize) -> Cluster {
    let span = Duration::from_micros(100);
    let delay = Delay { one_in: 1, at_least: span, at_most: 2 * span };
    let plan = FaultPlan { delay, ..FaultPlan::none(7) };
    let fabric = |env: &Env| FaultFabric::wrap(MemFabric::new(), plan, env.clone()) as _;
    Cluster::with(engines, fabric, pool_config(2, 4 << 20), engine_config())
}

/// What a test does with a page.
#[derive(Clone, Copy, Debug)]
enum Step {
    Shared,
    Exclusive,
    TryExclusive,
    Upgrade,
    Allocate,
}

async fn take(engine: &Engine, addr: GAddr, step: Step) -> Result<(), EngineError> {
    match step {
        Step::Shared => drop(engine.shared(addr).await?),
        Step::Exclusive => {
            let mut guard = engine.exclusive(addr).await?;
            let value = get(&guard) + 1;
            guard.bytes_mut(0..8).copy_from_slice(&value.to_le_bytes());
        }
        Step::TryExclusive => drop(engine.try_exclusive(addr).await?),
        Step::Upgrade => {
            let guard = engine.shared(addr).await?;
            drop(guard.try_upgrade().await.map_err(|(_, error)| error)?);
        }
        Step::Allocate => engine.free(engine.allocate().await?),
    }
    Ok(())
}

/// Brings the page into a state at other nodes before the step.
async fn prepare(cluster: &Cluster, addr: GAddr, before: usize) {
    match before {
        0 => {}
        1 => drop(cluster.engines[1].exclusive(addr).await.unwrap()),
        2 => drop(cluster.engines[1].shared(addr).await.unwrap()),
        _ => {
            drop(cluster.engines[1].shared(addr).await.unwrap());
            drop(cluster.engines[2].shared(addr).await.unwrap());
        }
    }
}

#[test]
fn accesses_dropped_at_every_await_point_leave_nothing_behind() {
    let cluster = delayed(3);
    cluster.run(async {
        let steps =
            [Step::Shared, Step::Exclusive, Step::TryExclusive, Step::Upgrade, Step::Allocate];
        let mut live = 0;
        for step in steps {
            for before in 0..4 {
                let mut dropped = 0;
                for polls in 1.. {
                    assert!(polls < 100, "{step:?} never completes");
                    let addr = page(&cluster.engines[1]).await;
                    live += 1;
                    prepare(&cluster, addr, before).await;
                    let done = poll_times(take(&cluster.engines[0], addr, step), polls).await;
                    // Whichever operation was left under way, every node still gets the page.
                    for engine in &cluster.engines {
                        drop(engine.exclusive(addr).await.unwrap());
                    }
                    match done {
                        Some(Ok(())) => break,
                        Some(Err(EngineError::Busy { .. })) | None => dropped += 1,
                        Some(Err(error)) => panic!("{step:?}: {error}"),
                    }
                }
                assert!(dropped > 0 || matches!(step, Step::Allocate), "{step:?} never waited");
            }
        }
        cluster.check_lines(live).await;
    });
    cluster.close_and_check();
}

#[test]
fn an_allocation_dropped_at_every_await_point_leaves_its_lease_to_the_next() {
    let cluster = delayed(1);
    let engine = &cluster.engines[0];
    cluster.run(async {
        let mut live = 0;
        let mut dropped = 0;
        for polls in 1.. {
            assert!(polls < 100, "an allocation never completes");
            // Without a line left the allocation has to lease an extent.
            while engine.unused_lines() != (0, 0, 0) {
                page(engine).await;
                live += 1;
            }
            let done = poll_times(engine.allocate(), polls).await;
            if let Some(guard) = done {
                drop(guard.unwrap());
                cluster.check_lines(live + 1).await;
                break;
            }
            dropped += 1;
            cluster.check_lines(live).await;
        }
        assert!(dropped > 1, "the allocation waits for its lease and for its latch");
    });
    cluster.close_and_check();
}

#[test]
fn waiters_that_go_away_do_not_hold_up_those_behind_them() {
    let cluster = Cluster::new(1);
    let engine = cluster.engines[0].clone();
    cluster.run(async {
        let addr = page(&engine).await;
        let held = engine.shared(addr).await.unwrap();
        // A writer queues, a reader queues behind it; the writer goes away.
        let mut writer = Box::pin(engine.exclusive(addr));
        assert!(poll_once(writer.as_mut()).await.is_none());
        let mut reader = Box::pin(engine.shared(addr));
        assert!(poll_once(reader.as_mut()).await.is_none(), "a writer is ahead");
        drop(writer);
        drop(reader.await.expect("no writer is ahead any more"));
        drop(held);
    });
    cluster.close_and_check();
}

async fn poll_once<F: Future + Unpin>(mut future: F) -> Option<F::Output> {
    std::future::poll_fn(|cx| match std::pin::Pin::new(&mut future).poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}
