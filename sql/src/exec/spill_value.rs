//! Values in temporary files.

use std::sync::Arc;

use bigdecimal::BigDecimal;
use bigdecimal::num_bigint::BigInt;
use selkie_txn::Interval;

use super::spill::damaged;
use crate::error::{SqlError, SqlResult, SqlState};
use crate::types::{Array, Datum, Field, Record, SqlType};

/// Dimensions and fields nest no deeper than a statement may.
const MAX_DEPTH: usize = 256;

mod tag {
    pub(super) const NULL: u8 = 0;
    pub(super) const FALSE: u8 = 1;
    pub(super) const TRUE: u8 = 2;
    pub(super) const I16: u8 = 3;
    pub(super) const I32: u8 = 4;
    pub(super) const I64: u8 = 5;
    pub(super) const F32: u8 = 6;
    pub(super) const F64: u8 = 7;
    pub(super) const NAN: u8 = 8;
    pub(super) const NUMERIC: u8 = 9;
    pub(super) const TEXT: u8 = 10;
    pub(super) const BYTES: u8 = 11;
    pub(super) const JSON: u8 = 12;
    pub(super) const DATE: u8 = 13;
    pub(super) const TIME: u8 = 14;
    pub(super) const TIMESTAMP: u8 = 15;
    pub(super) const INTERVAL: u8 = 16;
    pub(super) const UUID: u8 = 17;
    pub(super) const ARRAY: u8 = 18;
    pub(super) const RECORD: u8 = 19;
}

/// Appends values.
pub(crate) fn write_values(values: &[Datum], out: &mut Vec<u8>) -> SqlResult<()> {
    values.iter().try_for_each(|value| write(value, out))
}

fn write(value: &Datum, out: &mut Vec<u8>) -> SqlResult<()> {
    let mut fixed = |tag: u8, bytes: &[u8]| {
        out.push(tag);
        out.extend_from_slice(bytes);
        Ok(())
    };
    match value {
        Datum::Null => fixed(tag::NULL, &[]),
        Datum::Bool(value) => fixed(if *value { tag::TRUE } else { tag::FALSE }, &[]),
        Datum::I16(value) => fixed(tag::I16, &value.to_le_bytes()),
        Datum::I32(value) => fixed(tag::I32, &value.to_le_bytes()),
        Datum::I64(value) => fixed(tag::I64, &value.to_le_bytes()),
        Datum::F32(value) => fixed(tag::F32, &value.to_le_bytes()),
        Datum::F64(value) => fixed(tag::F64, &value.to_le_bytes()),
        Datum::Numeric(None) => fixed(tag::NAN, &[]),
        Datum::Numeric(Some(value)) => {
            let (digits, scale) = value.as_bigint_and_exponent();
            fixed(tag::NUMERIC, &scale.to_le_bytes())?;
            write_bytes(&digits.to_signed_bytes_le(), out)
        }
        Datum::Text(value) => write_tagged(tag::TEXT, value.as_bytes(), out),
        Datum::Bytes(value) => write_tagged(tag::BYTES, value, out),
        Datum::Json(value) => write_tagged(tag::JSON, value.as_bytes(), out),
        Datum::Date(value) => fixed(tag::DATE, &value.to_le_bytes()),
        Datum::Time(value) => fixed(tag::TIME, &value.to_le_bytes()),
        Datum::Timestamp(value) => fixed(tag::TIMESTAMP, &value.to_le_bytes()),
        Datum::Interval(Interval { months, days, microseconds }) => {
            fixed(tag::INTERVAL, &months.to_le_bytes())?;
            out.extend_from_slice(&days.to_le_bytes());
            out.extend_from_slice(&microseconds.to_le_bytes());
            Ok(())
        }
        Datum::Uuid(value) => fixed(tag::UUID, value),
        Datum::Array(array) => {
            fixed(tag::ARRAY, &SqlType::new(array.element).oid().to_le_bytes())?;
            write_count(array.dimensions.len(), out)?;
            for (length, first) in &array.dimensions {
                write_count(*length, out)?;
                out.extend_from_slice(&first.to_le_bytes());
            }
            write_count(array.elements.len(), out)?;
            write_values(&array.elements, out)
        }
        Datum::Record(own) => {
            fixed(tag::RECORD, &[])?;
            write_count(own.fields.len(), out)?;
            for Field { name, ty } in &*own.fields {
                write_bytes(name.as_bytes(), out)?;
                out.extend_from_slice(&ty.oid().to_le_bytes());
                out.extend_from_slice(&ty.modifier.to_le_bytes());
            }
            write_count(own.values.len(), out)?;
            write_values(&own.values, out)
        }
    }
}

