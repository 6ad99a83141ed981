//! ALTER SEQUENCE: what a sequence becomes.

use std::mem::discriminant;

use selkie_txn::SequenceSchema;
use sqlparser::ast::{Expr, ObjectNamePart, SequenceOptions};

use super::sequence::{MOST_CACHED, bounds_of, invalid, number};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::parse_sequences::{RESTART, mark_of};
use crate::types::{Scalar, SqlType};

/// What options say beside what they change at once.
#[derive(Default)]
struct Said {
    ty: Option<SqlType>,
    /// `Some(None)` is NO MINVALUE.
    min: Option<Option<i64>>,
    max: Option<Option<i64>>,
    /// `Some(None)` is the start.
    restart: Option<Option<i64>>,
}

/// A sequence as it becomes by these options, and the value that comes next, if they say it. What
/// they do not name stays.
///
/// # Errors
/// 22023 if it cannot work; 42601 if one is said twice.
pub(crate) fn altered_sequence(
    old: &SequenceSchema,
    options: &[SequenceOptions],
) -> SqlResult<(SequenceSchema, Option<i64>)> {
    let mut new = old.clone();
    let said = take(&mut new, options)?;
    set_bounds(&mut new, old, &said)?;
    let SequenceSchema { min, max, start, .. } = new;
    if min >= max {
        return Err(invalid(format!("MINVALUE ({min}) must be less than MAXVALUE ({max})")));
    }
    let restart = said.restart.map(|value| value.unwrap_or(start));
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

fn take(new: &mut SequenceSchema, options: &[SequenceOptions]) -> SqlResult<Said> {
    let mut said = Said::default();
    for (at, option) in options.iter().enumerate() {
        if options.iter().skip(at + 1).any(|own| discriminant(own) == discriminant(option)) {
            let message = "conflicting or redundant options";
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
        }
        let limit = |value: &Option<Expr>| value.as_ref().map(number).transpose();
        match option {
            SequenceOptions::DataType(own) => said.ty = Some(SqlType::parse(own)?),
            SequenceOptions::IncrementBy(value, _) => new.increment = number(value)?,
            SequenceOptions::MinValue(value) => said.min = Some(limit(value)?),
            SequenceOptions::MaxValue(value) => said.max = Some(limit(value)?),
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
                Some((RESTART, value)) => said.restart = Some(restart_value(value)?),
                _ => return Err(SqlError::unsupported("this option of a sequence")),
            },
        }
    }
    match new.increment {
        0 => Err(invalid("INCREMENT must not be zero")),
        _ => Ok(said),
    }
}

/// Sets the bounds: those that are said, or those of the type if they were that.
fn set_bounds(new: &mut SequenceSchema, old: &SequenceSchema, said: &Said) -> SqlResult<()> {
    let own = type_of(old);
    let ty = said.ty.unwrap_or(own);
    let wrong_type = || invalid("sequence type must be smallint, integer, or bigint");
    let (lowest, highest) = bounds_of(ty).ok_or_else(wrong_type)?;
    let (old_lowest, old_highest) = bounds_of(own).ok_or_else(wrong_type)?;
    let (is_lowest, is_highest) =
        (ty != own && old.min == old_lowest, ty != own && old.max == old_highest);
    let ascends = new.increment > 0;
    new.max = match said.max {
        Some(Some(max)) => max,
        None if !is_highest => old.max,
        _ if ascends || is_highest => highest,
        _ => -1,
    };
    new.min = match said.min {
        Some(Some(min)) => min,
        None if !is_lowest => old.min,
        _ if !ascends || is_lowest => lowest,
        _ => 1,
    };
    if ty == own {
        return Ok(());
    }
    for (what, value) in [("MAXVALUE", new.max), ("MINVALUE", new.min)] {
        if !(lowest..=highest).contains(&value) {
            let ty = ty.name();
            return Err(invalid(format!(
                "{what} ({value}) is out of range for sequence data type {ty}"
            )));
        }
    }
    Ok(())
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

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use sqlparser::ast::{DataType, Value};

    use super::*;

    fn number_of(value: i64) -> Expr {
        Expr::Value(Value::Number(value.to_string(), false).into())
    }

    #[test]
    fn bounds_that_are_those_of_the_type_go_with_it() {
        let small = SequenceSchema { max: i64::from(i16::MAX), ..SequenceSchema::new("s") };
        let to_int8 = [SequenceOptions::DataType(DataType::BigInt(None))];
        assert_eq!(altered_sequence(&small, &to_int8).unwrap().0.max, i64::MAX);
        let chosen = SequenceSchema { max: 100, ..SequenceSchema::new("s") };
        let to_int2 = [SequenceOptions::DataType(DataType::SmallInt(None))];
        assert_eq!(altered_sequence(&chosen, &to_int2).unwrap().0.max, 100);
        let large = SequenceSchema { max: 100_000, ..SequenceSchema::new("s") };
        let error = altered_sequence(&large, &to_int2).unwrap_err();
        assert_eq!(error.state(), SqlState::INVALID_PARAMETER);
    }

    #[test]
    fn what_is_not_said_stays() {
        let old = SequenceSchema { start: 5, max: 50, cycles: true, ..SequenceSchema::new("s") };
        let options = [SequenceOptions::IncrementBy(number_of(3), true)];
        let (new, restart) = altered_sequence(&old, &options).unwrap();
        assert_eq!((new.start, new.max, new.cycles, new.increment), (5, 50, true, 3));
        assert_eq!(restart, None);
        let no_max = [SequenceOptions::MaxValue(None)];
        assert_eq!(altered_sequence(&old, &no_max).unwrap().0.max, i64::MAX);
    }
}
