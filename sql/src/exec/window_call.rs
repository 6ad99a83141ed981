//! The values of one window function for the rows of one partition.

use std::ops::Range;

use super::context::{ExecContext, Row};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::functions::ResolvedAggregate;
use crate::plan::{Expr, WindowCall};
use crate::types::Datum;

/// The rows of a partition in order, and the groups of those that the order does not tell apart.
pub(crate) struct Partition<'r> {
    pub(crate) rows: Vec<&'r Row>,
    pub(crate) peers: Vec<Range<usize>>,
}

impl Partition<'_> {
    /// Gives each row a value by the number of its group and the places of that.
    fn by_peers(&self, value: impl Fn(usize, &Range<usize>) -> Datum) -> Vec<Datum> {
        let groups = self.peers.iter().enumerate();
        groups
            .flat_map(|(number, peers)| std::iter::repeat_n(value(number, peers), peers.len()))
            .collect()
    }

    fn row(&self, at: usize) -> &[Datum] {
        self.rows.get(at).map_or(&[], |row| row)
    }
}

/// The values of a call for the rows of a partition.
pub(crate) fn call_values(
    call: &WindowCall,
    partition: &Partition<'_>,
    context: &ExecContext<'_, '_>,
) -> SqlResult<Vec<Datum>> {
    if let Some(aggregate) = &call.aggregate {
        return aggregate_values(aggregate, &call.arguments, partition, context);
    }
    let rows = partition.rows.len();
    let argument = call.arguments.first();
    Ok(match (call.name.as_str(), argument) {
        ("row_number", _) => (0..rows).map(|at| count(at + 1)).collect(),
        ("rank", _) => partition.by_peers(|_, peers| count(peers.start + 1)),
        ("dense_rank", _) => partition.by_peers(|number, _| count(number + 1)),
        ("percent_rank", _) => {
            partition.by_peers(|_, peers| fraction(peers.start, rows.saturating_sub(1)))
        }
        ("cume_dist", _) => partition.by_peers(|_, peers| fraction(peers.end, rows)),
        ("ntile", Some(buckets)) => ntile(buckets, partition, context)?,
        ("lag", Some(_)) => shifted(&call.arguments, -1, partition, context)?,
        ("lead", Some(_)) => shifted(&call.arguments, 1, partition, context)?,
        ("first_value", Some(value)) => {
            let first = context.eval(value, partition.row(0))?;
            vec![first; rows]
        }
        ("last_value", Some(value)) => {
            let last = |peers: &Range<usize>| {
                context.eval(value, partition.row(peers.end.saturating_sub(1)))
            };
            let values = partition.peers.iter().map(last).collect::<SqlResult<Vec<_>>>()?;
            partition.by_peers(|number, _| values.get(number).cloned().unwrap_or(Datum::Null))
        }
        ("nth_value", Some(value)) => nth_values(value, &call.arguments, partition, context)?,
        (name, _) => return Err(SqlError::unsupported(format!("the window function {name}"))),
    })
}

fn count(number: usize) -> Datum {
    Datum::I64(i64::try_from(number).unwrap_or(i64::MAX))
}

fn fraction(part: usize, whole: usize) -> Datum {
    Datum::F64(if whole == 0 { 0.0 } else { part as f64 / whole as f64 })
}

fn as_i64(value: &Datum) -> SqlResult<Option<i64>> {
    match value {
        Datum::Null => Ok(None),
        Datum::I16(value) => Ok(Some((*value).into())),
        Datum::I32(value) => Ok(Some((*value).into())),
        Datum::I64(value) => Ok(Some(*value)),
        other => Err(SqlError::internal(format!("a count of rows is {other:?}"))),
    }
}

