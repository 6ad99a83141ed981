//! `selkie restore`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use selkie::engine::Engine;
use selkie::engine::backup::Backup;
use selkie::engine::log::LogObjects;
use selkie::fabric::{Env, RealRuntime};
use selkie::pool::Pool;
use selkie::shared::Place;
use selkie_tpcc::units;
use serde_json::json;

use crate::options::member::{Logs, MemberArguments, MemberError, check_room, set_labels};
use crate::support::activity::Activity;
use crate::support::exit;
use crate::support::signals::Interrupt;

/// Puts a backup into a shared pool that no compute node has used yet. The pool must have pages of
/// the same size; its coding and its memory nodes may differ. The backup is read and checked before
/// the pool is changed.
///
/// Exit code 0: the pool holds the backup; 1: it does not, and is of no use if anything was
/// written; 2: the arguments are wrong, and nothing was started.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Where the backup is: the directory or URL that it was written to
    #[arg(long, value_name = "URL")]
    from: String,
    /// The new pool: `NAME` on this host, `tcp:HOST:PORT,...` by its memory nodes, or
    /// `etcd:HOST:PORT,.../NAME`
    #[arg(long, value_name = "POOL")]
    into: Place,
    /// Directory or URL of the logs of the new pool, if its nodes will run with `--durability
    /// disk`: the pages are logged there as well
    #[arg(long, value_name = "DIR")]
    log_dir: Option<PathBuf>,
    /// Print one JSON object instead of a line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    member: MemberArguments,
}

/// What was restored.
struct Restored {
    pages: usize,
    bytes: u64,
    seconds: f64,
}

/// Looks for values out of range.
pub(crate) fn check(arguments: &Arguments) -> Result<(), exit::Refusal> {
    LogObjects::check(&arguments.from).map_err(|error| exit::Refusal {
        key: "from".to_owned(),
        what: format!("from: {error}"),
    })?;
    arguments.member.check()
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    if let Err(refusal) = check(arguments) {
        return exit::refuse(&refusal);
    }
    let done = restore(arguments);
    let Restored { pages, bytes, seconds } = match done {
        Ok(restored) => restored,
        Err(error) => return error.fail(),
    };
    let pool = &arguments.into;
    let text = if arguments.json {
        let mib = bytes as f64 / f64::from(1 << 20);
        let object = json!({
            "pool": pool.to_string(), "pages": pages, "mib": mib, "seconds": seconds,
        });
        format!("{object}\n")
    } else {
        let (pages, bytes) = (units::plural(pages as u64, "page"), units::bytes(bytes));
        format!("pool {pool} has {pages}, {bytes}, of the backup after {seconds:.1} s\n")
    };
    exit::print(&text, true)
}

fn restore(arguments: &Arguments) -> Result<Restored, MemberError> {
    let interrupt = Interrupt::mind()?;
    let from = LogObjects::at(&arguments.from, 0)?;
    let runtime = RealRuntime::new(1)?;
    let shown = Activity::begin(&format!("reading the backup at {}", arguments.from))?;
    let mut backup = runtime.block_on(interrupt.or_end(&runtime.env(), Backup::open(&from)))??;
    backup.retain(|page| !selkie::txn::is_unlinked(page));
    let logs = Logs::In(arguments.log_dir.as_ref());
    let before = async |pool: &Pool| {
        // Before the pool is changed, as it would be of no use afterwards.
        backup.check(pool.descriptor().gcl_bytes)?;
        check_room(&arguments.into, pool, logs, backup.lines())?;
        Ok(pool.count_on(backup.incarnations()).await?)
    };
    let work = async |env: &Env, pool: &Arc<Pool>, engine: &Engine| {
        let started = env.now();
        backup.restore(engine, selkie::txn::written_at).await?;
        // Only when the pages are there.
        set_labels(pool, backup.labels()).await?;
        Ok((env.now() - started).as_secs_f64())
    };
    let count = units::plural(backup.lines().len() as u64, "page");
    shown.turn_to(&format!("putting {count} into {}", arguments.into));
    let seconds = arguments.member.take_part(&interrupt, &arguments.into, logs, before, work)?;
    let pages = backup.lines().len();
    let bytes = (pages * backup.line_bytes()) as u64;
    Ok(Restored { pages, bytes, seconds })
}
