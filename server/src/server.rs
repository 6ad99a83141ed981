//! All connections of a server.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use selkie_sql::{Clock, MemoryBudget, PlanCache, SqlError, SqlState, have_password};
use selkie_txn::Database;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Handle, Runtime, RuntimeFlavor};
use tokio::sync::{Semaphore, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

use crate::connection::{Connection, ended, ending};
use crate::error_response::{Severity, error_response};
use crate::frames::{FrameError, Frames};
use crate::login::{Newcomer, let_in};
use crate::memory_limit::{MemoryLimit, memory_of_server};
use crate::newcomers::{NewcomerPlace, Newcomers};
use crate::output::Output;
use crate::registry::Registry;
use crate::startup::{LOGIN_TIMEOUT, PACKET_TIMEOUT, Startup, Wanted, too_many, wanted};
use crate::stats::{ServerCounts, ServerStats};
use crate::tls::Tls;
use crate::transport::{Transport, prepare};

/// How long statements may go on when the server ends.
const GRACE: Duration = Duration::from_secs(5);

/// The pause after no connection could be accepted: the system may have no descriptors left.
const PAUSE: Duration = Duration::from_millis(100);

/// The stack of a thread. Statements may be nested deeply, and not all that walks them goes on
/// another stack where one gets full. The system gives memory as a stack is used.
const STACK_BYTES: usize = 8 << 20;

/// The part of the memory of all clients that the statements of one may take, one in so many.
const CLIENT_PART: usize = 4;

/// Least bound to the threads that statements which compute for long may take, one for each: with
/// a lower one than there are clients, nobody would be served once all are taken.
const FEWEST_THREADS: usize = 512;

/// How long a thread waits for another that goes on with its tasks.
const HAND_OVER: Duration = Duration::from_micros(50);

/// Most clients at a time that are waited for after they were turned away, and for how long.
const REFUSALS: usize = 64;
const REFUSAL: Duration = Duration::from_secs(1);

/// How a server serves.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Where clients connect. Port 0 is any free one. Elsewhere than on loopback there has to be a
    /// role with a password.
    pub listen: SocketAddr,
    /// What secures connections.
    pub tls: Option<Tls>,
    /// How connections in the clear are taken.
    pub clear: Clear,
    /// Most clients at a time.
    pub max_connections: usize,
    /// Most bytes that all clients together keep in memory: rows that their statements sort, join
    /// or group, rows of portals that were not read, and long messages. A fourth of it for one. By
    /// default a fourth of the memory of the machine.
    pub client_memory_bytes: Option<usize>,
    /// What tells the time.
    pub clock: Clock,
}

/// Whether connections in the clear are taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Clear {
    /// From this machine; elsewhere the server listens only if it has a certificate, and then
    /// clients there have to use TLS.
    #[default]
    Local,
    /// From everywhere.
    Everywhere,
    /// From nowhere: all clients have to use TLS.
    Nowhere,
}

/// Why a server cannot begin.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// Others than those of this machine could connect, and nothing would be asked of them.
    #[error(
        "--listen {0}: no role can log in with a password, so only loopback addresses are allowed (127.0.0.1, ::1); make a superuser first: selkie sql --pool URL -c \"create role admin superuser login password '...'\""
    )]
    NoPassword(SocketAddr),
    /// Others than those of this machine could connect, and all that they say could be read.
    #[error(
        "--listen {0}: beyond loopback a certificate is needed (--tls-cert FILE --tls-key FILE); --allow-cleartext does without, and statements and rows can be read on the way"
    )]
    NoTls(SocketAddr),
    /// No client could connect.
    #[error("--require-tls takes a certificate: --tls-cert FILE --tls-key FILE")]
    TlsWithoutCertificate,
    /// The roles of the database cannot be read.
    #[error("the roles of the database: {0}")]
    Roles(SqlError),
    /// The system gives no threads.
    #[error("the threads of the server: {0}")]
    Threads(io::Error),
    /// The system says why it does not listen there.
    #[error("--listen {addr}: {error}")]
    Listen {
        /// The address.
        addr: SocketAddr,
        /// What the system says.
        error: io::Error,
    },
}

/// A server that takes clients, on threads of its own.
pub struct Server {
    /// `None` once it is being dropped.
    runtime: Option<Runtime>,
    addr: SocketAddr,
    ends: watch::Sender<bool>,
    serving: JoinHandle<()>,
    counts: ServerCounts,
}

/// What connections share.
struct Shared {
    database: Database,
    plans: Arc<PlanCache>,
    registry: Arc<Registry>,
    clock: Clock,
    tls: Option<Tls>,
    clear: Clear,
    stats: Arc<ServerStats>,
    /// How much memory clients may take: their statements, and what is kept for them.
    budget: Arc<MemoryBudget>,
    memory: Arc<MemoryLimit>,
    /// Places of clients that have not been let in.
    newcomers: Arc<Newcomers>,
    /// Places of clients that are told that there is none for them.
    refusals: Semaphore,
    ends: watch::Receiver<bool>,
}

