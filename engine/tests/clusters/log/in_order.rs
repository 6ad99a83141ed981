//! Callers that hold latches, and queue for a page whose holder dies.
#![allow(clippy::unwrap_used, reason = "test support: what goes wrong here shall panic")]

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use selkie_engine::EngineError;
use selkie_engine::log::LogTo;
use selkie_fabric::PeerId;
use selkie_pool::ComputeIndex;

use super::cluster::{logged, read, recovered, write};
use crate::common::page;

/// Callers that queue for the page of the dead node.
const CALLERS: u64 = 3;

/// The recovery needs the pages that the callers hold, whose latest changes are from the dead node.
/// One that waited for its end held it up until the request timeout.
#[test]
fn a_caller_queued_in_order_lets_a_recovery_that_needs_its_page_go_on() {
    for coding in ["plain", "2+1"] {
        let cluster = logged(2, LogTo::Memory, coding);
        let [one, two] = &cluster.engines[..] else { panic!("two nodes") };
        cluster.runtime.block_on(async {
            let env = one.env().clone();
            let wanted = page(two).await;
            write(two, wanted, 7).await;
            let mut claimed = Vec::new();
            for value in 0..CALLERS {
                let addr = page(two).await;
                write(two, addr, 10 + value).await;
                claimed.push(addr);
            }
            let lsn = two.shared(*claimed.last().unwrap()).await.unwrap().lsn();
            two.until_durable(lsn).await.unwrap();
            // Latched there, so that all callers queue for it.
            let held = two.exclusive(wanted).await.unwrap();
            let answers: Arc<Mutex<Vec<Result<(), EngineError>>>> = Arc::default();
            let mut callers = Vec::new();
            for addr in claimed.clone() {
                let (engine, answers) = (one.clone(), Arc::clone(&answers));
                callers.push(env.spawn("caller", async move {
                    let own = engine.exclusive(addr).await.unwrap();
                    let answer = engine.exclusive_in_order(wanted).await.map(drop);
                    answers.lock().push(answer);
                    drop(own);
                }));
            }
            env.sleep(Duration::from_millis(20)).await;
            assert!(answers.lock().is_empty(), "all wait for a node that lives");
            cluster.fabric.kill(PeerId::compute(1));
            cluster.pool.declare_dead(ComputeIndex::new(1)).await.unwrap();
            for caller in callers {
                caller.join().await.unwrap();
            }
            for answer in answers.lock().iter() {
                assert!(
                    matches!(answer, Err(EngineError::Busy { addr }) if *addr == wanted),
                    "{answer:?}"
                );
            }
            recovered(one, &cluster.pool).await;
            for (value, addr) in (10..).zip(&claimed) {
                assert_eq!(read(one, *addr).await, value);
            }
            assert_eq!(read(one, wanted).await, 7);
            drop(held);
            one.close().await.unwrap();
        });
    }
}
