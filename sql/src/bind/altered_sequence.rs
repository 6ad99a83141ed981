//! ALTER SEQUENCE: what a sequence becomes.

use std::mem::discriminant;

use selkie_txn::SequenceSchema;
use sqlparser::ast::{ObjectNamePart, SequenceOptions};

use super::sequence::{MOST_CACHED, bounds_of, invalid, number};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::parse_sequences::{RESTART, mark_of};
use crate::types::{Scalar, SqlType};

/// A sequence as it becomes by these options, and the value that comes next, if they say it. What
/// they do not name stays.
///
/// # Errors
/// 22023 if it cannot work; 42601 if one is said twice.
pub(crate) fn altered_sequence(
    old: &SequenceSchema,
    options: &[SequenceOptions],
) -> SqlResult<(SequenceSchema, Option<i64>)> {
    for (at, option) in options.iter().enumerate() {
        if options.iter().skip(at + 1).any(|own| discriminant(own) == discriminant(option)) {
            let message = "conflicting or redundant options";
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
        }
    }
    let mut new = old.clone();
    let (mut min, mut max, mut restart) = (None, None, None);
    let own = type_of(old);
    let mut ty = own;
    for option in options {
        match option {
            SequenceOptions::DataType(own) => ty = SqlType::parse(own)?,
            SequenceOptions::IncrementBy(value, _) => new.increment = number(value)?,
            SequenceOptions::MinValue(value) => min = Some(value.as_ref().map(number).transpose()?),
            SequenceOptions::MaxValue(value) => max = Some(value.as_ref().map(number).transpose()?),
            SequenceOptions::StartWith(value, _) => new.start = number(value)?,
            SequenceOptions::Cache(value) => {
                let block = number(value)?;
                if block < 1 {
                    return Err(invalid(format!("CACHE ({block}) must be greater than zero")));
                }
                let least = SequenceSchema::new("").block;
                new.block = u32::try_from(block).unwrap_or(u32::MAX).clamp(least, MOST_CACHED);
            }
            // The parser has it the other way round.
            SequenceOptions::Cycle(is_no) => new.cycles = !*is_no,
            SequenceOptions::OwnedBy(_) => match mark_of(option) {
                Some((RESTART, value)) => restart = Some(restart_value(value)?),
                _ => return Err(SqlError::unsupported("this option of a sequence")),
            },
        }
    }
    if new.increment == 0 {
        return Err(invalid("INCREMENT must not be zero"));
    }
    let wrong_type = || invalid("sequence type must be smallint, integer, or bigint");
    let (lowest, highest) = bounds_of(ty).ok_or_else(wrong_type)?;
    // Bounds that are those of the type stay that.
    let (old_lowest, old_highest) = bounds_of(own).ok_or_else(wrong_type)?;
    let (is_lowest, is_highest) =
        (ty != own && old.min == old_lowest, ty != own && old.max == old_highest);
    let ascends = new.increment > 0;
    new.max = match max {
        Some(Some(max)) => max,
        None if !is_highest => old.max,
        _ if ascends || is_highest => highest,
        _ => -1,
    };
    new.min = match min {
        Some(Some(min)) => min,
        None if !is_lowest => old.min,
        _ if !ascends || is_lowest => lowest,
        _ => 1,
    };
    if ty != own {
        for (what, value) in [("MAXVALUE", new.max), ("MINVALUE", new.min)] {
            if !(lowest..=highest).contains(&value) {
                let ty = ty.name();
                return Err(invalid(format!(
                    "{what} ({value}) is out of range for sequence data type {ty}"
                )));
            }
        }
    }
    let SequenceSchema { min, max, start, .. } = new;
    if min >= max {
        return Err(invalid(format!("MINVALUE ({min}) must be less than MAXVALUE ({max})")));
    }
    let restart = restart.map(|value| value.unwrap_or(start));
    for (what, value) in [("START", Some(start)), ("RESTART", restart)] {
        let Some(value) = value else { continue };
        if value < min {
            return Err(invalid(format!(
                "{what} value ({value}) cannot be less than MINVALUE ({min})"
            )));
        }
        if value > max {
            return Err(invalid(format!(
                "{what} value ({value}) cannot be greater than MAXVALUE ({max})"
            )));
        }
    }
    Ok((new, restart))
}

/// The type whose bounds a sequence has; the types of sequences are not kept.
fn type_of(sequence: &SequenceSchema) -> SqlType {
    let types = [Scalar::Int2, Scalar::Int4].map(SqlType::new);
    let has = |ty: &SqlType| {
        bounds_of(*ty)
            .is_some_and(|(lowest, highest)| sequence.max == highest || sequence.min == lowest)
    };
    types.into_iter().find(has).unwrap_or(SqlType::INT8)
}

fn restart_value(parts: &[ObjectNamePart]) -> SqlResult<Option<i64>> {
    let Some(part) = parts.first() else { return Ok(None) };
    let text = part.as_ident().map_or("", |own| &*own.value);
    let text = text.trim_start_matches('+');
    let wrong = || invalid(format!("invalid value for a sequence: {text}"));
    text.parse().map(Some).map_err(|_| wrong())
}
