//! Cost of a round trip over the `tcp` fabric against a bare echo of as many bytes between two
//! threads with a plain socket, and of 64 chains outstanding against one at a time; all on
//! loopback.
//!
//! The ratios come from rounds that alternate between all of them. Every round trip is timed by
//! itself and their median compared: one in which a thread had to wait for its processor, on a
//! machine that others use as well, says nothing of the fabric. Criterion adds the statistics of
//! each, and what changed since the previous run.
//!
//! Round trips are measured in two styles, each against an echo of its own: where both sides sleep
//! until something comes, and where both look again and again. And in two placements: both nodes on
//! one processor, where polling would only keep the other side from running, and a processor for
//! each, like two machines; the ratios at the end are those of the latter.
//!
//! The same with TLS is set against the same without it.
//!
//! Run with `cargo bench -p selkie-fabric --bench tcp`. Under `cargo test` it runs tiny.
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a benchmark: what goes wrong shall end it"
)]

#[cfg(target_os = "linux")]
#[path = "../tests/certificates/mod.rs"]
mod certificates;

#[cfg(target_os = "linux")]
fn main() {
    linux::main();
}

#[cfg(not(target_os = "linux"))]
fn main() {
    println!("tcp: this system has no such fabric");
}

#[cfg(target_os = "linux")]
mod linux {
    use std::collections::VecDeque;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::sync::Arc;
    use std::thread;
    use std::time::{Duration, Instant};

    use criterion::{Criterion, SamplingMode};
    use rustix::net::{RecvFlags, recv};
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
    use selkie_fabric::tcp::{Security, TcpConfig, TcpFabric};
    use selkie_fabric::{
        Buf, Completion, Fabric, PeerId, QueuePair, RealRuntime, RemoteAddr, Verb,
    };

    const READ_BYTES: usize = 2048;
    /// Header, and a record for each of two verbs.
    const REQUEST_BYTES: usize = 16 + 2 * 32;
    /// Header, the old value and the payload.
    const RESPONSE_BYTES: usize = 16 + 8 + READ_BYTES;
    const OUTSTANDING: usize = 64;
    const TARGET: f64 = 1.3;
    const OUTSTANDING_TARGET: f64 = 8.0;

    /// How long a side looks again and again before it sleeps, if it does.
    const POLL_FOR: Duration = Duration::from_micros(50);

    /// What either side does until something comes.
    #[derive(Clone, Copy, PartialEq, Eq)]
    enum Style {
        Sleeps,
        Polls,
    }

    impl Style {
        /// Fills `room`; `None` once the connection is closed.
        fn receive(self, mut stream: &TcpStream, mut room: &mut [u8]) -> Option<()> {
            let started = Instant::now();
            while self == Style::Polls && !room.is_empty() && started.elapsed() < POLL_FOR {
                match recv(stream, &mut *room, RecvFlags::DONTWAIT) {
                    Ok((0, _)) => return None,
                    Ok((_, count)) => room = &mut room[count..],
                    Err(_) => std::hint::spin_loop(),
                }
            }
            stream.read_exact(room).ok()
        }

        fn config(self, security: Option<Arc<Security>>) -> TcpConfig {
            let poll_for = if self == Style::Polls { POLL_FOR } else { Duration::ZERO };
            TcpConfig { poll_for, security, ..TcpConfig::new(1) }
        }
    }

    /// A client of a thread that answers every request with as many bytes as a fabric does.
    struct Echo {
        style: Style,
        stream: TcpStream,
        request: [u8; REQUEST_BYTES],
        response: [u8; RESPONSE_BYTES],
    }

    impl Echo {
        fn start(style: Style) -> Echo {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
            let addr = listener.local_addr().expect("an address");
            let stream = TcpStream::connect(addr).expect("a connection");
            let (mut served, _) = listener.accept().expect("a connection");
            for stream in [&stream, &served] {
                stream.set_nodelay(true).expect("an option");
            }
            thread::spawn(move || {
                let (mut request, mut response) = ([0_u8; REQUEST_BYTES], [0_u8; RESPONSE_BYTES]);
                while style.receive(&served, &mut request).is_some() {
                    response[0] = response[0].wrapping_add(request[0]);
                    if served.write_all(&response).is_err() {
                        return;
                    }
                }
            });
            let (request, response) = ([1; REQUEST_BYTES], [0; RESPONSE_BYTES]);
            Echo { style, stream, request, response }
        }

        fn round_trip(&mut self) {
            self.stream.write_all(&self.request).expect("sent");
            self.style.receive(&self.stream, &mut self.response).expect("answered");
        }
    }

