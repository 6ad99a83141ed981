//! `selkie ycsb`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use selkie::txn::Protocol;
use selkie_tpcc::benchmark::Report;
use selkie_tpcc::ycsb::{Config, Distribution, LoadMethod, Via, Workload};
use selkie_tpcc::{MAX_DURATION, MAX_VIRTUAL_DURATION, Network, Setup, TpccError};

use super::benchmark::{self, BenchmarkOptions};
use super::micro::CoherenceArgument;
use super::via::in_process;
use crate::figures::plot::draw;
use crate::figures::table::{Plot, PlotLine};
use crate::support::exit;

/// The core workloads of YCSB, in a pool of this process. Workers on every compute node work on the
/// same records, without pauses: a 50 % reads and 50 % updates; b 95 % reads and 5 % updates; c
/// reads; d 95 % reads, of the latest records, and 5 % inserts; e 95 % scans of 1 to 100 records
/// and 5 % inserts; f 50 % reads and 50 % read-modify-writes.
///
/// A record has ten fields, which are checked whenever it is read. After the run all records are
/// read. Every record that was loaded or inserted is there, each field is a whole value of that
/// record, and the version of a record, 8 bytes beside its fields, is the number of its committed
/// updates.
///
/// SIGINT, SIGTERM or SIGHUP ends the mix early; the result is then checked. A second signal ends
/// the process.
///
/// Exit code 0: the run ended and every rule holds; 1: it failed, or a rule does not hold; 2: wrong
/// arguments, nothing was started.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Core workload: a, b, c, d, e or f
    #[arg(long, value_name = "LETTER", default_value_t = Config::default().workload)]
    workload: Workload,
    /// Records that are loaded, 1 to 1000000000; each takes 4 bytes of this process for the check
    #[arg(long, value_name = "N", default_value_t = Config::default().records)]
    records: u32,
    /// Run so many operations, 1 to 1000000000000, in place of a time
    #[arg(long, value_name = "N", conflicts_with = "duration")]
    operations: Option<u64>,
    /// Bytes of the ten fields of a record together, from 80 to what a page takes: 1933 of a cache
    /// line of 2048 bytes
    #[arg(long, value_name = "N", default_value_t = Config::default().value_bytes)]
    value_bytes: usize,
    /// Which records requests go to: `uniform`; `zipfian`, few of them mostly, scattered as in YCSB
    /// 0.17; or `latest`, those inserted last mostly [default: latest for workload d, else zipfian]
    #[arg(long, value_name = "KIND")]
    distribution: Option<Distribution>,
    /// Exponent of zipfian and latest, above 0 and below 1 [default: that of YCSB, 0.99]
    #[arg(long, value_name = "F", allow_negative_numbers = true)]
    zipf: Option<f64>,
    /// How records are loaded
    #[arg(long, value_enum, default_value = "bulk")]
    load: LoadArgument,
    /// What operations are done with; SQL takes --protocol snapshot
    #[arg(long, value_enum, default_value = "table")]
    via: ViaArgument,
    /// Protocol of the pool
    #[arg(long, value_enum, default_value = "selcc")]
    coherence: CoherenceArgument,
    /// Draw the latency of each kind of operation over the percentiles, as SVG
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    #[command(flatten)]
    options: BenchmarkOptions,
}

#[derive(Clone, Copy, ValueEnum)]
enum LoadArgument {
    /// In the order of the keys, bottom-up, by one compute node
    Bulk,
    /// Inserted in an order that is not that of the keys, by all compute nodes
    Rows,
}

#[derive(Clone, Copy, ValueEnum)]
enum ViaArgument {
    /// The B-link tree alone, without transactions
    Tree,
    /// A transaction on a table
    Table,
    /// SQL in sessions of the process
    Sql,
}

