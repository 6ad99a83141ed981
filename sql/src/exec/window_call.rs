//! The values of one window function for the rows of one partition.

use std::ops::Range;

use super::context::{ExecContext, Row};
use super::memory::{MemoryUse, datum_bytes};
use super::window_frame::frames;
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
pub(crate) async fn call_values(
    call: &WindowCall,
    partition: &Partition<'_>,
    context: &mut ExecContext<'_, '_>,
) -> SqlResult<Vec<Datum>> {
    if let Some(aggregate) = &call.aggregate {
        return aggregate_values(aggregate, call, partition, context).await;
    }
    let context = &*context;
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
            of_frames(call, partition, value, context, |_, frame| Ok(Some(frame.start)))?
        }
        ("last_value", Some(value)) => {
            of_frames(call, partition, value, context, |_, frame| Ok(frame.end.checked_sub(1)))?
        }
        ("nth_value", Some(value)) => of_frames(call, partition, value, context, |row, frame| {
            Ok(nth_of(&call.arguments, row, context)?.and_then(|nth| frame.start.checked_add(nth)))
        })?,
        (name, _) => return Err(SqlError::unsupported(format!("the window function {name}"))),
    })
}

/// The value of one row of each frame, of which `choose` gives the place; NULL if that is not
/// within the frame.
fn of_frames(
    call: &WindowCall,
    partition: &Partition<'_>,
    value: &Expr,
    context: &ExecContext<'_, '_>,
    choose: impl Fn(&[Datum], &Range<usize>) -> SqlResult<Option<usize>>,
) -> SqlResult<Vec<Datum>> {
    let frames = frames(call, partition, context)?;
    let one = |(row, frame): (&&Row, &Range<usize>)| match choose(row, frame)? {
        Some(at) if frame.contains(&at) => context.eval(value, partition.row(at)),
        _ => Ok(Datum::Null),
    };
    partition.rows.iter().zip(&frames).map(one).collect()
}

fn count(number: usize) -> Datum {
    Datum::I64(i64::try_from(number).unwrap_or(i64::MAX))
}

fn fraction(part: usize, whole: usize) -> Datum {
    Datum::F64(if whole == 0 { 0.0 } else { part as f64 / whole as f64 })
}

pub(super) fn as_i64(value: &Datum) -> SqlResult<Option<i64>> {
    match value {
        Datum::Null => Ok(None),
        Datum::I16(value) => Ok(Some((*value).into())),
        Datum::I32(value) => Ok(Some((*value).into())),
        Datum::I64(value) => Ok(Some(*value)),
        other => Err(SqlError::internal(format!("a count of rows is {other:?}"))),
    }
}

/// An aggregate over the frame of each row.
async fn aggregate_values(
    aggregate: &ResolvedAggregate,
    call: &WindowCall,
    partition: &Partition<'_>,
    context: &mut ExecContext<'_, '_>,
) -> SqlResult<Vec<Datum>> {
    let mut accumulator = (aggregate.new)();
    // The rows that it has, and its value of those.
    let (mut added, mut value) = (0..0, None);
    let mut values = Vec::with_capacity(partition.rows.len());
    // Rows with the same frame share its value.
    let mut used = MemoryUse::default();
    for frame in frames(call, partition, context)? {
        if frame != added || value.is_none() {
            // It takes no row back: a frame that begins elsewhere is begun anew.
            if frame.start != added.start || frame.end < added.end {
                (accumulator, added) = ((aggregate.new)(), frame.start..frame.start);
            }
            for at in added.end..frame.end {
                let row = partition.row(at);
                if context.holds(call.filter.as_ref(), row)? {
                    let arguments = context.eval_all(&call.arguments, row)?;
                    if !(aggregate.is_strict && arguments.iter().any(Datum::is_null)) {
                        accumulator.add(&arguments)?;
                    }
                }
            }
            context.breathe(frame.end - added.end + 1).await;
            added = frame;
            let new = accumulator.finish()?;
            used.add(datum_bytes(&new), context.limits)?;
            value = Some(new);
        }
        values.extend(value.clone());
    }
    Ok(values)
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

/// Which row of its frame `nth_value` gives, from 0.
fn nth_of(
    arguments: &[Expr],
    row: &[Datum],
    context: &ExecContext<'_, '_>,
) -> SqlResult<Option<usize>> {
    let Some(nth) = arguments.get(1) else { return Ok(None) };
    let Some(nth) = as_i64(&context.eval(nth, row)?)? else { return Ok(None) };
    if nth <= 0 {
        let message = "argument of nth_value must be greater than zero";
        return Err(SqlError::new(SqlState::INVALID_ARGUMENT_FOR_NTH_VALUE, message));
    }
    Ok(usize::try_from(nth - 1).ok())
}
