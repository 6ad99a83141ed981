//! Aggregates over rows in an order: `percentile_cont`, `percentile_disc` and `mode`.
//!
//! A call has what stands in its parentheses first, then the value that WITHIN GROUP orders by, and
//! is given rows in that order. NULLs are left out.

use std::sync::Arc;

use selkie_txn::Interval;

use super::aggregates::{Accumulator, NewAccumulator};
use super::arguments::{argument, float};
use super::gather::held_bytes;
use super::signature::{Table, Types};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::types::order::compare;
use crate::types::{Array, Datum, SqlType, calendar};

/// Whether an aggregate is one over rows in an order.
#[must_use]
pub(crate) fn is_ordered_set(name: &str) -> bool {
    matches!(name, "percentile_cont" | "percentile_disc" | "mode")
}

/// `percentile_cont`, which goes between two values, and `percentile_disc`.
struct Percentile {
    is_continuous: bool,
    /// The type of the values.
    ty: SqlType,
    /// A number from 0 to 1, or an array of such; NULL without rows.
    fraction: Datum,
    values: Vec<Datum>,
    held: usize,
}

impl Accumulator for Percentile {
    fn add(&mut self, arguments: &[Datum]) -> SqlResult<()> {
        let value = argument(arguments, 1);
        if value.is_null() {
            return Ok(());
        }
        if self.values.is_empty() {
            self.fraction = argument(arguments, 0).clone();
        }
        self.held += held_bytes(value);
        self.values.push(value.clone());
        Ok(())
    }

    fn finish(&self) -> SqlResult<Datum> {
        let Datum::Array(fractions) = &self.fraction else { return self.at(&self.fraction) };
        let elements = fractions.elements.iter().map(|own| self.at(own));
        let elements = elements.collect::<SqlResult<_>>()?;
        let (element, dimensions) = (self.ty.scalar, fractions.dimensions.clone());
        Ok(Datum::Array(Arc::new(Array { element, dimensions, elements })))
    }

    fn bytes(&self) -> usize {
        size_of::<Self>() + self.values.capacity() * size_of::<Datum>() + self.held
    }
}

impl Percentile {
    fn begin(types: &Types, is_continuous: bool) -> Box<dyn Accumulator> {
        let (fraction, values, held) = (Datum::Null, Vec::new(), 0);
        Box::new(Self { is_continuous, ty: types.argument(1), fraction, values, held })
    }

    /// The value at a fraction of the rows.
    fn at(&self, fraction: &Datum) -> SqlResult<Datum> {
        if fraction.is_null() {
            return Ok(Datum::Null);
        }
        let fraction = float(std::slice::from_ref(fraction), 0)?;
        if !(0.0..=1.0).contains(&fraction) {
            let message = format!("percentile value {fraction} is not between 0 and 1");
            return Err(SqlError::new(SqlState::NUMERIC_OUT_OF_RANGE, message));
        }
        let count = self.values.len() as f64;
        if !self.is_continuous {
            let number = (fraction * count).ceil().max(1.0);
            return Ok(self.value(number - 1.0));
        }
        let place = fraction * (count - 1.0);
        let (low, high) = (self.value(place.floor()), self.value(place.ceil()));
        between(&low, &high, place - place.floor())
    }

    /// The value of a row, counted from 0.
    fn value(&self, row: f64) -> Datum {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is a whole number of at most the rows"
        )]
        let row = row as usize;
        self.values.get(row).cloned().unwrap_or(Datum::Null)
    }
}

/// The value that is so far from one to another.
fn between(low: &Datum, high: &Datum, share: f64) -> SqlResult<Datum> {
    match (low, high) {
        (Datum::F64(low), Datum::F64(high)) if share > 0.0 => {
            Ok(Datum::F64(low + share * (high - low)))
        }
        (Datum::Interval(low), Datum::Interval(high)) if share > 0.0 => {
            let distance: Interval = calendar::add_intervals(*high, calendar::negate(*low)?)?;
            let part = calendar::multiply_interval(distance, share)?;
            calendar::add_intervals(*low, part).map(Datum::Interval)
        }
        _ => Ok(low.clone()),
    }
}

/// The value that comes most often; of several the first.
struct Mode {
    best: Datum,
    best_count: u64,
    last: Datum,
    last_count: u64,
}

impl Accumulator for Mode {
    fn add(&mut self, arguments: &[Datum]) -> SqlResult<()> {
        let value = argument(arguments, 0);
        if value.is_null() {
            return Ok(());
        }
        if self.last_count > 0 && compare(&self.last, value).is_eq() {
            self.last_count += 1;
        } else {
            (self.last, self.last_count) = (value.clone(), 1);
        }
        if self.last_count > self.best_count {
            (self.best, self.best_count) = (self.last.clone(), self.last_count);
        }
        Ok(())
    }

    fn finish(&self) -> SqlResult<Datum> {
        Ok(self.best.clone())
    }

    fn bytes(&self) -> usize {
        size_of::<Self>() + held_bytes(&self.best) + held_bytes(&self.last)
    }
}

pub(super) fn register(table: &mut Table<NewAccumulator>) {
    for signature in [
        "lax float8 float8 -> float8",
        "lax float8 interval -> interval",
        "lax float8[] float8 -> float8[]",
        "lax float8[] interval -> interval[]",
    ] {
        table.add_body("percentile_cont", signature, |types| Percentile::begin(types, true));
    }
    table.add_body("percentile_disc", "lax float8 anyelement -> anyelement", |types| {
        Percentile::begin(types, false)
    });
    table.add_body("percentile_disc", "lax float8[] anyelement -> anyarray", |types| {
        Percentile::begin(types, false)
    });
    table.add_body("mode", "lax anyelement -> anyelement", |_| {
        let (best, last) = (Datum::Null, Datum::Null);
        Box::new(Mode { best, best_count: 0, last, last_count: 0 })
    });
}
