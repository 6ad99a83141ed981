//! Which types can be cast to which, and the casts.

use super::conversions::{apply_modifier, convert};
use super::datum::Datum;
use super::settings::FormatSettings;
use super::sql_type::{Scalar, SqlType};
use crate::error::{SqlError, SqlResult, SqlState};

/// Who asks for a cast.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CastContext {
    /// Nobody: an expression needs it.
    Implicit,
    /// A column that a value is stored in.
    Assignment,
    /// The statement, with `CAST` or `::`.
    Explicit,
}

/// Groups of types within which a literal or a UNION chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Category {
    Array,
    Bool,
    DateTime,
    Number,
    Pseudo,
    String,
    Timespan,
    Unknown,
    User,
    /// `"char"` has one of its own.
    Internal,
}

impl SqlType {
    pub(crate) const fn category(self) -> Category {
        if self.is_array {
            return Category::Array;
        }
        match self.scalar {
            Scalar::Bool => Category::Bool,
            Scalar::Int2
            | Scalar::Int4
            | Scalar::Int8
            | Scalar::Float4
            | Scalar::Float8
            | Scalar::Numeric
            | Scalar::Oid
            | Scalar::Regclass
            | Scalar::Regtype
            | Scalar::Regproc
            | Scalar::Regprocedure
            | Scalar::Regoper
            | Scalar::Regoperator
            | Scalar::Regcollation
            | Scalar::Regnamespace
            | Scalar::Regrole => Category::Number,
            Scalar::Text | Scalar::Varchar | Scalar::Char | Scalar::Name => Category::String,
            Scalar::Date | Scalar::Time | Scalar::Timestamp | Scalar::TimestampTz => {
                Category::DateTime
            }
            Scalar::Interval => Category::Timespan,
            Scalar::Record | Scalar::Void => Category::Pseudo,
            Scalar::Unknown => Category::Unknown,
            Scalar::SingleChar => Category::Internal,
            Scalar::Bytea | Scalar::Uuid | Scalar::Json | Scalar::Jsonb => Category::User,
        }
    }

    /// Whether its category prefers it.
    pub(crate) const fn is_preferred(self) -> bool {
        !self.is_array
            && matches!(
                self.scalar,
                Scalar::Bool
                    | Scalar::Float8
                    | Scalar::Oid
                    | Scalar::Text
                    | Scalar::TimestampTz
                    | Scalar::Interval
            )
    }
}

/// The least that a cast between two different scalars needs; `None` if there is no such cast.
const fn scalar_cast(from: Scalar, to: Scalar) -> Option<CastContext> {
    use CastContext::{Assignment, Explicit, Implicit};
    use Scalar::{
        Bool, Char, Date, Float4, Float8, Int2, Int4, Int8, Json, Jsonb, Name, Numeric, Oid,
        Record, Regclass, Regcollation, Regnamespace, Regoper, Regoperator, Regproc, Regprocedure,
        Regrole, Regtype, SingleChar, Text, Time, Timestamp, TimestampTz, Unknown, Varchar, Void,
    };
    Some(match (from, to) {
        (Void, _) | (_, Void | Unknown) => return None,
        (Unknown, _) => Implicit,
        (
            Int2,
            Int4 | Int8 | Float4 | Float8 | Numeric | Oid | Regclass | Regtype | Regproc
            | Regprocedure | Regoper | Regoperator | Regcollation | Regnamespace | Regrole,
        )
        | (
            Int4,
            Int8 | Float4 | Float8 | Numeric | Oid | Regclass | Regtype | Regproc | Regprocedure
            | Regoper | Regoperator | Regcollation | Regnamespace | Regrole,
        )
        | (
            Int8,
            Float4 | Float8 | Numeric | Oid | Regclass | Regtype | Regproc | Regprocedure | Regoper
            | Regoperator | Regcollation | Regnamespace | Regrole,
        )
        | (Numeric, Float4 | Float8)
        | (Float4, Float8)
        | (
            Oid,
            Regclass | Regtype | Regproc | Regprocedure | Regoper | Regoperator | Regcollation
            | Regnamespace | Regrole,
        )
        | (
            Regclass | Regtype | Regproc | Regprocedure | Regoper | Regoperator | Regcollation
            | Regnamespace | Regrole,
            Oid,
        )
        | (Text, Varchar | Char | Name | Regclass)
        | (Varchar, Text | Char | Name | Regclass)
        | (Char, Text | Varchar | Name)
        | (Name | SingleChar, Text)
        | (Date, Timestamp | TimestampTz)
        | (Timestamp, TimestampTz)
        | (Time, Scalar::Interval) => Implicit,
        (Int8, Int2 | Int4)
        | (Int4, Int2)
        | (Float8, Float4 | Int2 | Int4 | Int8 | Numeric)
        | (Float4, Int2 | Int4 | Int8 | Numeric)
        | (Numeric, Int2 | Int4 | Int8)
        | (
            Oid | Regclass | Regtype | Regproc | Regprocedure | Regoper | Regoperator
            | Regcollation | Regnamespace | Regrole,
            Int4 | Int8,
        )
        | (Timestamp | TimestampTz, Date | Time)
        | (TimestampTz, Timestamp)
        | (Scalar::Interval, Time)
        | (Text | Varchar | Char, SingleChar)
        | (Json, Jsonb)
        | (Jsonb, Json) => Assignment,
        (Int4, Bool | SingleChar)
        | (Bool | SingleChar, Int4)
        | (Jsonb, Bool | Int2 | Int4 | Int8 | Float4 | Float8 | Numeric) => Explicit,
        (Record, Text | Varchar | Char | Name) => Assignment,
        (Record, _) => return None,
        // By way of the text.
        (_, Text | Varchar | Char | Name) => Assignment,
        (Text | Varchar | Char | Name, Record) => return None,
        (Text | Varchar | Char | Name, _) => Explicit,
        _ => return None,
    })
}

