//! Where a driver's pool is, and with it which time is measured.

use std::fmt;
use std::time::Duration;

use selkie_fabric::sim::CostModel;

/// Where the pool's network is.
#[derive(Clone, Debug, PartialEq)]
pub enum Network {
    /// In this process, in real time, on so many threads.
    Real {
        /// Threads of the process.
        threads: usize,
    },
    /// Simulated, in virtual time, on one thread.
    Simulated(CostModel),
}

impl Network {
    /// In this process, with a thread for each core if no number is given.
    #[must_use]
    pub fn in_process(threads: Option<usize>) -> Self {
        let cores = || std::thread::available_parallelism().map_or(2, |cores| cores.get());
        Self::Real { threads: threads.unwrap_or_else(cores) }
    }

    /// Threads of the process, where their number matters.
    #[must_use]
    pub fn threads(&self) -> Option<usize> {
        match self {
            Self::Real { threads } => Some(*threads),
            Self::Simulated(_) => None,
        }
    }

    /// Its name in JSON reports: `embedded`, or that of the preset.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Real { .. } => "embedded",
            Self::Simulated(cost) => cost.name,
        }
    }

    /// What seconds are called in reports.
    pub(crate) fn seconds(&self) -> &'static str {
        match self {
            Self::Real { .. } => "s",
            Self::Simulated(_) => "s of virtual time",
        }
    }

    /// Processor time of a message that a memory node serves; real time passes by itself.
    pub(crate) fn message_time(&self) -> Duration {
        match self {
            Self::Real { .. } => Duration::ZERO,
            Self::Simulated(cost) => cost.rpc,
        }
    }

    /// Processor time of an access; real time passes by itself.
    pub(crate) fn access_time(&self) -> Duration {
        match self {
            Self::Real { .. } => Duration::ZERO,
            Self::Simulated(cost) => cost.access,
        }
    }
}

impl Default for Network {
    /// In this process, with a thread for each core.
    fn default() -> Self {
        Self::in_process(None)
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Real { threads } => write!(f, "in this process, {threads} threads, real time"),
            Self::Simulated(cost) => write!(f, "simulated, preset {}, virtual time", cost.name),
        }
    }
}