fn write_tagged(tag: u8, bytes: &[u8], out: &mut Vec<u8>) -> SqlResult<()> {
    out.push(tag);
    write_bytes(bytes, out)
}

fn write_bytes(bytes: &[u8], out: &mut Vec<u8>) -> SqlResult<()> {
    write_count(bytes.len(), out)?;
    out.extend_from_slice(bytes);
    Ok(())
}

fn write_count(count: usize, out: &mut Vec<u8>) -> SqlResult<()> {
    let too_large =
        |_| SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, "a value is too large to be sorted");
    out.extend_from_slice(&u32::try_from(count).map_err(too_large)?.to_le_bytes());
    Ok(())
}

/// Reads values one by one.
pub(crate) struct ValueReader<'b> {
    rest: &'b [u8],
}

impl<'b> ValueReader<'b> {
    pub(crate) fn new(bytes: &'b [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next value.
    pub(crate) fn next(&mut self) -> SqlResult<Datum> {
        self.value(0)
    }

    fn value(&mut self, depth: usize) -> SqlResult<Datum> {
        let [tag] = self.fixed()?;
        Ok(match tag {
            tag::NULL => Datum::Null,
            tag::FALSE => Datum::Bool(false),
            tag::TRUE => Datum::Bool(true),
            tag::I16 => Datum::I16(i16::from_le_bytes(self.fixed()?)),
            tag::I32 => Datum::I32(i32::from_le_bytes(self.fixed()?)),
            tag::I64 => Datum::I64(i64::from_le_bytes(self.fixed()?)),
            tag::F32 => Datum::F32(f32::from_le_bytes(self.fixed()?)),
            tag::F64 => Datum::F64(f64::from_le_bytes(self.fixed()?)),
            tag::NAN => Datum::Numeric(None),
            tag::NUMERIC => {
                let scale = i64::from_le_bytes(self.fixed()?);
                let digits = BigInt::from_signed_bytes_le(self.bytes()?);
                Datum::Numeric(Some(Arc::new(BigDecimal::new(digits, scale))))
            }
            tag::TEXT => Datum::text(self.text()?),
            tag::BYTES => Datum::Bytes(self.bytes()?.into()),
            tag::JSON => Datum::Json(self.text()?.into()),
            tag::DATE => Datum::Date(i32::from_le_bytes(self.fixed()?)),
            tag::TIME => Datum::Time(i64::from_le_bytes(self.fixed()?)),
            tag::TIMESTAMP => Datum::Timestamp(i64::from_le_bytes(self.fixed()?)),
            tag::INTERVAL => Datum::Interval(Interval {
                months: i32::from_le_bytes(self.fixed()?),
                days: i32::from_le_bytes(self.fixed()?),
                microseconds: i64::from_le_bytes(self.fixed()?),
            }),
            tag::UUID => Datum::Uuid(self.fixed()?),
            tag::ARRAY => self.array(depth)?,
            tag::RECORD => self.record(depth)?,
            _ => return Err(damaged()),
        })
    }

    fn array(&mut self, depth: usize) -> SqlResult<Datum> {
        let element = SqlType::from_oid(u32::from_le_bytes(self.fixed()?));
        let element = element.ok_or_else(damaged)?.scalar;
        let mut dimensions = Vec::new();
        for _ in 0..self.count()? {
            dimensions.push((self.count()?, i32::from_le_bytes(self.fixed()?)));
        }
        let elements = self.values(depth)?;
        Ok(Datum::Array(Arc::new(Array { element, dimensions, elements })))
    }

    fn record(&mut self, depth: usize) -> SqlResult<Datum> {
        let mut fields = Vec::new();
        for _ in 0..self.count()? {
            let name = self.text()?.into();
            let ty = SqlType::from_oid(u32::from_le_bytes(self.fixed()?)).ok_or_else(damaged)?;
            let ty = ty.with_modifier(i32::from_le_bytes(self.fixed()?));
            fields.push(Field { name, ty });
        }
        let (values, fields) = (self.values(depth)?, fields.into());
        Ok(Datum::Record(Arc::new(Record { values, fields })))
    }

    fn values(&mut self, depth: usize) -> SqlResult<Vec<Datum>> {
        if depth >= MAX_DEPTH {
            return Err(damaged());
        }
        let count = self.count()?;
        (0..count).map(|_| self.value(depth + 1)).collect()
    }

    fn fixed<const N: usize>(&mut self) -> SqlResult<[u8; N]> {
        let (bytes, rest) = self.rest.split_first_chunk().ok_or_else(damaged)?;
        self.rest = rest;
        Ok(*bytes)
    }

    fn count(&mut self) -> SqlResult<usize> {
        Ok(u32::from_le_bytes(self.fixed()?) as usize)
    }

    fn bytes(&mut self) -> SqlResult<&'b [u8]> {
        let count = self.count()?;
        let (bytes, rest) = self.rest.split_at_checked(count).ok_or_else(damaged)?;
        self.rest = rest;
        Ok(bytes)
    }

