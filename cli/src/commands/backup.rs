//! `selkie backup`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};

use clap::Args;
use comfy_table::{Table, presets};
use selkie::engine::Engine;
use selkie::engine::backup::BackupReport;
use selkie::engine::log::LogObjects;
use selkie::fabric::Env;
use selkie::pool::Pool;
use selkie::shared::Place;
use selkie_tpcc::{Progress, units};
use serde_json::json;

use crate::options::member::{Logs, MemberArguments};
use crate::support::exit;
use crate::support::progress::Stderr;
use crate::support::signals::Interrupt;

/// Writes a snapshot of a shared pool to an object store, while its nodes keep working. The
/// command joins the pool as one more compute node. `selkie restore` puts the backup into a new
/// pool.
///
/// Other compute nodes of the pool need logs, from which the backup reads changes: drivers with
/// `--durability memory`, or with `--durability disk` and the directory that is given here.
///
/// Exit code 0: the backup is complete; 1: it failed, and what was written can be deleted; 2: the
/// arguments are wrong, and nothing was started.
#[derive(Args)]
pub(crate) struct Arguments {
    /// `NAME` on this host, `tcp:HOST:PORT,...` by its memory nodes, or `etcd:HOST:PORT,.../NAME`
    #[arg(value_name = "POOL")]
    name: Place,
    /// Destination: a directory, or the URL of an object store: `file:///backups/monday`, and with
    /// the feature `cloud` `s3://BUCKET/MONDAY`, `gs://`, `az://` or `https://`. It must be empty
    #[arg(long, value_name = "URL")]
    to: String,
    /// Directory or URL of the logs, if the nodes of the pool run with `--durability disk`
    #[arg(long, value_name = "DIR")]
    log_dir: Option<PathBuf>,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    member: MemberArguments,
}

/// Looks for values out of range.
pub(crate) fn check(arguments: &Arguments) -> Result<(), exit::Refusal> {
    LogObjects::check(&arguments.to)
        .map_err(|error| exit::Refusal { key: "to".to_owned(), what: format!("to: {error}") })?;
    arguments.member.check()
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    if let Err(refusal) = check(arguments) {
        return exit::refuse(&refusal);
    }
    let interrupt = match Interrupt::mind() {
        Ok(interrupt) => interrupt,
        Err(error) => return exit::fail(&error),
    };
    let progress = Stderr::new();
    let told = Mutex::new(0);
    let watch = |done: u64, total: u64| {
        let mut told = told.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if *told == 0 {
            progress.begin("backup", total);
        }
        progress.advance(done - *told);
        *told = done;
    };
    let logs = Logs::AsOthers(arguments.log_dir.as_ref());
    let work = async |_: &Env, _: &Arc<Pool>, engine: &Engine| {
        let to = LogObjects::at(&arguments.to, 0)?;
        Ok((engine.backup(&to, &watch).await?, to.name()))
    };
    let before = async |_: &Pool| Ok(());
    let done = arguments.member.take_part(&interrupt, &arguments.name, logs, before, work);
    progress.end();
    match done {
        Ok((report, to)) => exit::print(&told_as(arguments, &report, &to), true),
        Err(error) => error.fail(),
    }
}

/// The report as it was asked for.
fn told_as(arguments: &Arguments, report: &BackupReport, to: &str) -> String {
    let BackupReport { pages, image_bytes, logs, log_bytes, took } = *report;
    let seconds = took.as_secs_f64();
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let rate = mib(image_bytes + log_bytes) / seconds.max(1e-9);
    if arguments.json {
        let object = json!({
            "pool": arguments.name.to_string(), "to": to, "pages": pages, "image_mib": mib(image_bytes),
            "logs": logs, "log_mib": mib(log_bytes), "seconds": seconds, "mib_per_second": rate,
        });
        return format!("{object}\n");
    }
    let mut table = Table::new();
    table
        .load_preset(presets::UTF8_FULL_CONDENSED)
        .set_header(["pages", "in them", "logs", "in them", "seconds", "MiB/s"])
        .add_row([
            units::count(pages),
            units::bytes(image_bytes),
            units::count(logs as u64),
            units::bytes(log_bytes),
            units::figure(seconds),
            units::figure(rate),
        ]);
    format!("backup of pool {} at {to}\n{table}\n", arguments.name)
}
