//! From data to rows.

use std::ops::Range;
use std::sync::Arc;

use super::binary::{self, Record, invalid};
use super::line_end::{Found, LineEnd};
use super::{CopyFormat, CopyHeader, CopyKind, Field, csv, text};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::types::text_format::from_text;
use crate::types::{Datum, FormatSettings, SqlType};

/// Longest record, in bytes.
const LONGEST_RECORD: usize = 300 << 20;

/// As many bytes that were read are kept at most before they are let go.
const KEPT: usize = 64 << 10;

/// Most characters of data that an error shows.
const LONGEST_SHOWN: usize = 100;

/// Reads rows out of data that comes in pieces.
pub(crate) struct CopyReader {
    format: Arc<CopyFormat>,
    table: String,
    /// Names and types of the columns that are given.
    names: Vec<String>,
    types: Vec<SqlType>,
    bytes: Vec<u8>,
    /// The first that was not read.
    begin: usize,
    /// How far the end of the record has been looked for, from there.
    looked: usize,
    /// Whether that is within quotes.
    is_quoted: bool,
    /// What the lines end with.
    ends: LineEnd,
    /// Lines that were read, the header included; of binary data they are rows.
    line: u64,
    /// Where the record is that was read last, if it can be shown.
    record: Option<Range<usize>>,
    /// Whether what stands before the rows is still to be read.
    is_new: bool,
    has_ended: bool,
}

impl CopyReader {
    /// A reader for a table.
    pub(crate) fn new(
        format: &Arc<CopyFormat>,
        table: &str,
        columns: &[(String, SqlType)],
    ) -> Self {
        let (names, types) = columns.iter().cloned().unzip();
        Self {
            format: Arc::clone(format),
            table: table.to_owned(),
            names,
            types,
            bytes: Vec::new(),
            begin: 0,
            looked: 0,
            is_quoted: false,
            ends: LineEnd::default(),
            line: 0,
            record: None,
            is_new: true,
            has_ended: false,
        }
    }

    /// The table, as errors call it.
    pub(crate) fn table(&self) -> &str {
        &self.table
    }

    /// The line of the row that was given last.
    pub(crate) fn line(&self) -> u64 {
        self.line
    }

    /// Takes more data.
    pub(crate) fn push(&mut self, data: &[u8]) {
        if self.begin > KEPT || self.begin == self.bytes.len() {
            self.bytes.drain(..self.begin);
            self.begin = 0;
        }
        self.record = None;
        // What is behind the end of text is left out; behind that of binary data nothing may be.
        if !self.has_ended || self.format.kind == CopyKind::Binary {
            self.bytes.extend_from_slice(data);
        }
    }

    /// The next row, if it is there. `is_end` says that no data follows.
    pub(crate) fn row(
        &mut self,
        settings: &FormatSettings,
        is_end: bool,
    ) -> SqlResult<Option<Vec<Datum>>> {
        let row = match self.format.kind {
            CopyKind::Binary => self.binary_row(is_end),
            CopyKind::Text | CopyKind::Csv => self.text_row(settings, is_end),
        };
        row.map_err(|error| match error.context_text() {
            Some(_) => error,
            None => error.context(self.place()),
        })
    }

    /// Where the last record is, for errors of it.
    fn place(&self) -> String {
        let place = format!("COPY {}, line {}", self.table, self.line);
        let record = self.record.clone().and_then(|range| self.bytes.get(range));
        match record.and_then(|record| std::str::from_utf8(record).ok()) {
            Some(record) => format!("{place}: \"{}\"", shortened(record)),
            None => place,
        }
    }

    fn rest(&self) -> &[u8] {
        self.bytes.get(self.begin..).unwrap_or_default()
    }

    fn take(&mut self, count: usize) {
        self.begin += count;
        (self.looked, self.is_quoted) = (0, false);
    }

