//! `selkie sql`.

use std::io::{BufRead, IsTerminal, Read};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::{Args, ValueEnum};
use comfy_table::{CellAlignment, Table};
use selkie::txn::{DatabaseSchema, Protocol};
use selkie::{Database, PoolOptions};
use selkie_sql::types::to_text;
use selkie_sql::{Datum, Outcome, Scalar, Session, TransactionState};
use serde_json::{Map, Value};

use super::sql_text::{Statements, error_text};
use crate::options::values;
use crate::support::{exit, stdout};

/// Runs SQL on the database of a pool: statements of the command line, of files, or those that are
/// typed. A pool that has no database gets one.
#[derive(Args)]
pub(crate) struct Arguments {
    /// The pool, as NAME, shm:NAME or tcp:HOST:PORT,...; embedded: is a new one in this process,
    /// which ends with it
    #[arg(long, value_name = "URL", default_value = "embedded:")]
    pool: String,
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
    /// Cache of this node, as 64M
    #[arg(long, value_name = "SIZE", value_parser = values::size, default_value = "64M")]
    cache: u64,
    /// Memory of an embedded pool, as 512M
    #[arg(long, value_name = "SIZE", value_parser = values::size, default_value = "512M")]
    memory: u64,
}

/// How rows are shown.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A table.
    Table,
    /// Comma-separated values with a line of names; NULL is nothing, an empty text is "".
    Csv,
    /// A JSON object a row.
    Json,
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    match selkie::block_on(connected(arguments)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => exit::fail(&error),
    }
}

/// Joins the pool, runs the statements and leaves. Whether all of them succeeded.
async fn connected(arguments: &Arguments) -> Result<bool, Box<dyn std::error::Error>> {
    let options = PoolOptions::new().cache_bytes(arguments.cache as usize);
    let options = match arguments.pool.as_str() {
        "embedded:" => options.memory_bytes(arguments.memory),
        _ => options,
    };
    let schema = DatabaseSchema::from(Vec::new()).protocol(Protocol::Snapshot);
    let database = options.open_or_create_database(&arguments.pool, schema).await?;
    let done = with_database(arguments, &database).await;
    database.close().await?;
    done
}

async fn with_database(
    arguments: &Arguments,
    database: &Database,
) -> Result<bool, Box<dyn std::error::Error>> {
    let mut session = Session::new(database, "selkie")?;
    let mut all = true;
    for text in &arguments.commands {
        all &= run_text(arguments, &mut session, text).await;
        if !all && !arguments.keep_going {
            return Ok(false);
        }
    }
    for file in &arguments.files {
        let text = read(file)?;
        all &= run_text(arguments, &mut session, &text).await;
        if !all && !arguments.keep_going {
            return Ok(false);
        }
    }
    if arguments.commands.is_empty() && arguments.files.is_empty() {
        all &= typed(arguments, &mut session).await?;
    }
    Ok(all)
}

fn read(file: &PathBuf) -> Result<String, String> {
    let mut text = String::new();
    let read = match file.to_str() {
        Some("-") => std::io::stdin().read_to_string(&mut text),
        _ => std::fs::File::open(file).and_then(|mut file| file.read_to_string(&mut text)),
    };
    read.map(|_| text).map_err(|error| format!("{}: {error}", file.display()))
}

/// Statements from the standard input, each run when its semicolon has come.
async fn typed(arguments: &Arguments, session: &mut Session) -> Result<bool, std::io::Error> {
    let is_terminal = std::io::stdin().is_terminal();
    let mut statements = Statements::default();
    let mut all = true;
    let mut lines = std::io::stdin().lock().lines();
    loop {
        if is_terminal {
            let sign = match (statements.is_empty(), session.state()) {
                (false, _) => "->",
                (true, TransactionState::Idle) => "=>",
                (true, TransactionState::InTransaction) => "*>",
                (true, TransactionState::Failed) => "!>",
            };
            eprint!("selkie{sign} ");
        }
        let Some(line) = lines.next() else { break };
        for statement in statements.add(&line?) {
            all &= run_text(arguments, session, &statement).await;
        }
        if !all && !is_terminal && !arguments.keep_going {
            return Ok(false);
        }
    }
    if let Some(rest) = statements.rest() {
        all &= run_text(arguments, session, &rest).await;
    }
    Ok(all)
}

