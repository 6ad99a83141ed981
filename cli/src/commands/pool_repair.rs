//! `selkie pool forgive` and `selkie pool repair`: where a person must decide what becomes of a
//! pool.

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use selkie::engine::{Engine, LineCensus};
use selkie::fabric::{Env, PeerId};
use selkie::pool::control::PoolState;
use selkie::pool::{self, Forgiveness, Pool};
use selkie::shared::{Place, SharedPool, SharedPoolError};
use selkie::txn::Database;
use selkie_tpcc::units;
use serde_json::json;

use super::compute_wait::ComputeWait;
use crate::options::member::{Logs, MemberArguments, MemberError};
use crate::options::network::TlsArguments;
use crate::support::activity::Activity;
use crate::support::exit;
use crate::support::signals::Interrupt;
use crate::support::stdout::tell;

/// How often the progress of a recovery is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Arguments of `selkie pool forgive`.
#[derive(Args)]
pub(super) struct ForgiveArguments {
    /// `NAME` on this host, `tcp:HOST:PORT,...` by its memory nodes, or `etcd:HOST:PORT,.../NAME`
    #[arg(value_name = "POOL")]
    name: Place,
    /// What to give up, as `pool status` shows it: cn3, a compute node that died with pages that
    /// only its log could bring back; mem2, a memory node that is silent and does not come back
    #[arg(value_name = "NODE", value_parser = node)]
    nodes: Vec<PeerId>,
    /// All compute nodes that died with pages that only their logs could bring back
    #[arg(long)]
    pages: bool,
    /// Only say what would be lost
    #[arg(long)]
    dry_run: bool,
    /// Do not wait until the compute nodes in the pool have done their part
    #[arg(long)]
    no_wait: bool,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    tls: TlsArguments,
}

impl ForgiveArguments {
    /// Fails if nothing is to be given up. Not left to the parser: a configuration file may have
    /// the pool, and the command line the nodes.
    pub(super) fn check(&self) -> Result<(), exit::Refusal> {
        if self.nodes.is_empty() && !self.pages {
            let what = "give the nodes to give up, as cn3 or mem2, or --pages".to_owned();
            return Err(exit::Refusal { key: "pages".to_owned(), what });
        }
        Ok(())
    }
}

/// Arguments of `selkie pool repair`.
#[derive(Args)]
pub(super) struct RepairArguments {
    /// `NAME` on this host, `tcp:HOST:PORT,...` by its memory nodes, or `etcd:HOST:PORT,.../NAME`
    #[arg(value_name = "POOL")]
    name: Place,
    /// Only say what would be done
    #[arg(long)]
    dry_run: bool,
    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    member: MemberArguments,
}

/// A node as `pool status` shows it.
fn node(text: &str) -> Result<PeerId, String> {
    let index = |digits: &str| digits.parse::<u16>().ok();
    let compute = text.strip_prefix("cn").and_then(index).map(PeerId::compute);
    let memory = || text.strip_prefix("mem").and_then(index).map(PeerId::memory);
    let what = "a node is `cn` or `mem` and its number, as cn3 or mem2";
    compute.or_else(memory).ok_or_else(|| what.to_owned())
}

/// Gives nodes up.
pub(super) async fn forgive(
    env: &Env,
    arguments: &ForgiveArguments,
) -> Result<(), SharedPoolError> {
    let ForgiveArguments { name, nodes, pages, dry_run, no_wait, json, tls } = arguments;
    let shared = SharedPool::at(name, tls.credentials()?)?;
    let state = shared.load().await?;
    let mut given_up = nodes.clone();
    if *pages {
        given_up.extend(state.forgivable());
    }
    given_up.sort_unstable_by_key(|node| node.to_raw());
    given_up.dedup();
    let living = shared.living().await?;
    let lives = |node: PeerId| living.contains(&node);
    let weighed = if *dry_run {
        given_up.iter().map(|node| state.weigh(*node, lives)).collect::<Result<Vec<_>, _>>()?
    } else {
        pool::forgive(shared.plane(), &given_up, lives).await?
    };
    if *json {
        tell!("{}", as_json(name, *dry_run, &weighed));
    } else {
        tell(name, *dry_run, &weighed);
    }
    if *dry_run || *no_wait {
        return Ok(());
    }
    until_recovered(env, &shared, (name, state.id), &weighed).await
}