/// An aggregate over the rows up to the last of the same place in the order.
fn aggregate_values(
    aggregate: &ResolvedAggregate,
    arguments: &[Expr],
    partition: &Partition<'_>,
    context: &ExecContext<'_, '_>,
) -> SqlResult<Vec<Datum>> {
    let mut accumulator = (aggregate.new)();
    let mut values = Vec::with_capacity(partition.peers.len());
    for peers in &partition.peers {
        for at in peers.clone() {
            let arguments = context.eval_all(arguments, partition.row(at))?;
            if !(aggregate.is_strict && arguments.iter().any(Datum::is_null)) {
                accumulator.add(&arguments)?;
            }
        }
        values.push(accumulator.finish()?);
    }
    Ok(partition.by_peers(|number, _| values.get(number).cloned().unwrap_or(Datum::Null)))
}

/// Divides the rows into buckets, as equal as possible, the larger ones first. The number of
/// buckets is that of the first row.
fn ntile(
    buckets: &Expr,
    partition: &Partition<'_>,
    context: &ExecContext<'_, '_>,
) -> SqlResult<Vec<Datum>> {
    let rows = partition.rows.len();
    let Some(buckets) = as_i64(&context.eval(buckets, partition.row(0))?)? else {
        return Ok(vec![Datum::Null; rows]);
    };
    if buckets <= 0 {
        let message = "argument of ntile must be greater than zero";
        return Err(SqlError::new(SqlState::INVALID_ARGUMENT_FOR_NTILE, message));
    }
    let buckets = usize::try_from(buckets).unwrap_or(usize::MAX);
    let (each, larger) = (rows / buckets, rows % buckets);
    let in_larger = larger * (each + 1);
    let bucket = |at: usize| {
        let bucket =
            if at < in_larger { at / (each + 1) } else { larger + (at - in_larger) / each.max(1) };
        Datum::I32(i32::try_from(bucket + 1).unwrap_or(i32::MAX))
    };
    Ok((0..rows).map(bucket).collect())
}

/// `lag` and `lead`: the value of a row some rows further, else the third argument.
fn shifted(
    arguments: &[Expr],
    direction: i64,
    partition: &Partition<'_>,
    context: &ExecContext<'_, '_>,
) -> SqlResult<Vec<Datum>> {
    let [value, rest @ ..] = arguments else { return Ok(Vec::new()) };
    let mut values = Vec::with_capacity(partition.rows.len());
    for (at, row) in partition.rows.iter().enumerate() {
        let offset = match rest.first() {
            Some(offset) => as_i64(&context.eval(offset, row)?)?,
            None => Some(1),
        };
        let Some(offset) = offset else {
            values.push(Datum::Null);
            continue;
        };
        let target = i64::try_from(at)
            .ok()
            .and_then(|at| usize::try_from(at.checked_add(offset.checked_mul(direction)?)?).ok());
        values.push(match (target.and_then(|at| partition.rows.get(at)), rest.get(1)) {
            (Some(target), _) => context.eval(value, target)?,
            (None, Some(default)) => context.eval(default, row)?,
            (None, None) => Datum::Null,
        });
    }
    Ok(values)
}

fn nth_values(
    value: &Expr,
    arguments: &[Expr],
    partition: &Partition<'_>,
    context: &ExecContext<'_, '_>,
) -> SqlResult<Vec<Datum>> {
    let mut values = Vec::with_capacity(partition.rows.len());
    for peers in &partition.peers {
        for at in peers.clone() {
            let nth = match arguments.get(1) {
                Some(nth) => as_i64(&context.eval(nth, partition.row(at))?)?,
                None => None,
            };
            let Some(nth) = nth else {
                values.push(Datum::Null);
                continue;
            };
            if nth <= 0 {
                let message = "argument of nth_value must be greater than zero";
                return Err(SqlError::new(SqlState::INVALID_ARGUMENT_FOR_NTH_VALUE, message));
            }
            let target = usize::try_from(nth - 1).unwrap_or(usize::MAX);
            values.push(match target < peers.end {
                true => context.eval(value, partition.row(target))?,
                false => Datum::Null,
            });
        }
    }
    Ok(values)
}