/// Whether there is a cast that may be used here.
#[must_use]
pub fn can_cast(from: SqlType, to: SqlType, context: CastContext) -> bool {
    let from_string = || matches!(from.category(), Category::String);
    let to_string = || matches!(to.category(), Category::String);
    match (from.is_array, to.is_array) {
        (false, true) if from.scalar == Scalar::Unknown => true,
        (false, true) => context == CastContext::Explicit && from_string(),
        (true, false) => context >= CastContext::Assignment && to_string(),
        _ if from.scalar == to.scalar => true,
        _ => scalar_cast(from.scalar, to.scalar).is_some_and(|needed| needed <= context),
    }
}

/// The error of a cast that does not exist.
#[must_use]
pub fn cannot_cast(from: SqlType, to: SqlType) -> SqlError {
    // The type of what is cast is told without, that of the column with its modifier.
    SqlError::new(
        SqlState::CANNOT_COERCE,
        format!("cannot cast type {} to {}", from.plain().name(), to.plain().name()),
    )
}

/// Casts a value; NULL stays NULL. The modifier of `to` is applied: what is too long is an error
/// where it is stored, and cut by an explicit cast.
///
/// # Errors
/// There is no such cast, or the value has no counterpart.
pub fn cast(
    value: Datum,
    from: SqlType,
    to: SqlType,
    context: CastContext,
    settings: &FormatSettings,
) -> SqlResult<Datum> {
    if value.is_null() {
        return Ok(value);
    }
    let is_same = from.scalar == to.scalar && from.is_array == to.is_array;
    if is_same && (to.modifier < 0 || to.modifier == from.modifier) {
        return Ok(value);
    }
    let value = if is_same {
        value
    } else if can_cast(from, to, context) {
        convert(value, from, to, settings)?
    } else {
        return Err(cannot_cast(from, to));
    };
    apply_modifier(value, to, context == CastContext::Explicit)
}

