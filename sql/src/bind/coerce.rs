//! Making expressions of the type that is needed.

use super::Binder;
use crate::error::{SqlError, SqlResult, SqlState};
use crate::plan::{Expr, Typed};
use crate::types::cast::{CastContext, can_cast, common_type};
use crate::types::text_format::from_text;
use crate::types::time_text::depends_on_now;
use crate::types::{Datum, Scalar, SqlType};

/// What `now` is in PostgreSQL where an expression is stored: the moment when it was defined.
pub(crate) const MOMENT_OF_DEFINITION: &str =
    "the moment of its definition as a date or time in a default, a constraint or a view";

impl Binder<'_> {
    /// The expression as one of that type.
    ///
    /// # Errors
    /// 42804 or 42846 if there is no such cast in this context; errors of a literal that is read.
    pub(super) fn coerce(
        &mut self,
        typed: Typed,
        to: SqlType,
        context: CastContext,
    ) -> SqlResult<Expr> {
        let Typed { expr, ty: from } = typed;
        if from == to || to.scalar == Scalar::Unknown {
            return Ok(expr);
        }
        if from.scalar == Scalar::Unknown && !from.is_array {
            return self.coerce_unknown(expr, to, context);
        }
        if from.plain() == to || is_relabeling(from, to) {
            return Ok(expr);
        }
        self.uses_catalogue |= is_name(from) || is_name(to);
        if !can_cast(from, to, context) {
            let message = format!("cannot cast type {} to {}", from.name(), to.name());
            let state = match context {
                CastContext::Explicit => SqlState::CANNOT_COERCE,
                _ => SqlState::DATATYPE_MISMATCH,
            };
            return Err(SqlError::new(state, message));
        }
        match expr {
            Expr::Const(value)
                if !is_name(from) && !is_name(to) && !self.is_of_now(&value, to)? =>
            {
                let value = crate::types::cast::cast(value, from, to, context, self.settings)?;
                Ok(Expr::Const(value))
            }
            expr => Ok(Expr::Cast { operand: Box::new(expr), from, to, context }),
        }
    }

    fn coerce_unknown(&mut self, expr: Expr, to: SqlType, context: CastContext) -> SqlResult<Expr> {
        match expr {
            Expr::Const(Datum::Null) => Ok(Expr::Const(Datum::Null)),
            // It is read when the statement runs: a plan may be kept longer than a name is right.
            Expr::Const(Datum::Text(text)) if is_name(to) => {
                self.uses_catalogue = true;
                let (operand, from) = (Box::new(Expr::Const(Datum::Text(text))), SqlType::TEXT);
                Ok(Expr::Cast { operand, from, to, context: CastContext::Explicit })
            }
            // So it is where it means another moment in every transaction.
            Expr::Const(value) if self.is_of_now(&value, to)? => {
                let (operand, from) = (Box::new(Expr::Const(value)), SqlType::TEXT);
                Ok(Expr::Cast { operand, from, to, context: CastContext::Explicit })
            }
            Expr::Const(Datum::Text(text)) => {
                let value = from_text(&text, to.plain(), self.settings)?;
                let (from, settings) = (to.plain(), self.settings);
                let value = crate::types::cast::cast(value, from, to, context, settings)?;
                Ok(Expr::Const(value))
            }
            Expr::Param(number) => {
                let known = self.parameters.get(number).copied().flatten();
                if let Some(from) = known {
                    return self.coerce(Typed::new(Expr::Param(number), from), to, context);
                }
                // A name is looked up by the statement, not where its value is read.
                let from = if is_name(to) { SqlType::TEXT } else { to.plain() };
                self.uses_catalogue |= is_name(to);
                if let Some(place) = self.parameters.get_mut(number) {
                    *place = Some(from);
                }
                if from == to {
                    return Ok(Expr::Param(number));
                }
                Ok(Expr::Cast { operand: Box::new(Expr::Param(number)), from, to, context })
            }
            expr => {
                let (from, operand) = (SqlType::TEXT, Box::new(expr));
                if to.plain() == from {
                    return Ok(*operand);
                }
                Ok(Expr::Cast { operand, from, to, context: CastContext::Explicit })
            }
        }
    }

    /// Whether a value is a text as `now`, of which a date or time is to be made.
    fn is_of_now(&mut self, value: &Datum, to: SqlType) -> SqlResult<bool> {
        let is_moment = matches!(
            to.scalar,
            Scalar::Date | Scalar::Time | Scalar::Timestamp | Scalar::TimestampTz
        );
        let is_of_now = is_moment && matches!(value, Datum::Text(text) if depends_on_now(text));
        super::refuse(is_of_now && self.is_stored, MOMENT_OF_DEFINITION)?;
        self.uses_now |= is_of_now;
        Ok(is_of_now)
    }

    /// The expressions as ones of the type that fits all of them.
    pub(super) fn unify(&mut self, all: Vec<Typed>) -> SqlResult<(Vec<Expr>, SqlType)> {
        let types: Vec<SqlType> = all.iter().map(|own| own.ty).collect();
        let common = common_type(&types)?;
        let each = all.into_iter().map(|own| self.coerce(own, common, CastContext::Implicit));
        Ok((each.collect::<SqlResult<_>>()?, common))
    }

    /// A condition.
    pub(super) fn condition(&mut self, typed: Typed, clause: &str) -> SqlResult<Expr> {
        let from = typed.ty;
        let is_bool = from == SqlType::BOOL || from.scalar == Scalar::Unknown;
        if !is_bool {
            let message =
                format!("argument of {clause} must be type boolean, not type {}", from.name());
            return Err(SqlError::new(SqlState::DATATYPE_MISMATCH, message));
        }
        self.coerce(typed, SqlType::BOOL, CastContext::Implicit)
    }

    /// What is left of unknown type at the end is text.
    pub(super) fn settle_type(&mut self, typed: Typed) -> SqlResult<Typed> {
        if typed.ty.scalar != Scalar::Unknown {
            return Ok(typed);
        }
        let expr = self.coerce(typed, SqlType::TEXT, CastContext::Implicit)?;
        Ok(Typed::new(expr, SqlType::TEXT))
    }
}

/// Whether a cast between texts leaves every value as it is: those of `char` have no spaces at
/// their end. So a column that is compared as a text stays one that has a key.
fn is_relabeling(from: SqlType, to: SqlType) -> bool {
    let is_text = |scalar| matches!(scalar, Scalar::Text | Scalar::Varchar);
    !from.is_array
        && !to.is_array
        && to.modifier < 0
        && is_text(to.scalar)
        && (is_text(from.scalar) || matches!(from.scalar, Scalar::Char | Scalar::Name))
}

/// Whether values of a type are read and printed as names that the catalogue has.
pub(crate) fn is_name(ty: SqlType) -> bool {
    matches!(
        ty.scalar,
        Scalar::Regclass
            | Scalar::Regproc
            | Scalar::Regprocedure
            | Scalar::Regoper
            | Scalar::Regoperator
            | Scalar::Regcollation
            | Scalar::Regnamespace
            | Scalar::Regrole
    )
}