    fn text(&mut self) -> SqlResult<&'b str> {
        std::str::from_utf8(self.bytes()?).map_err(|_| damaged())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Scalar;

    /// One value of each kind.
    fn examples() -> Vec<Datum> {
        let array = Array {
            element: Scalar::Text,
            dimensions: vec![(1, -3), (2, 1)],
            elements: vec![Datum::text("é"), Datum::Null],
        };
        let number = |digits: i64, scale| {
            Datum::Numeric(Some(Arc::new(BigDecimal::new(BigInt::from(digits), scale))))
        };
        vec![
            Datum::Null,
            Datum::Bool(false),
            Datum::Bool(true),
            Datum::I16(i16::MIN),
            Datum::I32(i32::MIN),
            Datum::I64(i64::MAX),
            Datum::F32(f32::MIN_POSITIVE),
            Datum::F64(-0.0),
            Datum::Numeric(None),
            number(-12_300, 4),
            number(7, -20),
            Datum::text(""),
            Datum::Bytes(vec![0, 255].into()),
            Datum::Json("{\"a\": 1}".into()),
            Datum::Date(i32::MAX),
            Datum::Time(1),
            Datum::Timestamp(i64::MIN),
            Datum::Interval(Interval { months: 1, days: -2, microseconds: 3 }),
            Datum::Uuid([7; 16]),
            Datum::Array(Arc::new(array)),
            Datum::Record(Arc::new(Record {
                values: vec![Datum::I32(1), Datum::Null],
                fields: [
                    Field { name: "a".into(), ty: SqlType::INT4 },
                    Field { name: "é".into(), ty: SqlType::VARCHAR.with_modifier(14) },
                ]
                .into(),
            })),
        ]
    }

    #[test]
    fn what_is_read_is_what_was_written() {
        let mut bytes = Vec::new();
        write_values(&examples(), &mut bytes).unwrap();
        let mut reader = ValueReader::new(&bytes);
        for value in examples() {
            assert_eq!(format!("{:?}", reader.next().unwrap()), format!("{value:?}"));
        }
        assert!(reader.is_at_end());
    }

    #[test]
    fn damaged_bytes_are_an_error() {
        for value in examples() {
            let mut bytes = Vec::new();
            write(&value, &mut bytes).unwrap();
            for end in 0..bytes.len() {
                assert!(ValueReader::new(&bytes[..end]).next().is_err(), "{value:?} up to {end}");
            }
        }
        assert!(ValueReader::new(&[200]).next().is_err());
        let nested = [[tag::RECORD, 1, 0, 0, 0]; 2000].concat();
        assert!(ValueReader::new(&nested).next().is_err());
    }
}
