//! All connections of a server.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use selkie_sql::{Clock, PlanCache, Session, SqlError, SqlState};
use selkie_txn::Database;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use crate::connection::{Connection, ended, ending};
use crate::error_response::{Severity, error_response};
use crate::frames::{FrameError, Frames};
use crate::output::Output;
use crate::registry::Registry;
use crate::startup::{STARTUP_TIMEOUT, Wanted, wanted};

/// How long statements may go on when the server ends.
const GRACE: Duration = Duration::from_secs(5);

/// The pause after no connection could be accepted: the system may have no descriptors left.
const PAUSE: Duration = Duration::from_millis(100);

/// How a server serves.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Where clients connect: a loopback address, as there are no roles. Port 0 is any free one.
    pub listen: SocketAddr,
    /// Most clients at a time.
    pub max_connections: usize,
    /// What tells the time.
    pub clock: Clock,
}

/// Why a server cannot begin.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// Others than those of this machine could connect.
    #[error(
        "--listen {0}: without roles there are no passwords, so only loopback addresses are allowed (127.0.0.1, ::1)"
    )]
    NotLoopback(SocketAddr),
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
}

/// What connections share.
struct Shared {
    database: Database,
    plans: Arc<PlanCache>,
    registry: Arc<Registry>,
    clock: Clock,
    ends: watch::Receiver<bool>,
}

impl Server {
    /// Takes clients of a database from now on.
    ///
    /// # Errors
    /// [`ServerError`].
    pub fn start(database: &Database, config: &ServerConfig) -> Result<Self, ServerError> {
        let addr = config.listen;
        if !addr.ip().is_loopback() {
            return Err(ServerError::NotLoopback(addr));
        }
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .thread_name("selkie-server")
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
        let shared = Shared {
            database: database.clone(),
            plans: Arc::default(),
            registry: Arc::new(Registry::new(config.max_connections)),
            clock: config.clock,
            ends,
        };
        let serving = runtime.spawn(Arc::new(shared).serve(listener));
        Ok(Self { runtime: Some(runtime), addr, ends: sender, serving })
    }

    /// Where it listens.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.addr
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
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, %from, "a connection without TCP_NODELAY");
        }
        let (reader, writer) = stream.into_split();
        let output = Arc::new(Output::new(Box::new(writer)));
        let frames = Frames::new(Box::new(reader));
        match self.session(frames, &output).await {
            Ok(()) => {}
            Err(FrameError::Gone(error)) => {
                tracing::debug!(%error, %from, "a client is gone");
            }
            Err(FrameError::Broken(error)) => {
                output.send(&error_response(Severity::Fatal, &error));
                if let Err(error) = output.write().await {
                    tracing::debug!(%error, %from, "a client is gone");
                }
            }
        }
    }

    async fn session(&self, mut frames: Frames, output: &Arc<Output>) -> Result<(), FrameError> {
        let (mut ends, wanted) = (self.ends.clone(), wanted(&mut frames, output));
        let wanted = async {
            tokio::select! {
                wanted = wanted => wanted,
                () = ended(&mut ends) => Err(FrameError::Broken(ending())),
            }
        };
        let startup = match tokio::time::timeout(STARTUP_TIMEOUT, wanted).await {
            Ok(Ok(Wanted::Session(startup))) => startup,
            Ok(Ok(Wanted::Cancel { number, secret })) => {
                self.registry.cancel(number, secret);
                return Ok(());
            }
            Ok(Err(error)) => return Err(error),
            Err(_) => {
                let message = "the client took too long to begin";
                let error = SqlError::new(SqlState::PROTOCOL_VIOLATION, message);
                return Err(FrameError::Broken(error));
            }
        };
        let session = Session::new(&self.database, startup.user.as_str(), self.clock);
        let mut session = session.map_err(FrameError::Broken)?.with_plans(&self.plans);
        let place =
            startup.begin(&mut session, &self.registry, output).map_err(FrameError::Broken)?;
        let mut connection =
            Connection::new(session, frames, Arc::clone(output), self.ends.clone());
        let served = connection.serve().await;
        drop(place);
        Ok(served?)
    }
}
