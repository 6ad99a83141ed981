//! Networks that break for a while: every chain executes once and in order, and a queue pair ends
//! only with its peer.
#![expect(clippy::indexing_slicing, reason = "one of the two ways")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use selkie_fabric::tcp::{Security, TcpConfig};
use selkie_fabric::{Buf, Fabric, FenceScope, RemoteAddr, Verb};

use crate::certificates;
use crate::common::{MEMORY, NODE, PATIENCE, Process, config, dead};
use crate::proxy::{Proxy, Way};

const BOTH: [Way; 2] = [Way::ToPeer, Way::FromPeer];
/// A connection that is silent for longer is replaced.
const SILENT_AFTER: Duration = Duration::from_millis(200);
/// Outstanding chains of one queue pair.
const OUTSTANDING: u64 = 32;

fn impatient(security: Option<Arc<Security>>) -> TcpConfig {
    TcpConfig { silent_after: SILENT_AFTER, security, ..config() }
}

/// Numbers that look random, the same ones in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % bound
    }
}

/// Breaks the network in one of many ways, for milliseconds.
fn break_somehow(proxy: &Proxy, numbers: &mut Numbers) {
    let pause = |ms| std::thread::sleep(Duration::from_millis(ms));
    let way = BOTH[numbers.below(2) as usize];
    match numbers.below(5) {
        0 => proxy.reset(),
        1 => {
            proxy.reset_within_a_frame(way);
            pause(numbers.below(5));
        }
        2 => {
            proxy.cut(&[way], true);
            pause(numbers.below(30));
            proxy.cut(&[way], false);
        }
        3 => {
            // What is on its way is lost, and connections are made that lead nowhere.
            proxy.cut(&BOTH, true);
            pause(numbers.below(10));
            proxy.reset();
            pause(numbers.below(20));
            proxy.cut(&BOTH, false);
        }
        _ => {
            proxy.cut(&BOTH, true);
            pause(numbers.below(30));
            proxy.cut(&BOTH, false);
        }
    }
    pause(numbers.below(10));
}

/// Counts from 0 on in a word, with many chains outstanding: every one of them finds what the one
/// before it left, and brings what it wrote itself. Returns how far it came.
fn count(node: &Process, memory: &Proxy, at: RemoteAddr, stop: &AtomicBool) -> u64 {
    let queue_pair = node.connect(MEMORY, memory.addr);
    let (mut posted, mut done) = (std::collections::VecDeque::new(), 0);
    for next in 0.. {
        let mut from = Buf::zeroed(520);
        from.words_mut().fill(next);
        let copy = RemoteAddr::new(at.region, at.offset + 8);
        let read = Verb::read(copy, Buf::zeroed(520));
        let chain = [Verb::compare_and_swap(at, next, next + 1), Verb::write(copy, from), read];
        posted.push_back(queue_pair.post(chain.into()));
        let is_last = stop.load(Ordering::Relaxed);
        while posted.len() as u64 >= if is_last { 1 } else { OUTSTANDING } {
            let chain = node.wait(posted.pop_front().unwrap()).unwrap();
            assert_eq!(chain.old(0), Some(done), "executed twice, not at all, or out of order");
            assert!(chain.buf(2).unwrap().words().iter().all(|word| *word == done));
            done += 1;
        }
        if is_last {
            return done;
        }
    }
    unreachable!("it counts until it is stopped")
}

fn counts_exactly(security: Option<Arc<Security>>) {
    let memory = Process::start(MEMORY, impatient(security.clone()));
    let proxy = Proxy::start(memory.addr());
    let stop = AtomicBool::new(false);
    let shared = memory.at(0);
    let node = Process::start(NODE, impatient(security));
    let adds_together = node.connect(MEMORY, proxy.addr);
    let (counted, added) = std::thread::scope(|scope| {
        let (node, proxy, stop) = (&node, &proxy, &stop);
        let counters: Vec<_> = (0..3)
            .map(|index| memory.at(1024 * (index + 1)))
            .map(|at| scope.spawn(move || count(node, proxy, at, stop)))
            .collect();
        let adders: Vec<_> = (0..3)
            .map(|_| {
                let queue_pair = Arc::clone(&adds_together);
                scope.spawn(move || {
                    let mut found = Vec::new();
                    while !stop.load(Ordering::Relaxed) {
                        let add = Verb::fetch_and_add(shared, 1);
                        found.push(node.post(&*queue_pair, add).unwrap());
                    }
                    found
                })
            })
            .collect();
        let (started, mut numbers) = (Instant::now(), Numbers(7));
        let mut rounds = 0;
        while started.elapsed() < Duration::from_secs(4) || rounds < 60 {
            break_somehow(proxy, &mut numbers);
            rounds += 1;
        }
        stop.store(true, Ordering::Relaxed);
        let counted: Vec<u64> = counters.into_iter().map(|c| c.join().unwrap()).collect();
        let added: Vec<u64> = adders.into_iter().flat_map(|a| a.join().unwrap()).collect();
        (counted, added)
    });
    println!("{counted:?} and {} over {} connections", added.len(), proxy.connections());
    assert!(proxy.connections() > 40, "hardly broken: {}", proxy.connections());
    for (index, counted) in (1..).zip(counted) {
        assert!(counted > 100, "{counted}");
        assert_eq!(memory.region.load(1024 * index), counted);
    }
    let mut added = added;
    added.sort_unstable();
    assert_eq!(added, Vec::from_iter(0..added.len() as u64), "each add is found once");
    assert_eq!(memory.region.load(0), added.len() as u64);
}

