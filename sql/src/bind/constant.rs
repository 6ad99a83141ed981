//! Literals.

use sqlparser::ast::{self, DateTimeField, Value, ValueWithSpan};

use super::Binder;
use crate::error::{SqlError, SqlResult, SqlState};
use crate::plan::{Expr, Typed};
use crate::types::text_format::from_text;
use crate::types::{Datum, Scalar, SqlType};

impl Binder<'_> {
    pub(super) fn literal(&mut self, value: &ValueWithSpan) -> SqlResult<Typed> {
        let constant = |value, ty| Ok(Typed::new(Expr::Const(value), ty));
        match &value.value {
            Value::Null => constant(Datum::Null, SqlType::UNKNOWN),
            Value::Boolean(value) => constant(Datum::Bool(*value), SqlType::BOOL),
            Value::Number(digits, false) => {
                let (value, ty) = self.number(digits).map_err(|error| self.place(error, value))?;
                constant(value, ty)
            }
            Value::SingleQuotedString(text)
            | Value::EscapedStringLiteral(text)
            | Value::UnicodeStringLiteral(text)
            | Value::NationalStringLiteral(text) => {
                constant(Datum::text(text.as_str()), SqlType::UNKNOWN)
            }
            Value::DollarQuotedString(text) => {
                constant(Datum::text(text.value.as_str()), SqlType::UNKNOWN)
            }
            Value::Placeholder(name) => {
                let number = name.strip_prefix('$').and_then(|name| name.parse::<usize>().ok());
                let number = number.and_then(|number| number.checked_sub(1));
                let number = number.filter(|number| *number < super::MAX_PARAMETERS);
                let missing = || {
                    let message = format!("there is no parameter {name}");
                    self.place(SqlError::new(SqlState::UNDEFINED_PARAMETER, message), value)
                };
                Ok(self.parameter(number.ok_or_else(missing)?))
            }
            other => Err(self.place(SqlError::unsupported(format!("the literal {other}")), value)),
        }
    }

    fn number(&self, digits: &str) -> SqlResult<(Datum, SqlType)> {
        if let Ok(value) = digits.parse::<i32>() {
            return Ok((Datum::I32(value), SqlType::INT4));
        }
        if let Ok(value) = digits.parse::<i64>() {
            return Ok((Datum::I64(value), SqlType::INT8));
        }
        let ty = SqlType::new(Scalar::Numeric);
        Ok((from_text(digits, ty, self.settings)?, ty))
    }

    /// A parameter, of which the type may not be known yet.
    fn parameter(&mut self, number: usize) -> Typed {
        if self.parameters.len() <= number {
            self.parameters.resize(number + 1, None);
        }
        let known = self.parameters.get(number).copied().flatten();
        Typed::new(Expr::Param(number), known.unwrap_or(SqlType::UNKNOWN))
    }

    /// `INTERVAL '...' unit`.
    pub(super) fn interval(&mut self, interval: &ast::Interval) -> SqlResult<Typed> {
        let ast::Interval {
            value,
            leading_field,
            leading_precision,
            last_field,
            fractional_seconds_precision,
        } = interval;
        let has_precision = leading_precision.is_some() || fractional_seconds_precision.is_some();
        super::refuse(has_precision, "a precision of an interval")?;
        super::refuse(last_field.is_some(), "a range of fields of an interval")?;
        let ast::Expr::Value(value) = &**value else {
            return Err(SqlError::unsupported("an interval that is no literal"));
        };
        let (Value::SingleQuotedString(text) | Value::EscapedStringLiteral(text)) = &value.value
        else {
            return Err(SqlError::unsupported("an interval that is no literal in quotes"));
        };
        let unit = match leading_field {
            None => "",
            Some(DateTimeField::Year | DateTimeField::Years) => " year",
            Some(DateTimeField::Month | DateTimeField::Months) => " month",
            Some(DateTimeField::Day | DateTimeField::Days) => " day",
            Some(DateTimeField::Hour | DateTimeField::Hours) => " hour",
            Some(DateTimeField::Minute | DateTimeField::Minutes) => " minute",
            Some(DateTimeField::Second | DateTimeField::Seconds) => " second",
            Some(other) => {
                return Err(SqlError::unsupported(format!("an interval in {other}")));
            }
        };
        // A unit is of a number without one.
        let is_number = text.trim().parse::<f64>().is_ok();
        let text = if is_number { format!("{text}{unit}") } else { text.clone() };
        let ty = SqlType::new(Scalar::Interval);
        let read = from_text(&text, ty, self.settings);
        Ok(Typed::new(Expr::Const(read.map_err(|error| self.place(error, value))?), ty))
    }
}