    fn check_length(&self) -> SqlResult<()> {
        if self.rest().len() <= LONGEST_RECORD {
            return Ok(());
        }
        let message = format!("a row of data has more than {LONGEST_RECORD} bytes");
        Err(SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message))
    }

    fn binary_row(&mut self, is_end: bool) -> SqlResult<Option<Vec<Datum>>> {
        if self.has_ended {
            self.line += u64::from(!self.rest().is_empty());
            return match self.rest().is_empty() {
                true => Ok(None),
                false => Err(invalid("received copy data after EOF marker")),
            };
        }
        if self.is_new {
            match binary::header(self.rest())? {
                Some(length) => self.take(length),
                None if is_end => return Err(invalid("COPY file signature not recognized")),
                None => return Ok(None),
            }
            self.is_new = false;
        }
        match binary::record(self.rest(), &self.types)? {
            Record::Row(row, length) => {
                self.take(length);
                self.line += 1;
                Ok(Some(row))
            }
            Record::End => {
                self.take(binary::TRAILER_BYTES);
                self.has_ended = true;
                self.binary_row(is_end)
            }
            Record::Incomplete if is_end && self.rest().is_empty() => Ok(None),
            Record::Incomplete if is_end => Err(invalid("unexpected EOF in COPY data")),
            Record::Incomplete => self.check_length().map(|()| None),
        }
    }

    fn text_row(
        &mut self,
        settings: &FormatSettings,
        is_end: bool,
    ) -> SqlResult<Option<Vec<Datum>>> {
        loop {
            let Some(fields) = self.fields(is_end)? else { return Ok(None) };
            match self.format.header {
                header if !std::mem::take(&mut self.is_new) || header == CopyHeader::No => {
                    return self.values(fields, settings).map(Some);
                }
                CopyHeader::Match => self.check_header(&fields)?,
                _ => {}
            }
        }
    }

    /// Whether the first line has the names of the columns.
    fn check_header(&self, fields: &[Field]) -> SqlResult<()> {
        if fields.len() != self.names.len() {
            let (got, wanted) = (fields.len(), self.names.len());
            let message =
                format!("wrong number of fields in header line: got {got}, expected {wanted}");
            return Err(invalid(message));
        }
        for (at, (field, wanted)) in fields.iter().zip(&self.names).enumerate() {
            let got = match field {
                Some(name) if name == wanted => continue,
                Some(name) => format!("\"{name}\""),
                None => format!("null value (\"{}\")", self.format.null),
            };
            let at = at + 1;
            return Err(invalid(format!(
                "column name mismatch in header line field {at}: got {got}, expected \"{wanted}\""
            )));
        }
        Ok(())
    }

    /// The values of the next record, if it is there.
    fn fields(&mut self, is_end: bool) -> SqlResult<Option<Vec<Field>>> {
        self.record = None;
        if self.has_ended {
            return Ok(None);
        }
        let (mut looked, mut is_quoted, mut ends) = (self.looked, self.is_quoted, self.ends);
        let kind = self.format.kind;
        let end = if kind == CopyKind::Csv {
            let from = (&mut looked, &mut is_quoted);
            csv::record_end(self.rest(), &self.format, from, &mut ends, is_end)
        } else {
            text::record_end(self.rest(), &mut looked, &mut ends, is_end)
        };
        (self.looked, self.is_quoted, self.ends) = (looked, is_quoted, ends);
        let (end, taken) = match end {
            Some((end, Found::End(bytes))) => (end, end + bytes),
            Some((_, wrong)) => {
                self.line += 1;
                return Err(wrong.error(kind));
            }
            None if is_end && !self.rest().is_empty() => (self.rest().len(), self.rest().len()),
            None => return self.check_length().map(|()| None),
        };
        let record = self.rest().get(..end).unwrap_or_default();
        // Those within quotes are lines, too.
        let within = record.iter().filter(|byte| kind == CopyKind::Csv && **byte == b'\n').count();
        let range = self.begin..self.begin + end;
        self.line += 1 + u64::try_from(within).unwrap_or_default();
        let record = std::str::from_utf8(self.rest().get(..end).unwrap_or_default());
        let record = record.map_err(|_| {
            let message = "invalid byte sequence for encoding \"UTF8\"";
            SqlError::new(SqlState::CHARACTER_NOT_IN_REPERTOIRE, message)
        })?;
        if record == "\\." {
            self.has_ended = true;
            return Ok(None);
        }
        let fields = match kind {
            CopyKind::Csv => csv::fields(record, &self.format)
                .ok_or_else(|| invalid("unterminated CSV quoted field")),
            _ => text::fields(record, &self.format),
        };
        self.record = Some(range);
        let fields = fields?;
        self.take(taken);
        Ok(Some(fields))
    }

    fn values(&self, fields: Vec<Field>, settings: &FormatSettings) -> SqlResult<Vec<Datum>> {
        if fields.len() > self.types.len() {
            return Err(invalid("extra data after last expected column"));
        }
        if let Some(missing) = self.names.get(fields.len()) {
            return Err(invalid(format!("missing data for column \"{missing}\"")));
        }
        let values = fields.iter().zip(&self.types).zip(&self.names);
        let values = values.map(|((field, ty), name)| match field {
            None => Ok(Datum::Null),
            Some(field) => from_text(field, *ty, settings).map_err(|error| {
                let (table, line, shown) = (&self.table, self.line, shortened(field));
                error.context(format!("COPY {table}, line {line}, column {name}: \"{shown}\""))
            }),
        });
        values.collect()
    }
}