impl Arguments {
    fn config(&self) -> Result<Config, TpccError> {
        let setup = self.options.setup()?;
        let coherence = self.coherence.coherence();
        let coding = self.options.coding;
        let coding = coding.unwrap_or(Config::usual_coding(coherence, setup.memory_nodes));
        let (via, protocol) = match self.via {
            ViaArgument::Tree => (Via::Tree, setup.protocol),
            ViaArgument::Table => (Via::Table, setup.protocol),
            ViaArgument::Sql => (Via::Sql(in_process()), Protocol::Snapshot),
        };
        let duration = match (self.operations, &setup.network) {
            (None, _) => setup.duration,
            (Some(_), Network::Real { .. }) => MAX_DURATION,
            (Some(_), Network::Simulated(_)) => MAX_VIRTUAL_DURATION,
        };
        Ok(Config {
            workload: self.workload,
            records: self.records,
            value_bytes: self.value_bytes,
            distribution: self.distribution,
            zipf: self.zipf,
            load: match self.load {
                LoadArgument::Bulk => LoadMethod::Bulk,
                LoadArgument::Rows => LoadMethod::Rows,
            },
            via,
            setup: Setup {
                duration,
                transactions: self.operations,
                coherence,
                coding,
                protocol: self.options.protocol.unwrap_or(protocol),
                ..setup
            },
        })
    }
}

/// Looks for values out of range.
pub(crate) fn check(arguments: &Arguments) -> Result<(), exit::Refusal> {
    check_svg(arguments.svg.as_deref()).map_err(exit::refusal)?;
    benchmark::check(arguments.config(), &arguments.options)
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let config = check_svg(arguments.svg.as_deref()).and_then(|()| arguments.config());
    benchmark::run_and(
        config,
        &arguments.options,
        selkie_tpcc::ycsb::run,
        |report| match &arguments.svg {
            Some(path) => draw_latency(path, report),
            None => Ok(()),
        },
    )
}

/// Refuses a file of which it is known beforehand that it cannot be written.
fn check_svg(path: Option<&Path>) -> Result<(), TpccError> {
    let Some(path) = path else { return Ok(()) };
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    if path.is_dir() || parent.is_some_and(|parent| !parent.is_dir()) {
        let allowed = "must be a file in a directory that is there".to_owned();
        return Err(TpccError::Config { key: "svg", value: path.display().to_string(), allowed });
    }
    Ok(())
}

/// Draws how many microseconds the operations took, over the share of them that took no longer.
fn draw_latency(path: &Path, report: &Report<Config>) -> Result<(), String> {
    let config = &report.config;
    let kinds = report.interval.measurements.iter();
    let lines: Vec<_> = kinds
        .map(|(kind, stats)| PlotLine {
            name: selkie_tpcc::Mix::title(kind).to_owned(),
            points: stats.latency_over_nines(),
        })
        .filter(|line| !line.points.is_empty())
        .collect();
    let points = lines.iter().flat_map(|line| line.points.iter());
    let nines = points.map(|(nines, _)| nines.ceil() as usize).max().unwrap_or(0).max(1);
    let title = format!(
        "YCSB {}, {} records of {} bytes, {}, via {}",
        config.workload,
        selkie_tpcc::units::count(config.records.into()),
        config.value_bytes,
        config.distribution(),
        config.via.name()
    );
    let labels = (0..=nines).map(percent_of_nines).collect();
    let plot = Plot { y_label: "latency, microseconds", lines, labels };
    draw(path, &title, "operations that took no longer", &plot)
        .map_err(|error| format!("{}: {error}", path.display()))
}

/// `99.9 %` for three.
fn percent_of_nines(nines: usize) -> String {
    match nines {
        0 => "0 %".to_owned(),
        1 => "90 %".to_owned(),
        2 => "99 %".to_owned(),
        more => format!("99.{} %", "9".repeat(more - 2)),
    }
}

#[cfg(test)]
mod tests {
    use super::percent_of_nines;

    #[test]
    fn nines_are_percentages() {
        let named: Vec<_> = (0..6).map(percent_of_nines).collect();
        assert_eq!(named, ["0 %", "90 %", "99 %", "99.9 %", "99.99 %", "99.999 %"]);
    }
}
