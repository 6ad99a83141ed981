//! `--metrics`: what the nodes of this process have done, for Prometheus, in the OpenMetrics text
//! format.
//!
//! Nothing is measured for it: each request is answered from what nodes count anyway ([`Report`]).
//! The address is bound before anything else starts, so that a run fails early if the address is in
//! use. Any client that reaches the address may read the metrics; so an address that other hosts
//! reach takes `--insecure`.

use std::fmt;
use std::io::Cursor;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use clap::Args;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};
use selkie::engine::Roster;
use selkie::fabric::PeerId;
use selkie::report::{ComputeReport, MemoryReport, NodeReport, Report, Traffic};
use tiny_http::{Header, Method, Request, Response, Server};

use super::stderr::complain;
use crate::support::waiting::Waiting;
use crate::support::{exit, listener};

/// Options of the commands that run nodes.
#[derive(Args)]
pub(crate) struct Options {
    /// Serve metrics of this process's nodes to Prometheus at http://HOST:PORT/metrics; with port 0
    /// at one that is free, which stderr names
    #[arg(long, value_name = "ADDR")]
    metrics: Option<Address>,
}

impl Options {
    /// Whether there is anything to serve.
    pub(crate) fn are_given(&self) -> bool {
        self.metrics.is_some()
    }
}

/// Refuses `--insecure` where there is nothing to be reached.
pub(crate) fn check_insecure(options: &Options, insecure: bool) -> Result<(), exit::Refusal> {
    if insecure && !options.are_given() {
        return Err(exit::Refusal::new("insecure", "", "goes with --metrics only"));
    }
    Ok(())
}

/// HOST:PORT.
#[derive(Clone, Debug, PartialEq)]
struct Address(String);

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let allowed = || "an address is HOST:PORT, as 127.0.0.1:9100 or [::1]:0".to_owned();
        let (host, port) = text.rsplit_once(':').ok_or_else(allowed)?;
        let bare = !host.contains(':') || host.starts_with('[') && host.ends_with(']');
        if host.is_empty() || !bare || port.parse::<u16>().is_err() {
            return Err(allowed());
        }
        Ok(Self(text.to_owned()))
    }
}

/// The newest reports of nodes, as often as they are asked for.
pub(crate) type ReportSource = Arc<dyn Fn() -> Vec<(PeerId, Report)> + Send + Sync>;

/// The compute nodes in a roster.
pub(crate) fn of_roster(roster: &Roster) -> ReportSource {
    let roster = roster.clone();
    Arc::new(move || {
        let counters = roster.counters(0).into_iter();
        let peer = |index: usize| PeerId::compute(index as u16);
        counters.map(|c| (peer(c.node.index()), Report::of_compute(&c))).collect()
    })
}

/// Why metrics are not served.
#[derive(Debug, thiserror::Error)]
enum MetricsError {
    #[error("--metrics {address}: other hosts could reach {bound}; that takes --insecure")]
    Open { address: String, bound: SocketAddr },
    #[error("--metrics {address}: {source}")]
    Address { address: String, source: std::io::Error },
    #[error("--metrics {address}: {source}{held_by}")]
    InUse { address: String, source: std::io::Error, held_by: String },
    #[error("--metrics {address}: {what}")]
    Server { address: String, what: String },
}

/// Serves until it is dropped.
pub(crate) struct Serving {
    server: Arc<Server>,
    over: Arc<AtomicBool>,
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        self.server.unblock();
    }
}

/// Serves what the source says, if it is asked for; says where on stderr. What is wrong is told
/// there too, with the exit code for it. Other hosts can reach it only if it is to be `insecure`.
pub(crate) fn serve(
    options: &Options,
    insecure: bool,
    source: ReportSource,
    waiting: &Waiting,
) -> Result<Option<Serving>, ExitCode> {
    let collectors: [Box<dyn Collector>; 2] =
        [Box::new(Nodes(source)), Box::new(Waits(waiting.clone()))];
    serve_collected(options, insecure, collectors)
}

