//! Scenarios: what clients do on a simulated cluster, and what must hold whatever goes wrong.
//!
//! ```text
//! name, case         the scenarios; one of them with a seed
//! choices, faults    what the seed chooses of the pool; what goes wrong
//! run                running a case, and its summary
//! start, clients     the cluster of a run; its clients, and waiting for them
//! outcome            what came of a run
//! lost_nodes         the nodes that a run loses
//! deaths             how nodes die, and what must be over afterwards
//! excuses            what a plan excuses, and what nothing does
//! bulk               a large transaction beside a bank
//! pages, page_*      a load that several scenarios share: pages with counts
//! bank, accounts,    another: accounts, and clients that transfer between them
//! teller
//! ```
//! The other modules are a scenario each.

mod accounts;
mod bank;
mod bulk;
mod case;
mod choices;
mod clients;
mod corruption;
mod counter;
mod crash;
mod deaths;
mod excuses;
mod faults;
mod history;
mod lost_nodes;
mod memnode_loss;
mod name;
mod outcome;
mod page_bytes;
mod page_client;
mod page_record;
mod pages;
mod random;
mod ring;
mod run;
mod slab_eviction;
mod start;
mod straggler;
mod teller;
mod tpcc;
mod tree;

pub use case::{Case, Refused, RefusedProtocol};
pub use history::{RecordedHistory, history};
pub use name::{Scenario, UnknownScenario};
pub use run::{Summary, run, run_with};
pub use start::Tune;
