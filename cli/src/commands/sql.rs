//! `selkie sql`.

use std::io::{BufRead, IsTerminal, Read};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use clap::Args;
use selkie::engine::EngineError;
use selkie::fabric::Env;
use selkie::{Database, OpenError};
use selkie_sql::{Session, SqlError, TransactionState};

use super::sql_database::{PoolArguments, clock};
use super::sql_output::{Format, Shown};
use super::sql_text::{Statements, error_text};
use crate::support::exit;
use crate::support::signals::{Interrupt, Interrupted};

/// Runs SQL on the database of a pool: statements of the command line, of files, or those that are
/// typed. A pool that has no database gets one.
#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pool: PoolArguments,
    /// Statements to run; may be given again
    #[arg(short, long = "command", value_name = "SQL")]
    commands: Vec<String>,
    /// Files of statements to run, behind those of --command; - is the standard input
    #[arg(short, long = "file", value_name = "FILE")]
    files: Vec<PathBuf>,
    /// How rows are shown
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// Go on behind a statement that fails; the exit code is 1 all the same
    #[arg(long)]
    keep_going: bool,
    /// Say how long each statement took
    #[arg(long)]
    timing: bool,
}

/// Why the command ended.
#[derive(Debug, thiserror::Error)]
enum SqlCommandError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Close(#[from] EngineError),
    #[error(transparent)]
    Session(#[from] SqlError),
    #[error("{file}: {error}")]
    File { file: String, error: std::io::Error },
    #[error("standard input: {0}")]
    Input(#[from] std::io::Error),
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let interrupt = match Interrupt::mind() {
        Ok(interrupt) => interrupt,
        Err(error) => return exit::fail(&error),
    };
    match selkie::block_on(connected(arguments, &interrupt)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(SqlCommandError::Interrupted(interrupted)) => interrupted.end(),
        Err(error) => exit::fail(&error),
    }
}

/// Joins the pool, runs the statements and leaves. Whether all of them succeeded.
async fn connected(arguments: &Arguments, interrupt: &Interrupt) -> Result<bool, SqlCommandError> {
    let database = arguments.pool.open().await?;
    let done = with_database(arguments, interrupt, &database).await;
    database.close().await?;
    done
}

/// What runs the statements.
struct Client<'c> {
    arguments: &'c Arguments,
    interrupt: &'c Interrupt,
    env: &'c Env,
    session: Session,
    /// Whether no statement has failed.
    is_fine: bool,
}

async fn with_database(
    arguments: &Arguments,
    interrupt: &Interrupt,
    database: &Database,
) -> Result<bool, SqlCommandError> {
    let session = Session::new(database, "selkie", clock)?;
    let env = database.pool().env();
    let mut client = Client { arguments, interrupt, env, session, is_fine: true };
    for text in &arguments.commands {
        client.run(text).await?;
        if client.is_over() {
            return Ok(false);
        }
    }
    for file in &arguments.files {
        let failed = |error| SqlCommandError::File { file: file.display().to_string(), error };
        // Each statement by itself: all of them would be one transaction, and one answer.
        let mut statements = Statements::default();
        let mut texts = statements.add(&read(file).map_err(failed)?);
        texts.extend(statements.rest());
        for text in texts {
            client.run(&text).await?;
            if client.is_over() {
                return Ok(false);
            }
        }
    }
    if arguments.commands.is_empty() && arguments.files.is_empty() {
        client.typed().await?;
    }
    Ok(client.is_fine)
}

fn read(file: &PathBuf) -> std::io::Result<String> {
    let mut text = String::new();
    match file.to_str() {
        Some("-") => std::io::stdin().read_to_string(&mut text)?,
        _ => std::fs::File::open(file)?.read_to_string(&mut text)?,
    };
    Ok(text)
}

/// How often a signal is looked for while nothing is typed.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The lines of the standard input, which another thread reads: a read ends for no signal.
fn lines() -> std::io::Result<Receiver<std::io::Result<String>>> {
    let (sender, lines) = sync_channel(1);
    let read = move || {
        let stdin = std::io::stdin().lock();
        for line in stdin.lines() {
            if sender.send(line).is_err() {
                return;
            }
        }
    };
    std::thread::Builder::new().name("input".to_owned()).spawn(read)?;
    Ok(lines)
}

impl Client<'_> {
    /// Whether no more statements are to be run.
    fn is_over(&self) -> bool {
        !self.is_fine && !self.arguments.keep_going
    }

    /// Runs the statements of the standard input, each when its semicolon has come.
    async fn typed(&mut self) -> Result<(), SqlCommandError> {
        let is_terminal = std::io::stdin().is_terminal();
        let mut statements = Statements::default();
        let lines = lines()?;
        let mut is_asked = false;
        loop {
            if is_terminal && !is_asked {
                eprint!("{}", prompt(&statements, self.session.state()));
                is_asked = true;
            }
            let line = match lines.recv_timeout(LOOK_EVERY) {
                Ok(line) => line?,
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => match self.interrupt.signal() {
                    Some(interrupted) => return Err(interrupted.into()),
                    None => continue,
                },
            };
            is_asked = false;
            for statement in statements.add(&line) {
                self.run(&statement).await?;
                if self.is_over() && !is_terminal {
                    return Ok(());
                }
            }
        }
        if let Some(rest) = statements.rest() {
            self.run(&rest).await?;
        }
        Ok(())
    }

    /// Runs the statements of a text and shows what they give.
    async fn run(&mut self, text: &str) -> Result<(), Interrupted> {
        let started = Instant::now();
        let client: Arc<dyn selkie_sql::Client> = Arc::new(Shown::new(self.arguments.format));
        let run = self.session.execute_into(text, &client);
        let ran = self.interrupt.or_end(self.env, run).await?;
        let took = started.elapsed();
        if let Err(error) = ran {
            eprintln!("{}", error_text(text, &error));
            self.is_fine = false;
        }
        if self.arguments.timing {
            eprintln!("Time: {:.3} ms", took.as_secs_f64() * 1e3);
        }
        Ok(())
    }
}

/// What asks for the next line.
fn prompt(statements: &Statements, state: TransactionState) -> &'static str {
    match (statements.is_empty(), state) {
        (false, _) => "selkie-> ",
        (true, TransactionState::Idle) => "selkie=> ",
        (true, TransactionState::InTransaction) => "selkie*> ",
        (true, TransactionState::Failed) => "selkie!> ",
    }
}
