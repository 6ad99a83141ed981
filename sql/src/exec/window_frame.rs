//! The frames of window functions: the rows around each row that its value is over.

use std::cmp::Ordering;
use std::ops::Range;

use super::context::{ExecContext, Row};
use super::row_key::compare_with_nulls;
use super::window_call::{Partition, as_i64};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::plan::{FrameBound, FrameOffset, FrameUnits, WindowCall};
use crate::types::Datum;

/// A bound that is a number of rows or groups from the current one; negative is before it.
#[derive(Clone, Copy)]
enum Distance {
    Unbounded,
    Of(i64),
}

/// The frame of each row of a partition. One may be empty.
pub(super) fn frames(
    call: &WindowCall,
    partition: &Partition<'_>,
    context: &ExecContext<'_, '_>,
) -> SqlResult<Vec<Range<usize>>> {
    let ends = [(&call.frame.start, true), (&call.frame.end, false)];
    let [start, end] = ends.map(|(bound, is_start)| match call.frame.units {
        FrameUnits::Range => by_value(call, bound, is_start, partition, context),
        units => by_number(units, bound, is_start, partition, context),
    });
    let pairs = start?.into_iter().zip(end?);
    Ok(pairs.map(|(start, end)| start..end.max(start)).collect())
}

fn refused(state: SqlState, is_start: bool, what: &str) -> SqlError {
    let end = if is_start { "starting" } else { "ending" };
    SqlError::new(state, format!("frame {end} offset must not be {what}"))
}

fn distance(
    bound: &FrameBound,
    is_start: bool,
    context: &ExecContext<'_, '_>,
) -> SqlResult<Distance> {
    let (own, is_before) = match bound {
        FrameBound::Unbounded => return Ok(Distance::Unbounded),
        FrameBound::Current => return Ok(Distance::Of(0)),
        FrameBound::Preceding(own) => (own, true),
        FrameBound::Following(own) => (own, false),
    };
    match as_i64(&context.eval(&own.offset, &[])?)? {
        None => Err(refused(SqlState::NULL_VALUE_NOT_ALLOWED, is_start, "null")),
        Some(..0) => Err(refused(SqlState::INVALID_FRAME_OFFSET, is_start, "negative")),
        Some(rows) => Ok(Distance::Of(if is_before { -rows } else { rows })),
    }
}

/// Where frames of rows or groups begin, or end.
fn by_number(
    units: FrameUnits,
    bound: &FrameBound,
    is_start: bool,
    partition: &Partition<'_>,
    context: &ExecContext<'_, '_>,
) -> SqlResult<Vec<usize>> {
    let rows = partition.rows.len();
    let whole = if is_start { 0 } else { rows };
    let Distance::Of(distance) = distance(bound, is_start, context)? else {
        return Ok(vec![whole; rows]);
    };
    // Past an end it is that end: an empty frame is one, too.
    let moved = |number: usize, count: usize| {
        let to = i64::try_from(number).unwrap_or(i64::MAX).saturating_add(distance);
        usize::try_from(to).map_or(None, |to| Some(to.min(count)))
    };
    if units == FrameUnits::Rows {
        let one = |at| match moved(at, rows) {
            Some(at) => (at + usize::from(!is_start)).min(rows),
            None => 0,
        };
        return Ok((0..rows).map(one).collect());
    }
    let one = |group: usize| match moved(group, partition.peers.len()) {
        None => 0,
        Some(group) => match partition.peers.get(group) {
            None => rows,
            Some(peers) if is_start => peers.start,
            Some(peers) => peers.end,
        },
    };
    let groups = partition.peers.iter().enumerate();
    Ok(groups.flat_map(|(group, peers)| std::iter::repeat_n(one(group), peers.len())).collect())
}

/// Where frames of values begin, or end.
fn by_value(
    call: &WindowCall,
    bound: &FrameBound,
    is_start: bool,
    partition: &Partition<'_>,
    context: &ExecContext<'_, '_>,
) -> SqlResult<Vec<usize>> {
    let rows = partition.rows.len();
    let of_peers = || {
        let end = |peers: &Range<usize>| if is_start { peers.start } else { peers.end };
        let ends = partition.peers.iter();
        ends.flat_map(|peers| std::iter::repeat_n(end(peers), peers.len())).collect::<Vec<_>>()
    };
    let (FrameBound::Preceding(own) | FrameBound::Following(own)) = bound else {
        let is_current = matches!(bound, FrameBound::Current);
        let whole = if is_start { 0 } else { rows };
        return Ok(if is_current { of_peers() } else { vec![whole; rows] });
    };
    let FrameOffset { offset, limit: Some((order, limit)) } = own else {
        return Err(SqlError::internal("a frame of values without a limit"));
    };
    check_offset(&context.eval(offset, &[])?, is_start)?;
    let (descending, nulls_first) =
        call.order.first().map_or((false, false), |key| (key.descending, key.nulls_first));
    let value = |row: &&Row| context.eval(order, row);
    let values = partition.rows.iter().map(value).collect::<SqlResult<Vec<Datum>>>()?;
    let mut ends = of_peers();
    for (at, (row, value)) in partition.rows.iter().zip(&values).enumerate() {
        // The frame of NULL is its peers.
        if value.is_null() {
            continue;
        }
        let limit = match context.eval(limit, row) {
            Ok(limit) => limit,
            // Beyond all values there are no rows.
            Err(error) if error.state() == SqlState::NUMERIC_OUT_OF_RANGE => {
                if let Some(end) = ends.get_mut(at) {
                    *end = if matches!(bound, FrameBound::Preceding(_)) { 0 } else { rows };
                }
                continue;
            }
            Err(error) => return Err(error),
        };
        let is_before = |own: &Datum| {
            let order = compare_with_nulls(own, &limit, descending, nulls_first);
            order == Ordering::Less || !is_start && order == Ordering::Equal
        };
        if let Some(end) = ends.get_mut(at) {
            *end = values.partition_point(is_before);
        }
    }
    Ok(ends)
}

fn check_offset(offset: &Datum, is_start: bool) -> SqlResult<()> {
    let is_negative = match offset {
        Datum::Null => return Err(refused(SqlState::NULL_VALUE_NOT_ALLOWED, is_start, "null")),
        Datum::I16(own) => *own < 0,
        Datum::I32(own) => *own < 0,
        Datum::I64(own) => *own < 0,
        Datum::F32(own) => *own < 0.0,
        Datum::F64(own) => *own < 0.0,
        _ => false,
    };
    if is_negative {
        let message = "invalid preceding or following size in window function";
        return Err(SqlError::new(SqlState::INVALID_FRAME_OFFSET, message));
    }
    Ok(())
}