/// The type that several become in a UNION, a CASE, an array: what PostgreSQL's rules choose.
/// Literals alone become `text`.
///
/// # Errors
/// [`SqlState::DATATYPE_MISMATCH`] if there is none.
pub fn common_type(types: &[SqlType]) -> SqlResult<SqlType> {
    let mut known = types.iter().copied().filter(|ty| ty.scalar != Scalar::Unknown || ty.is_array);
    let Some(first) = known.next() else { return Ok(SqlType::TEXT) };
    let mut chosen = first;
    // A literal is taken as it is, not as what fits a column.
    let mut same_modifier = types.iter().all(|ty| ty.scalar != Scalar::Unknown || ty.is_array);
    for ty in known {
        same_modifier &= ty == first;
        if (ty.scalar, ty.is_array) == (chosen.scalar, chosen.is_array) {
            continue;
        }
        let mismatch = || {
            let (chosen, ty) = (chosen.plain().name(), ty.plain().name());
            let message = format!("types {chosen} and {ty} cannot be matched");
            SqlError::new(SqlState::DATATYPE_MISMATCH, message)
        };
        if ty.category() != chosen.category() {
            return Err(mismatch());
        }
        let forth = can_cast(chosen, ty, CastContext::Implicit);
        let back = can_cast(ty, chosen, CastContext::Implicit);
        if !forth && !back {
            return Err(mismatch());
        }
        if !chosen.is_preferred() && forth && !back {
            chosen = ty;
        }
    }
    Ok(if same_modifier { chosen } else { chosen.plain() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::text_format::{from_text, to_string};

    const NUMERIC_4_1: SqlType = SqlType::NUMERIC.with_modifier((4 << 16 | 1) + 4);

    fn convert(text: &str, from: SqlType, to: SqlType, context: CastContext) -> SqlResult<String> {
        let settings = FormatSettings::default();
        let value = from_text(text, from, &settings)?;
        Ok(to_string(&cast(value, from, to, context, &settings)?, to, &settings))
    }

    #[test]
    fn casts_give_what_postgresql_gives() {
        let varchar = SqlType::VARCHAR.with_modifier(7);
        let ints = SqlType::array(Scalar::Int4);
        for (text, from, to, out) in [
            ("2.5", SqlType::FLOAT8, SqlType::INT4, "2"),
            ("3.5", SqlType::FLOAT8, SqlType::INT4, "4"),
            ("2.5", SqlType::NUMERIC, SqlType::INT4, "3"),
            ("-2.5", SqlType::NUMERIC, SqlType::INT4, "-3"),
            ("0.1", SqlType::FLOAT4, SqlType::NUMERIC, "0.1"),
            ("0.1", SqlType::FLOAT4, SqlType::FLOAT8, "0.10000000149011612"),
            ("1234567890.123", SqlType::FLOAT8, SqlType::NUMERIC, "1234567890.123"),
            ("100000", SqlType::FLOAT8, SqlType::NUMERIC, "100000"),
            ("123.45", SqlType::NUMERIC, NUMERIC_4_1, "123.5"),
            ("abcdef", SqlType::TEXT, varchar, "abc"),
            ("t", SqlType::BOOL, SqlType::TEXT, "true"),
            ("t", SqlType::BOOL, SqlType::INT4, "1"),
            ("2001-02-16", SqlType::DATE, SqlType::TIMESTAMP, "2001-02-16 00:00:00"),
            ("2001-02-16 20:38:40", SqlType::TIMESTAMP, SqlType::DATE, "2001-02-16"),
            ("2001-02-16 20:38:40", SqlType::TIMESTAMP, SqlType::TIME, "20:38:40"),
            ("{1,2}", ints, SqlType::array(Scalar::Text), "{1,2}"),
            ("{1,2}", ints, SqlType::TEXT, "{1,2}"),
            ("{1,2}", SqlType::TEXT, ints, "{1,2}"),
            ("42", SqlType::JSONB, SqlType::INT4, "42"),
            ("{\"a\":1}", SqlType::JSON, SqlType::JSONB, "{\"a\": 1}"),
            ("00:00:01.666", SqlType::TIME, SqlType::TIME.with_modifier(1), "00:00:01.7"),
        ] {
            assert_eq!(convert(text, from, to, CastContext::Explicit).unwrap(), out, "{text}");
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let varchar = SqlType::VARCHAR.with_modifier(7);
        for (text, from, to, state) in [
            ("abcd", SqlType::TEXT, varchar, SqlState::STRING_DATA_RIGHT_TRUNCATION),
            ("70000", SqlType::INT4, SqlType::INT2, SqlState::NUMERIC_OUT_OF_RANGE),
            ("1e30", SqlType::FLOAT8, SqlType::INT8, SqlState::NUMERIC_OUT_OF_RANGE),
            ("1e300", SqlType::FLOAT8, SqlType::FLOAT4, SqlState::NUMERIC_OUT_OF_RANGE),
            ("1234.5", SqlType::NUMERIC, NUMERIC_4_1, SqlState::NUMERIC_OUT_OF_RANGE),
            ("1", SqlType::INT4, SqlType::BOOL, SqlState::CANNOT_COERCE),
            ("1", SqlType::TEXT, SqlType::INT4, SqlState::CANNOT_COERCE),
            ("1", SqlType::INT4, SqlType::DATE, SqlState::CANNOT_COERCE),
        ] {
            let error = convert(text, from, to, CastContext::Assignment).unwrap_err();
            assert_eq!(error.state(), state, "{text}");
        }
        assert_eq!(
            convert("abc  ", SqlType::TEXT, varchar, CastContext::Assignment).unwrap(),
            "abc"
        );
    }

    #[test]
    fn types_of_a_union_become_one() {
        for (types, common) in [
            (vec![SqlType::INT4, SqlType::NUMERIC], SqlType::NUMERIC),
            (vec![SqlType::NUMERIC, SqlType::FLOAT8, SqlType::INT2], SqlType::FLOAT8),
            (vec![SqlType::UNKNOWN, SqlType::UNKNOWN], SqlType::TEXT),
            (vec![SqlType::UNKNOWN, SqlType::DATE], SqlType::DATE),
            (vec![SqlType::DATE, SqlType::TIMESTAMP], SqlType::TIMESTAMP),
            (vec![SqlType::VARCHAR, SqlType::TEXT], SqlType::VARCHAR),
        ] {
            assert_eq!(common_type(&types).unwrap(), common);
        }
        let error = common_type(&[SqlType::INT4, SqlType::TEXT]).unwrap_err();
        assert_eq!(error.message(), "types integer and text cannot be matched");
    }
}
