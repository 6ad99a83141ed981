//! Runs the conformance suite against everything in this crate that claims to be a fabric.

use std::sync::Arc;
use std::time::Duration;

use selkie_fabric::conformance::{Report, Subject, run_all};
use selkie_fabric::fault::{Delay, FaultFabric, FaultPlan, Tear};
use selkie_fabric::meter::Meter;
use selkie_fabric::{Fabric, MemFabric, RealRuntime};

const THREADS: usize = 4;

/// Worker threads enough for tasks to race.
fn runtime() -> RealRuntime {
    #[expect(clippy::unwrap_used, reason = "a test without threads cannot go on")]
    RealRuntime::new(THREADS).unwrap()
}

/// The suite over `mem` as wrapped by `decorate`; peers are killed in `mem`.
fn over_mem(decorate: fn(Arc<MemFabric>, &selkie_fabric::Env) -> Arc<dyn Fabric>) -> Report {
    run_all(&|| {
        Subject::real(runtime(), |env| {
            let mem = MemFabric::new();
            let fabric = decorate(Arc::clone(&mem), env);
            (fabric, Box::new(move |peer| mem.kill(peer)))
        })
    })
}

/// The suite over `fault` over `mem`; peers are dropped by `fault`.
fn over_fault(plan: &FaultPlan) -> Report {
    run_all(&|| {
        Subject::real(runtime(), |env| {
            let fault = FaultFabric::wrap(MemFabric::new(), plan.clone(), env.clone());
            let killer = Arc::clone(&fault);
            (fault, Box::new(move |peer| killer.drop_peer(peer)))
        })
    })
}

#[test]
fn mem() {
    over_mem(|mem, _| mem).assert_passed();
}

#[test]
fn meter_over_mem() {
    over_mem(|mem, _| Meter::wrap(mem)).assert_passed();
}

#[test]
fn meter_over_fault_without_faults_over_mem() {
    over_mem(|mem, env| Meter::wrap(FaultFabric::wrap(mem, FaultPlan::none(1), env.clone())))
        .assert_passed();
}

#[test]
fn fault_without_faults() {
    over_fault(&FaultPlan::none(1)).assert_passed();
}

#[test]
fn fault_with_delays() {
    let at_most = Duration::from_micros(300);
    let delay = Delay { one_in: 8, at_least: Duration::from_micros(1), at_most };
    over_fault(&FaultPlan { delay, ..FaultPlan::none(2) }).assert_passed();
}

#[test]
fn fault_with_delays_of_everything_and_torn_writes() {
    let at_most = Duration::from_micros(100);
    let delay = Delay { one_in: 1, at_least: Duration::ZERO, at_most };
    let tear = Tear { one_in: 2, gap: Duration::ZERO };
    over_fault(&FaultPlan { delay, tear, ..FaultPlan::none(3) }).assert_passed();
}
