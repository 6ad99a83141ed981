//! A case: a scenario, a seed, and optionally the coding and the protocol.

use selkie_fabric::PeerId;
use selkie_pool::{Coding, MAX_MEMORY_NODES};
use selkie_txn::Protocol;

use super::choices;
use super::name::Scenario;
use super::random::drawn;
use crate::envelope::{Envelope, Keeps};
use crate::plan::Plan;

/// The smallest pages of a scenario, bytes.
const LEAST_GCL_BYTES: usize = 512;

/// Stream of the seed that draws the logs of wide runs.
const LOG_STREAM: u64 = 41;
/// Stream of the seed that draws whether troubles are long in runs without leases.
const LONG_STREAM: u64 = 63;
/// Stream of the seed that draws whether coded pools have memory nodes to spare.
const SPARES_STREAM: u64 = 80;
/// Stream of the random numbers of the choice of snapshots.
const SNAPSHOT_STREAM: u64 = 48;

/// Stream of the seed that draws whether the pool is small, and how often it is.
const POOL_STREAM: u64 = 44;
/// The same where pages are coded.
const CODED_POOL_STREAM: u64 = 79;
const SMALL_POOLS: [bool; 6] = [true, false, false, false, false, false];

/// A case determines a run completely.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Case {
    /// The scenario.
    pub scenario: Scenario,
    /// The seed of all random draws.
    pub seed: u64,
    /// The coding; `None`: the scenario chooses it.
    coding: Option<Coding>,
    /// The protocol of transactions; `None`: the seed chooses it.
    protocol: Option<Protocol>,
    /// The memory nodes; `None`: as many as scenario and seed choose.
    memory_nodes: Option<u16>,
    /// How much may go wrong.
    envelope: Envelope,
}

/// A scenario does not run in such a pool.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("scenario {scenario} does not run with coding {coding}: {allowed}")]
pub struct Refused {
    /// The scenario.
    pub scenario: Scenario,
    /// The coding.
    pub coding: Coding,
    /// What the scenario needs.
    pub allowed: String,
}

/// A scenario has no transactions, or chooses their protocols itself.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("scenario {scenario} does not run with --protocol {protocol}: history and tpcc do")]
pub struct RefusedProtocol {
    /// The scenario.
    pub scenario: Scenario,
    /// The protocol.
    pub protocol: Protocol,
}

impl Case {
    /// The scenario as it usually is, in the wide envelope.
    pub const fn of(scenario: Scenario, seed: u64) -> Self {
        Self {
            scenario,
            seed,
            coding: None,
            protocol: None,
            memory_nodes: None,
            envelope: Envelope::Wide,
        }
    }

    /// The scenario in the gentle envelope.
    pub const fn gentle(scenario: Scenario, seed: u64) -> Self {
        Self::of(scenario, seed).within(Envelope::Gentle)
    }

    /// The same in this envelope.
    #[must_use]
    pub const fn within(self, envelope: Envelope) -> Self {
        Self { envelope, ..self }
    }

    /// How much may go wrong.
    #[must_use]
    pub const fn envelope(self) -> Envelope {
        self.envelope
    }

    /// Whether the nodes are processes of their own, each with a lease: in one half of the runs
    /// with stragglers, too.
    pub(crate) fn has_processes(self) -> bool {
        let has = match self.scenario {
            Scenario::Counter
            | Scenario::Bank
            | Scenario::History
            | Scenario::Tree
            | Scenario::Crash => true,
            Scenario::Straggler => !self.draws_long_troubles(),
            _ => false,
        };
        has && self.envelope == Envelope::Wide
    }

    /// Whether nodes and links fail for any length of time though no node has a lease: in half of
    /// the runs of the other scenarios.
    pub(crate) fn has_long_troubles(self) -> bool {
        let is_wide = self.envelope == Envelope::Wide && !self.has_processes();
        is_wide && self.draws_long_troubles()
    }

    fn draws_long_troubles(self) -> bool {
        *drawn(self.seed, LONG_STREAM, &[true, false])
    }

    /// Bytes of the log of each engine at each memory node, if it keeps one there.
    pub(super) fn log_bytes(self) -> Option<u64> {
        const CHOICES: [Option<u64>; 4] = [None, Some(64 << 10), Some(64 << 10), Some(256 << 10)];
        let may = matches!(self.scenario, Scenario::Bank | Scenario::History | Scenario::Tree);
        if may && self.has_processes() { *drawn(self.seed, LOG_STREAM, &CHOICES) } else { None }
    }

    /// Whether the pool is so small that it may get full.
    pub(super) fn has_small_pool(self) -> bool {
        let stream = if self.coding().is_plain() { POOL_STREAM } else { CODED_POOL_STREAM };
        let is_bank = self.scenario == Scenario::Bank;
        is_bank && self.has_processes() && *drawn(self.seed, stream, &SMALL_POOLS)
    }

    /// What the pool survives.
    pub(crate) fn keeps(self) -> Keeps {
        let has_logs = self.scenario == Scenario::Crash || self.log_bytes().is_some();
        // That knows which pages may be lost.
        let finds_losses = matches!(self.scenario, Scenario::Counter | Scenario::Straggler);
        Keeps { coding: self.coding(), has_logs, finds_losses }
    }

