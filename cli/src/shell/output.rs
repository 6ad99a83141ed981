//! What statements give, as the shell shows it.

use std::future::ready;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use selkie::fabric::BoxFuture;
use selkie_sql::types::FormatSettings;
use selkie_sql::types::text_format::to_text;
use selkie_sql::{Client, Datum, Notice, OutputColumn, SqlError, SqlResult, SqlState, SqlType};
use serde_json::{Map, Value};

use super::busy::Busy;
use super::copy::CopySource;
use super::error::notice_text;
use super::sink::{Sink, mention};
use super::table::{Drawing, Shape};
use super::view::{Cells, Column, Format, Kind, View};
use crate::wire::{Receiver, Report};

/// Shows what statements give: tables when their widths are known, other formats as rows come.
pub(super) struct Shown {
    view: View,
    sink: Sink,
    busy: Arc<Busy>,
    /// Where COPY FROM STDIN reads.
    source: Option<Arc<CopySource>>,
    /// Where data of COPY TO STDOUT goes, if that is another place than that of rows.
    data: Option<Sink>,
    present: Mutex<Present>,
    /// Why something was not written when a statement had ended.
    lost: Mutex<Option<SqlError>>,
}

/// The statement that runs.
#[derive(Default)]
struct Present {
    columns: Arc<[OutputColumn]>,
    values: FormatSettings,
    /// How its rows are shown, once it has columns.
    rows: Option<Rows>,
    /// Data of COPY was shown.
    has_copied: bool,
    /// It has begun, and not ended.
    is_running: bool,
    /// What it has said so far: void if it is run again.
    notices: Vec<String>,
}

/// The rows of a result, in a format.
pub(super) struct Rows {
    columns: Vec<Column>,
    null: String,
    kind: RowsKind,
}

enum RowsKind {
    Drawn(Box<Drawing>),
    Csv { has_names: bool },
    Json { has_begun: bool },
}

impl Rows {
    pub(super) fn new(view: &View, columns: Vec<Column>, title: Option<&str>) -> Self {
        let shape = match (view.format, view.width) {
            (Format::Table, Some(width)) if view.expands_wide => Some(Shape::Fitting(width)),
            (Format::Table, _) => Some(Shape::Aligned),
            (Format::Expanded, _) => Some(Shape::Expanded),
            _ => None,
        };
        let kind = match (shape, view.format) {
            (Some(shape), _) => {
                let drawing = Drawing::new(shape, columns.clone(), &view.null);
                RowsKind::Drawn(Box::new(match title {
                    Some(title) => drawing.titled(title),
                    None => drawing,
                }))
            }
            (None, Format::Csv) => RowsKind::Csv { has_names: false },
            (None, _) => RowsKind::Json { has_begun: false },
        };
        Self { columns, null: view.null.clone(), kind }
    }

    /// Whether something of them is in what was written.
    fn has_begun(&self) -> bool {
        match &self.kind {
            RowsKind::Drawn(drawing) => drawing.has_begun(),
            RowsKind::Csv { has_names } => *has_names,
            RowsKind::Json { has_begun } => *has_begun,
        }
    }

    pub(super) fn row(&mut self, row: &Cells, out: &mut String) {
        match &mut self.kind {
            RowsKind::Drawn(drawing) => drawing.row(row, out),
            RowsKind::Csv { .. } => {
                self.csv_names(out);
                let cell = |cell: &Option<String>| match cell {
                    Some(text) => quoted(text),
                    None => self.null.clone(),
                };
                out.push_str(&row.iter().map(cell).collect::<Vec<_>>().join(","));
                out.push('\n');
            }
            RowsKind::Json { has_begun } => {
                *has_begun = true;
                let values = self.columns.iter().zip(row);
                let values = values.map(|(column, cell)| (column.name.clone(), json(column, cell)));
                let object: Map<String, Value> = values.collect();
                out.push_str(&format!("{}\n", Value::Object(object)));
            }
        }
    }

    pub(super) fn end(&mut self, out: &mut String) {
        match &mut self.kind {
            RowsKind::Drawn(drawing) => drawing.end(out),
            RowsKind::Csv { .. } => self.csv_names(out),
            RowsKind::Json { .. } => {}
        }
    }

    /// Ends with lines below a table for people.
    pub(super) fn end_with(&mut self, footers: &[String], out: &mut String) {
        match &mut self.kind {
            RowsKind::Drawn(drawing) => drawing.end_with(footers, out),
            _ => self.end(out),
        }
    }

