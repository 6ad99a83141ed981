//! `selkie server`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use selkie::engine::EngineError;
use selkie::{Database, OpenError};
use selkie_server::{Clear, Server, ServerConfig, ServerError, Tls, TlsError};

use super::sql_database::{PoolArguments, clock};
use crate::support::exit;
use crate::support::signals::{Interrupt, Interrupted};

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
    /// Certificate that clients are shown, and those between it and its authority behind it, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Key of that certificate, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Take no client without TLS, not even on loopback
    #[arg(long, requires = "tls_cert", conflicts_with = "allow_cleartext")]
    require_tls: bool,
    /// Take clients without TLS beyond loopback: statements and rows can be read on the way
    #[arg(long)]
    allow_cleartext: bool,
}

/// Why the command ended.
#[derive(Debug, thiserror::Error)]
enum ServerCommandError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error(transparent)]
    Server(#[from] ServerError),
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// How often a signal is looked for.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let interrupt = match Interrupt::mind() {
        Ok(interrupt) => interrupt,
        Err(error) => return exit::fail(&error),
    };
    match selkie::block_on(connected(arguments, &interrupt)) {
        // That is how a server ends.
        Ok(interrupted) => {
            eprintln!("ended: {interrupted}");
            ExitCode::SUCCESS
        }
        Err(error) => exit::fail(&error),
    }
}

/// Joins the pool, serves until a signal comes, and leaves.
async fn connected(
    arguments: &Arguments,
    interrupt: &Interrupt,
) -> Result<Interrupted, ServerCommandError> {
    let database = arguments.pool.open().await?;
    let served = serve(arguments, interrupt, &database).await;
    database.close().await?;
    served
}

async fn serve(
    arguments: &Arguments,
    interrupt: &Interrupt,
    database: &Database,
) -> Result<Interrupted, ServerCommandError> {
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
        clock,
    };
    let server = Server::start(database, &config).await?;
    eprintln!("serving {} at {}", arguments.pool.pool, server.addr());
    let ended = loop {
        if let Some(interrupted) = interrupt.signal() {
            break Ok(interrupted);
        }
        // Its clients find another server.
        if let Err(error) = database.engine().check_alive() {
            break Err(error.into());
        }
        database.pool().env().sleep(LOOK_EVERY).await;
    };
    server.end().await;
    ended
}
