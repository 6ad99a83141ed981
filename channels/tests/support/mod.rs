//! A few connected mailboxes, messages whose content can be checked, and a bound on waiting.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "helpers of tests, which clippy does not take for tests"
)]

use selkie_channels::{MAX_MESSAGE_BYTES, Mailbox, MailboxConfig, MailboxDescriptor};
use selkie_fabric::{Endpoint, Env, Fabric, PeerId};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

/// Generous: only a lost wake-up or a stalled ring takes this long.
pub(crate) const TOO_LONG: Duration = Duration::from_secs(60);

pub(crate) struct Net {
    pub(crate) endpoints: Vec<Arc<dyn Endpoint>>,
    pub(crate) boxes: Vec<Arc<Mailbox>>,
}

pub(crate) fn config(peers: usize) -> MailboxConfig {
    MailboxConfig { peers, ring_bytes: 32 << 10, outbox_limit: 50 }
}

/// `nodes` mailboxes, each connected to all others.
pub(crate) fn net(fabric: &Arc<dyn Fabric>, nodes: usize) -> Net {
    let net = unconnected(fabric, nodes);
    for (from, mailbox) in net.boxes.iter().enumerate() {
        for to in (0..nodes).filter(|to| *to != from) {
            mailbox.connect(to, &net.boxes[to].descriptor(), &net.endpoints[from]).unwrap();
        }
    }
    net
}

pub(crate) fn unconnected(fabric: &Arc<dyn Fabric>, nodes: usize) -> Net {
    let join = |node| fabric.join(PeerId::compute(node as u16)).unwrap();
    let endpoints: Vec<_> = (0..nodes).map(join).collect();
    let open = |me| Arc::new(Mailbox::open(&endpoints[me], me, config(nodes)).unwrap());
    let boxes = (0..nodes).map(open).collect();
    Net { endpoints, boxes }
}

/// Where the header word of the first record of `sender` lies in a mailbox region.
#[allow(dead_code, reason = "not every test file damages rings")]
pub(crate) fn ring_at(mailbox: &MailboxDescriptor, sender: u64) -> u64 {
    512 + sender * mailbox.ring_bytes
}

/// The output of `future`; panics if it takes too long.
#[allow(dead_code, reason = "not every test file waits in real time")]
pub(crate) async fn in_time<T>(env: &Env, what: &str, future: impl Future<Output = T>) -> T {
    let (mut future, mut limit) = (pin!(future), env.sleep(TOO_LONG));
    poll_fn(move |context| match future.as_mut().poll(context) {
        Poll::Ready(value) => Poll::Ready(value),
        Poll::Pending if limit.as_mut().poll(context).is_ready() => panic!("{what} is stuck"),
        Poll::Pending => Poll::Pending,
    })
    .await
}

fn mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(0x1234_5678);
    z = (z ^ z >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z ^ z >> 27
}

/// Header and payload of message `number` of stream `stream`: all of it follows from the two.
pub(crate) fn message(stream: u64, number: u64) -> (Vec<u8>, Vec<u8>) {
    let seed = mix(stream << 40 | number);
    // Mostly short, with every size up to the limit.
    let limit = if seed.is_multiple_of(4) { MAX_MESSAGE_BYTES - 16 } else { 300 };
    let length = (seed >> 8) as usize % (limit + 1);
    let mut header = stream.to_le_bytes().to_vec();
    header.extend(number.to_le_bytes());
    let words = (0..length.div_ceil(8) as u64).flat_map(|i| mix(seed ^ i).to_le_bytes());
    (header, words.take(length).collect())
}

/// Stream and number of a received message, whose content is checked.
pub(crate) fn check_message(bytes: &[u8]) -> (u64, u64) {
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let (stream, number) = (word(0), word(8));
    let (header, payload) = message(stream, number);
    assert!(bytes == [header, payload].concat(), "message {number} of {stream} is damaged");
    (stream, number)
}
