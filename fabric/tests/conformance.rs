//! Runs the conformance suite against everything in this crate that claims to be a fabric.

#[cfg(target_os = "linux")]
mod certificates;

use std::sync::Arc;
use std::time::Duration;

use selkie_fabric::conformance::{CheckFailure, Report, Subject, run_all};
use selkie_fabric::fault::{Delay, FaultFabric, FaultPlan, Tear};
use selkie_fabric::meter::Meter;
use selkie_fabric::sim::{Faults, Schedule, World, WorldConfig};
use selkie_fabric::{Fabric, MemFabric, RealRuntime};

const THREADS: usize = 4;

/// Worker threads enough for tasks to race.
fn runtime() -> RealRuntime {
    #[expect(clippy::unwrap_used, reason = "a test without threads cannot continue")]
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

#[cfg(target_os = "linux")]
#[test]
fn shm() {
    run_all(&|| {
        Subject::real(runtime(), |_| {
            let root = tempfile::tempdir_in("/dev/shm").unwrap();
            let shm = selkie_fabric::shm::ShmFabric::open(root.path()).unwrap();
            let killer = Arc::clone(&shm);
            let kill = move |peer| {
                // The directory goes with the subject.
                let _root = &root;
                let _reach = killer.fence(peer).unwrap();
            };
            (shm, Box::new(kill))
        })
    })
    .assert_passed();
}

/// The suite over TCP, listening at `ip`.
#[cfg(target_os = "linux")]
fn over_tcp(ip: std::net::IpAddr, adjust: fn(&mut selkie_fabric::tcp::TcpConfig)) -> Report {
    run_all(&|| {
        Subject::real(runtime(), |env| {
            let mut config = selkie_fabric::tcp::TcpConfig::new(7);
            config.listen.set_ip(ip);
            adjust(&mut config);
            let tcp = selkie_fabric::tcp::TcpFabric::new(config, env.clone());
            let killer = Arc::clone(&tcp);
            (tcp, Box::new(move |peer| killer.kill(peer)))
        })
    })
}

#[cfg(target_os = "linux")]
#[test]
fn tcp() {
    over_tcp(std::net::Ipv4Addr::LOCALHOST.into(), |_| {}).assert_passed();
}

#[cfg(target_os = "linux")]
#[test]
fn tcp_between_those_who_have_met() {
    over_tcp(std::net::Ipv4Addr::LOCALHOST.into(), |config| {
        config.admission = selkie_fabric::tcp::Admission::ByCard;
    })
    .assert_passed();
}

#[cfg(target_os = "linux")]
#[test]
fn tcp_that_polls() {
    over_tcp(std::net::Ipv4Addr::LOCALHOST.into(), |config| {
        config.poll_for = Duration::from_micros(20);
    })
    .assert_passed();
}

#[cfg(target_os = "linux")]
#[test]
fn tcp_that_never_blocks_a_poll() {
    over_tcp(std::net::Ipv4Addr::LOCALHOST.into(), |config| config.block_alone = Duration::ZERO)
        .assert_passed();
}

#[cfg(target_os = "linux")]
#[test]
fn tcp_with_tls() {
    over_tcp(std::net::Ipv4Addr::LOCALHOST.into(), |config| {
        config.security = Some(certificates::Authority::new("pool").node());
    })
    .assert_passed();
}

#[cfg(target_os = "linux")]
#[test]
fn tcp_with_tls_that_polls_among_those_who_have_met() {
    over_tcp(std::net::Ipv4Addr::LOCALHOST.into(), |config| {
        config.security = Some(certificates::Authority::new("pool").node());
        config.admission = selkie_fabric::tcp::Admission::ByCard;
        config.poll_for = Duration::from_micros(20);
    })
    .assert_passed();
}

#[cfg(target_os = "linux")]
#[test]
fn tcp_over_ipv6() {
    let ip = std::net::Ipv6Addr::LOCALHOST;
    if std::net::TcpListener::bind((ip, 0)).is_err() {
        println!("this host has no [::1]");
        return;
    }
    over_tcp(ip.into(), |_| {}).assert_passed();
}

/// The suite over a simulated world.
fn over_sim(config: fn() -> WorldConfig) -> Report {
    run_all(&|| {
        let world = World::new(config());
        let controls = world.controls();
        Subject {
            fabric: world.fabric(),
            env: world.env(),
            kill: Box::new(move |peer| controls.kill(peer)),
            block_on: Box::new(move |check| {
                let run = world.run(Duration::from_secs(60), check);
                run.unwrap_or_else(|error| Err(CheckFailure::new(error.to_string())))
            }),
        }
    })
}

#[test]
fn sim() {
    over_sim(|| WorldConfig::new(1)).assert_passed();
}

#[test]
fn sim_with_reordering_tearing_and_late_placement() {
    over_sim(|| WorldConfig {
        faults: Faults {
            reorder_one_in: 3,
            reorder_by: Duration::from_micros(20),
            tear_one_in: 2,
            tear_by: Duration::from_micros(5),
            late_one_in: 2,
            late_by: Duration::from_micros(20),
            ..Faults::default()
        },
        schedule: Schedule::Random,
        ..WorldConfig::new(2)
    })
    .assert_passed();
}