fn as_json(name: &Place, dry_run: bool, weighed: &[Forgiveness]) -> serde_json::Value {
    let nodes = weighed.iter().map(|Forgiveness { node, pages, ranges }| {
        json!({ "node": node.to_string(), "pages": pages, "ranges": ranges })
    });
    json!({ "pool": name.to_string(), "dry_run": dry_run, "given_up": nodes.collect::<Vec<_>>() })
}

fn tell(name: &Place, dry_run: bool, weighed: &[Forgiveness]) {
    if weighed.is_empty() {
        tell!("pool {name}: no page is lost that a log could bring back");
    }
    let would = if dry_run { "would be" } else { "is" };
    for Forgiveness { node, pages, ranges } in weighed {
        let shown = units::plural(*pages, "page");
        let what = match (node.is_memory(), pages, ranges) {
            (false, _, _) => format!(
                "{node} {would} given up: of the {shown} that logs could bring back, those that only its log has are \
                 lost for good"
            ),
            (true, 0, 0) => {
                format!("{node} {would} given up: every page can be made from the others")
            }
            (true, 0, ranges) => {
                let ranges = units::plural(*ranges, "range");
                format!("{node} {would} given up: {ranges} can be read no more")
            }
            (true, _, _) => {
                format!("{node} {would} given up with room for {shown}, and all that is in it")
            }
        };
        tell!("pool {name}: {what}");
    }
}

/// Waits until the compute nodes in the pool have recovered once more from those given up.
async fn until_recovered(
    env: &Env,
    shared: &SharedPool,
    (name, id): (&Place, u64),
    weighed: &[Forgiveness],
) -> Result<(), SharedPoolError> {
    let mut wait = ComputeWait::new(name);
    loop {
        let state: Arc<PoolState> = shared.load_again(id).await?;
        let is_under_way = |given_up: &&Forgiveness| {
            !given_up.node.is_memory() && state.lost.contains_key(&given_up.node.index())
        };
        let left: Vec<_> = weighed.iter().filter(is_under_way).map(|one| one.node).collect();
        if left.is_empty() {
            return Ok(());
        }
        wait.look(&state, env.now(), left.len(), || {
            let left = left.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            format!("{left} is given up all the same, and recovered from as soon as one can")
        })?;
        env.sleep(LOOK_EVERY).await;
    }
}

/// Finds lines that nothing leads to, and frees them.
pub(super) fn repair(arguments: &RepairArguments) -> Result<(), MemberError> {
    let RepairArguments { name, dry_run, json, member } = arguments;
    let work = async |_: &Env, pool: &Arc<Pool>, engine: &Engine| {
        // Before the first look: nothing changes from then on.
        pool.begin_repair(pool::ComputeIndex::new(engine.node().index() as u16)).await?;
        let database = Database::open(engine).await?;
        let pages = database.pages(engine).await?;
        Ok(engine.repair_lines(&pages, *dry_run).await?)
    };
    let before = async |_: &Pool| Ok(());
    let interrupt = Interrupt::mind()?;
    let shown =
        Activity::begin(&format!("looking for lines of pool {name} that nothing leads to"))?;
    let census = member.take_part(&interrupt, name, Logs::AsOthers(None), before, work)?;
    drop(shown);
    let LineCensus { leased, in_use, free, leaked, lost } = census;
    if *json {
        let object = json!({
            "pool": name.to_string(), "dry_run": dry_run, "lines": leased, "in_use": in_use, "free": free,
            "leaked": leaked, "lost": lost,
        });
        tell!("{object}");
        return Ok(());
    }
    let count = units::count;
    tell!(
        "pool {name}: of {} lines {} are in use, {} are free, and nothing leads to {} ({} of them lost with nodes that died)",
        count(leased),
        count(in_use),
        count(free),
        count(leaked),
        count(lost)
    );
    match (leaked, dry_run) {
        (0, _) => tell!("pool {name}: there is nothing to repair"),
        (_, true) => tell!("pool {name}: a repair would free {} lines", count(leaked)),
        (_, false) => tell!("pool {name}: {} lines are free now", count(leaked)),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_named_as_status_shows_them() {
        assert_eq!(node("cn3"), Ok(PeerId::compute(3)));
        assert_eq!(node("mem12"), Ok(PeerId::memory(12)));
        for text in ["3", "cn", "mem", "node3", "cn-1", "mem99999999"] {
            assert!(node(text).is_err(), "{text}");
        }
    }
}
