//! The six core workloads, and the operations that they are made of.

use std::fmt;
use std::str::FromStr;

use super::distribution::Distribution;
use crate::workload::{Deck, Mix};

/// Most records that a scan asks for; how many is uniform from 1 on.
pub(super) const MAX_SCAN: u32 = 100;

/// An operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Operation {
    /// Reads a record, all of its fields.
    #[default]
    Read,
    /// Writes one field of a record.
    Update,
    /// Inserts a record.
    Insert,
    /// Reads up to 100 records from a key on.
    Scan,
    /// Reads a record and writes one of its fields.
    ReadModifyWrite,
}

impl Mix for Operation {
    const ALL: &'static [Self] =
        &[Self::Read, Self::Update, Self::Insert, Self::Scan, Self::ReadModifyWrite];

    fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Update => "update",
            Self::Insert => "insert",
            Self::Scan => "scan",
            Self::ReadModifyWrite => "read_modify_write",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::Read => "Read",
            Self::Update => "Update",
            Self::Insert => "Insert",
            Self::Scan => "Scan",
            Self::ReadModifyWrite => "ReadModifyWrite",
        }
    }

    /// None: the [workload](Workload::percent) says how many.
    fn percent(self) -> usize {
        0
    }
}

impl Operation {
    /// Records that it reads or writes, on average.
    pub(super) const fn accesses(self) -> u32 {
        match self {
            Self::Read | Self::Update | Self::Insert => 1,
            Self::ReadModifyWrite => 2,
            Self::Scan => MAX_SCAN / 2,
        }
    }
}

/// A core workload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Workload {
    /// Half reads, half updates.
    #[default]
    A,
    /// 95 % reads, 5 % updates.
    B,
    /// Reads.
    C,
    /// 95 % reads of what was inserted last, 5 % inserts.
    D,
    /// 95 % short scans, 5 % inserts.
    E,
    /// Half reads, half read-modify-writes.
    F,
}

impl Workload {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::A, Self::B, Self::C, Self::D, Self::E, Self::F];

    /// As it is written.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::A => "a",
            Self::B => "b",
            Self::C => "c",
            Self::D => "d",
            Self::E => "e",
            Self::F => "f",
        }
    }

    /// How many of a hundred operations are of that kind.
    #[must_use]
    pub const fn percent(self, operation: Operation) -> usize {
        match (self, operation) {
            (Self::A, Operation::Read | Operation::Update) => 50,
            (Self::B, Operation::Read)
            | (Self::D, Operation::Read)
            | (Self::E, Operation::Scan) => 95,
            (Self::B, Operation::Update) | (Self::D | Self::E, Operation::Insert) => 5,
            (Self::C, Operation::Read) => 100,
            (Self::F, Operation::Read | Operation::ReadModifyWrite) => 50,
            _ => 0,
        }
    }

    /// How its workload file distributes the requests.
    #[must_use]
    pub const fn usual_distribution(self) -> Distribution {
        match self {
            Self::D => Distribution::Latest,
            _ => Distribution::Zipfian,
        }
    }

    /// What operations are drawn from.
    pub(super) fn deck(self) -> Deck<Operation> {
        Deck::of(|operation| self.percent(operation))
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// There is no such workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no such workload; there are a, b, c, d, e and f")]
pub struct UnknownWorkload;

impl FromStr for Workload {
    type Err = UnknownWorkload;
    fn from_str(text: &str) -> Result<Self, UnknownWorkload> {
        let found = Self::ALL.into_iter().find(|own| own.name().eq_ignore_ascii_case(text));
        found.ok_or(UnknownWorkload)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Random;

    #[test]
    fn every_hundred_operations_keep_the_mix_of_the_workload() {
        for (workload, shares) in [
            (Workload::A, [50, 50, 0, 0, 0]),
            (Workload::B, [95, 5, 0, 0, 0]),
            (Workload::C, [100, 0, 0, 0, 0]),
            (Workload::D, [95, 0, 5, 0, 0]),
            (Workload::E, [0, 0, 5, 95, 0]),
            (Workload::F, [50, 0, 0, 0, 50]),
        ] {
            let (mut deck, mut random) = (workload.deck(), Random::stream(1, 1));
            for _ in 0..3 {
                let mut drawn = [0; 5];
                (0..100).for_each(|_| drawn[deck.draw(&mut random).index()] += 1);
                assert_eq!(drawn, shares, "{workload}");
            }
        }
    }

    #[test]
    fn workloads_are_named_by_a_letter() {
        for workload in Workload::ALL {
            assert_eq!(workload.name().parse(), Ok(workload));
        }
        assert_eq!("D".parse(), Ok(Workload::D));
        for wrong in ["", "g", "ab"] {
            assert_eq!(wrong.parse::<Workload>(), Err(UnknownWorkload));
        }
    }
}
