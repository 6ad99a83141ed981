//! Cost of a round trip over the `tcp` fabric against a bare echo of as many bytes between two threads with
//! a plain socket, and of 64 chains outstanding against one at a time; all on loopback, measured alternately
//! in one run. Once with both nodes on one processor, and once with a processor for each, like two machines;
//! the ratios at the end are those of the latter.
//!
//! Run with `cargo bench -p selkie-fabric --bench tcp`. Under `cargo test` it runs tiny.
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a benchmark: what goes wrong shall end it"
)]

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
    use std::time::Instant;

    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
    use selkie_fabric::tcp::{TcpConfig, TcpFabric};
    use selkie_fabric::{
        Buf, Chain, Completion, Fabric, PeerId, QueuePair, RealRuntime, RemoteAddr, Verb,
    };

    const READ_BYTES: usize = 2048;
    /// Header, and a record for each of two verbs.
    const REQUEST_BYTES: usize = 16 + 2 * 32;
    /// Header, the old value and the payload.
    const RESPONSE_BYTES: usize = 16 + 8 + READ_BYTES;
    const OUTSTANDING: usize = 64;
    const TARGET: f64 = 1.3;
    const OUTSTANDING_TARGET: f64 = 8.0;

    /// A client of a thread that answers every request with as many bytes as a fabric does.
    struct Echo {
        stream: TcpStream,
        request: [u8; REQUEST_BYTES],
        response: [u8; RESPONSE_BYTES],
    }

    impl Echo {
        fn start() -> Echo {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
            let addr = listener.local_addr().expect("an address");
            let stream = TcpStream::connect(addr).expect("a connection");
            let (mut served, _) = listener.accept().expect("a connection");
            for stream in [&stream, &served] {
                stream.set_nodelay(true).expect("an option");
            }
            thread::spawn(move || {
                let (mut request, mut response) = ([0_u8; REQUEST_BYTES], [0_u8; RESPONSE_BYTES]);
                while served.read_exact(&mut request).is_ok() {
                    response[0] = response[0].wrapping_add(request[0]);
                    if served.write_all(&response).is_err() {
                        return;
                    }
                }
            });
            let (request, response) = ([1; REQUEST_BYTES], [0; RESPONSE_BYTES]);
            Echo { stream, request, response }
        }

        fn round_trip(&mut self) {
            self.stream.write_all(&self.request).expect("sent");
            self.stream.read_exact(&mut self.response).expect("answered");
        }
    }

    /// Chains of [add; read of 2 KiB] on one queue pair.
    struct Chains {
        queue_pair: Arc<dyn QueuePair>,
        at: RemoteAddr,
        spare: Vec<Buf>,
        sum: u64,
    }

    impl Chains {
        fn post(&mut self) -> Completion {
            let into = self.spare.pop().unwrap_or_else(|| Buf::zeroed(READ_BYTES));
            let verbs = [Verb::fetch_and_add(self.at, 1), Verb::read(self.at, into)];
            self.queue_pair.post(verbs.into())
        }

        fn take(&mut self, mut chain: Chain) {
            self.sum = self.sum.wrapping_add(chain.old(0).expect("an old value"));
            self.spare.extend(chain.verbs.pop().and_then(Verb::into_buf));
        }

        fn round_trip(&mut self, runtime: &RealRuntime) {
            let completion = self.post();
            let chain = runtime.block_on(completion).expect("done");
            self.take(chain);
        }

        fn round_trip_in_a_loop(&mut self) {
            let mut completion = self.post();
            let chain = loop {
                if let Some(result) = completion.try_take() {
                    break result.expect("done");
                }
                std::hint::spin_loop();
            };
            self.take(chain);
        }

        /// Posts a chain for each that is done. Microseconds a chain.
        fn outstanding(&mut self, runtime: &RealRuntime, calls: usize) -> f64 {
            let mut outstanding: VecDeque<_> = (0..OUTSTANDING).map(|_| self.post()).collect();
            let each = measure(calls, || {
                let completion = outstanding.pop_front().expect("one of many");
                let chain = runtime.block_on(completion).expect("done");
                self.take(chain);
                outstanding.push_back(self.post());
            });
            for completion in outstanding {
                let chain = runtime.block_on(completion).expect("done");
                self.take(chain);
            }
            each
        }
    }

    /// Keeps the calling thread, and the threads it starts, on one processor: each node has its own, like
    /// two machines, whatever the scheduler would like.
    fn run_on(processor: usize) {
        let mut set = CpuSet::new();
        set.set(processor);
        sched_setaffinity(None, &set).expect("a processor");
    }

    /// Microseconds a call.
    fn measure(calls: usize, mut call: impl FnMut()) -> f64 {
        let started = Instant::now();
        for _ in 0..calls {
            call();
        }
        started.elapsed().as_secs_f64() * 1e6 / calls as f64
    }

    fn median(mut values: Vec<f64>) -> f64 {
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    }

    /// Median microseconds of one placement of the two nodes.
    struct Figures {
        bare: f64,
        awaited: f64,
        taken: f64,
        many: f64,
    }

    impl Figures {
        fn print(&self, placement: &str) {
            println!("{placement}:");
            println!("  echo of {REQUEST_BYTES} and {RESPONSE_BYTES} bytes: {:.2} us", self.bare);
            println!("  chain of add and read, awaited: {:.2} us", self.awaited);
            println!("  chain of add and read, asked for in a loop: {:.2} us", self.taken);
            println!("  one of {OUTSTANDING} such chains outstanding: {:.2} us", self.many);
            let (one, many) = (self.awaited / self.bare, self.awaited / self.many);
            println!("  chain to echo {one:.2}, one at a time to {OUTSTANDING} {many:.2}");
        }
    }

    pub(super) fn main() {
        let tiny = !std::env::args().any(|argument| argument == "--bench");
        let (rounds, calls) = if tiny { (3, 20) } else { (21, 2_000) };
        // Asked before threads are kept on one of them.
        let allowed = sched_getaffinity(None).expect("processors");
        let mut allowed = (0..CpuSet::MAX_CPU).filter(|processor| allowed.is_set(*processor));
        let first = allowed.next().expect("a processor");
        let last = allowed.next_back().unwrap_or(first);
        let together = place([first, first], rounds, calls);
        let apart = place([last, first], rounds, calls);
        together.print("both nodes on one processor");
        apart.print("a processor for each node");
        let ratio = apart.awaited / apart.many;
        println!("tcp outstanding: ratio {ratio:.2} (target >= {OUTSTANDING_TARGET})");
        println!("tcp: ratio {:.2} (target <= {TARGET})", apart.awaited / apart.bare);
    }

    /// Measures with the node that lends memory on the first of two processors and the other on the second.
    fn place(
        [memory_processor, node_processor]: [usize; 2],
        rounds: usize,
        calls: usize,
    ) -> Figures {
        run_on(memory_processor);
        let runtime = RealRuntime::new(1).expect("threads");
        let fabric = TcpFabric::new(TcpConfig::new(1), runtime.env());
        let memory = fabric.join(PeerId::memory(0)).expect("a node");
        let region = memory.register(READ_BYTES).expect("memory");
        let mut echo = Echo::start();
        run_on(node_processor);
        let node = fabric.join(PeerId::compute(0)).expect("a node");
        let queue_pair = node.connect(memory.id()).expect("a queue pair");
        let at = RemoteAddr::new(region.key(), 0);
        let mut chains = Chains { queue_pair, at, spare: Vec::new(), sum: 0 };

        let (mut bare, mut awaited, mut taken, mut many) = (vec![], vec![], vec![], vec![]);
        for _ in 0..rounds {
            bare.push(measure(calls, || echo.round_trip()));
            awaited.push(measure(calls, || chains.round_trip(&runtime)));
            taken.push(measure(calls, || chains.round_trip_in_a_loop()));
            many.push(chains.outstanding(&runtime, calls));
        }
        let posted = (rounds * (3 * calls + OUTSTANDING)) as u64;
        assert_eq!(region.load(0), posted, "every chain was executed once");
        assert_eq!(chains.sum, posted * (posted - 1) / 2, "every chain saw another old value");
        println!("{posted} chains, checksum {:#x}", chains.sum);
        let [bare, awaited, taken, many] = [bare, awaited, taken, many].map(median);
        Figures { bare, awaited, taken, many }
    }
}
