//! What operations cost in virtual time: a small model of adapters, wires and processors.
//!
//! ```text
//! post --post--> [source adapter: verbs, payload] --one_way--> [target adapter: verbs, payload,
//!     atomics one after another] --> [target adapter: reply payload] --one_way--> [source adapter]
//! ```
//! Each adapter is three queues that serve in order of arrival: one for what it sends, one for what
//! it receives, one for atomics. A queue that is busy makes those behind it wait, which is what
//! bounds throughput; the wire adds latency only. Processors are not modelled but for the work of
//! posting, and of the threads that poll a node's mailbox: a message is not in place before the one
//! that polls for its sender has had the time to take it in.

use std::time::Duration;

/// Cost of operations. Times are of one adapter or one direction.
#[derive(Clone, Debug, PartialEq)]
pub struct CostModel {
    /// The preset's name.
    pub name: &'static str,
    /// From one adapter to another, in one direction.
    pub one_way: Duration,
    /// Processor time until a posted chain has reached the adapter.
    pub post: Duration,
    /// Adapter time a verb: the inverse of its message rate.
    pub verb: Duration,
    /// Target adapter's time an atomic: the inverse of its atomic rate.
    pub atomic: Duration,
    /// Bandwidth of a port in each direction, bytes a second.
    pub bytes_per_second: u64,
    /// Processor time of a compute node to take in one message.
    pub message: Duration,
    /// Threads of a compute node that take messages in, each from its share of the senders.
    pub mail_threads: u32,
    /// Processor time of a compute node's worker for one access to a cached page: drawing it,
    /// looking it up, latching, reading or writing some words.
    pub access: Duration,
    /// Processor time of one core of a memory node to serve one remote procedure call.
    pub rpc: Duration,
    /// How long a node that does not answer is tried before its peer has an error.
    pub unreachable_after: Duration,
    /// How long it takes until a peer has an error that accesses a node whose process has ended.
    pub dead_after: Duration,
}

impl CostModel {
    /// A 56 Gb/s adapter of 2013 (ConnectX-3), as in the evaluation of SELCC: round trip of about
    /// 2 us, 35 million verbs and 2.7 million atomics a second.
    pub const PAPER: CostModel = CostModel {
        name: "paper",
        one_way: Duration::from_nanos(850),
        post: Duration::from_nanos(150),
        verb: Duration::from_nanos(29),
        atomic: Duration::from_nanos(370),
        bytes_per_second: 6_800_000_000,
        message: Duration::from_nanos(300),
        mail_threads: 1,
        access: Duration::from_nanos(500),
        rpc: Duration::from_nanos(1_000),
        unreachable_after: Duration::from_millis(1),
        dead_after: Duration::from_millis(1),
    };

    /// A 200 Gb/s adapter: round trip of about 1.6 us, 200 million verbs and 50 million atomics a
    /// second.
    pub const MODERN: CostModel = CostModel {
        name: "modern",
        one_way: Duration::from_nanos(700),
        post: Duration::from_nanos(80),
        verb: Duration::from_nanos(5),
        atomic: Duration::from_nanos(20),
        bytes_per_second: 24_000_000_000,
        message: Duration::from_nanos(200),
        mail_threads: 1,
        access: Duration::from_nanos(300),
        rpc: Duration::from_nanos(700),
        unreachable_after: Duration::from_millis(1),
        dead_after: Duration::from_millis(1),
    };

    /// Memory behind a CXL switch, reached by loads, stores and atomics of the processor.
    pub const CXL: CostModel = CostModel {
        name: "cxl",
        one_way: Duration::from_nanos(150),
        post: Duration::from_nanos(10),
        verb: Duration::from_nanos(2),
        atomic: Duration::from_nanos(10),
        bytes_per_second: 28_000_000_000,
        message: Duration::from_nanos(150),
        mail_threads: 1,
        access: Duration::from_nanos(300),
        rpc: Duration::from_nanos(700),
        unreachable_after: Duration::from_millis(1),
        dead_after: Duration::from_millis(1),
    };

    /// Soft one-sided verbs over TCP in a datacenter of 100 Gb/s: round trip of about 30 us, an
    /// agent on the memory node that executes them at 3 million a second.
    pub const TCP: CostModel = CostModel {
        name: "tcp",
        one_way: Duration::from_nanos(13_000),
        post: Duration::from_nanos(1_500),
        verb: Duration::from_nanos(300),
        atomic: Duration::from_nanos(300),
        bytes_per_second: 11_000_000_000,
        message: Duration::from_nanos(1_000),
        mail_threads: 1,
        access: Duration::from_nanos(300),
        rpc: Duration::from_nanos(2_000),
        unreachable_after: Duration::from_millis(20),
        dead_after: Duration::from_millis(20),
    };

    /// All presets.
    pub const PRESETS: [CostModel; 4] = [Self::PAPER, Self::MODERN, Self::CXL, Self::TCP];

    /// The preset of that name.
    pub fn preset(name: &str) -> Option<CostModel> {
        Self::PRESETS.into_iter().find(|preset| preset.name == name)
    }

    /// Time a port takes for `bytes` bytes, nanoseconds.
    pub(super) fn payload(&self, bytes: u64) -> u64 {
        let nanoseconds = u128::from(bytes) * 1_000_000_000 / u128::from(self.bytes_per_second);
        u64::try_from(nanoseconds).unwrap_or(u64::MAX)
    }
}

/// A duration as the simulator counts it; more than 584 years are not distinguished.
pub(super) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// What goes wrong by chance on every link. Frequencies are "one in n"; 0 means never.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// One in so many chains takes longer on its way, so that chains of different queue pairs
    /// overtake each other.
    pub reorder_one_in: u32,
    /// By how much at most.
    pub reorder_by: Duration,
    /// One in so many payloads above 8 bytes lands, or is read, in two parts.
    pub tear_one_in: u32,
    /// Time between the parts at most.
    pub tear_by: Duration,
    /// One in so many writes is completed before it is in place.
    pub late_one_in: u32,
    /// How much later it is in place at most.
    pub late_by: Duration,
    /// One in so many reads above 8 bytes has a bit flipped.
    pub corrupt_one_in: u32,
    /// A bug of the links, to show that it is found: what waits for a link that is away is
    /// completed when the link is back, and not executed.
    pub forgets_what_waits: bool,
}