impl Server {
    /// Takes clients of a database from now on.
    ///
    /// # Errors
    /// [`ServerError`].
    pub async fn start(database: &Database, config: &ServerConfig) -> Result<Self, ServerError> {
        let addr = config.listen;
        if config.tls.is_none() && config.clear == Clear::Nowhere {
            return Err(ServerError::TlsWithoutCertificate);
        }
        if !addr.ip().is_loopback() {
            if !have_password(database).await.map_err(ServerError::Roles)? {
                return Err(ServerError::NoPassword(addr));
            }
            if config.tls.is_none() && config.clear != Clear::Everywhere {
                return Err(ServerError::NoTls(addr));
            }
        }
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .thread_name("selkie-server")
            .thread_stack_size(STACK_BYTES)
            .max_blocking_threads(config.max_connections.max(FEWEST_THREADS))
            .enable_io()
            .enable_time()
            .build()
            .map_err(ServerError::Threads)?;
        let failed = |error| ServerError::Listen { addr, error };
        let listener = std::net::TcpListener::bind(addr).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let addr = listener.local_addr().map_err(failed)?;
        let listener = {
            let _inside = runtime.enter();
            TcpListener::from_std(listener).map_err(failed)?
        };
        let (sender, ends) = watch::channel(false);
        let counts = ServerCounts {
            stats: Arc::default(),
            registry: Arc::new(Registry::new(config.max_connections)),
        };
        let memory_bytes = config.client_memory_bytes.unwrap_or_else(memory_of_server);
        let budget = Arc::new(MemoryBudget::new(memory_bytes));
        let shared = Shared {
            database: database.clone(),
            plans: Arc::default(),
            registry: Arc::clone(&counts.registry),
            stats: Arc::clone(&counts.stats),
            clock: config.clock,
            tls: config.tls.clone(),
            clear: config.clear,
            memory: Arc::new(MemoryLimit::of_server(&budget)),
            budget,
            newcomers: Arc::new(Newcomers::new(config.max_connections)),
            refusals: Semaphore::new(REFUSALS),
            ends,
        };
        let serving = runtime.spawn(Arc::new(shared).serve(listener));
        Ok(Self { runtime: Some(runtime), addr, ends: sender, serving, counts })
    }

    /// Where it listens.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Where its counters are read.
    #[must_use]
    pub fn counts(&self) -> &ServerCounts {
        &self.counts
    }