    /// The same in a pool of this coding.
    ///
    /// # Errors
    /// What the scenario does not run in.
    pub fn coded(self, coding: Coding) -> Result<Self, Refused> {
        let scenario = self.scenario;
        let refused =
            |allowed: &str| Err(Refused { scenario, coding, allowed: allowed.to_owned() });
        match scenario {
            Scenario::Ring => return refused("it uses no pool, leave --coding out"),
            Scenario::MemnodeLoss
            | Scenario::TpccLoss
            | Scenario::Corruption
            | Scenario::Straggler
            | Scenario::SlabEviction
                if coding.is_plain() =>
            {
                return refused("it needs redundancy, at least one parity split");
            }
            _ => {}
        }
        if let Err(error) = coding.validate_for(LEAST_GCL_BYTES, MAX_MEMORY_NODES) {
            return refused(&error.to_string());
        }
        Ok(Self { coding: Some(coding), ..self })
    }

    /// The same with this protocol for all transactions.
    ///
    /// # Errors
    /// That the scenario does not take one.
    pub const fn protocolled(self, protocol: Protocol) -> Result<Self, RefusedProtocol> {
        match self.scenario {
            Scenario::History | Scenario::Tpcc => Ok(Self { protocol: Some(protocol), ..self }),
            scenario => Err(RefusedProtocol { scenario, protocol }),
        }
    }

    /// The same with so many memory nodes: for a seed that found something when it drew no other
    /// number. They must be enough for the coding.
    #[must_use]
    pub const fn with_memory_nodes(self, nodes: u16) -> Self {
        Self { memory_nodes: Some(nodes), ..self }
    }

    /// The same from another seed.
    #[must_use]
    pub const fn with_seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// What was asked for, if anything was.
    pub const fn asked_coding(self) -> Option<Coding> {
        self.coding
    }

    /// The protocol that was asked for, if one was.
    pub const fn asked_protocol(self) -> Option<Protocol> {
        self.protocol
    }

    /// The number of memory nodes that was asked for, if one was.
    pub(crate) const fn asked_memory_nodes(self) -> Option<u16> {
        self.memory_nodes
    }

    /// The protocol of all transactions, in scenarios that take a protocol; `None`: some
    /// transactions lock, some are optimistic.
    pub(super) fn protocol(self) -> Option<Protocol> {
        const CHOICES: [Option<Protocol>; 4] =
            [Some(Protocol::TwoPhase), Some(Protocol::Timestamp), Some(Protocol::Optimistic), None];
        self.protocol.or_else(|| match takes_snapshots(self.seed) {
            true => Some(Protocol::Snapshot),
            false => *drawn(self.seed, 12, &CHOICES),
        })
    }

    /// The coding of the pool.
    pub fn coding(self) -> Coding {
        self.coding.unwrap_or_else(|| match choices::usual_coding(self.scenario, self.seed) {
            plain
                if plain.is_plain() && self.has_processes() && self.scenario != Scenario::Crash =>
            {
                choices::wide_coding(self.seed)
            }
            usual => usual,
        })
    }

    /// The faults that every scenario may meet, before its own are added.
    pub(super) fn draw_plan(self) -> Plan {
        Plan::draw(self.seed, self.memory_nodes(), self.compute_nodes())
    }

    /// Nodes that `plan` loses without recovery: clients may meet errors afterwards.
    pub(super) fn lost_beyond(self, plan: &Plan) -> Vec<PeerId> {
        plan.lost_beyond(self.coding())
    }

    /// Compute nodes: two to four, by the seed.
    pub(super) fn compute_nodes(self) -> u16 {
        if self.scenario == Scenario::Crash {
            return choices::CRASH_COMPUTE_NODES;
        }
        2 + (self.seed / 16 % 3) as u16
    }

    /// Memory nodes, before any is lost or joins.
    pub(super) fn memory_nodes(self) -> u16 {
        if let Some(asked) = self.memory_nodes {
            return asked;
        }
        let coding = self.coding();
        let needed = choices::memory_nodes(self.scenario, self.seed, self.coding, coding);
        if !self.has_processes() || self.scenario == Scenario::Straggler {
            return needed;
        }
        // In half of the runs all slabs can be regenerated.
        let spared =
            if *drawn(self.seed, SPARES_STREAM, &[true, false]) { coding.parity() } else { 0 };
        needed.max((coding.splits() + spared) as u16)
    }
}

/// Whether a run that has a choice has a database for snapshots: a third.
pub(super) fn takes_snapshots(seed: u64) -> bool {
    *drawn(seed, SNAPSHOT_STREAM, &[false, false, true])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sweep_over_all_scenarios_has_every_protocol_of_those_that_take_one() {
        for scenario in [Scenario::History, Scenario::Tpcc] {
            let seeds = (0..400).filter(|seed| Scenario::of_seed(*seed) == scenario);
            let mut counts = [0; 5];
            for seed in seeds {
                let protocol = Case::of(scenario, seed).protocol();
                let number = protocol.map_or(4, |protocol| protocol as usize);
                counts[number] += 1;
            }
            assert!(counts.iter().all(|count| *count > 0), "{scenario}: {counts:?}");
            for protocol in Protocol::ALL {
                let asked = Case::of(scenario, 0).protocolled(protocol).unwrap();
                assert_eq!(asked.with_seed(7).protocol(), Some(protocol));
            }
        }
        let refused = Case::of(Scenario::Bank, 0).protocolled(Protocol::TwoPhase).unwrap_err();
        assert!(refused.to_string().contains("scenario bank"), "{refused}");
    }

    #[test]
    fn a_seed_that_draws_memory_nodes_to_spare_can_go_without() {
        let case = Case::of(Scenario::Counter, 5201);
        assert_eq!((case.coding().to_string().as_str(), case.memory_nodes()), ("4+2", 8));
        assert_eq!(case.with_memory_nodes(6).memory_nodes(), 6);
    }
}
