//! Messages arrive once, in order and undamaged, and no receiver sleeps through them.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "helpers of tests, which clippy does not take for tests"
)]

mod support;

use selkie_channels::{ChannelError, Mailbox};
use selkie_fabric::env::{RealRuntime, yield_now};
use selkie_fabric::fault::{Delay, FaultFabric, FaultPlan, Tear};
use selkie_fabric::meter::Meter;
use selkie_fabric::{Env, Fabric, MemFabric, PeerId};
use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::Duration;
use support::{Net, check_message, in_time, message, net, unconnected};

/// Streams are named by sender, receiver and the number of the sending task.
fn stream(from: usize, to: usize, task: usize) -> u64 {
    (from * 100 + to * 10 + task) as u64
}

/// Sends `count` messages to `to`, waiting for room when the outbox is full.
async fn send_stream(mailbox: Arc<Mailbox>, to: usize, stream: u64, count: u64) {
    for number in 0..count {
        let (header, payload) = message(stream, number);
        loop {
            match mailbox.send(to, &header, &payload) {
                Ok(()) => break,
                Err(ChannelError::OutboxFull { .. }) => yield_now().await,
                Err(error) => panic!("message {number} of {stream}: {error}"),
            }
        }
    }
}

/// The mail task of a node: polls and sleeps for ever, checks every stream, counts what came.
async fn receive(mailbox: Arc<Mailbox>, received: Arc<AtomicU64>) {
    let mut next: HashMap<u64, u64> = HashMap::new();
    loop {
        let taken = mailbox.poll(17, &mut |from, bytes| {
            let (stream, number) = check_message(bytes);
            assert_eq!(from as u64, stream / 100, "attributed to the wrong sender");
            let expected = next.entry(stream).or_default();
            assert_eq!(number, *expected, "stream {stream} is out of order");
            *expected += 1;
        });
        received.fetch_add(taken.unwrap() as u64, Ordering::Release);
        mailbox.wait_mail().await;
    }
}

/// Whether a wait that begins now ends at once.
fn wait_is_over(mailbox: &Mailbox) -> bool {
    let wait = std::pin::pin!(mailbox.wait_mail());
    wait.poll(&mut Context::from_waker(Waker::noop())).is_ready()
}

