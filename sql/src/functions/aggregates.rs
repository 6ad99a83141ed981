//! Aggregates: what gathers a value over rows.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use super::arguments::{argument, boolean, float, interval, number, whole};
use super::gather::held_bytes;
use super::resolve::{Choice, ambiguous_function, choose, undefined_function};
use super::signature::{AGGREGATES, Table, Types};
use super::{gather, ordered_sets, regressions, statistics};
use crate::error::SqlResult;
use crate::types::conversions;
use crate::types::order::compare;
use crate::types::{Datum, Scalar, SqlType, calendar, numeric};
use bigdecimal::BigDecimal;
use selkie_txn::Interval;

/// The rows of one group, taken together.
pub trait Accumulator: Send {
    /// Adds a row.
    ///
    /// # Errors
    /// A value out of range.
    fn add(&mut self, arguments: &[Datum]) -> SqlResult<()>;
    /// The result over the rows so far.
    ///
    /// # Errors
    /// A value out of range.
    fn finish(&self) -> SqlResult<Datum>;
    /// Bytes of memory that it holds, about.
    fn bytes(&self) -> usize;
}

/// Makes an accumulator for no rows.
pub(super) type NewAccumulator = fn(&Types) -> Box<dyn Accumulator>;

/// An aggregate whose types are known.
#[derive(Clone)]
pub struct ResolvedAggregate {
    /// What it is called.
    pub name: Arc<str>,
    /// The type that each argument has to be cast to.
    pub arguments: Vec<SqlType>,
    /// The type of the result.
    pub returns: SqlType,
    /// Whether rows of which an argument is NULL are left out. The caller has to see to it.
    pub is_strict: bool,
    /// Makes an accumulator for no rows.
    pub new: Arc<dyn Fn() -> Box<dyn Accumulator> + Send + Sync>,
}

impl fmt::Debug for ResolvedAggregate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (arguments, returns) = (&self.arguments, self.returns);
        f.debug_struct("ResolvedAggregate")
            .field("arguments", arguments)
            .field("returns", &returns)
            .finish_non_exhaustive()
    }
}

/// Whether there is an aggregate of this name, which is in lower case.
#[must_use]
pub fn is_aggregate(name: &str) -> bool {
    AGGREGATES.get(name).is_some()
}

/// The aggregate that a call means; `count(*)` has no arguments. `None` if there is none of that
/// name.
///
/// # Errors
/// None takes such arguments, or several do.
pub fn resolve_aggregate(
    name: &str,
    arguments: &[SqlType],
) -> SqlResult<Option<ResolvedAggregate>> {
    let Some(signatures) = AGGREGATES.get(name) else { return Ok(None) };
    match choose(signatures, arguments)? {
        Choice::One(signature, types) => {
            let body = signature.body;
            Ok(Some(ResolvedAggregate {
                name: name.into(),
                arguments: types.arguments.clone(),
                returns: types.returns,
                is_strict: signature.is_strict,
                new: Arc::new(move || body(&types)),
            }))
        }
        Choice::Several => Err(ambiguous_function(name, arguments)),
        Choice::None => Err(undefined_function(name, arguments)),
    }
}

/// A state that each row changes.
pub(super) struct Fold<S> {
    pub(super) state: S,
    pub(super) step: fn(&mut S, &[Datum]) -> SqlResult<()>,
    pub(super) end: fn(&S) -> SqlResult<Datum>,
}

impl<S: Send> Accumulator for Fold<S> {
    fn add(&mut self, arguments: &[Datum]) -> SqlResult<()> {
        (self.step)(&mut self.state, arguments)
    }

    fn finish(&self) -> SqlResult<Datum> {
        (self.end)(&self.state)
    }

    fn bytes(&self) -> usize {
        size_of::<Self>()
    }
}

pub(super) fn fold<S: Send + 'static>(
    state: S,
    step: fn(&mut S, &[Datum]) -> SqlResult<()>,
    end: fn(&S) -> SqlResult<Datum>,
) -> Box<dyn Accumulator> {
    Box::new(Fold { state, step, end })
}

/// `min` and `max`: a value that may be long.
struct Extreme {
    kept: Datum,
    /// Bytes that it has elsewhere.
    held: usize,
    /// How a value has to be to it, to be kept instead.
    wanted: Ordering,
}