#[test]
fn chains_execute_once_and_in_order_over_connections_that_break() {
    counts_exactly(None);
}

#[test]
fn chains_execute_once_and_in_order_over_secured_connections_that_break() {
    counts_exactly(Some(certificates::Authority::new("pool").node()));
}

#[test]
fn cuts_of_seconds_end_no_queue_pair() {
    let memory = Process::start(MEMORY, impatient(None));
    let node = Process::start(NODE, impatient(None));
    let proxy = Proxy::start(memory.addr());
    let queue_pair = node.connect(MEMORY, proxy.addr);
    let mut expected = 0;
    for ways in [&BOTH[..], &[Way::ToPeer], &[Way::FromPeer]] {
        let before = proxy.connections();
        proxy.cut(ways, true);
        let add = |_| queue_pair.post(Verb::fetch_and_add(memory.at(0), 1).into());
        let posted: Vec<_> = (0..10).map(add).collect();
        std::thread::sleep(8 * SILENT_AFTER);
        proxy.cut(ways, false);
        for completion in posted {
            assert_eq!(node.wait(completion).unwrap().old(0), Some(expected), "{ways:?}");
            expected += 1;
        }
        assert!(proxy.connections() > before, "{ways:?}: the silent connection was replaced");
    }
    assert_eq!(memory.region.load(0), expected);
}

#[test]
fn a_process_that_stands_in_for_another_is_not_taken_for_it() {
    let memory = Process::start(MEMORY, impatient(None));
    let node = Process::start(NODE, impatient(None));
    let proxy = Proxy::start(memory.addr());
    let queue_pair = node.connect(MEMORY, proxy.addr);
    assert_eq!(node.post(&*queue_pair, Verb::fetch_and_add(memory.at(0), 1)), Ok(0));
    let fixed = TcpConfig { listen: memory.addr(), ..impatient(None) };
    proxy.cut(&BOTH, true);
    let add = || queue_pair.post(Verb::fetch_and_add(memory.at(0), 1).into());
    let posted: Vec<_> = (0..5).map(|_| add()).collect();
    let started = Instant::now();
    memory.fabric.kill(MEMORY);
    let next = Process::start(MEMORY, fixed);
    proxy.reset();
    proxy.cut(&BOTH, false);
    for completion in posted.into_iter().chain([add()]) {
        assert_eq!(node.wait(completion).unwrap_err().error, dead::<()>(MEMORY).unwrap_err());
    }
    assert!(started.elapsed() < PATIENCE, "it was not waited for");
    let queue_pair = node.connect(MEMORY, next.addr());
    assert_eq!(node.post(&*queue_pair, Verb::fetch_and_add(next.at(0), 1)), Ok(0));
}

#[test]
fn a_session_that_is_fenced_while_it_is_cut_off_stays_so() {
    let memory = Process::start(MEMORY, impatient(None));
    let node = Process::start(NODE, impatient(None));
    let proxy = Proxy::start(memory.addr());
    let queue_pair = node.connect(MEMORY, proxy.addr);
    assert_eq!(node.post(&*queue_pair, Verb::fetch_and_add(memory.at(0), 1)), Ok(0));
    for is_reset in [false, true] {
        proxy.cut(&BOTH, true);
        let posted = queue_pair.post(Verb::fetch_and_add(memory.at(0), 1).into());
        if is_reset {
            proxy.reset();
        }
        assert_eq!(memory.fabric.fence(NODE), Ok(FenceScope::ThisProcess));
        proxy.cut(&BOTH, false);
        assert_eq!(node.wait(posted).unwrap_err().error, dead::<()>(MEMORY).unwrap_err());
        assert_eq!(memory.region.load(0), 1, "executed behind the fence");
    }
}

#[test]
fn links_that_end_leave_room_for_others() {
    let memory = Process::start(MEMORY, config());
    let node = Process::start(NODE, config());
    let living = node.connect(MEMORY, memory.addr());
    let rounds = selkie_fabric::tcp::MAX_CONNECTIONS as u64 + 50;
    for round in 0..rounds {
        let other = node.endpoint.connect(MEMORY).unwrap();
        assert_eq!(node.post(&*other, Verb::fetch_and_add(memory.at(0), 1)), Ok(2 * round));
        assert_eq!(node.post(&*living, Verb::fetch_and_add(memory.at(0), 1)), Ok(2 * round + 1));
    }
}
