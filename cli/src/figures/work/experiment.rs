//! The experiments by kind, and their results.

use std::sync::Arc;

use selkie_tpcc::micro::{self, Config, Report};
use selkie_tpcc::{Config as TpccConfig, Progress, Report as TpccReport, Silent};

use super::balance::{Balance, Balanced};
use super::cluster::RunError;
use super::data_loss::{DataLoss, LossProbability};
use super::latency::{Latencies, Latency};
use super::memory_use::{FilledPool, MemoryUse};
use super::node_failure::{FailureCourse, NodeFailure};
use super::tpcc::{self, TpccMix, TpccRate};
use crate::figures::figure::Settings;

/// What is run for a point.
pub(in crate::figures) enum Experiment {
    /// A run of the micro-benchmark.
    Micro(Box<Config>),
    /// A run of TPC-C.
    Tpcc(Box<TpccConfig>),
    DataLoss(DataLoss),
    Balance(Balance),
    Latency(Latency),
    TpccMix(TpccMix),
    MemoryUse(MemoryUse),
    NodeFailure(NodeFailure),
}

/// What came of it.
pub(in crate::figures) enum ExperimentResult {
    Micro(Box<Report>),
    Tpcc(Box<TpccReport>),
    DataLoss(LossProbability),
    Balance(Balanced),
    Latency(Latencies),
    TpccMix(TpccRate),
    MemoryUse(FilledPool),
    NodeFailure(FailureCourse),
}

impl Experiment {
    /// Runs it.
    pub(in crate::figures) fn run(
        &self,
        settings: &Settings,
    ) -> Result<ExperimentResult, RunError> {
        let Settings { duration, seed, trials } = *settings;
        Ok(match self {
            Self::Micro(config) => {
                let config = Config { duration, warmup: duration, seed, ..(**config).clone() };
                let silent: Arc<dyn Progress> = Arc::new(Silent);
                ExperimentResult::Micro(Box::new(micro::run(&config, &silent)?))
            }
            Self::Tpcc(config) => {
                ExperimentResult::Tpcc(Box::new(tpcc::run(config, duration, seed)?))
            }
            Self::DataLoss(loss) => ExperimentResult::DataLoss(loss.run(trials, seed)),
            Self::Balance(balance) => ExperimentResult::Balance(balance.run(seed)),
            Self::Latency(latency) => ExperimentResult::Latency(latency.run(duration, seed)?),
            Self::TpccMix(mix) => ExperimentResult::TpccMix(mix.run(duration, seed)?),
            Self::MemoryUse(memory) => ExperimentResult::MemoryUse(memory.run(seed)?),
            Self::NodeFailure(failure) => {
                ExperimentResult::NodeFailure(failure.run(duration, seed)?)
            }
        })
    }
}