impl Extreme {
    fn begin(wanted: Ordering) -> Box<dyn Accumulator> {
        Box::new(Self { kept: Datum::Null, held: 0, wanted })
    }
}

impl Accumulator for Extreme {
    fn add(&mut self, arguments: &[Datum]) -> SqlResult<()> {
        let value = argument(arguments, 0);
        if self.kept.is_null() || compare(value, &self.kept) == self.wanted {
            (self.kept, self.held) = (value.clone(), held_bytes(value));
        }
        Ok(())
    }

    fn finish(&self) -> SqlResult<Datum> {
        Ok(self.kept.clone())
    }

    fn bytes(&self) -> usize {
        size_of::<Self>() + self.held
    }
}

/// What `min` and `max` are for.
const ORDERED: [&str; 15] = [
    "int2 -> int2",
    "int4 -> int4",
    "int8 -> int8",
    "float4 -> float4",
    "float8 -> float8",
    "numeric -> numeric",
    "text -> text",
    "bpchar -> bpchar",
    "date -> date",
    "time -> time",
    "timestamp -> timestamp",
    "timestamptz -> timestamptz",
    "interval -> interval",
    "oid -> oid",
    "anyarray -> anyarray",
];

pub(super) fn register(table: &mut Table<NewAccumulator>) {
    for signature in ["-> int8", "any -> int8"] {
        table.add_body("count", signature, |_| {
            fold(
                0i64,
                |count, _| {
                    *count += 1;
                    Ok(())
                },
                |count| Ok(Datum::I64(*count)),
            )
        });
    }
    for signature in ORDERED {
        table.add_body("min", signature, |_| Extreme::begin(Ordering::Less));
        table.add_body("max", signature, |_| Extreme::begin(Ordering::Greater));
    }
    register_sums(table);
    for name in ["bool_and", "every"] {
        table.add_body(name, "bool -> bool", |_| fold(None, and, |state| Ok(of_bool(*state))));
    }
    table.add_body("bool_or", "bool -> bool", |_| fold(None, or, |state| Ok(of_bool(*state))));
    for signature in ["int2 -> int2", "int4 -> int4", "int8 -> int8"] {
        table.add_body("bit_and", signature, |_| {
            fold(Datum::Null, |state, values| bits(state, values, |a, b| a & b), |s| Ok(s.clone()))
        });
        table.add_body("bit_or", signature, |_| {
            fold(Datum::Null, |state, values| bits(state, values, |a, b| a | b), |s| Ok(s.clone()))
        });
        table.add_body("bit_xor", signature, |_| {
            fold(Datum::Null, |state, values| bits(state, values, |a, b| a ^ b), |s| Ok(s.clone()))
        });
    }
    ordered_sets::register(table);
    regressions::register(table);
    statistics::register(table);
    gather::register(table);
}

fn of_bool(value: Option<bool>) -> Datum {
    value.map_or(Datum::Null, Datum::Bool)
}

fn and(state: &mut Option<bool>, values: &[Datum]) -> SqlResult<()> {
    *state = Some(state.unwrap_or(true) & boolean(values, 0)?);
    Ok(())
}

fn or(state: &mut Option<bool>, values: &[Datum]) -> SqlResult<()> {
    *state = Some(state.unwrap_or(false) | boolean(values, 0)?);
    Ok(())
}

fn bits(state: &mut Datum, values: &[Datum], combine: fn(i64, i64) -> i64) -> SqlResult<()> {
    let value = argument(values, 0);
    let scalar = match value {
        Datum::I16(_) => Scalar::Int2,
        Datum::I32(_) => Scalar::Int4,
        _ => Scalar::Int8,
    };
    let combined = match &*state {
        Datum::Null => whole(values, 0)?,
        state => combine(whole(std::slice::from_ref(state), 0)?, whole(values, 0)?),
    };
    *state = conversions::whole(i128::from(combined), scalar)?;
    Ok(())
}

/// A sum of whole numbers and how many they are.
type WholeSum = (i128, u64);

fn add_whole(state: &mut WholeSum, values: &[Datum]) -> SqlResult<()> {
    state.0 += i128::from(whole(values, 0)?);
    state.1 += 1;
    Ok(())
}

