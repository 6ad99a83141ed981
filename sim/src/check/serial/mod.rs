//! Serializability of histories of transactions over registers and lists.
//!
//! A history is serializable if its committed transactions could have run one after the other, and
//! strictly serializable if that order can agree with real time. The checker builds Adya's direct
//! serialization graph (MIT PhD thesis, 1999; Adya, Liskov and O'Neil, ICDE 2000) from what the
//! clients saw (Kingsbury and Alvaro, *Elle*, VLDB 2020), looks for cycles, and reports them in
//! words. Both verdicts are certain: what is refused has an anomaly that contradicts the level, and
//! what is accepted has a serial order, which the checker found.
//!
//! ```text
//! facts ─> registers, lists, real time ─> graph ─> cycle? ─no─> infer ─nothing new─> schedule
//!  G1a, G1b, ...  lost update, order                │    <─new edges─┘                  │
//!                                       G0, G1c, G-single, G2, real time      no serial order
//! ```
//!
//! *Workload.* The values written to an object are unique; the initial state of a register is
//! absent, of a list empty, so a history includes what loaded the data. Registers are never
//! deleted. Reads of transactions that do not count are not judged.
//!
//! *Cost.* For n transactions: n²/8 bytes and, in each round of inference, edges times n/64 steps;
//! rounds are few. Only blind writes of registers can take exponential time, and that is bounded by
//! [`MAX_TRIES`].
//!
//! ```
//! use selkie_sim::check::serial::{AnomalyKind, Level, Op, Status, Transaction, serializable};
//!
//! // Write skew: each read what the other was about to write.
//! let transaction = |process, read, write| Transaction {
//!     process,
//!     invoked: 10,
//!     returned: Some(20),
//!     status: Status::Committed,
//!     ops: vec![Op::Read { key: read, value: None }, Op::Write { key: write, value: 7 }],
//! };
//! let history = [transaction(0, 1, 2), transaction(1, 2, 1)];
//! let anomalies = serializable(&history, Level::Serializable).unwrap_err();
//! assert_eq!(anomalies[0].kind, AnomalyKind::G2);
//! ```

mod anomaly;
mod facts;
mod graph;
mod history;
mod inference;
mod judge;
mod lists;
mod order;
mod registers;
mod schedule;

pub use anomaly::{Anomaly, AnomalyKind};
pub use history::{Level, Op, Status, Transaction};
pub use judge::serializable;
pub use schedule::MAX_TRIES;
