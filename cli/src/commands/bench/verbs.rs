//! `selkie bench verbs`: a memory node, a compute node and another one that answers it, on RDMA.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use selkie::fabric::tcp::TcpConfig;
use selkie::fabric::verbs::{DeviceChoice, DirectPair, VerbsConfig, VerbsError, VerbsFabric};
use selkie::fabric::{
    Buf, Chain, Endpoint, Env, Fabric, FabricError, LocalRegion, PeerId, QueuePair, RealRuntime,
    RegionKey, RemoteAddr, Verb,
};
use serde_json::{Value, json};

use super::measure::{Figure, measure, percentiles, post, times};
use super::{Served, VerbsArguments, perftest};
use crate::support::stdout::tell;

const MEMORY: PeerId = PeerId::memory(0);
const NODE: PeerId = PeerId::compute(0);
const OTHER: PeerId = PeerId::compute(1);
/// Bytes of the memory.
const REGION_BYTES: usize = 1 << 20;
/// Where pages are, behind the words.
const PAGE_AT: u64 = 4096;
/// Parts in which the fabric and the library alone take turns.
const TURNS: u32 = 10;

/// Why there are no figures.
#[derive(Debug, thiserror::Error)]
pub(super) enum BenchError {
    #[error(transparent)]
    Verbs(#[from] VerbsError),
    #[error(transparent)]
    Fabric(#[from] FabricError),
    #[error("{0}")]
    Io(#[from] std::io::Error),
}

/// What was measured.
struct Report {
    device: String,
    figures: Vec<Figure>,
    /// Of a miss: posts, completions.
    costs: (f64, f64),
    /// The miss against the same by the library alone: its median, and the ratio of the two.
    direct: Option<(Duration, f64)>,
    perftest: Vec<(&'static str, Duration)>,
}

/// Measures, or serves memory. Returns the report.
pub(super) fn run(arguments: &VerbsArguments) -> Result<String, BenchError> {
    let runtime = RealRuntime::new(2)?;
    let choice = DeviceChoice {
        device: arguments.rdma_device.clone(),
        port: arguments.rdma_port,
        gid_index: arguments.rdma_gid,
    };
    let mut tcp = TcpConfig::new(0);
    if let Some(listen) = arguments.listen {
        tcp.listen = listen;
    }
    let config = VerbsConfig { device: choice.clone(), ..VerbsConfig::new(tcp) };
    let fabric = VerbsFabric::open(config, runtime.env())?;
    if arguments.listen.is_some() {
        return serve(&runtime, &fabric);
    }
    let bench = Bench::start(&runtime, &fabric, arguments)?;
    let report = bench.report(&choice)?;
    Ok(if arguments.json { report.to_json() } else { report.to_text() })
}

/// Serves memory until the process is ended.
fn serve(runtime: &RealRuntime, fabric: &Arc<VerbsFabric>) -> Result<String, BenchError> {
    let memory = fabric.join(MEMORY)?;
    let region = memory.register(REGION_BYTES)?;
    if let Some(at) = fabric.tcp().listen_addr(MEMORY) {
        tell!("selkie bench verbs --connect {at}/{:x}", region.key().to_raw());
    }
    let env = runtime.env();
    loop {
        runtime.block_on(env.sleep(Duration::from_secs(3600)));
    }
}

struct Bench<'r> {
    runtime: &'r RealRuntime,
    fabric: &'r Arc<VerbsFabric>,
    /// The memory node, if it is one of this process.
    _memory: Option<Arc<dyn Endpoint>>,
    node: Arc<dyn Endpoint>,
    queue_pair: Arc<dyn QueuePair>,
    key: RegionKey,
    rounds: u32,
    page: usize,
    is_local: bool,
}

impl<'r> Bench<'r> {
    fn start(
        runtime: &'r RealRuntime,
        fabric: &'r Arc<VerbsFabric>,
        arguments: &VerbsArguments,
    ) -> Result<Self, BenchError> {
        let (memory, key) = match arguments.connect {
            Some(Served { at, key }) => {
                fabric.tcp().introduce(MEMORY, at, None);
                (None, RegionKey::from_raw(key))
            }
            None => {
                let memory = fabric.join(MEMORY)?;
                let key = memory.register(REGION_BYTES)?.key();
                (Some(memory), key)
            }
        };
        let node = fabric.join(NODE)?;
        let queue_pair = node.connect(MEMORY)?;
        let (rounds, page) = (arguments.rounds, arguments.page);
        let is_local = memory.is_some();
        Ok(Self { runtime, fabric, _memory: memory, node, queue_pair, key, rounds, page, is_local })
    }

    fn at(&self, offset: u64) -> RemoteAddr {
        RemoteAddr::new(self.key, offset)
    }

    fn read(&self, bytes: usize) -> Verb {
        Verb::read(self.at(PAGE_AT), Buf::zeroed(bytes))
    }

    fn write(&self, bytes: usize) -> Verb {
        Verb::write(self.at(PAGE_AT), Buf::zeroed(bytes))
    }

    /// A shared miss: enters a reader, and reads the page.
    fn shared_miss(&self) -> Chain {
        [Verb::fetch_and_add(self.at(0), 1), self.read(self.page)].into()
    }

    fn report(&self, choice: &DeviceChoice) -> Result<Report, BenchError> {
        let page = self.page;
        let swap = || Verb::compare_and_swap(self.at(8), 0, 0);
        let works: [(String, &dyn Fn() -> Chain); 8] = [
            ("read, 8 B".into(), &|| self.read(8).into()),
            (format!("read, {page} B"), &|| self.read(page).into()),
            ("write, 8 B".into(), &|| self.write(8).into()),
            (format!("write, {page} B"), &|| self.write(page).into()),
            ("compare-and-swap".into(), &|| swap().into()),
            ("fetch-and-add".into(), &|| Verb::fetch_and_add(self.at(16), 1).into()),
            ("S miss: add, read a page".into(), &|| self.shared_miss()),
            ("M miss: swap, read a page".into(), &|| [swap(), self.read(page)].into()),
        ];
        let mut figures = Vec::new();
        for (name, make) in &works {
            let of = (name.as_str(), self.rounds);
            figures.push(measure(self.runtime, &self.queue_pair, of, *make)?);
        }
        let costs = self.costs()?;
        let (mut direct, mut others) = (None, Vec::new());
        if self.is_local {
            figures.push(self.hand_over()?);
            direct = Some(self.against_the_library(choice)?);
            let info = self.fabric.device();
            others.extend(perftest::PROGRAMS.iter().filter_map(|(name, program, bytes)| {
                Some((*name, perftest::typical(info, program, *bytes)?))
            }));
        }
        let info = self.fabric.device();
        let kind = if info.is_ethernet { "RoCE" } else { "InfiniBand" };
        let gid = info.gid_index.map_or(String::new(), |gid| format!(", address {gid}"));
        let device = format!(
            "{} port {} ({kind}{gid}), packets of {} B, {} reads under way",
            info.device, info.port, info.mtu_bytes, info.outstanding_reads
        );
        Ok(Report { device, figures, costs, direct, perftest: others })
    }

    /// Posts and completions of a miss.
    fn costs(&self) -> Result<(f64, f64), FabricError> {
        let before = self.fabric.counters(NODE);
        for _ in 0..self.rounds {
            post(self.runtime, &self.queue_pair, self.shared_miss())?;
        }
        let after = self.fabric.counters(NODE);
        let each = |count: u64| count as f64 / f64::from(self.rounds);
        Ok((each(after.posts - before.posts), each(after.completions - before.completions)))
    }

    /// A page that another node has changed: it is asked by a ring, and sends the page with a ring.
    fn hand_over(&self) -> Result<Figure, FabricError> {
        let other = self.fabric.join(OTHER)?;
        let (asked, answered) =
            (other.register(4096)?, self.node.register(PAGE_AT as usize + (64 << 10))?);
        let (there, back) = (self.node.connect(OTHER)?, other.connect(NODE)?);
        let env = self.runtime.env();
        let (to, from) = (RemoteAddr::new(answered.key(), PAGE_AT), Arc::clone(&asked));
        let holder = answers(from, back, to, self.page);
        drop(env.spawn("bench-holder", holder));
        let ask = RemoteAddr::new(asked.key(), 0);
        let mut seen = answered.doorbell().count();
        let once = || {
            post(self.runtime, &there, Verb::write_with_doorbell(ask, Buf::zeroed(8)).into())?;
            seen = self.runtime.block_on(wait(&env, &answered, seen))?;
            Ok::<_, FabricError>(())
        };
        let (median, p99) = percentiles(times(self.rounds, once)?);
        let name = "hand-over: ask by a ring, a page by a ring".to_owned();
        Ok(Figure { name, median, p99, per_second: None })
    }

    /// The miss and the same by the library alone, in turns.
    fn against_the_library(&self, choice: &DeviceChoice) -> Result<(Duration, f64), BenchError> {
        let pair = DirectPair::open(choice)?;
        let bytes = self.page as u32;
        let rounds = (self.rounds / TURNS).max(10);
        let (mut own, mut direct) = (Vec::new(), Vec::new());
        for _ in 0..TURNS {
            direct.extend(times(rounds, || pair.add_and_read(bytes))?);
            let miss = || post(self.runtime, &self.queue_pair, self.shared_miss()).map(drop);
            own.extend(times(rounds, miss)?);
        }
        let ((own, _), (direct, _)) = (percentiles(own), percentiles(direct));
        Ok((direct, own.as_secs_f64() / direct.as_secs_f64().max(1e-9)))
    }
}

/// Sends a page to `to` for every ring at `asked`.
async fn answers(
    asked: Arc<dyn LocalRegion>,
    back: Arc<dyn QueuePair>,
    to: RemoteAddr,
    page: usize,
) {
    let mut seen = 0;
    loop {
        seen = asked.doorbell().wait_past(seen).await;
        let sent = back.post(Verb::write_with_doorbell(to, Buf::zeroed(page)).into()).await;
        if sent.is_err() {
            return;
        }
    }
}

/// Waits for a ring, for a bounded time.
async fn wait(env: &Env, region: &Arc<dyn LocalRegion>, seen: u64) -> Result<u64, FabricError> {
    const LIMIT: Duration = Duration::from_secs(10);
    let started = env.now();
    loop {
        let count = region.doorbell().count();
        if count > seen {
            return Ok(count);
        }
        if env.now() - started > LIMIT {
            return Err(FabricError::PeerDead { peer: OTHER });
        }
        env.yield_now().await;
    }
}

fn micros(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

impl Report {
    fn to_text(&self) -> String {
        let mut text = format!("{}\n\n", self.device);
        // Writing to a string does not fail.
        let _ = writeln!(text, "{:<44}{:>10}{:>10}{:>12}", "", "median us", "99% us", "1/s");
        for Figure { name, median, p99, per_second } in &self.figures {
            let rate = per_second.map_or("-".to_owned(), |rate| format!("{rate:.0}"));
            let (median, p99) = (micros(*median), micros(*p99));
            let _ = writeln!(text, "{name:<44}{median:>10.2}{p99:>10.2}{rate:>12}");
        }
        for (name, typical) in &self.perftest {
            let name = format!("perftest: {name}");
            let _ = writeln!(text, "{name:<44}{:>10.2}{:>10}{:>12}", micros(*typical), "-", "-");
        }
        let (posts, completions) = self.costs;
        let _ =
            writeln!(text, "\nan S miss takes {posts:.2} posts and {completions:.2} completions");
        if let Some((direct, ratio)) = self.direct {
            let direct = micros(direct);
            let _ = writeln!(
                text,
                "by the library alone its add and read take {direct:.2} us; the miss takes \
                 {ratio:.2} times that"
            );
        }
        text
    }

    fn to_json(&self) -> String {
        let figures: Vec<Value> = self.figures.iter().map(figure_json).collect();
        let perftest = self.perftest.iter();
        let perftest: Vec<Value> = perftest
            .map(|(name, typical)| json!({"name": name, "typical_us": micros(*typical)}))
            .collect();
        let (posts, completions) = self.costs;
        let value = json!({
            "device": self.device,
            "figures": figures,
            "perftest": perftest,
            "posts_per_s_miss": posts,
            "completions_per_s_miss": completions,
            "library_alone_us": self.direct.map(|(direct, _)| micros(direct)),
            "ratio_to_library": self.direct.map(|(_, ratio)| ratio),
        });
        format!("{value}\n")
    }
}

fn figure_json(figure: &Figure) -> Value {
    json!({
        "name": figure.name,
        "median_us": micros(figure.median),
        "p99_us": micros(figure.p99),
        "per_second": figure.per_second,
    })
}
