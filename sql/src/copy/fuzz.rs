//! Fuzz targets of the data of COPY, and of values in the binary format, which clients send as
//! parameters, too.
//!
//! Under `cargo test` each of them runs over some hundred random inputs. With
//! `cargo bolero test -p selkie-sql copy::fuzz::rows` a fuzzer looks for more.
//!
//! For every input: reading does not panic, comes to an end, and gives the same however the data
//! is cut. A value that was read is written as bytes that are read as the same value.

use std::sync::Arc;

use super::{CopyFormat, CopyHeader, CopyKind, CopyReader};
use crate::types::binary_format::{from_binary, to_binary};
use crate::types::{FormatSettings, Scalar, SqlType};

/// Inputs of a target under `cargo test`.
const ITERATIONS: usize = 500;

/// Longest input, in bytes.
const LONGEST: usize = 512;

/// Types of all formats.
const SCALARS: [Scalar; 21] = [
    Scalar::Bool,
    Scalar::Int2,
    Scalar::Int4,
    Scalar::Int8,
    Scalar::Float4,
    Scalar::Float8,
    Scalar::Numeric,
    Scalar::Text,
    Scalar::Varchar,
    Scalar::Char,
    Scalar::Name,
    Scalar::Bytea,
    Scalar::Date,
    Scalar::Time,
    Scalar::Timestamp,
    Scalar::TimestampTz,
    Scalar::Interval,
    Scalar::Uuid,
    Scalar::Json,
    Scalar::Jsonb,
    Scalar::Oid,
];

/// The rows of data in pieces of so many bytes, and the SQLSTATE of its end.
fn rows(format: &CopyFormat, data: &[u8], piece: usize) -> (Vec<String>, Option<&'static str>) {
    let column = |name: &str, ty| (name.to_owned(), ty);
    let columns = [
        column("a", SqlType::INT4),
        column("b", SqlType::TEXT),
        column("c", SqlType::array(Scalar::Text)),
    ];
    let mut reader = CopyReader::new(&Arc::new(format.clone()), "t", &columns);
    let settings = FormatSettings::default();
    let mut rows = Vec::new();
    let mut pieces = data.chunks(piece);
    let mut is_end = false;
    while !is_end {
        match pieces.next() {
            Some(piece) => reader.push(piece),
            None => is_end = true,
        }
        loop {
            match reader.row(&settings, is_end) {
                Ok(Some(row)) => rows.push(format!("{row:?}")),
                Ok(None) => break,
                Err(error) => return (rows, Some(error.state().code())),
            }
            // A row is at least a byte, or binary data would be read for ever.
            assert!(rows.len() <= data.len() + 1, "{data:?} gives more rows than bytes");
        }
    }
    (rows, None)
}

fn check(format: &CopyFormat, data: &[u8]) {
    let whole = rows(format, data, data.len().max(1));
    for piece in [1, 5] {
        assert_eq!(rows(format, data, piece), whole, "{:?} in pieces of {piece}", format.kind);
    }
}

#[test]
fn any_data() {
    bolero::check!(name = "any_data").with_iterations(ITERATIONS).with_max_len(LONGEST).for_each(
        |data: &[u8]| {
            for kind in [CopyKind::Text, CopyKind::Csv, CopyKind::Binary] {
                check(&CopyFormat::of(kind), data);
                let header = CopyHeader::Match;
                check(&CopyFormat { header, ..CopyFormat::of(kind) }, data);
            }
            // What stands before binary rows is not found by chance.
            let rows = [b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0", data].concat();
            check(&CopyFormat::of(CopyKind::Binary), &rows);
        },
    );
}

/// Texts out of what the formats give a meaning.
#[test]
fn rows_of_special_characters() {
    const WORDS: [&[u8]; 16] = [
        b"1",
        b"x",
        b"\t",
        b"\n",
        b"\r\n",
        b"\\",
        b"\\N",
        b"\\.",
        b"\"",
        b",",
        b"{",
        b"}",
        b"\\x4",
        b"\xc3",
        b"{a,b}",
        b"-2147483649",
    ];
    let target = bolero::check!(name = "rows_of_special_characters");
    target.with_iterations(ITERATIONS).with_max_len(64).for_each(|choices: &[u8]| {
        let words = choices.iter().filter_map(|choice| WORDS.get(usize::from(*choice) % 16));
        let data: Vec<u8> = words.flat_map(|word| word.iter().copied()).collect();
        for kind in [CopyKind::Text, CopyKind::Csv] {
            check(&CopyFormat::of(kind), &data);
        }
    });
}

#[test]
fn binary_values() {
    let target = bolero::check!(name = "binary_values");
    target.with_iterations(ITERATIONS).with_max_len(64).for_each(|data: &[u8]| {
        for scalar in SCALARS {
            for ty in [SqlType::new(scalar), SqlType::array(scalar)] {
                let Ok(value) = from_binary(data, ty) else { continue };
                let mut out = Vec::new();
                if to_binary(&value, ty, &mut out).is_err() {
                    continue;
                }
                let same = from_binary(&out, ty);
                let same = same.unwrap_or_else(|error| panic!("{ty:?} of {data:?}: {error}"));
                assert_eq!(format!("{same:?}"), format!("{value:?}"), "{ty:?} of {data:?}");
            }
        }
    });
}