/// As [`serve`], of what is collected by others.
pub(crate) fn serve_collected(
    options: &Options,
    insecure: bool,
    collectors: impl IntoIterator<Item = Box<dyn Collector>>,
) -> Result<Option<Serving>, ExitCode> {
    let Some(address) = &options.metrics else { return Ok(None) };
    match Serving::start(address, insecure, collectors) {
        Ok((serving, at)) => {
            complain!("metrics at http://{at}/metrics");
            Ok(Some(serving))
        }
        Err(error) => {
            let code = exit::fail(&error);
            let is_usage = matches!(error, MetricsError::Open { .. });
            Err(if is_usage { ExitCode::from(exit::USAGE) } else { code })
        }
    }
}

impl Serving {
    fn start(
        Address(address): &Address,
        insecure: bool,
        collectors: impl IntoIterator<Item = Box<dyn Collector>>,
    ) -> Result<(Self, SocketAddr), MetricsError> {
        let address = address.clone();
        let failed = |source| MetricsError::Address { address: address.clone(), source };
        let resolved: Vec<_> = address.to_socket_addrs().map_err(failed)?.collect();
        if let Some(bound) = resolved.iter().find(|at| !at.ip().is_loopback())
            && !insecure
        {
            return Err(MetricsError::Open { address, bound: *bound });
        }
        let listener = TcpListener::bind(&resolved[..]).map_err(|source| {
            let is_taken = source.kind() == std::io::ErrorKind::AddrInUse;
            match resolved.first().filter(|_| is_taken) {
                Some(first) => {
                    let (address, held_by) = (address.clone(), listener::held_by(*first));
                    MetricsError::InUse { address, source, held_by }
                }
                None => failed(source),
            }
        })?;
        let at = listener.local_addr().map_err(failed)?;
        let server = Server::from_listener(listener, None);
        let wrong = |what: String| MetricsError::Server { address: address.clone(), what };
        let server = Arc::new(server.map_err(|error| wrong(error.to_string()))?);
        let mut registry = Registry::default();
        collectors.into_iter().for_each(|own| registry.register_collector(own));
        let over = Arc::new(AtomicBool::new(false));
        let serving = Self { server: Arc::clone(&server), over: Arc::clone(&over) };
        let answer_all = move || {
            for request in server.incoming_requests() {
                answer(request, &registry);
            }
            if !over.load(Ordering::Relaxed) {
                tracing::warn!("metrics are served no more");
            }
        };
        let thread = thread::Builder::new().name("metrics".to_owned()).spawn(answer_all);
        thread.map_err(|error| wrong(error.to_string()))?;
        Ok((serving, at))
    }
}

fn answer(request: Request, registry: &Registry) {
    let path = request.url().split('?').next();
    let response = match (request.method(), path) {
        (Method::Get | Method::Head, Some("/metrics")) => {
            let mut text = String::new();
            match encode(&mut text, registry) {
                Ok(()) => Response::from_string(text).with_header_of(CONTENT_TYPE),
                Err(error) => Response::from_string(error.to_string()).with_status_code(500),
            }
        }
        (_, Some("/metrics")) => Response::from_string("GET only\n").with_status_code(405),
        _ => Response::from_string("metrics are at /metrics\n").with_status_code(404),
    };
    // A client that has gone away needs no answer.
    let _ = request.respond(response);
}

const CONTENT_TYPE: [&str; 2] =
    ["Content-Type", "application/openmetrics-text; version=1.0.0; charset=utf-8"];

trait WithHeader: Sized {
    fn with_header_of(self, header: [&str; 2]) -> Self;
}

impl WithHeader for Response<Cursor<Vec<u8>>> {
    fn with_header_of(mut self, [name, value]: [&str; 2]) -> Self {
        if let Ok(header) = Header::from_bytes(name, value) {
            self.add_header(header);
        }
        self
    }
}

/// A figure of a node.
enum Value {
    Count(u64),
    Seconds(f64),
}

/// Figures of one name, of all nodes that have them.
struct Family {
    name: &'static str,
    help: &'static str,
    unit: Option<Unit>,
    kind: MetricType,
    value: fn(&Report) -> Option<Value>,
}

/// Reads the nodes when it is asked.
pub(crate) struct Nodes(pub(crate) ReportSource);

impl fmt::Debug for Nodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Nodes")
    }
}

