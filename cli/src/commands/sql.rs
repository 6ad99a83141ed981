//! `selkie sql`.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use selkie::engine::EngineError;
use selkie::sql::clock;
use selkie_sql::{Session, SqlError};

use super::sql_database::{NotOpened, PoolArguments, or_destroyed};
use crate::shell::{Backend, Flow, Format, HistoryChoice, Shell, ShellError, ShellOptions};
use crate::support::exit;
use crate::support::signals::{Interrupt, Interrupted};
use crate::support::stderr::complain;
use crate::wire::{Address, AddressError, Client, Passwords, WireError, Wish};

/// Runs SQL on the database of a pool, or at a server: statements of the command line, of files, or
/// those that are typed, and commands that begin with a backslash, as those of psql (\? lists
/// them). A pool that has no database gets one.
#[derive(Args)]
pub(crate) struct Arguments {
    /// A server, which may be PostgreSQL's, instead of a pool: HOST[:PORT], or
    /// postgres://USER@HOST:PORT/DATABASE?sslmode=MODE. The password is that of PGPASSWORD or
    /// ~/.pgpass, or is asked for
    #[arg(value_name = "SERVER", conflicts_with_all = ["pool", "cache", "overflow", "images", "memory"])]
    server: Option<String>,
    #[command(flatten)]
    pool: PoolArguments,
    /// Statements or a backslash command to run; may be given again
    #[arg(short, long = "command", value_name = "SQL")]
    commands: Vec<String>,
    /// Files of statements to run, behind those of --command; - is the standard input
    #[arg(short, long = "file", value_name = "FILE")]
    files: Vec<PathBuf>,
    /// How rows are shown
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// How NULL is shown in tables and CSV [default: as nothing]
    #[arg(long, value_name = "TEXT")]
    null: Option<String>,
    /// Go on behind a statement that fails; the exit code is 1 all the same
    #[arg(long)]
    keep_going: bool,
    /// Say how long each statement took
    #[arg(long)]
    timing: bool,
    /// File in which what is typed is kept [default: selkie/sql_history in $XDG_STATE_HOME or
    /// ~/.local/state]
    #[arg(long, value_name = "FILE", env = "SELKIE_SQL_HISTORY")]
    history: Option<PathBuf>,
    /// Keep nothing of what is typed
    #[arg(long)]
    no_history: bool,
}

/// Why the command ended.
#[derive(Debug, thiserror::Error)]
enum SqlCommandError {
    #[error(transparent)]
    Open(#[from] NotOpened),
    #[error(transparent)]
    Close(#[from] EngineError),
    #[error(transparent)]
    Session(#[from] SqlError),
    #[error(transparent)]
    Shell(#[from] ShellError),
    #[error(transparent)]
    Address(#[from] AddressError),
    #[error(transparent)]
    Server(#[from] WireError),
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
}

impl Arguments {
    /// Whether a user types the statements, and sees what they give.
    fn is_typed(&self) -> bool {
        let has_none = self.commands.is_empty() && self.files.is_empty();
        has_none && std::io::stdin().is_terminal() && std::io::stdout().is_terminal()
    }

    fn history(&self) -> HistoryChoice {
        match &self.history {
            _ if self.no_history => HistoryChoice::InMemory,
            Some(file) => HistoryChoice::In(file.clone()),
            None => HistoryChoice::OfUser,
        }
    }
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let interrupt = match Interrupt::mind() {
        Ok(interrupt) => interrupt,
        Err(error) => return exit::fail(&error),
    };
    let ran = match &arguments.server {
        Some(server) => at_server(arguments, server, &interrupt),
        None => in_pool(arguments, &interrupt),
    };
    match ran {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(
            SqlCommandError::Shell(ShellError::Interrupted(interrupted))
            | SqlCommandError::Open(NotOpened::Interrupted(interrupted))
            | SqlCommandError::Interrupted(interrupted),
        ) => interrupted.end(),
        Err(SqlCommandError::Address(error)) => {
            complain!("error: {error}");
            ExitCode::from(exit::USAGE)
        }
        Err(SqlCommandError::Shell(ShellError::Unread)) => ExitCode::from(exit::UNREAD),
        Err(error) => exit::fail(&error),
    }
}

/// Connects to a server, runs the statements and leaves. Whether all of them succeeded.
fn at_server(
    arguments: &Arguments,
    server: &str,
    interrupt: &Interrupt,
) -> Result<bool, SqlCommandError> {
    let address = Address::read(server, &|name| std::env::var(name).ok())?;
    let mut look = || if interrupt.signal().is_some() { Wish::Leave } else { Wish::Wait };
    let client = Client::connect(address, Passwords::new(interrupt), &mut look);
    if client.is_err() {
        interrupt.check()?;
    }
    with_backend(arguments, interrupt, Backend::Server(client?.into()))
}

/// Joins the pool, runs the statements and leaves. Whether all of them succeeded.
fn in_pool(arguments: &Arguments, interrupt: &Interrupt) -> Result<bool, SqlCommandError> {
    let database = arguments.pool.open(interrupt)?;
    let begun = Session::new(&database, "selkie", clock).map_err(SqlCommandError::from);
    let done = begun.and_then(|session| {
        let (session, env) = (Box::new(session), database.pool().env().clone());
        with_backend(arguments, interrupt, Backend::Pool { session, env })
    });
    // Why it cannot leave is what became of the pool.
    let closed = selkie::block_on(database.close()).map_err(SqlCommandError::from);
    or_destroyed(&database, closed.and(done))
}

fn with_backend(
    arguments: &Arguments,
    interrupt: &Interrupt,
    backend: Backend,
) -> Result<bool, SqlCommandError> {
    let options = ShellOptions {
        format: arguments.format,
        null: arguments.null.clone(),
        timing: arguments.timing,
        keep_going: arguments.keep_going,
        history: arguments.history(),
    };
    let mut shell = Shell::new(backend, interrupt, options);
    if arguments.is_typed() {
        interrupt.with_user(|| shell.typed()).map_err(ShellError::from)??;
        // What has failed, its user has seen.
        return Ok(shell.is_fine());
    }
    for text in &arguments.commands {
        if shell.text(text)? == Flow::Quits || shell.is_over() {
            return Ok(shell.is_fine());
        }
    }
    for file in &arguments.files {
        if shell.file(file)? == Flow::Quits || shell.is_over() {
            return Ok(shell.is_fine());
        }
    }
    if arguments.commands.is_empty() && arguments.files.is_empty() {
        shell.file(Path::new("-"))?;
    }
    Ok(shell.is_fine())
}
