//! What `selkie sql` shows.

use std::future::ready;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use clap::ValueEnum;
use comfy_table::{CellAlignment, Table};
use selkie::fabric::BoxFuture;
use selkie_sql::types::FormatSettings;
use selkie_sql::types::text_format::to_text;
use selkie_sql::{Client, Datum, OutputColumn, Scalar, SqlError, SqlResult, SqlState, SqlType};
use serde_json::{Map, Value};

use crate::support::stdout;

/// Most rows of a table: all of them are kept until it is shown.
const MOST_TABLE_ROWS: usize = 1_000_000;

/// How rows are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// A table.
    Table,
    /// Comma-separated values with a line of names; NULL is nothing, an empty text is "".
    Csv,
    /// A JSON object a row.
    Json,
}

/// Shows what statements give: tables when a statement is over, lines as they come.
pub(super) struct Shown {
    shape: Format,
    present: Mutex<Present>,
}

/// The statement that runs.
#[derive(Default)]
struct Present {
    columns: Arc<[OutputColumn]>,
    values: FormatSettings,
    /// Those of a table.
    rows: Vec<Vec<Datum>>,
    /// It has shown a line, or data of COPY.
    has_shown: bool,
}

impl Shown {
    pub(super) fn new(shape: Format) -> Self {
        Self { shape, present: Mutex::default() }
    }

    fn present(&self) -> MutexGuard<'_, Present> {
        self.present.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn show(&self, rows: Vec<Vec<Datum>>) -> SqlResult<()> {
        let mut present = self.present();
        match self.shape {
            Format::Table => {
                present.rows.extend(rows);
                if present.rows.len() > MOST_TABLE_ROWS {
                    let message = format!("a table of more than {MOST_TABLE_ROWS} rows");
                    return Err(SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message)
                        .hint("--format csv and --format json show any number."));
                }
            }
            Format::Csv => {
                present.csv_header();
                rows.iter().for_each(|row| present.csv_row(row));
            }
            Format::Json => {
                present.has_shown = true;
                rows.iter().for_each(|row| present.json_row(row));
            }
        }
        Ok(())
    }
}

impl Client for Shown {
    fn begin(&self, columns: &Arc<[OutputColumn]>, format: &FormatSettings) {
        let (columns, values) = (Arc::clone(columns), format.clone());
        *self.present() = Present { columns, values, ..Present::default() };
    }

    fn rows(&self, rows: Vec<Vec<Datum>>) -> BoxFuture<'_, SqlResult<()>> {
        Box::pin(ready(self.show(rows)))
    }

    fn is_final(&self) -> bool {
        self.present().has_shown
    }

    fn copy_out(&self, _columns: usize, _is_binary: bool) -> SqlResult<()> {
        Ok(())
    }

    fn copy_rows(&self, data: Vec<u8>) -> BoxFuture<'_, SqlResult<()>> {
        self.present().has_shown = true;
        let written = stdout::bytes(&data).map_err(|error| {
            SqlError::new(SqlState::CONNECTION_FAILURE, format!("stdout: {error}"))
        });
        Box::pin(ready(written))
    }

    fn end(&self, tag: &str) {
        let mut present = self.present();
        match self.shape {
            // Its data is all that COPY TO shows.
            _ if present.columns.is_empty() && present.has_shown => {}
            Format::Table if present.columns.is_empty() => {
                stdout::line(format_args!("{tag}"));
            }
            _ if present.columns.is_empty() => {}
            Format::Table => present.table(),
            Format::Csv => present.csv_header(),
            Format::Json => {}
        }
    }
}

impl Present {
    /// A value as text; `None` for NULL.
    fn text_of(&self, value: &Datum, ty: SqlType) -> Option<String> {
        if value.is_null() {
            return None;
        }
        let mut text = String::new();
        to_text(value, ty, &self.values, &mut text);
        Some(text)
    }

    fn table(&mut self) {
        let mut table = Table::new();
        table.load_preset(comfy_table::presets::UTF8_BORDERS_ONLY);
        table.set_header(self.columns.iter().map(|column| column.name.as_str()));
        let rows = mem::take(&mut self.rows);
        for row in &rows {
            let cells = row.iter().zip(self.columns.iter());
            let cells = cells.map(|(value, column)| self.text_of(value, column.ty));
            table.add_row(cells.map(Option::unwrap_or_default));
        }
        for (at, column) in self.columns.iter().enumerate() {
            if is_number(column.ty)
                && let Some(own) = table.column_mut(at)
            {
                own.set_cell_alignment(CellAlignment::Right);
            }
        }
        stdout::line(format_args!("{table}"));
        let count = rows.len();
        stdout::line(format_args!("({count} {})", if count == 1 { "row" } else { "rows" }));
    }

    /// The names of the columns, once.
    fn csv_header(&mut self) {
        if !mem::replace(&mut self.has_shown, true) {
            let names: Vec<String> = self.columns.iter().map(|own| quoted(&own.name)).collect();
            stdout::line(format_args!("{}", names.join(",")));
        }
    }

    fn csv_row(&self, row: &[Datum]) {
        let cells = row.iter().zip(self.columns.iter());
        let cells = cells.map(|(value, column)| {
            self.text_of(value, column.ty).map(|text| quoted(&text)).unwrap_or_default()
        });
        stdout::line(format_args!("{}", cells.collect::<Vec<_>>().join(",")));
    }

    fn json_row(&self, row: &[Datum]) {
        let mut object = Map::new();
        for (value, column) in row.iter().zip(self.columns.iter()) {
            let json = match (value, self.text_of(value, column.ty)) {
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

/// A cell of CSV.
fn quoted(text: &str) -> String {
    let is_plain = !text.is_empty() && !text.contains(['"', ',', '\n', '\r']);
    if is_plain { text.to_owned() } else { format!("\"{}\"", text.replace('"', "\"\"")) }
}

fn is_number(ty: SqlType) -> bool {
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