    /// The names of the columns, once.
    fn csv_names(&mut self, out: &mut String) {
        if let RowsKind::Csv { has_names } = &mut self.kind
            && !std::mem::replace(has_names, true)
        {
            let names = self.columns.iter().map(|column| quoted(&column.name));
            out.push_str(&names.collect::<Vec<_>>().join(","));
            out.push('\n');
        }
    }
}

/// A cell of CSV.
fn quoted(text: &str) -> String {
    let is_plain = !text.is_empty() && !text.contains(['"', ',', '\n', '\r']);
    if is_plain { text.to_owned() } else { format!("\"{}\"", text.replace('"', "\"\"")) }
}

/// A cell of JSON.
fn json(column: &Column, cell: &Option<String>) -> Value {
    let Some(text) = cell else { return Value::Null };
    let text = || Value::String(text.clone());
    match (column.kind, cell.as_deref()) {
        (Kind::Bool, Some("t")) => Value::Bool(true),
        (Kind::Bool, Some("f")) => Value::Bool(false),
        // NaN and infinity are no numbers of JSON.
        (Kind::Number | Kind::Json, Some(own)) => {
            serde_json::from_str(own).unwrap_or_else(|_| text())
        }
        _ => text(),
    }
}

impl Shown {
    pub(super) fn new(
        view: &View,
        sink: &Sink,
        busy: &Arc<Busy>,
        source: Option<Arc<CopySource>>,
    ) -> Self {
        let (view, sink, busy) = (view.clone(), sink.clone(), Arc::clone(busy));
        Self {
            view,
            sink,
            busy,
            source,
            data: None,
            present: Mutex::default(),
            lost: Mutex::default(),
        }
    }

    /// The same with the data of COPY TO STDOUT going elsewhere.
    pub(super) fn with_data(self, data: &Sink) -> Self {
        Self { data: Some(data.clone()), ..self }
    }

    /// The error of what was not written when a statement had ended; it is told of once.
    pub(super) fn take_lost(&self) -> Option<SqlError> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Shows notices on stderr that were not shown yet.
    pub(super) fn mention_notices(&self) {
        let notices = std::mem::take(&mut self.present().notices);
        if !notices.is_empty() {
            self.busy.clear();
            notices.iter().for_each(|notice| mention(notice));
        }
    }

    fn present(&self) -> MutexGuard<'_, Present> {
        self.present.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn show(&self, rows: &[Vec<Datum>]) -> SqlResult<()> {
        let cells: Vec<Cells> = {
            let present = self.present();
            rows.iter().map(|row| present.cells(row)).collect()
        };
        self.show_cells(&cells)
    }

    fn show_cells(&self, rows: &[Cells]) -> SqlResult<()> {
        let mut present = self.present();
        let mut out = String::new();
        if let Some(shown) = &mut present.rows {
            rows.iter().for_each(|row| shown.row(row, &mut out));
        }
        self.write(&out)
    }

    /// Writes data of COPY where it goes.
    fn write_copied(&self, data: &[u8]) -> SqlResult<()> {
        self.present().has_copied = true;
        let sink = self.data.as_ref().unwrap_or(&self.sink);
        match self.data {
            // The terminal stays as it is.
            Some(_) => self.busy.advance(data.len()),
            None => self.busy.clear(),
        }
        let written = match sink.bytes(data) {
            Ok(()) if sink.is_unread() => Err(std::io::ErrorKind::BrokenPipe.into()),
            written => written,
        };
        written.map_err(|error| unwritten(&error))
    }

    fn write(&self, out: &str) -> SqlResult<()> {
        if out.is_empty() {
            return Ok(());
        }
        self.busy.clear();
        self.sink.text(out).map_err(|error| unwritten(&error))
    }
}

fn unwritten(error: &std::io::Error) -> SqlError {
    SqlError::new(SqlState::IO_ERROR, format!("the output: {error}"))
}

/// A value as text; `None` for NULL.
pub(super) fn text_of(value: &Datum, ty: SqlType, values: &FormatSettings) -> Option<String> {
    let mut text = String::new();
    (!value.is_null()).then(|| {
        to_text(value, ty, values, &mut text);
        text
    })
}

impl Present {
    fn cells(&self, row: &[Datum]) -> Cells {
        let cells = row.iter().zip(self.columns.iter());
        cells.map(|(value, column)| text_of(value, column.ty, &self.values)).collect()
    }
}