/// Runs the statements of a text and shows what they give. Whether all succeeded.
async fn run_text(arguments: &Arguments, session: &mut Session, text: &str) -> bool {
    let started = Instant::now();
    let outcome = session.execute(text).await;
    let took = started.elapsed();
    let is_fine = match outcome {
        Ok(outcomes) => {
            for outcome in &outcomes {
                show(arguments.format, session, outcome);
            }
            true
        }
        Err(error) => {
            eprintln!("{}", error_text(text, &error));
            false
        }
    };
    if arguments.timing {
        eprintln!("Time: {:.3} ms", took.as_secs_f64() * 1e3);
    }
    is_fine
}

fn show(format: Format, session: &Session, outcome: &Outcome) {
    if outcome.columns.is_empty() {
        if format == Format::Table {
            stdout::line(format_args!("{}", outcome.tag));
        }
        return;
    }
    match format {
        Format::Table => show_table(session, outcome),
        Format::Csv => show_csv(session, outcome),
        Format::Json => show_json(session, outcome),
    }
}

/// A value as text; `None` for NULL.
fn text_of(session: &Session, value: &Datum, ty: selkie_sql::SqlType) -> Option<String> {
    if value.is_null() {
        return None;
    }
    let mut text = String::new();
    to_text(value, ty, session.format(), &mut text);
    Some(text)
}

fn show_table(session: &Session, outcome: &Outcome) {
    let mut table = Table::new();
    table.load_preset(comfy_table::presets::UTF8_BORDERS_ONLY);
    table.set_header(outcome.columns.iter().map(|column| column.name.as_str()));
    for row in &outcome.rows {
        let cells = row.iter().zip(&outcome.columns);
        table.add_row(cells.map(|(value, column)| {
            text_of(session, value, column.ty).unwrap_or_default()
        }));
    }
    for (at, column) in outcome.columns.iter().enumerate() {
        if is_number(column.ty) && let Some(own) = table.column_mut(at) {
            own.set_cell_alignment(CellAlignment::Right);
        }
    }
    stdout::line(format_args!("{table}"));
    let rows = outcome.rows.len();
    stdout::line(format_args!("({rows} {})", if rows == 1 { "row" } else { "rows" }));
}

fn is_number(ty: selkie_sql::SqlType) -> bool {
    let numbers = [
        Scalar::Int2,
        Scalar::Int4,
        Scalar::Int8,
        Scalar::Float4,
        Scalar::Float8,
        Scalar::Numeric,
        Scalar::Oid,
    ];
    !ty.is_array && numbers.contains(&ty.scalar)
}

fn show_csv(session: &Session, outcome: &Outcome) {
    let quoted = |text: &str| {
        let is_plain = !text.is_empty() && !text.contains(['"', ',', '\n', '\r']);
        if is_plain { text.to_owned() } else { format!("\"{}\"", text.replace('"', "\"\"")) }
    };
    let names: Vec<String> = outcome.columns.iter().map(|own| quoted(&own.name)).collect();
    stdout::line(format_args!("{}", names.join(",")));
    for row in &outcome.rows {
        let cells = row.iter().zip(&outcome.columns);
        let cells = cells.map(|(value, column)| {
            text_of(session, value, column.ty).map(|text| quoted(&text)).unwrap_or_default()
        });
        stdout::line(format_args!("{}", cells.collect::<Vec<_>>().join(",")));
    }
}

fn show_json(session: &Session, outcome: &Outcome) {
    for row in &outcome.rows {
        let mut object = Map::new();
        for (value, column) in row.iter().zip(&outcome.columns) {
            let json = match (value, text_of(session, value, column.ty)) {
                (_, None) => Value::Null,
                (Datum::Bool(value), _) => Value::Bool(*value),
                (_, Some(text)) if is_number(column.ty) => {
                    // NaN and infinity are no numbers of JSON.
                    serde_json::from_str(&text).unwrap_or(Value::String(text))
                }
                (Datum::Json(_), Some(text)) => {
                    serde_json::from_str(&text).unwrap_or(Value::String(text))
                }
                (_, Some(text)) => Value::String(text),
            };
            object.insert(column.name.clone(), json);
        }
        stdout::line(format_args!("{}", Value::Object(object)));
    }
}
