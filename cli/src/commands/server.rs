//! `selkie server`.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use selkie::engine::EngineError;
use selkie::{Database, OpenError};
use selkie_server::{Server, ServerConfig, ServerError};

use super::sql_database::{PoolArguments, clock};
use crate::support::exit;
use crate::support::signals::{Interrupt, Interrupted};

/// Serves PostgreSQL clients from the database of a pool, until a signal ends it. Any number of
/// servers on one pool show one database. A pool that has no database gets one.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pool: PoolArguments,
    /// Where clients connect: an address of this machine's loopback; port 0 is any free one
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
}

/// Why the command ended.
#[derive(Debug, thiserror::Error)]
enum ServerCommandError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Close(#[from] EngineError),
    #[error(transparent)]
    Server(#[from] ServerError),
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
    let config = ServerConfig {
        listen: arguments.listen,
        max_connections: usize::from(arguments.max_connections),
        clock,
    };
    let server = Server::start(database, &config)?;
    eprintln!("serving {} at {}", arguments.pool.pool, server.addr());
    let interrupted = loop {
        if let Some(interrupted) = interrupt.signal() {
            break interrupted;
        }
        database.pool().env().sleep(LOOK_EVERY).await;
    };
    server.end().await;
    Ok(interrupted)
}