/// Data as an error shows it.
fn shortened(text: &str) -> String {
    match text.char_indices().nth(LONGEST_SHOWN) {
        Some((end, _)) => format!("{}...", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code")]
mod tests {
    use super::*;

    /// All rows of data, which comes in pieces of so many bytes.
    fn read(format: CopyFormat, data: &[u8], piece: usize) -> SqlResult<Vec<String>> {
        let columns = [("a".to_owned(), SqlType::INT4), ("b".to_owned(), SqlType::TEXT)];
        let mut reader = CopyReader::new(&Arc::new(format), "t", &columns);
        let settings = FormatSettings::default();
        let mut rows = Vec::new();
        for piece in data.chunks(piece) {
            reader.push(piece);
            while let Some(row) = reader.row(&settings, false)? {
                rows.push(format!("{row:?}"));
            }
        }
        while let Some(row) = reader.row(&settings, true)? {
            rows.push(format!("{row:?}"));
        }
        Ok(rows)
    }

    fn datums(a: i32, b: Option<&str>) -> Vec<Datum> {
        vec![Datum::I32(a), b.map_or(Datum::Null, Datum::text)]
    }

    fn row(a: i32, b: Option<&str>) -> String {
        format!("{:?}", datums(a, b))
    }

    #[test]
    fn pieces_of_any_size_give_the_same_rows() {
        let text = b"1\tone\n2\t\\N\n3\ta\\tb\\nc\\\\d\\101\\x42\\\ne\n4\t\n5\tlast";
        let csv = b"1,one\n2,\n3,\"a,\"\"b\nc\"\n4,\"\"\n5,la\"s,t\"\n";
        for piece in 1..20 {
            let rows = read(CopyFormat::of(CopyKind::Text), text, piece).unwrap();
            let third = "a\tb\nc\\dAB\ne";
            let expected = [
                row(1, Some("one")),
                row(2, None),
                row(3, Some(third)),
                row(4, Some("")),
                row(5, Some("last")),
            ];
            assert_eq!(rows, expected, "{piece}");
            let rows = read(CopyFormat::of(CopyKind::Csv), csv, piece).unwrap();
            let expected = [
                row(1, Some("one")),
                row(2, None),
                row(3, Some("a,\"b\nc")),
                row(4, Some("")),
                row(5, Some("las,t")),
            ];
            assert_eq!(rows, expected, "{piece}");
        }
    }

    #[test]
    fn data_that_is_damaged_is_refused_with_its_line() {
        for (kind, data, message, context) in [
            (
                CopyKind::Text,
                &b"1\ta\nx\tb\n"[..],
                "invalid input syntax for type integer: \"x\"",
                "COPY t, line 2, column a: \"x\"",
            ),
            (CopyKind::Text, b"1\n", "missing data for column \"b\"", "COPY t, line 1: \"1\""),
            (
                CopyKind::Text,
                b"1\ta\tb\n",
                "extra data after last expected column",
                "COPY t, line 1: \"1\ta\tb\"",
            ),
            (
                CopyKind::Text,
                b"1\ta\n2\tb\r\n",
                "literal carriage return found in data",
                "COPY t, line 2",
            ),
            (CopyKind::Text, b"1\ta\r\n2\tb\n", "literal newline found in data", "COPY t, line 2"),
            (
                CopyKind::Csv,
                b"1,\"a\nb\"\n2,b\r3,c\r",
                "unquoted carriage return found in data",
                "COPY t, line 3",
            ),
            (CopyKind::Csv, b"1,a\r2,b\n", "unquoted newline found in data", "COPY t, line 2"),
            (
                CopyKind::Binary,
                b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0\xff\xffx",
                "received copy data after EOF marker",
                "COPY t, line 1",
            ),
            (
                CopyKind::Text,
                b"1\t\xff\n",
                "invalid byte sequence for encoding \"UTF8\"",
                "COPY t, line 1",
            ),
            (CopyKind::Csv, b"1,\"a", "unterminated CSV quoted field", "COPY t, line 1: \"1,\"a\""),
            (CopyKind::Binary, b"PGCOPX", "COPY file signature not recognized", "COPY t, line 0"),
        ] {
            let error = read(CopyFormat::of(kind), data, 3).unwrap_err();
            assert_eq!((error.message(), error.context_text()), (message, Some(context)));
        }
        let long = format!("{}\tx\n", "y".repeat(101));
        let error = read(CopyFormat::of(CopyKind::Text), long.as_bytes(), 64).unwrap_err();
        assert!(error.context_text().unwrap().ends_with("yyy...\""), "{error:?}");
    }

    #[test]
    fn the_first_line_says_how_all_of_them_end() {
        let rows = [row(1, Some("a")), row(2, Some("b"))];
        for (kind, delimiter) in [(CopyKind::Text, "\t"), (CopyKind::Csv, ",")] {
            for (end, piece) in ["\n", "\r", "\r\n"].into_iter().zip([1, 2, 7]) {
                for last in ["", end] {
                    let data = format!("1{delimiter}a{end}2{delimiter}b{last}");
                    let read = read(CopyFormat::of(kind), data.as_bytes(), piece).unwrap();
                    assert_eq!(read, rows, "{kind:?}, {end:?}, {last:?}");
                }
            }
        }
    }

    #[test]
    fn a_header_has_the_names_of_the_columns() {
        let format = CopyFormat { header: CopyHeader::Match, ..CopyFormat::of(CopyKind::Csv) };
        assert_eq!(read(format.clone(), b"a,\"b\"\n1,z\n", 2).unwrap(), [row(1, Some("z"))]);
        for (data, message) in [
            ("b,a\n", "column name mismatch in header line field 1: got \"b\", expected \"a\""),
            (
                "a,\n",
                "column name mismatch in header line field 2: got null value (\"\"), expected \"b\"",
            ),
            ("a\n", "wrong number of fields in header line: got 1, expected 2"),
        ] {
            let error = read(format.clone(), data.as_bytes(), 9).unwrap_err();
            assert_eq!(error.message(), message);
            assert_eq!(error.state(), SqlState::BAD_COPY_FILE_FORMAT);
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let columns = [SqlType::INT4, SqlType::TEXT];
        let rows = [
            datums(1, Some("a\tb\\N,\"x\"\r\n\u{e4}")),
            datums(-5, None),
            datums(7, Some("")),
            datums(8, Some("\\.")),
            datums(9, Some("\\N")),
        ];
        for kind in [CopyKind::Text, CopyKind::Csv, CopyKind::Binary] {
            let format = CopyFormat::of(kind);
            let names = ["a".to_owned(), "b".to_owned()];
            let mut writer = crate::copy::CopyWriter::new(&Arc::new(format.clone()), &columns);
            let mut data = Vec::new();
            writer.begin(&names, &mut data);
            let settings = FormatSettings::default();
            rows.iter().for_each(|row| writer.row(row, &settings, &mut data).unwrap());
            writer.end(&mut data);
            for piece in [1, 7, 1000] {
                let expected: Vec<_> = rows.iter().map(|row| format!("{row:?}")).collect();
                assert_eq!(read(format.clone(), &data, piece).unwrap(), expected, "{kind:?}");
            }
        }
        let with_header = CopyFormat { header: CopyHeader::Yes, ..CopyFormat::of(CopyKind::Csv) };
        assert_eq!(read(with_header, b"x,y\n1,z\n", 2).unwrap(), [row(1, Some("z"))]);
    }
}
