//! `selkie recover`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use comfy_table::{Table, presets};
use selkie::engine::log::{
    Joined, LogError, LogFiles, LogObjects, LogOwner, LogStore, MergeError, MergedLog, NoRecord,
    Pages, merge,
};
use selkie::engine::{Engine, GAddr};
use selkie::fabric::{Env, RealRuntime};
use selkie::pool::Pool;
use selkie::shared::Place;
use selkie_tpcc::units;
use serde_json::json;

use super::pool_names;
use crate::options::member::{self, Logs, MemberArguments};
use crate::support::activity::Activity;
use crate::support::exit;
use crate::support::signals::Interrupt;
use crate::support::stderr::complain;
use exit::Refusal;

/// Rebuilds the pages of a pool whose memory is lost from the logs of its compute nodes, and writes
/// them into another pool.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Directory of logs, or URL of an object store, as given to `--durability disk`. Give it more
    /// than once if the nodes had different ones: all logs of the pool are needed
    #[arg(long, value_name = "DIR", required = true)]
    log_dir: Vec<PathBuf>,
    /// The pool that was lost, as `pool status` shows it, if there are logs of several
    #[arg(long, value_name = "ID", value_parser = pool_id)]
    pool_id: Option<u64>,
    /// Only say which pages the logs make, and what is wrong with the logs
    #[arg(long, conflicts_with = "into")]
    dry_run: bool,
    /// Leave out the changes of damaged or missing logs, and all changes that depend on them
    #[arg(long)]
    accept_loss: bool,
    /// The pool to put the pages into, which no compute node has used: `NAME` on this host,
    /// `tcp:HOST:PORT,...` by its memory nodes, or `etcd:HOST:PORT,.../NAME`. Its logs begin in the
    /// first --log-dir
    #[arg(long, value_name = "POOL")]
    into: Option<Place>,
    /// Print one JSON object on stdout instead of tables
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    member: MemberArguments,
}

fn pool_id(text: &str) -> Result<u64, String> {
    u64::from_str_radix(text.trim_start_matches("0x"), 16).map_err(|_| {
        "a pool's name for itself is a number of up to 16 hexadecimal digits".to_owned()
    })
}

/// Looks for values out of range.
pub(crate) fn check(arguments: &Arguments) -> Result<(), Refusal> {
    if arguments.into.is_none() && !arguments.dry_run {
        return Err(Refusal::new("into", "", "is needed, or --dry-run"));
    }
    arguments.member.check()
}