    /// Takes no clients any more, and tells those that are idle. Statements may go on for 5
    /// seconds; then they are cancelled. Waits until all clients are gone, for 10 seconds at most.
    pub async fn end(mut self) {
        self.ends.send_replace(true);
        if let Err(error) = (&mut self.serving).await {
            tracing::warn!(%error, "the server has failed");
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Without waiting: this may be a task itself.
        self.runtime.take().into_iter().for_each(Runtime::shutdown_background);
    }
}

impl Shared {
    /// Serves clients until the server ends.
    async fn serve(self: Arc<Self>, listener: TcpListener) {
        let mut connections = JoinSet::new();
        let mut ends = self.ends.clone();
        loop {
            tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((stream, from)) => {
                        let shared = Arc::clone(&self);
                        connections.spawn(async move { shared.connection(stream, from).await });
                    }
                    Err(error) => {
                        tracing::warn!(%error, "no connection can be accepted");
                        tokio::time::sleep(PAUSE).await;
                    }
                },
                Some(_) = connections.join_next(), if !connections.is_empty() => {}
                () = ended(&mut ends) => break,
            }
        }
        drop(listener);
        let all = async { while connections.join_next().await.is_some() {} };
        let mut all = std::pin::pin!(all);
        if tokio::time::timeout(GRACE, &mut all).await.is_err() {
            self.registry.cancel_all();
            // A client that takes nothing in is not waited for.
            let _ = tokio::time::timeout(GRACE, all).await;
        }
    }

    async fn connection(&self, stream: TcpStream, from: SocketAddr) {
        if let Err(error) = prepare(&stream) {
            tracing::debug!(%error, %from, "a connection without options of its socket");
        }
        let Some(place) = self.newcomers.enter(from.ip()) else {
            tracing::warn!(%from, "a client is turned away: too many have not been let in");
            self.turn_away(stream).await;
            return;
        };
        let mut connection = Some(Transport::Clear(stream));
        let accepted = Instant::now();
        // The time that a client has until it is let in.
        let deadline = accepted + LOGIN_TIMEOUT;
        let wanted = wanted(&mut connection, self.tls.as_ref());
        let wanted = self.in_time(accepted + PACKET_TIMEOUT, wanted).await;
        let Some(transport) = connection else {
            tracing::debug!(%from, "a connection could not be secured");
            return;
        };
        let is_secured = transport.is_secured();
        let (reader, writer) = transport.split();
        let output = Arc::new(Output::new(writer));
        let frames = Frames::new(reader, &self.memory);
        let done = match wanted {
            Ok(Wanted::Cancel { number, secret }) => {
                self.registry.cancel(number, secret);
                Ok(())
            }
            Ok(Wanted::Session(startup)) => {
                let arrival = Arrival { startup, from, is_secured, deadline, place };
                self.session(arrival, frames, &output).await
            }
            Err(error) => Err(error),
        };
        match done {
            Ok(()) => {}
            Err(FrameError::Gone(error)) => {
                tracing::debug!(%error, %from, "a client is gone");
            }
            Err(FrameError::Broken(error)) => {
                self.stats.error(&error);
                output.send(&error_response(Severity::Fatal, &error));
                if let Err(error) = output.write_last().await {
                    tracing::debug!(%error, %from, "a client is gone");
                }
            }
        }
        output.end().await;
    }

    /// Tells a client that there is no place for it, as PostgreSQL does where it cannot begin: in
    /// the clear, before anything is read.
    async fn turn_away(&self, stream: TcpStream) {
        let error = too_many();
        self.stats.error(&error);
        let (mut reader, writer) = Transport::Clear(stream).split();
        let output = Output::new(writer);
        output.send(&error_response(Severity::Fatal, &error));
        // So little fits into a socket into which nothing was written.
        if output.write_last().await.is_err() {
            return;
        }
        // Were it closed before what the client has sent is read, the client might not get to see
        // why. Not all are waited for, or these would take the places.
        let Ok(_place) = self.refusals.try_acquire() else { return };
        output.end().await;
        let mut nowhere = tokio::io::sink();
        let rest = tokio::io::copy(&mut reader, &mut nowhere);
        let _ = tokio::time::timeout(REFUSAL, rest).await;
    }

    /// Does a step of the beginning of a connection, unless it takes too long or the server ends.
    async fn in_time<T>(
        &self,
        deadline: Instant,
        step: impl Future<Output = Result<T, FrameError>>,
    ) -> Result<T, FrameError> {
        let mut ends = self.ends.clone();
        tokio::select! {
            done = step => done,
            () = ended(&mut ends) => Err(FrameError::Broken(ending())),
            () = tokio::time::sleep_until(deadline) => {
                let message = "the client took too long to begin";
                let error = SqlError::new(SqlState::PROTOCOL_VIOLATION, message);
                Err(FrameError::Broken(error))
            }
        }
    }

    /// Refuses a client that has to use TLS, and does not.
    fn check_secured(&self, arrival: &Arrival) -> Result<(), FrameError> {
        let is_taken = match self.clear {
            Clear::Everywhere => true,
            Clear::Local => is_local(arrival.from),
            Clear::Nowhere => false,
        };
        if arrival.is_secured || is_taken {
            return Ok(());
        }
        let message =
            "the server takes secured connections only: use sslmode=require or verify-full";
        let error = SqlError::new(SqlState::INVALID_AUTHORIZATION, message);
        Err(FrameError::Broken(error))
    }

    async fn session(
        &self,
        arrival: Arrival,
        mut frames: Frames,
        output: &Arc<Output>,
    ) -> Result<(), FrameError> {
        self.check_secured(&arrival)?;
        let Arrival { startup, from, is_secured, deadline, place } = arrival;
        let binding = self.tls.as_ref().and_then(Tls::binding);
        let newcomer = Newcomer {
            user: &startup.user,
            is_local: is_local(from),
            certificate: binding.filter(|_| is_secured),
        };
        let session = let_in(&self.database, self.clock, &newcomer, &mut frames, output);
        let session = self.in_time(deadline, session).await?;
        drop(place);
        let share = Arc::new(MemoryBudget::share(&self.budget, CLIENT_PART));
        let session = session.with_plans(&self.plans).with_memory(&share);
        let session = session.with_hand_over(hand_over);
        let begun = startup.begin(session, from, &self.registry, output);
        let (session, place) = begun.map_err(FrameError::Broken)?;
        self.stats.client();
        let (output, stats) = (Arc::clone(output), Arc::clone(&self.stats));
        let ends = self.ends.clone();
        let mut connection = Connection::new(session, frames, output, &self.memory, ends, stats);
        let served = connection.serve().await;
        drop(place);
        Ok(served?)
    }
}

/// Lets another thread serve the clients that wait for this one. It is taken to have begun when
/// this thread has slept for a moment; else it goes on itself, and is asked again later.
fn hand_over() {
    let is_worker = Handle::try_current()
        .is_ok_and(|runtime| runtime.runtime_flavor() == RuntimeFlavor::MultiThread);
    if is_worker {
        tokio::task::block_in_place(|| std::thread::sleep(HAND_OVER));
    }
}

/// A client that has said what it wants.
struct Arrival {
    startup: Startup,
    from: SocketAddr,
    is_secured: bool,
    /// When it has to be let in.
    deadline: Instant,
    /// Its place among those that were not.
    place: NewcomerPlace,
}

/// Whether a client is on this machine.
fn is_local(from: SocketAddr) -> bool {
    from.ip().to_canonical().is_loopback()
}