/// A sum of numbers, with how many they are; NaN is `None`.
#[derive(Default)]
pub(super) struct NumericSum {
    pub(super) sum: BigDecimal,
    pub(super) count: u64,
    pub(super) is_nan: bool,
}

fn add_numeric(state: &mut NumericSum, values: &[Datum]) -> SqlResult<()> {
    match number(values, 0)? {
        Some(value) => state.sum = numeric::add(&state.sum, value)?,
        None => state.is_nan = true,
    }
    state.count += 1;
    Ok(())
}

fn add_float(state: &mut (f64, u64), values: &[Datum]) -> SqlResult<()> {
    let value = float(values, 0)?;
    let sum = state.0 + value;
    if sum.is_infinite() && state.0.is_finite() && value.is_finite() {
        return Err(super::arithmetic::float_overflow());
    }
    *state = (sum, state.1 + 1);
    Ok(())
}

fn add_interval(state: &mut (Interval, u64), values: &[Datum]) -> SqlResult<()> {
    *state = (calendar::add_intervals(state.0, interval(values, 0)?)?, state.1 + 1);
    Ok(())
}

fn average(sum: &BigDecimal, count: u64) -> SqlResult<Datum> {
    match count {
        0 => Ok(Datum::Null),
        _ => numeric::divide(sum, &BigDecimal::from(count)).map(numeric::datum),
    }
}

fn register_sums(table: &mut Table<NewAccumulator>) {
    for signature in ["int2 -> int8", "int4 -> int8"] {
        table.add_body("sum", signature, |_| {
            fold((0, 0), add_whole, |&(sum, count): &WholeSum| match count {
                0 => Ok(Datum::Null),
                _ => conversions::whole(sum, Scalar::Int8),
            })
        });
    }
    table.add_body("sum", "int8 -> numeric", |_| {
        fold((0, 0), add_whole, |&(sum, count): &WholeSum| match count {
            0 => Ok(Datum::Null),
            _ => Ok(numeric::datum(BigDecimal::from(sum))),
        })
    });
    table.add_body("sum", "numeric -> numeric", |_| {
        fold(NumericSum::default(), add_numeric, |state| {
            Ok(match (state.count, state.is_nan) {
                (0, _) => Datum::Null,
                (_, true) => numeric::NAN,
                _ => numeric::datum(state.sum.clone()),
            })
        })
    });
    table.add_body("sum", "float4 -> float4", |_| {
        fold((0.0, 0), add_float, |&(sum, count): &(f64, u64)| {
            #[expect(clippy::cast_possible_truncation, reason = "the result is of 32 bits")]
            Ok(if count == 0 { Datum::Null } else { Datum::F32(sum as f32) })
        })
    });
    table.add_body("sum", "float8 -> float8", |_| {
        fold((0.0, 0), add_float, |&(sum, count): &(f64, u64)| {
            Ok(if count == 0 { Datum::Null } else { Datum::F64(sum) })
        })
    });
    table.add_body("sum", "interval -> interval", |_| {
        fold((Interval::default(), 0), add_interval, |&(sum, count): &(Interval, u64)| {
            Ok(if count == 0 { Datum::Null } else { Datum::Interval(sum) })
        })
    });
    for signature in ["int2 -> numeric", "int4 -> numeric", "int8 -> numeric"] {
        table.add_body("avg", signature, |_| {
            fold((0, 0), add_whole, |&(sum, count): &WholeSum| {
                average(&BigDecimal::from(sum), count)
            })
        });
    }
    table.add_body("avg", "numeric -> numeric", |_| {
        fold(NumericSum::default(), add_numeric, |state| match state.is_nan {
            true => Ok(numeric::NAN),
            false => average(&state.sum, state.count),
        })
    });
    for signature in ["float4 -> float8", "float8 -> float8"] {
        table.add_body("avg", signature, |_| {
            fold((0.0, 0), add_float, |&(sum, count): &(f64, u64)| {
                Ok(if count == 0 { Datum::Null } else { Datum::F64(sum / count as f64) })
            })
        });
    }
    table.add_body("avg", "interval -> interval", |_| {
        fold(
            (Interval::default(), 0),
            add_interval,
            |&(sum, count): &(Interval, u64)| match count {
                0 => Ok(Datum::Null),
                _ => calendar::multiply_interval(sum, 1.0 / count as f64).map(Datum::Interval),
            },
        )
    });
}