/// Why a recovery failed.
#[derive(Debug, thiserror::Error)]
enum RecoverError {
    #[error(transparent)]
    Merge(#[from] MergeError),
    #[error(transparent)]
    Read(#[from] selkie::engine::log::ReadError),
    #[error(transparent)]
    Log(#[from] LogError),
    #[error(transparent)]
    Member(#[from] member::MemberError),
    #[error(transparent)]
    Start(#[from] std::io::Error),
    #[error("{}: no such directory", .0.display())]
    NoDirectory(PathBuf),
    #[error("{place}: no logs are here")]
    NoLogs { place: String },
    #[error("pool-id {id:016x}: {place} has logs of {pools}")]
    OtherPools { id: u64, place: String, pools: String },
    #[error("{place} has logs of several pools: give --pool-id, one of {pools}")]
    SeveralPools { place: String, pools: String },
    #[error("logs of one pool with lines of {first} and {other} bytes: they are damaged")]
    LineBytes { first: usize, other: u32 },
}

/// The pages that the logs of a pool make.
struct RecoveredPages {
    /// The pool that was lost, for people.
    pool: String,
    owners: Vec<LogOwner>,
    /// The reason of a refusal, if the logs are refused.
    refused: Option<String>,
    logs: Vec<MergedLog>,
    lines: BTreeMap<GAddr, Box<[u8]>>,
    labels: BTreeMap<String, String>,
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    if let Err(refusal) = check(arguments) {
        return exit::refuse(&refusal);
    }
    let (found, took) = match recover(arguments) {
        Ok(done) => done,
        Err(RecoverError::Member(error)) => return error.fail(),
        Err(error) => return exit::fail(&error),
    };
    let text =
        if arguments.json { found.json(arguments, took) } else { found.table(arguments, took) };
    let code = exit::print(&text, found.refused.is_none());
    if let Some(refused) = &found.refused {
        complain!("error: {refused}");
        complain!("{}", found.advice());
    }
    code
}

fn recover(arguments: &Arguments) -> Result<(RecoveredPages, Duration), RecoverError> {
    let started = Instant::now();
    let shown = Activity::begin("reading logs")?;
    let places = arguments.log_dir.iter().map(|place| existing(place));
    let store = Joined(places.collect::<Result<_, _>>()?);
    let runtime = RealRuntime::new(2)?;
    let read = async {
        let owners = owners(&store, arguments).await?;
        look(&store, owners, arguments).await
    };
    let interrupt = Interrupt::mind()?;
    let read = runtime.block_on(interrupt.or_end(&runtime.env(), read));
    let found = read.map_err(member::MemberError::from)??;
    if let (Some(into), None) = (&arguments.into, &found.refused) {
        let pages = units::plural(found.lines.len() as u64, "page");
        shown.turn_to(&format!("putting {pages} into {into}"));
        put(&interrupt, &found, into, arguments)?;
    }
    drop(shown);
    Ok((found, started.elapsed()))
}

/// Opens an existing log store, with its truncated pieces.
fn existing(place: &Path) -> Result<Arc<dyn LogStore>, RecoverError> {
    if let Some(url) = place.to_str().filter(|place| LogObjects::is_url(place)) {
        return Ok(Arc::new(LogObjects::existing(url)?));
    }
    if !place.is_dir() {
        return Err(RecoverError::NoDirectory(place.to_owned()));
    }
    Ok(Arc::new(LogFiles::existing(place)))
}

/// The logs of the given pool, or of the only pool.
async fn owners(store: &Joined, arguments: &Arguments) -> Result<Vec<LogOwner>, RecoverError> {
    let mut owners = store.owners().await?;
    let pools: BTreeSet<u64> = owners.iter().map(|owner| owner.pool).collect();
    let names = pool_names::by_id().await;
    let listed = || {
        let all = pools.iter().map(|id| pool_names::described(*id, &names, &arguments.log_dir));
        all.collect::<Vec<_>>().join(", ")
    };
    let directories = arguments.log_dir.iter().map(|directory| directory.display().to_string());
    let place = directories.collect::<Vec<_>>().join(", ");
    let id = match (arguments.pool_id, pools.first()) {
        (_, None) => return Err(RecoverError::NoLogs { place }),
        (Some(id), _) if pools.contains(&id) => id,
        (Some(id), _) => {
            return Err(RecoverError::OtherPools { id, place, pools: listed() });
        }
        (None, Some(id)) if pools.len() == 1 => *id,
        (None, _) => return Err(RecoverError::SeveralPools { place, pools: listed() }),
    };
    owners.retain(|owner| owner.pool == id);
    Ok(owners)
}

/// Rebuilds pages from logs. With --accept-loss, it leaves out damaged logs.
async fn look(
    store: &Joined,
    owners: Vec<LogOwner>,
    arguments: &Arguments,
) -> Result<RecoveredPages, RecoverError> {
    let first = owners.first();
    let (line_bytes, pool) = first.map_or((0, 0), |owner| (owner.line_bytes as usize, owner.pool));
    if let Some(other) = owners.iter().find(|owner| owner.line_bytes as usize != line_bytes) {
        return Err(RecoverError::LineBytes { first: line_bytes, other: other.line_bytes });
    }
    let mut pages = Pages::new(line_bytes);
    let mut refused = None;
    let mut merged = merge(store, &owners, &mut pages, false).await;
    if let Err(error) = &merged {
        if !arguments.accept_loss {
            refused = Some(error.to_string());
        }
        pages = Pages::new(line_bytes);
        merged = merge(store, &owners, &mut pages, true).await;
    }
    let labels = match store.labels(pool).await {
        Err(_) if arguments.accept_loss => BTreeMap::new(),
        labels => labels?,
    };
    if refused.is_none() {
        // With a part missing, what led to such a page may be older than the page.
        pages.retain(|page| !selkie::txn::is_unlinked(page));
    }
    let names = pool_names::by_id().await;
    let pool = pool_names::described(pool, &names, &arguments.log_dir);
    Ok(RecoveredPages { pool, owners, refused, logs: merged?, lines: pages.into_lines(), labels })
}

/// Puts pages and labels into a pool.
fn put(
    interrupt: &Interrupt,
    found: &RecoveredPages,
    into: &Place,
    arguments: &Arguments,
) -> Result<(), member::MemberError> {
    let log_place = Logs::In(arguments.log_dir.first());
    let before = async |pool: &Pool| {
        let (pool_bytes, logs) = (pool.descriptor().gcl_bytes, found.line_bytes());
        if pool_bytes != logs {
            return Err(member::MemberError::LineBytes { pool: pool_bytes, logs });
        }
        member::check_room(into, pool, log_place, &found.lines)?;
        let mut incarnations = BTreeMap::new();
        for owner in &found.owners {
            let last = incarnations.entry(owner.node).or_insert(owner.incarnation);
            *last = owner.incarnation.max(*last);
        }
        Ok(pool.count_on(&incarnations).await?)
    };
    let work = async |_: &Env, pool: &Arc<Pool>, engine: &Engine| {
        engine.restore(&found.lines, selkie::txn::written_at).await?;
        member::set_labels(pool, &found.labels).await
    };
    arguments.member.take_part(interrupt, into, log_place, before, work)
}

impl RecoveredPages {
    fn line_bytes(&self) -> usize {
        self.owners.first().map_or(0, |owner| owner.line_bytes as usize)
    }

    fn left_out(&self) -> u64 {
        self.logs.iter().map(|log| log.left_out).sum()
    }

    fn advice(&self) -> String {
        let damaged = self.logs.iter().filter(|log| log.damage.is_some()).count() as u64;
        format!(
            "with --accept-loss this is left out: {}, and what {} has beyond its damage",
            units::plural(self.left_out(), "record"),
            units::plural(damaged, "damaged log")
        )
    }

    fn table(&self, arguments: &Arguments, took: Duration) -> String {
        let mut table = Table::new();
        table.load_preset(presets::UTF8_FULL_CONDENSED).set_header([
            "log",
            "records",
            "left out",
            "ends at",
            "behind its end",
        ]);
        for log in &self.logs {
            table.add_row([
                format!("cn{}-{}", log.owner.node, log.owner.incarnation),
                units::count(log.applied),
                units::count(log.left_out),
                units::count(log.end),
                behind(log),
            ]);
        }
        let bytes = self.lines.len() as u64 * self.line_bytes() as u64;
        let done = match (&arguments.into, &self.refused) {
            (Some(into), None) => format!("are in pool {into}"),
            _ => "would be there".to_owned(),
        };
        format!(
            "Logs of pool {}\n{table}\n{}, {}, {done}, after {:.1} s\n",
            self.pool,
            units::plural(self.lines.len() as u64, "page"),
            units::bytes(bytes),
            took.as_secs_f64()
        )
    }

    fn json(&self, arguments: &Arguments, took: Duration) -> String {
        let logs: Vec<_> = self.logs.iter().map(|log| {
            json!({
                "node": log.owner.node, "incarnation": log.owner.incarnation, "records": log.applied,
                "left_out": log.left_out, "end": log.end, "damage": log.damage.as_ref().map(ToString::to_string),
            })
        }).collect();
        let into = arguments.into.as_ref().filter(|_| self.refused.is_none());
        let object = json!({
            "pool": self.owners.first().map(|owner| format!("{:016x}", owner.pool)), "logs": logs,
            "pages": self.lines.len(), "bytes": self.lines.len() * self.line_bytes(),
            "refused": self.refused, "into": into.map(ToString::to_string), "labels": self.labels,
            "seconds": took.as_secs_f64(),
        });
        format!("{object}\n")
    }
}

/// The report of what follows a log's last whole record.
fn behind(log: &MergedLog) -> String {
    match (&log.damage, log.then) {
        (Some(damage), _) => damage.to_string(),
        (None, NoRecord::End | NoRecord::Length(0)) => "nothing".to_owned(),
        (None, then) => format!("{then}: never durable"),
    }
}
