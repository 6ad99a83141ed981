//! Wakers that call the fabric, and who is woken by an outcome.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use selkie_fabric::tcp::TcpFabric;
use selkie_fabric::{Buf, Completion, Fabric, FabricError, PeerId, QueuePair, RemoteAddr, Verb};

use crate::common::{
    Impostor, MEMORY, NODE, PATIENCE, Process, config, dead, eventually, reply, two,
};

/// Posts, takes and drops completions inside `wake`.
struct Busy {
    queue_pair: Arc<dyn QueuePair>,
    at: RemoteAddr,
    woken: AtomicU64,
    posted: Mutex<Vec<Completion>>,
}

impl Wake for Busy {
    fn wake(self: Arc<Self>) {
        self.woken.fetch_add(1, Ordering::SeqCst);
        let mut other = self.queue_pair.post(Verb::fetch_and_add(self.at, 1).into());
        let _ = other.try_take();
        self.posted.lock().unwrap().clear();
    }
}

/// Holds the thread that wakes it until it is opened.
#[derive(Default)]
struct Door(Mutex<bool>, Condvar);

impl Door {
    fn open(&self) {
        *self.0.lock().unwrap() = true;
        self.1.notify_all();
    }
}

impl Wake for Door {
    fn wake(self: Arc<Self>) {
        let open = self.0.lock().unwrap();
        let _ = self.1.wait_timeout_while(open, PATIENCE, |open| !*open).unwrap();
    }
}