/// Every node sends `tasks` streams of `count` messages to every other node.
async fn all_to_all(env: &Env, net: &Net, tasks: usize, count: u64) {
    let nodes = net.boxes.len();
    let received = Arc::new(AtomicU64::new(0));
    let total = (nodes * (nodes - 1) * tasks) as u64 * count;
    for mailbox in &net.boxes {
        env.spawn("mail", receive(Arc::clone(mailbox), Arc::clone(&received))).detach();
    }
    let mut senders = Vec::new();
    for from in 0..nodes {
        for to in (0..nodes).filter(|to| *to != from) {
            for task in 0..tasks {
                let mailbox = Arc::clone(&net.boxes[from]);
                let send = send_stream(mailbox, to, stream(from, to, task), count);
                senders.push(env.spawn("sender", send));
            }
        }
    }
    in_time(env, "sending", async {
        for sender in senders {
            sender.join().await.unwrap();
        }
    })
    .await;
    in_time(env, "delivery", async {
        while received.load(Ordering::Acquire) < total {
            env.sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
    assert_eq!(received.load(Ordering::Acquire), total);
}

#[test]
fn streams_of_several_threads_and_nodes_arrive_in_order_over_many_laps() {
    let runtime = RealRuntime::new(4).unwrap();
    let fabric: Arc<dyn Fabric> = MemFabric::new();
    let net = net(&fabric, 3);
    // About 2,500 laps of each ring.
    runtime.block_on(all_to_all(&runtime.env(), &net, 2, 4000));
}

#[test]
fn streams_arrive_in_order_over_a_slow_and_tearing_fabric() {
    let runtime = RealRuntime::new(2).unwrap();
    let plan = FaultPlan {
        delay: Delay {
            one_in: 10,
            at_least: Duration::from_micros(10),
            at_most: Duration::from_micros(300),
        },
        tear: Tear { one_in: 20, gap: Duration::ZERO },
        ..FaultPlan::none(11)
    };
    let faults = FaultFabric::wrap(MemFabric::new(), plan, runtime.env());
    let fabric: Arc<dyn Fabric> = faults.clone();
    let net = net(&fabric, 2);
    runtime.block_on(all_to_all(&runtime.env(), &net, 2, 1500));
    let report = faults.report();
    assert!(report.delayed > 50 && report.torn > 50, "{report:?}");
}

#[test]
fn a_stalled_sender_is_woken_by_credit() {
    let runtime = RealRuntime::new(2).unwrap();
    let env = runtime.env();
    let fabric: Arc<dyn Fabric> = MemFabric::new();
    let net = net(&fabric, 2);
    let mut sent = 0;
    while net.boxes[0].send(1, &message(1, sent).0, &message(1, sent).1).is_ok() {
        sent += 1;
    }
    // From here on the sender's node only does what its mail task does.
    env.spawn("mail", receive(Arc::clone(&net.boxes[0]), Arc::default())).detach();
    let mut next = 0;
    let drained = async {
        loop {
            let got = net.boxes[1].poll(5, &mut |_, bytes| {
                assert_eq!(check_message(bytes), (1, next));
                next += 1;
            });
            got.unwrap();
            if next == sent {
                break;
            }
            net.boxes[1].wait_mail().await;
        }
    };
    runtime.block_on(in_time(&env, "the flush", drained));
    assert_eq!(net.boxes[1].poll(1, &mut |_, _| panic!("one more than was sent")), Ok(0));
}

#[test]
fn several_pollers_leave_nothing_behind() {
    let runtime = RealRuntime::new(3).unwrap();
    let env = runtime.env();
    let fabric: Arc<dyn Fabric> = MemFabric::new();
    let net = net(&fabric, 2);
    let received = Arc::new(AtomicU64::new(0));
    for budget in [1, 1, 100] {
        let (mailbox, received) = (Arc::clone(&net.boxes[1]), Arc::clone(&received));
        let poller = async move {
            loop {
                let taken = mailbox.poll(budget, &mut |_, _| {}).unwrap();
                received.fetch_add(taken as u64, Ordering::Release);
                mailbox.wait_mail().await;
            }
        };
        env.spawn("poller", poller).detach();
    }
    // Now one message, now two in a row, each batch only after the one before has been taken.
    let ping = async {
        let mut sent = 0;
        for round in 0..6_000 {
            for _ in 0..1 + round % 2 {
                net.boxes[0].send(1, b"ping", &[]).unwrap();
                sent += 1;
            }
            while received.load(Ordering::Acquire) < sent {
                yield_now().await;
            }
        }
    };
    let pinging = env.clone();
    runtime.block_on(in_time(&pinging, "a ping", ping));
}

#[test]
fn mail_left_for_the_budget_ends_the_next_wait_at_once() {
    let fabric: Arc<dyn Fabric> = MemFabric::new();
    let net = net(&fabric, 2);
    for _ in 0..3 {
        net.boxes[0].send(1, b"x", &[]).unwrap();
    }
    assert!(wait_is_over(&net.boxes[1]), "mail before the first poll");
    assert_eq!(net.boxes[1].poll(2, &mut |_, _| {}), Ok(2));
    assert!(wait_is_over(&net.boxes[1]), "one message was left");
    assert_eq!(net.boxes[1].poll(2, &mut |_, _| {}), Ok(1));
    assert!(!wait_is_over(&net.boxes[1]), "nothing was left");
    let during = net.boxes[1].poll(2, &mut |_, _| panic!("nothing was sent"));
    assert_eq!(during, Ok(0));
    net.boxes[0].send(1, b"x", &[]).unwrap();
    net.boxes[1].poll(5, &mut |_, _| net.boxes[0].send(1, b"late", &[]).unwrap_or(())).unwrap();
    assert!(wait_is_over(&net.boxes[1]), "mail came while polling");
}

/// A waker that stands for the worst timing: its wake-up empties the receiver's ring, so that the
/// credit comes right now, and polls the sender once, which finds no further reason to.
struct PollOnWake {
    sender: Arc<Mailbox>,
    receiver: Arc<Mailbox>,
    received: AtomicU64,
}

impl PollOnWake {
    fn receive(&self) {
        let taken = self.receiver.poll(100, &mut |_, _| {}).unwrap();
        self.received.fetch_add(taken as u64, Ordering::Relaxed);
    }
}

impl Wake for PollOnWake {
    fn wake(self: Arc<Self>) {
        self.receive();
        self.sender.poll(1, &mut |_, _| {}).unwrap();
        self.receive();
    }
}

#[test]
fn the_first_message_in_the_outbox_calls_for_a_poll_that_finds_it() {
    let fabric: Arc<dyn Fabric> = MemFabric::new();
    let net = net(&fabric, 2);
    let sender = Arc::clone(&net.boxes[0]);
    sender.poll(1, &mut |_, _| {}).unwrap();
    let poller = Arc::new(PollOnWake {
        sender: Arc::clone(&sender),
        receiver: Arc::clone(&net.boxes[1]),
        received: AtomicU64::new(0),
    });
    let waker = Waker::from(Arc::clone(&poller));
    let mut wait = std::pin::pin!(sender.wait_mail());
    assert!(wait.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    let mut sent = 0;
    while poller.received.load(Ordering::Relaxed) == 0 {
        sender.send(1, &[0; 1000], &[]).unwrap();
        sent += 1;
    }
    assert_eq!(poller.received.load(Ordering::Relaxed), sent);
}

#[test]
fn a_dropped_wait_takes_no_mail_with_it() {
    let fabric: Arc<dyn Fabric> = MemFabric::new();
    let net = net(&fabric, 2);
    net.boxes[1].poll(1, &mut |_, _| {}).unwrap();
    let mut context = Context::from_waker(Waker::noop());
    let mut wait = Box::pin(net.boxes[1].wait_mail());
    assert!(wait.as_mut().poll(&mut context).is_pending());
    net.boxes[0].send(1, b"x", &[]).unwrap();
    drop(wait);
    let again = std::pin::pin!(net.boxes[1].wait_mail());
    assert!(again.poll(&mut context).is_ready());
    assert_eq!(net.boxes[1].poll(9, &mut |_, _| {}), Ok(1));
}

#[test]
fn handlers_may_answer_and_polls_within_them_return_nothing() {
    let fabric: Arc<dyn Fabric> = MemFabric::new();
    let net = net(&fabric, 2);
    net.boxes[0].send(1, b"question", &[]).unwrap();
    net.boxes[1]
        .poll(9, &mut |from, _| {
            net.boxes[1].send(from, b"answer", &[]).unwrap();
            assert_eq!(net.boxes[1].poll(9, &mut |_, _| panic!("drained twice")), Ok(0));
        })
        .unwrap();
    let mut answers = Vec::new();
    net.boxes[0].poll(9, &mut |from, m| answers.push((from, m.to_vec()))).unwrap();
    assert_eq!(answers, [(1, b"answer".to_vec())]);
}

#[test]
fn a_busy_sender_does_not_shut_out_the_others() {
    let fabric: Arc<dyn Fabric> = MemFabric::new();
    let net = net(&fabric, 3);
    for _ in 0..40 {
        net.boxes[0].send(2, b"busy", &[]).unwrap();
    }
    net.boxes[1].send(2, b"quiet", &[]).unwrap();
    let mut from = Vec::new();
    for _ in 0..2 {
        net.boxes[2].poll(10, &mut |sender, _| from.push(sender)).unwrap();
    }
    assert!(from.contains(&1), "{from:?}");
}

#[test]
fn a_message_is_one_chain_of_two_writes_and_credit_is_rare() {
    let meter = Meter::wrap(MemFabric::new());
    let fabric: Arc<dyn Fabric> = meter.clone();
    let net = net(&fabric, 2);
    let (sender, receiver) = (PeerId::compute(0), PeerId::compute(1));
    let before = meter.snapshot(sender);
    net.boxes[0].send(1, &[1; 40], &[]).unwrap();
    let cost = meter.snapshot(sender) - before;
    assert_eq!((cost.chains, cost.reads, cost.atomics), (1, 0, 0));
    // A body of 64 bytes and a header word; only the header word rings.
    assert_eq!((cost.bytes_written, cost.doorbells), (72, 1));
    net.boxes[1].poll(9, &mut |_, _| {}).unwrap();
    for _ in 1..512 * 10 {
        net.boxes[0].send(1, &[1; 40], &[]).unwrap();
        net.boxes[1].poll(9, &mut |_, _| {}).unwrap();
    }
    // Ten laps; found idle each time, so one credit for a little more than a sixteenth of a lap.
    let credits = meter.snapshot(receiver).chains;
    assert!((140..=160).contains(&credits), "{credits} credits");
}

#[test]
fn credit_that_is_due_before_the_way_back_exists_is_returned_later() {
    let fabric: Arc<dyn Fabric> = MemFabric::new();
    let net = unconnected(&fabric, 2);
    let (a, b) = (&net.boxes[0], &net.boxes[1]);
    a.connect(1, &b.descriptor(), &net.endpoints[0]).unwrap();
    let mut sent = 0;
    while a.send(1, &[0; 500], &[]).is_ok() {
        sent += 1;
    }
    let first = b.poll(1000, &mut |_, _| {}).unwrap();
    assert!(first < sent, "the ring and no more");
    assert_eq!(a.poll(9, &mut |_, _| {}), Ok(0));
    assert_eq!(b.poll(1000, &mut |_, _| {}), Ok(0), "no credit could be returned");
    assert!(!wait_is_over(b));
    b.connect(0, &a.descriptor(), &net.endpoints[1]).unwrap();
    assert!(wait_is_over(b), "the mail task has to return the credit");
    let mut got = first;
    for _ in 0..10 {
        got += b.poll(1000, &mut |_, _| {}).unwrap();
        a.poll(9, &mut |_, _| {}).unwrap();
    }
    assert_eq!(got, sent);
}

/// Both ends of a ring begin anew, wherever it was left, with mail in it or without.
#[test]
fn an_index_may_have_another_owner() {
    let fabric: Arc<dyn Fabric> = MemFabric::new();
    let Net { mut endpoints, mut boxes } = unconnected(&fabric, 2);
    let connect = |boxes: &[Arc<Mailbox>], endpoints: &[Arc<dyn selkie_fabric::Endpoint>]| {
        for (from, to) in [(0, 1), (1, 0)] {
            boxes[from].connect(to, &boxes[to].descriptor(), &endpoints[from]).unwrap();
        }
    };
    connect(&boxes, &endpoints);
    for owner in 0..20_u64 {
        // More than there is room for: the credit is looked at.
        let mut sent = 0;
        while boxes[0].send(1, &[4; 40], &[7; 4000]).is_ok() {
            sent += 1;
        }
        while sent > 0 {
            sent -= boxes[1].poll(1000, &mut |_, bytes| assert_eq!(bytes.len(), 4040)).unwrap();
            boxes[0].poll(1, &mut |_, _| panic!("nothing was sent")).unwrap();
        }
        for number in 0..40 + owner * 7 {
            for (from, to) in [(0, 1), (1, 0)] {
                let (header, payload) = message(stream(from, to, 0), number);
                boxes[from].send(to, &header, &payload).unwrap();
                let mut got = None;
                assert_eq!(boxes[to].poll(9, &mut |_, b| got = Some(check_message(b))), Ok(1));
                assert_eq!(got, Some((stream(from, to, 0), number)), "owner {owner}");
            }
        }
        if owner % 2 == 1 {
            // Messages of the peer that are never taken out, and one for it that finds no room.
            while boxes[1].send(0, &[1; 40], &[7; 4000]).is_ok() {}
            boxes[0].send(1, &[2; 40], &[]).unwrap();
        }
        drop((endpoints.pop(), boxes.pop()));
        assert!(boxes[0].is_connected(1));
        boxes[0].renew(1).unwrap();
        assert!(!boxes[0].is_connected(1) && !boxes[0].has_mail_from(1));
        assert_eq!(boxes[0].send(1, &[3], &[]), Err(ChannelError::NotConnected { to: 1 }));
        let next = fabric.join(PeerId::compute(1)).unwrap();
        boxes.push(Arc::new(Mailbox::open(&next, 1, support::config(2)).unwrap()));
        endpoints.push(next);
        connect(&boxes, &endpoints);
    }
    assert_eq!(boxes[0].renew(0), Err(ChannelError::ToSelf { me: 0 }));
    assert!(matches!(boxes[0].renew(9), Err(ChannelError::UnknownPeer { peer: 9, .. })));
}
