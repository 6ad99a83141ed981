//! `selkie server`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use prometheus_client::collector::Collector;
use selkie::Database;
use selkie::engine::EngineError;
use selkie::sql::clock;
use selkie_server::{Clear, Server, ServerConfig, ServerError, Tls, TlsError};

use super::sql_database::{NotOpened, PoolArguments, or_destroyed};
use crate::options::values;
use crate::support::server_metrics::OfServer;
use crate::support::signals::{Interrupt, Interrupted};
use crate::support::stderr::complain;
use crate::support::{exit, listener, metrics};

/// Serves PostgreSQL clients from the database of a pool, until a signal ends it. Any number of
/// servers on one pool show one database. A pool that has no database gets one.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pool: PoolArguments,
    /// Where clients connect; port 0 is any free one. Beyond this machine's loopback it takes a
    /// role with a password, and a certificate
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:5432")]
    listen: SocketAddr,
    /// Most clients at a time
    #[arg(
        long,
        value_name = "N",
        default_value_t = 100,
        value_parser = clap::value_parser!(u16).range(1..=10_000)
    )]
    max_connections: u16,
    /// Memory that all clients together may take, a fourth of it the statements of one: rows to be
    /// sorted, joined or grouped, rows that are kept for clients, and long messages. What does not
    /// fit goes to temporary files (TMPDIR), or fails with 53200. By default a fourth of the
    /// machine's
    #[arg(long, value_name = "SIZE", value_parser = values::size)]
    client_memory: Option<u64>,
    /// Certificate that clients are shown, and those between it and its authority behind it, in PEM
    #[arg(long, value_name = "FILE")]
    tls_cert: Option<PathBuf>,
    /// Key of that certificate, in PEM
    #[arg(long, value_name = "FILE")]
    tls_key: Option<PathBuf>,
    /// Take no client without TLS, not even on loopback
    #[arg(long, conflicts_with = "allow_cleartext")]
    require_tls: bool,
    /// Take clients without TLS beyond loopback: statements and rows can be read on the way
    #[arg(long)]
    allow_cleartext: bool,
    #[command(flatten)]
    metrics: metrics::Options,
    /// Let other hosts read the metrics
    #[arg(long)]
    insecure: bool,
}

/// Why the command ended.
#[derive(Debug, thiserror::Error)]
enum ServerCommandError {
    #[error(transparent)]
    Open(#[from] NotOpened),
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error(transparent)]
    Server(#[from] ServerError),
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// How often a signal is looked for.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Least memory of all clients: with less, hardly a statement would go without temporary files.
const LEAST_CLIENT_MEMORY: u64 = 16 << 20;

/// Refuses options that do not go with each other.
pub(crate) fn check(arguments: &Arguments) -> Result<(), exit::Refusal> {
    let Arguments { tls_cert, tls_key, require_tls, .. } = arguments;
    let goes_with = |key: &str, other: &str| exit::Refusal::new(key, "", other);
    match (tls_cert, tls_key) {
        (Some(_), None) => return Err(goes_with("tls-cert", "goes with --tls-key")),
        (None, Some(_)) => return Err(goes_with("tls-key", "goes with --tls-cert")),
        (None, None) if *require_tls => {
            return Err(goes_with("require-tls", "goes with --tls-cert and --tls-key"));
        }
        _ => {}
    }
    if let Some(bytes) = arguments.client_memory.filter(|bytes| *bytes < LEAST_CLIENT_MEMORY) {
        let allowed = "is 16M at least";
        return Err(exit::Refusal::new("client-memory", &bytes.to_string(), allowed));
    }
    metrics::check_insecure(&arguments.metrics, arguments.insecure)
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
    match connected(arguments, &interrupt) {
        // That is how a server ends.
        Ok(Ok(interrupted)) => {
            complain!("ended: {interrupted}");
            ExitCode::SUCCESS
        }
        Ok(Err(code)) => code,
        Err(ServerCommandError::Open(NotOpened::Interrupted(interrupted))) => interrupted.end(),
        Err(error) => {
            let held_by = match &error {
                ServerCommandError::Server(ServerError::Listen { addr, .. }) => {
                    listener::held_by(*addr)
                }
                _ => String::new(),
            };
            exit::fail(&format_args!("{error}{held_by}"))
        }
    }
}

/// What has ended a server: a signal, or that its metrics cannot be served, which was said.
type Ended = Result<Interrupted, ExitCode>;

/// Joins the pool, serves until a signal comes, and leaves.
fn connected(arguments: &Arguments, interrupt: &Interrupt) -> Result<Ended, ServerCommandError> {
    let database = arguments.pool.open(interrupt)?;
    let served = selkie::block_on(serve(arguments, interrupt, &database));
    let closed = selkie::block_on(database.close()).map_err(ServerCommandError::from);
    or_destroyed(&database, closed.and(served))
}

async fn serve(
    arguments: &Arguments,
    interrupt: &Interrupt,
    database: &Database,
) -> Result<Ended, ServerCommandError> {
    let tls = match (&arguments.tls_cert, &arguments.tls_key) {
        (Some(certificate), Some(key)) => Some(Tls::load(certificate, key)?),
        _ => None,
    };
    let clear = match (arguments.require_tls, arguments.allow_cleartext) {
        (true, _) => Clear::Nowhere,
        (false, true) => Clear::Everywhere,
        (false, false) => Clear::Local,
    };
    let config = ServerConfig {
        listen: arguments.listen,
        tls,
        clear,
        max_connections: usize::from(arguments.max_connections),
        client_memory_bytes: (arguments.client_memory)
            .map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX)),
        clock,
    };
    let server = Server::start(database, &config).await?;
    complain!("serving {} at {}", arguments.pool.pool, server.addr());
    if arguments.pool.ends_with_process() {
        complain!(
            "the database ends with this process; --pool embedded:DIR keeps it in a directory"
        );
    }
    let nodes = metrics::Nodes(metrics::of_roster(database.pool().roster()));
    let collectors: [Box<dyn Collector>; 2] =
        [Box::new(nodes), Box::new(OfServer(server.counts().clone()))];
    let serving = match metrics::serve_collected(&arguments.metrics, arguments.insecure, collectors)
    {
        Ok(serving) => serving,
        Err(code) => return Ok(Err(code)),
    };
    let ended = loop {
        if let Some(interrupted) = interrupt.signal() {
            break Ok(Ok(interrupted));
        }
        // Its clients find another server.
        if let Err(error) = database.engine().check_alive() {
            break Err(error.into());
        }
        database.pool().env().sleep(LOOK_EVERY).await;
    };
    server.end().await;
    drop(serving);
    ended
}
