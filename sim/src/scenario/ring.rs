//! Messages between mailboxes: see [`super::Scenario::Ring`].

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use selkie_channels::{Mailbox, MailboxConfig};
use selkie_fabric::env::{Env, SplitMix};
use selkie_fabric::sim::{TraceSink, World, WorldConfig};
use selkie_fabric::{Endpoint, PeerId};

use super::case::Case;
use super::outcome::OperationCounts;
use super::outcome::RunOutcome;
use super::random::client_random;
use crate::cluster::RUN_BOUND;
use crate::error::{SimError, ensure};
use crate::plan::Plan;

/// Messages each node sends to each other node: several rings full.
const MESSAGES: u64 = 200;
const MAX_PAYLOAD: u64 = 2048;
/// How long a receiver waits without mail before it gives up.
const PATIENCE: Duration = Duration::from_secs(1);
const BUDGET: usize = 16;

struct Node {
    me: usize,
    peers: usize,
    mailbox: Arc<Mailbox>,
    endpoint: Arc<dyn Endpoint>,
    env: Env,
    seed: u64,
    random: SplitMix,
    /// Nodes that have got all their messages.
    finished: Arc<AtomicUsize>,
}

pub(super) fn run(case: Case, plan: &Plan, log: Option<TraceSink>) -> Result<RunOutcome, SimError> {
    let seed = case.seed;
    let peers = usize::from(case.compute_nodes());
    let Plan { cost, faults, schedule, .. } = plan.clone();
    let world = World::new(WorldConfig { seed, cost, faults, schedule, log });
    let config = MailboxConfig { peers, ring_bytes: 32 << 10, outbox_limit: 1 << 12 };
    let finished = Arc::new(AtomicUsize::new(0));
    let mut nodes = Vec::new();
    for me in 0..peers {
        let endpoint = world.fabric().join(PeerId::compute(me as u16))?;
        let mailbox = Arc::new(Mailbox::open(&endpoint, me, config)?);
        let env = world.env_of(PeerId::compute(me as u16));
        let random = client_random(seed, me);
        let finished = Arc::clone(&finished);
        nodes.push(Arc::new(Node { me, peers, mailbox, endpoint, env, seed, random, finished }));
    }
    for node in &nodes {
        for other in nodes.iter().filter(|other| other.me != node.me) {
            node.mailbox.connect(other.me, &other.mailbox.descriptor(), &node.endpoint)?;
        }
    }
    plan.arrange(&world.controls(), world.now());
    let lost = plan.lost();
    let tally = world.run(RUN_BOUND, async {
        let mut tally = OperationCounts::default();
        let mut running = Vec::new();
        for node in &nodes {
            let result = Arc::new(parking_lot::Mutex::new(None));
            let (told, own) = (Arc::clone(&result), Arc::clone(node));
            let sender = Arc::clone(node);
            let sending = node.env.spawn("sender", async move { sender.send_all().await });
            let receiving = node
                .env
                .spawn("receiver", async move { *told.lock() = Some(own.receive_all().await) });
            running.push((node.me, sending, receiving, result));
        }
        for (me, sending, receiving, result) in running {
            if lost.contains(&PeerId::compute(me as u16)) {
                sending.detach();
                receiving.detach();
                continue;
            }
            for task in [sending, receiving] {
                task.join().await.map_err(|error| SimError::Broken(error.to_string()))?;
            }
            let received = result.lock().take();
            match received {
                Some(Ok(messages)) => tally.operations += messages,
                Some(Err(error @ SimError::Broken(_))) => return Err(error),
                Some(Err(error)) if lost.is_empty() => return Err(error),
                _ => tally.gave_up += 1,
            }
        }
        Ok::<_, SimError>(tally)
    })??;
    let (trace_hash, virtual_time) = (world.trace_hash(), world.now());
    Ok(RunOutcome {
        trace_hash,
        virtual_time,
        operations: tally.operations,
        gave_up: tally.gave_up,
    })
}

impl Node {
    /// What message `number` from `from` to `to` says.
    fn message(&self, from: usize, to: usize, number: u64) -> Vec<u8> {
        let random = SplitMix::of_stream(self.seed ^ number, (from * 64 + to) as u64);
        let bytes = random.below(MAX_PAYLOAD + 1) as usize;
        let words = (0..bytes.div_ceil(8)).flat_map(|_| random.next_u64().to_le_bytes());
        words.take(bytes).collect()
    }

    async fn send_all(&self) {
        for number in 0..MESSAGES {
            for to in (0..self.peers).filter(|to| *to != self.me) {
                let payload = self.message(self.me, to, number);
                // A peer that is lost refuses; the others go on getting theirs.
                let _ = self.mailbox.send(to, &number.to_le_bytes(), &payload);
            }
            if self.random.below(8) == 0 {
                self.env.sleep(Duration::from_nanos(self.random.below(50_000))).await;
            }
        }
    }

    async fn receive_all(&self) -> Result<u64, SimError> {
        let mut next = vec![0; self.peers];
        let total = MESSAGES * (self.peers as u64 - 1);
        let (mut received, mut finished) = (0, false);
        loop {
            let mut wrong = None;
            let polled = self.mailbox.poll(BUDGET, &mut |from, bytes| {
                let Some(expected) = next.get_mut(from) else { return };
                let message = self.message(from, self.me, *expected);
                let whole = bytes.split_first_chunk::<8>();
                let right = whole.is_some_and(|(number, payload)| {
                    u64::from_le_bytes(*number) == *expected && payload == message
                });
                if !right {
                    wrong.get_or_insert((from, *expected));
                }
                *expected += 1;
            });
            ensure(wrong.is_none(), || {
                format!("node {} got something else than message {wrong:?}", self.me)
            })?;
            received += polled? as u64;
            if received == total && !finished {
                finished = true;
                self.finished.fetch_add(1, Ordering::Relaxed);
            }
            // A node that polls no more does not send what its full rings kept back.
            if finished && self.finished.load(Ordering::Relaxed) == self.peers {
                return Ok(received);
            }
            let mail = within(self.mailbox.wait_mail(), self.env.sleep(PATIENCE)).await;
            if !mail && finished {
                return Ok(received);
            }
            if !mail {
                return Err(SimError::Silent { node: self.me, received, total });
            }
        }
    }
}

/// Whether `future` is done before `limit`.
async fn within(future: impl Future<Output = ()>, limit: impl Future<Output = ()>) -> bool {
    let (mut future, mut limit) = (pin!(future), pin!(limit));
    std::future::poll_fn(|context| {
        if future.as_mut().poll(context).is_ready() {
            return Poll::Ready(true);
        }
        limit.as_mut().poll(context).map(|()| false)
    })
    .await
}