impl Collector for Nodes {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let reports = (self.0)();
        for family in &FAMILIES {
            let values = reports.iter().filter_map(|(node, report)| {
                (family.value)(report).map(|value| ([("node", node.to_string())], value))
            });
            let values: Vec<_> = values.collect();
            if values.is_empty() {
                continue;
            }
            let Family { name, help, unit, kind, .. } = family;
            let mut metric = encoder.encode_descriptor(name, help, unit.as_ref(), *kind)?;
            for (labels, value) in &values {
                let mut sample = metric.encode_family(labels)?;
                match (kind, value) {
                    (MetricType::Counter, Value::Count(count)) => {
                        sample.encode_counter::<NoLabelSet, _, u64>(count, None)?;
                    }
                    (MetricType::Counter, Value::Seconds(seconds)) => {
                        sample.encode_counter::<NoLabelSet, _, u64>(seconds, None)?;
                    }
                    (_, Value::Count(count)) => sample.encode_gauge(count)?,
                    (_, Value::Seconds(seconds)) => sample.encode_gauge(seconds)?,
                }
            }
        }
        Ok(())
    }
}

/// What the process waits for before it has nodes, or between its stages.
#[derive(Debug)]
struct Waits(Waiting);

impl Collector for Waits {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Some((what, passed)) = self.0.now() else { return Ok(()) };
        let help = "For how long the process has waited, and for what";
        let (unit, kind) = (Some(&Unit::Seconds), MetricType::Gauge);
        let mut metric = encoder.encode_descriptor("selkie_waiting", help, unit, kind)?;
        metric.encode_family(&[("for", what)])?.encode_gauge(&passed.as_secs_f64())
    }
}

fn compute(report: &Report, figure: impl FnOnce(&ComputeReport) -> Option<u64>) -> Option<Value> {
    match &report.node {
        NodeReport::Compute(compute) => figure(compute).map(Value::Count),
        NodeReport::Memory(_) => None,
    }
}

/// A time of a compute node.
fn micros(report: &Report, figure: impl FnOnce(&ComputeReport) -> u64) -> Option<Value> {
    match &report.node {
        NodeReport::Compute(compute) => Some(Value::Seconds(figure(compute) as f64 / 1e6)),
        NodeReport::Memory(_) => None,
    }
}

fn traffic(report: &Report, figure: impl FnOnce(&Traffic) -> u64) -> Option<Value> {
    compute(report, |compute| compute.traffic.as_ref().map(figure))
}

fn memory(report: &Report, figure: impl FnOnce(&MemoryReport) -> u64) -> Option<Value> {
    match &report.node {
        NodeReport::Memory(memory) => Some(Value::Count(figure(memory))),
        NodeReport::Compute(_) => None,
    }
}

const fn counter(
    name: &'static str,
    help: &'static str,
    unit: Option<Unit>,
    value: fn(&Report) -> Option<Value>,
) -> Family {
    Family { name, help, unit, kind: MetricType::Counter, value }
}

const fn gauge(
    name: &'static str,
    help: &'static str,
    unit: Option<Unit>,
    value: fn(&Report) -> Option<Value>,
) -> Family {
    Family { name, help, unit, kind: MetricType::Gauge, value }
}