#[test]
fn wakers_may_post_take_and_drop() {
    let (memory, _node, queue_pair) = two();
    let (woken, posted) = (AtomicU64::new(0), Mutex::default());
    let busy = Busy { queue_pair: Arc::clone(&queue_pair), at: memory.at(0), woken, posted };
    let busy = Arc::new(busy);
    let waker = Waker::from(Arc::clone(&busy));
    // Holds up the thread that executes, so that nothing is done when it is first polled.
    let door = Arc::new(Door::default());
    let doorbell = memory.region.doorbell();
    let mut rung = std::pin::pin!(doorbell.wait_past(doorbell.count()));
    let opened = Waker::from(Arc::clone(&door));
    assert!(rung.as_mut().poll(&mut Context::from_waker(&opened)).is_pending());
    let ring = Verb::write_with_doorbell(memory.at(16), Buf::zeroed(8));
    let mut completions = vec![queue_pair.post(ring.into())];
    let add = |_| queue_pair.post(Verb::fetch_and_add(memory.at(8), 1).into());
    completions.extend((0..50).map(add));
    busy.posted.lock().unwrap().extend((0..50).map(add));
    let mut pending: Vec<_> = completions.iter_mut().map(std::pin::Pin::new).collect();
    for _ in 0..2 {
        // The first poll may just wake; after the second only an outcome does.
        for completion in &mut pending {
            assert!(completion.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        }
    }
    let before = busy.woken.load(Ordering::SeqCst);
    door.open();
    eventually("all are done", || {
        let mut context = Context::from_waker(&waker);
        pending.retain_mut(|completion| {
            matches!(completion.as_mut().poll(&mut context), Poll::Pending)
        });
        pending.is_empty()
    });
    let woken = || busy.woken.load(Ordering::SeqCst);
    eventually("each outcome wakes", || woken() >= before + 51);
    eventually("all are executed", || memory.region.load(8) == 100);
    eventually("those of the wakers too", || memory.region.load(0) == woken());
}

#[test]
fn who_asks_for_an_outcome_may_wait_for_it_as_well() {
    struct Counts(AtomicU64);
    impl Wake for Counts {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let (memory, node, queue_pair) = two();
    let add = || Verb::fetch_and_add(memory.at(0), 1);
    for polls_first in [false, true] {
        // Alone, it is received by the thread that asks, and by no other.
        for _ in 0..2 {
            assert!(node.post(&*queue_pair, add()).is_ok());
        }
        let door = Arc::new(Door::default());
        let doorbell = memory.region.doorbell();
        let mut rung = std::pin::pin!(doorbell.wait_past(doorbell.count()));
        let opened = Waker::from(Arc::clone(&door));
        assert!(rung.as_mut().poll(&mut Context::from_waker(&opened)).is_pending());
        let ring = Verb::write_with_doorbell(memory.at(16), Buf::zeroed(8));
        let mut completion = queue_pair.post(ring.into());
        let woken = Arc::new(Counts(AtomicU64::new(0)));
        let waker = Waker::from(Arc::clone(&woken));
        let mut context = Context::from_waker(&waker);
        let mut poll = |completion: &mut Completion| {
            for _ in 0..2 {
                assert!(std::pin::Pin::new(&mut *completion).poll(&mut context).is_pending());
            }
        };
        if polls_first {
            poll(&mut completion);
        }
        for _ in 0..10 {
            assert!(completion.try_take().is_none());
        }
        if !polls_first {
            poll(&mut completion);
        }
        let before = woken.0.load(Ordering::SeqCst);
        door.open();
        eventually("the outcome wakes", || woken.0.load(Ordering::SeqCst) > before);
        assert!(completion.try_take().is_some_and(|result| result.is_ok()));
    }
}

/// Kills a node inside `wake`.
struct Killer {
    fabric: Arc<TcpFabric>,
    node: PeerId,
    has_killed: AtomicBool,
}

impl Killer {
    fn of(process: &Process) -> Arc<Killer> {
        let (fabric, node) = (Arc::clone(&process.fabric), process.endpoint.id());
        Arc::new(Killer { fabric, node, has_killed: AtomicBool::new(false) })
    }
}

impl Wake for Killer {
    fn wake(self: Arc<Self>) {
        self.fabric.kill(self.node);
        self.has_killed.store(true, Ordering::SeqCst);
    }
}

#[test]
fn wakers_may_kill_the_node_whose_thread_wakes_them() {
    let (memory, node, queue_pair) = two();
    let ring = || Verb::write_with_doorbell(memory.at(0), Buf::zeroed(8));
    node.post(&*queue_pair, ring()).unwrap();

    // Holds up the thread that executes, so that the chain is pending when it is polled.
    let door = Arc::new(Door::default());
    let doorbell = memory.region.doorbell();
    let mut rung = std::pin::pin!(doorbell.wait_past(doorbell.count()));
    let opened = Waker::from(Arc::clone(&door));
    assert!(rung.as_mut().poll(&mut Context::from_waker(&opened)).is_pending());
    let mut completion = std::pin::pin!(queue_pair.post(ring().into()));
    let killer = Killer::of(&node);
    let waker = Waker::from(Arc::clone(&killer));
    // The first poll wakes at once; the second registers the waker until there is an outcome.
    let _ = completion.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    let polled = completion.as_mut().poll(&mut Context::from_waker(&waker));
    assert!(polled.is_pending(), "the door is shut");
    door.open();
    eventually("the driver's waker kills its node", || killer.has_killed.load(Ordering::SeqCst));
    assert_eq!(node.post(&*queue_pair, ring()), dead(NODE));
    assert_eq!(node.endpoint.register(8).err(), dead::<()>(NODE).err());

    let waker = Waker::from(Killer::of(&memory));
    let mut rung = std::pin::pin!(doorbell.wait_past(doorbell.count()));
    assert!(rung.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    let other = Process::start(PeerId::compute(1), config());
    let queue_pair = other.connect(MEMORY, memory.addr());
    eventually("the host's waker kills its node", || {
        other.post(&*queue_pair, ring()) == dead(MEMORY)
    });
    assert_eq!(memory.endpoint.register(8).err(), dead::<()>(MEMORY).err());
}

/// Fences a node inside `wake`, and counts.
struct Fencer(Arc<TcpFabric>, PeerId, AtomicU64);

impl Wake for Fencer {
    fn wake(self: Arc<Self>) {
        let _reach = self.0.fence(self.1);
        self.2.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn wakers_of_a_fence_may_fence() {
    let node = Process::start(NODE, config());
    let mute = Impostor::start(reply(3, 0), false);
    let queue_pair = node.connect(MEMORY, mute.addr);
    let fencer = Arc::new(Fencer(Arc::clone(&node.fabric), NODE, AtomicU64::new(0)));
    let waker = Waker::from(Arc::clone(&fencer));
    let mut completion = queue_pair.post(Verb::fetch_and_add(node.at(0), 1).into());
    let _ = std::pin::Pin::new(&mut completion).poll(&mut Context::from_waker(Waker::noop()));
    let polled = std::pin::Pin::new(&mut completion).poll(&mut Context::from_waker(&waker));
    assert!(polled.is_pending(), "the peer does not answer");
    let fabric = Arc::clone(&node.fabric);
    let fences = std::thread::spawn(move || fabric.fence(MEMORY));
    eventually("both fences return", || {
        fences.is_finished() && fencer.2.load(Ordering::SeqCst) == 1
    });
    assert_eq!(completion.try_take().unwrap().unwrap_err().error, {
        FabricError::PeerDead { peer: MEMORY }
    });
    assert_eq!(node.endpoint.register(8).err(), dead::<()>(NODE).err());
}