    /// Chains of [add; read of 2 KiB] on one queue pair.
    struct Chains {
        style: Style,
        runtime: RealRuntime,
        queue_pair: Arc<dyn QueuePair>,
        at: RemoteAddr,
        spare: Vec<Buf>,
        posted: u64,
        sum: u64,
    }

    impl Chains {
        fn post(&mut self) -> Completion {
            let into = self.spare.pop().unwrap_or_else(|| Buf::zeroed(READ_BYTES));
            let verbs = [Verb::fetch_and_add(self.at, 1), Verb::read(self.at, into)];
            self.posted += 1;
            self.queue_pair.post(verbs.into())
        }

        fn wait(&mut self, mut completion: Completion) {
            let chain = match self.style {
                Style::Sleeps => self.runtime.block_on(completion),
                Style::Polls => loop {
                    if let Some(result) = completion.try_take() {
                        break result;
                    }
                    std::hint::spin_loop();
                },
            };
            let mut chain = chain.expect("done");
            self.sum = self.sum.wrapping_add(chain.old(0).expect("an old value"));
            self.spare.extend(chain.verbs.pop().and_then(Verb::into_buf));
        }

        fn round_trip(&mut self) {
            let completion = self.post();
            self.wait(completion);
        }

        /// Posts a chain for each that is done.
        fn outstanding(&mut self, calls: usize) -> Duration {
            let mut outstanding: VecDeque<_> = (0..OUTSTANDING).map(|_| self.post()).collect();
            let took = measure(calls, || {
                let completion = outstanding.pop_front().expect("one of many");
                self.wait(completion);
                outstanding.push_back(self.post());
            });
            for completion in outstanding {
                self.wait(completion);
            }
            took
        }
    }

    /// Keeps the calling thread, and the threads it starts, on one processor: each node has its
    /// own, like two machines, whatever the scheduler would like.
    fn run_on(processor: usize) {
        let mut set = CpuSet::new();
        set.set(processor);
        sched_setaffinity(None, &set).expect("a processor");
    }

    fn measure(calls: usize, mut call: impl FnMut()) -> Duration {
        let started = Instant::now();
        for _ in 0..calls {
            call();
        }
        started.elapsed()
    }

    /// Microseconds of one of so many calls.
    fn each(took: Duration, calls: usize) -> f64 {
        took.as_secs_f64() * 1e6 / calls as f64
    }

    /// The value that so many tenths are below.
    fn quantile(values: &[f64], tenths: usize) -> f64 {
        let mut values = values.to_vec();
        values.sort_by(f64::total_cmp);
        values[values.len() * tenths / 10]
    }

    fn median(values: &[f64]) -> f64 {
        quantile(values, 5)
    }

    /// Median, and the bounds of what lies between the fastest and the slowest tenth.
    fn spread(values: &[f64]) -> String {
        let [median, low, high] = [5, 1, 9].map(|tenths| quantile(values, tenths));
        format!("{median:.2} us ({low:.2} to {high:.2})")
    }

    /// Microseconds at one place: of round trips, and of rounds with many outstanding.
    #[derive(Default)]
    struct Figures {
        bare: Vec<f64>,
        chain: Vec<f64>,
        many: Vec<f64>,
    }

    impl Figures {
        /// Chains against the echo.
        fn to_echo(&self) -> f64 {
            median(&self.chain) / median(&self.bare)
        }

        /// Round trips against those without TLS, each by the echo of its own run.
        fn to_plain(&self, plain: &Figures) -> f64 {
            self.to_echo() / plain.to_echo()
        }

        /// Chains done while one is waited for, with many outstanding.
        fn gain(&self) -> f64 {
            median(&self.chain) / median(&self.many)
        }

        fn print(&self, place: &str) {
            let [bare, chain, many] = [&self.bare, &self.chain, &self.many].map(|all| spread(all));
            println!("{place}:");
            println!("  echo of {REQUEST_BYTES} and {RESPONSE_BYTES} bytes: {bare}");
            println!("  chain of add and read: {chain}, to echo {:.2}", self.to_echo());
            println!("  one of {OUTSTANDING} outstanding: {many}, gain {:.2}", self.gain());
        }
    }