/// All there are. Names get their unit, and counters `_total`, when they are written.
static FAMILIES: [Family; 41] = [
    counter("selkie_operations", "Operations that the node's user has completed", None, |r| {
        compute(r, |c| c.operations)
    }),
    counter("selkie_hits", "Accesses served by the cache", None, |r| compute(r, |c| Some(c.hits))),
    counter("selkie_misses", "Accesses that fetched the page or a right to it", None, |r| {
        compute(r, |c| Some(c.misses))
    }),
    counter("selkie_round_trips", "Chains of verbs posted", None, |r| {
        traffic(r, |t| t.round_trips)
    }),
    counter("selkie_atomics", "Remote atomics posted", None, |r| traffic(r, |t| t.atomics)),
    counter("selkie_read", "Payload of remote reads", Some(Unit::Bytes), |r| {
        traffic(r, |t| t.read_bytes)
    }),
    counter("selkie_written", "Payload of remote writes", Some(Unit::Bytes), |r| {
        traffic(r, |t| t.written_bytes)
    }),
    counter("selkie_prefetches", "Pages fetched before an access asked for them", None, |r| {
        compute(r, |c| Some(c.prefetches))
    }),
    counter("selkie_invalidations_sent", "Requests to others to give copies up", None, |r| {
        compute(r, |c| Some(c.invalidations_sent))
    }),
    counter("selkie_invalidations_received", "Copies given up as another node asked", None, |r| {
        compute(r, |c| Some(c.invalidations_received))
    }),
    counter("selkie_evictions", "Pages evicted", None, |r| compute(r, |c| Some(c.evictions))),
    counter("selkie_write_backs", "Write-backs of dirty pages", None, |r| {
        compute(r, |c| Some(c.write_backs))
    }),
    counter("selkie_corruptions", "Splits found not to be as they were written", None, |r| {
        compute(r, |c| Some(c.corruptions))
    }),
    counter("selkie_repairs", "Such splits that were written again", None, |r| {
        compute(r, |c| Some(c.repairs))
    }),
    gauge("selkie_cache_frames", "Frames of the cache", None, |r| compute(r, |c| Some(c.frames))),
    gauge("selkie_cache_frames_used", "Frames of the cache in use", None, |r| {
        compute(r, |c| Some(c.frames_used))
    }),
    counter("selkie_images_kept", "Images of pages kept for snapshots", None, |r| {
        compute(r, |c| Some(c.images_kept))
    }),
    counter("selkie_images_dropped", "Images given up for want of room", None, |r| {
        compute(r, |c| Some(c.images_dropped))
    }),
    gauge("selkie_images", "Images of pages kept now", None, |r| {
        compute(r, |c| Some(c.images_live))
    }),
    gauge("selkie_image_memory", "Memory of those images", Some(Unit::Bytes), |r| {
        compute(r, |c| Some(c.image_bytes))
    }),
    gauge("selkie_snapshots", "Active snapshots", None, |r| {
        compute(r, |c| Some(c.snapshots_active))
    }),
    gauge(
        "selkie_oldest_snapshot_age",
        "Commit stamps since the oldest active snapshot",
        None,
        |r| compute(r, |c| Some(c.oldest_snapshot_age)),
    ),
    counter("selkie_snapshots_too_old", "Transactions whose snapshot was too old", None, |r| {
        compute(r, |c| Some(c.snapshots_too_old))
    }),
    counter("selkie_lock_waits", "Row locks that were waited for", None, |r| {
        compute(r, |c| Some(c.lock_waits))
    }),
    counter("selkie_lock_wait", "Time of waits for row locks", Some(Unit::Seconds), |r| {
        micros(r, |c| c.lock_wait_us)
    }),
    counter("selkie_deadlocks", "Transactions that gave up in a deadlock", None, |r| {
        compute(r, |c| Some(c.deadlocks))
    }),
    counter("selkie_lock_timeouts", "Transactions that got a row lock too late", None, |r| {
        compute(r, |c| Some(c.lock_timeouts))
    }),
    counter("selkie_lock_refusals", "Row locks refused to who was not to wait", None, |r| {
        compute(r, |c| Some(c.lock_refusals))
    }),
    counter("selkie_turn_waits", "Turns at hot rows that were waited for", None, |r| {
        compute(r, |c| Some(c.turn_waits))
    }),
    counter("selkie_turn_wait", "Time of waits for turns at hot rows", Some(Unit::Seconds), |r| {
        micros(r, |c| c.turn_wait_us)
    }),
    counter("selkie_turns_lost", "Turns at hot rows that lasted too long", None, |r| {
        compute(r, |c| Some(c.turns_lost))
    }),
    counter("selkie_turn_circles", "Turns not waited for to avoid a circle", None, |r| {
        compute(r, |c| Some(c.turn_circles))
    }),
    gauge("selkie_memory_lent", "Memory lent to the pool", Some(Unit::Bytes), |r| {
        memory(r, |m| m.lent_bytes)
    }),
    gauge("selkie_memory_leased", "Pages leased to compute nodes", Some(Unit::Bytes), |r| {
        memory(r, |m| m.leased_bytes)
    }),
    gauge("selkie_extents", "Extents of the node", None, |r| memory(r, |m| m.extents)),
    gauge("selkie_extents_leased", "Extents leased to compute nodes", None, |r| {
        memory(r, |m| m.extents_leased)
    }),
    gauge("selkie_slabs", "Slabs of the node", None, |r| memory(r, |m| m.slabs)),
    gauge("selkie_slabs_used", "Slabs in use", None, |r| memory(r, |m| m.slabs_used)),
    gauge("selkie_slabs_evicting", "Slabs in use that are to be moved elsewhere", None, |r| {
        memory(r, |m| m.slabs_evicting)
    }),
    gauge("selkie_slabs_withdrawn", "Slabs not lent as the host is short of memory", None, |r| {
        memory(r, |m| m.slabs_withdrawn)
    }),
    counter("selkie_cpu", "Processor time of the process", Some(Unit::Seconds), |r| {
        match &r.node {
            NodeReport::Memory(m) => Some(Value::Seconds(m.cpu_us as f64 / 1e6)),
            NodeReport::Compute(_) => None,
        }
    }),
];