impl Client for Shown {
    fn begin(&self, columns: &Arc<[OutputColumn]>, format: &FormatSettings) {
        let shown = |own: &OutputColumn| Column { name: own.name.clone(), kind: Kind::of(own.ty) };
        let shown: Vec<Column> = columns.iter().map(shown).collect();
        let rows = (!shown.is_empty()).then(|| Rows::new(&self.view, shown, None));
        let (columns, values) = (Arc::clone(columns), format.clone());
        let is_running = true;
        *self.present() = Present { columns, values, rows, is_running, ..Present::default() };
    }

    fn rows(&self, rows: Vec<Vec<Datum>>) -> BoxFuture<'_, SqlResult<()>> {
        Box::pin(ready(self.show(&rows)))
    }

    fn wants_more(&self) -> bool {
        !self.sink.is_unread()
    }

    fn is_final(&self) -> bool {
        let present = self.present();
        let has_read = self.source.as_ref().is_some_and(|source| source.has_read());
        has_read || present.has_copied || present.rows.as_ref().is_some_and(Rows::has_begun)
    }

    fn progress(&self, rows_done: u64, rows_total: u64) {
        self.busy.count_rows(rows_done, rows_total);
    }

    fn notice(&self, notice: &Notice) {
        let mut present = self.present();
        present.notices.push(notice_text(&Report::from(notice)));
        if !present.is_running {
            drop(present);
            self.mention_notices();
        }
    }

    fn copy_in(&self, _columns: usize, is_binary: bool) -> SqlResult<()> {
        match &self.source {
            Some(source) => source.begin(is_binary),
            None => Err(SqlError::unsupported("COPY FROM STDIN here")),
        }
    }

    fn copy_data(&self) -> BoxFuture<'_, SqlResult<Option<Vec<u8>>>> {
        Box::pin(ready(match &self.source {
            Some(source) => source.next(),
            None => Ok(None),
        }))
    }

    fn copy_out(&self, _columns: usize, _is_binary: bool) -> SqlResult<()> {
        Ok(())
    }

    fn copy_rows(&self, data: Vec<u8>) -> BoxFuture<'_, SqlResult<()>> {
        Box::pin(ready(self.write_copied(&data)))
    }

    fn end(&self, tag: &str) {
        self.mention_notices();
        let mut present = self.present();
        present.is_running = false;
        let mut out = String::new();
        let has_copied = present.has_copied;
        match &mut present.rows {
            Some(rows) => rows.end(&mut out),
            // Its data is all that COPY TO shows.
            None if has_copied && self.data.is_none() => {}
            None if self.view.format.is_for_people() => out.push_str(&format!("{tag}\n")),
            None => {}
        }
        let flush = |()| self.sink.flush().map_err(|error| unwritten(&error));
        if let Err(error) = self.write(&out).and_then(flush) {
            let mut lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
            lost.get_or_insert(error);
        }
    }
}

/// What a server sends is shown as it comes: nothing of it is void later.
impl Receiver for Shown {
    fn described(&self, columns: &[(String, u32)]) {
        let shown = |own: &(String, u32)| Column { name: own.0.clone(), kind: Kind::of_oid(own.1) };
        let shown: Vec<Column> = columns.iter().map(shown).collect();
        // A query without columns has nothing to show but how many rows there were.
        let rows = (!shown.is_empty()).then(|| Rows::new(&self.view, shown, None));
        *self.present() = Present { rows, is_running: true, ..Present::default() };
    }

    fn given(&self, rows: Vec<Cells>) -> Result<(), Report> {
        self.show_cells(&rows)?;
        // What nobody reads is not to be sent; the shell ends by itself then.
        match self.sink.is_unread() {
            true => Err(unwritten(&std::io::ErrorKind::BrokenPipe.into()).into()),
            false => Ok(()),
        }
    }

    fn asked_for_data(&self, is_binary: bool) -> Result<(), Report> {
        Ok(Client::copy_in(self, 0, is_binary)?)
    }

    fn next_data(&self) -> Result<Option<Vec<u8>>, Report> {
        Ok(self.source.as_ref().map_or(Ok(None), |source| source.next())?)
    }

    fn copied(&self, data: Vec<u8>) -> Result<(), Report> {
        Ok(self.write_copied(&data)?)
    }

    fn noticed(&self, notice: &Report) {
        self.busy.clear();
        mention(&notice_text(notice));
    }

    fn ended(&self, tag: &str) {
        Client::end(self, tag);
        *self.present() = Present::default();
    }
}