    /// Where and how it is measured.
    struct Place<'a> {
        name: &'a str,
        /// Of the node that lends memory, and of the other.
        processors: [usize; 2],
        style: Style,
        security: Option<&'a Arc<Security>>,
    }

    pub(super) fn main() {
        let tiny = !std::env::args().any(|argument| argument == "--bench");
        let (rounds, calls) = if tiny { (3, 20) } else { (301, 100) };
        let mut criterion = Criterion::default()
            .warm_up_time(Duration::from_millis(500))
            .measurement_time(Duration::from_secs(1))
            .configure_from_args();
        // Asked before threads are kept on one of them.
        let allowed = sched_getaffinity(None).expect("processors");
        let mut allowed = (0..CpuSet::MAX_CPU).filter(|processor| allowed.is_set(*processor));
        let first = allowed.next().expect("a processor");
        let (one, each) = ([first, first], [allowed.next_back().unwrap_or(first), first]);
        let secured = crate::certificates::Authority::new("pool").node();
        let places = [
            ("both nodes on one processor, sleeping", one, Style::Sleeps, None),
            ("a processor for each node, sleeping", each, Style::Sleeps, None),
            ("a processor for each node, polling", each, Style::Polls, None),
            ("a processor for each node, sleeping, with TLS", each, Style::Sleeps, Some(&secured)),
            ("a processor for each node, polling, with TLS", each, Style::Polls, Some(&secured)),
        ];
        let [_, apart, polling, apart_tls, polling_tls] =
            places.map(|(name, processors, style, security)| {
                let place = Place { name, processors, style, security };
                let figures = place.measure(&mut criterion, rounds, calls);
                figures.print(name);
                figures
            });
        criterion.final_summary();
        let (asleep, awake) = (apart_tls.to_plain(&apart), polling_tls.to_plain(&polling));
        println!("tcp with TLS to plain: ratio {asleep:.2} sleeping, {awake:.2} polling");
        let gain = apart.gain();
        println!("tcp outstanding: ratio {gain:.2} (target >= {OUTSTANDING_TARGET})");
        println!("tcp polling: ratio {:.2} (target <= {TARGET})", polling.to_echo());
        println!("tcp: ratio {:.2} (target <= {TARGET})", apart.to_echo());
    }

    impl Place<'_> {
        fn measure(&self, criterion: &mut Criterion, rounds: usize, calls: usize) -> Figures {
            let [memory_processor, node_processor] = self.processors;
            let style = self.style;
            run_on(memory_processor);
            let runtime = RealRuntime::new(1).expect("threads");
            let fabric = TcpFabric::new(style.config(self.security.cloned()), runtime.env());
            let memory = fabric.join(PeerId::memory(0)).expect("a node");
            let region = memory.register(READ_BYTES).expect("memory");
            let mut echo = Echo::start(style);
            run_on(node_processor);
            let node = fabric.join(PeerId::compute(0)).expect("a node");
            let queue_pair = node.connect(memory.id()).expect("a queue pair");
            let at = RemoteAddr::new(region.key(), 0);
            let mut chains =
                Chains { style, runtime, queue_pair, at, spare: Vec::new(), posted: 0, sum: 0 };
            let figures = compare(&mut echo, &mut chains, rounds, calls);
            let Chains { posted, sum, .. } = chains;
            println!("{}: {posted} chains, checksum {sum:#x}", self.name);
            sample(criterion, self.name, &mut echo, &mut chains);
            let Chains { posted, sum, .. } = chains;
            assert_eq!(region.load(0), posted, "every chain was executed once");
            assert_eq!(sum, posted * (posted - 1) / 2, "every chain saw another old value");
            figures
        }
    }

    /// What the ratios come from: rounds that alternate between all.
    fn compare(echo: &mut Echo, chains: &mut Chains, rounds: usize, calls: usize) -> Figures {
        let mut figures = Figures::default();
        for _ in 0..rounds {
            let echoes = (0..calls).map(|_| each(measure(1, || echo.round_trip()), 1));
            figures.bare.extend(echoes);
            let round_trips = (0..calls).map(|_| each(measure(1, || chains.round_trip()), 1));
            figures.chain.extend(round_trips);
            figures.many.push(each(chains.outstanding(calls), calls));
        }
        figures
    }

    /// Criterion's statistics of the same, as one group.
    fn sample(criterion: &mut Criterion, name: &str, echo: &mut Echo, chains: &mut Chains) {
        let mut group = criterion.benchmark_group(format!("tcp, {name}"));
        group.sampling_mode(SamplingMode::Flat);
        group.bench_function("echo", |bencher| bencher.iter(|| echo.round_trip()));
        group.bench_function("chain of add and read", |bencher| {
            bencher.iter(|| chains.round_trip());
        });
        group.bench_function("one of many outstanding", |bencher| {
            bencher.iter_custom(|calls| chains.outstanding(calls as usize));
        });
        group.finish();
    }
}