#[cfg(test)]
mod tests {
    use selkie::report::VERSION;

    use super::*;

    #[test]
    fn addresses_are_read_and_others_refused() {
        for good in ["127.0.0.1:0", "[::1]:9100", "localhost:65535"] {
            assert_eq!(good.parse(), Ok(Address(good.to_owned())));
        }
        for bad in ["", "9100", ":9100", "localhost", "localhost:", "localhost:65536", "::1:9100"] {
            assert!(bad.parse::<Address>().unwrap_err().contains("HOST:PORT"), "{bad}");
        }
    }

    #[test]
    fn what_is_counted_of_row_locks_and_turns_is_encoded() {
        let report = ComputeReport {
            lock_waits: 3,
            lock_wait_us: 1_500_000,
            deadlocks: 4,
            lock_timeouts: 5,
            lock_refusals: 6,
            snapshots_too_old: 7,
            turn_waits: 8,
            turn_wait_us: 2_500_000,
            turns_lost: 9,
            turn_circles: 10,
            ..ComputeReport::default()
        };
        let node = NodeReport::Compute(report);
        let report = Report { version: VERSION, at_us: 1, longest_silence_us: 0, node };
        let mut registry = Registry::default();
        let source: ReportSource = Arc::new(move || vec![(PeerId::compute(2), report.clone())]);
        registry.register_collector(Box::new(Nodes(source)));
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        for (name, value) in [
            ("selkie_lock_waits_total", "3"),
            ("selkie_lock_wait_seconds_total", "1.5"),
            ("selkie_deadlocks_total", "4"),
            ("selkie_lock_timeouts_total", "5"),
            ("selkie_lock_refusals_total", "6"),
            ("selkie_snapshots_too_old_total", "7"),
            ("selkie_turn_waits_total", "8"),
            ("selkie_turn_wait_seconds_total", "2.5"),
            ("selkie_turns_lost_total", "9"),
            ("selkie_turn_circles_total", "10"),
        ] {
            let line = format!("{name}{{node=\"cn2\"}} {value}\n");
            assert!(text.contains(&line), "{line} in\n{text}");
        }
    }

    fn start(address: &str, insecure: bool) -> Result<(Serving, SocketAddr), MetricsError> {
        let waiting = Waiting::default();
        let collectors: [Box<dyn Collector>; 2] =
            [Box::new(Nodes(Arc::new(Vec::new))), Box::new(Waits(waiting))];
        Serving::start(&address.parse().unwrap(), insecure, collectors)
    }

    #[test]
    fn an_address_beyond_the_host_takes_a_word_of_its_own() {
        for open in ["0.0.0.0:0", "[::]:0"] {
            let error = start(open, false).map(|(_, at)| at).unwrap_err();
            assert!(error.to_string().contains("that takes --insecure"), "{open}: {error}");
        }
        let (_serving, at) = start("0.0.0.0:0", true).unwrap();
        assert!(at.port() > 0);
    }

    #[test]
    fn an_address_in_use_is_refused_and_free_again_in_the_end() {
        let (serving, at) = start("127.0.0.1:0", false).unwrap();
        let error = start(&at.to_string(), false).map(|(_, at)| at).unwrap_err();
        assert!(error.to_string().contains("in use"), "{error}");
        drop(serving);
    }
}
