//! Cursors, and values that are given to prepared statements.

use sqlparser::ast::{self, DeclareType, LockType};

use super::scope::{Scope, fold};
use super::stage::Stage;
use super::values::plan_of_rows;
use super::{Binder, Bound, OutputColumn, changed_by, refuse};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::types::cast::{CastContext, can_cast};
use crate::types::{Scalar, SqlType};

/// A cursor, as DECLARE says it.
#[derive(Clone, Debug)]
pub(crate) struct NewCursor {
    pub(crate) name: String,
    /// Whether it can go back.
    pub(crate) is_scrollable: bool,
    /// Whether it stays when its transaction has committed.
    pub(crate) is_holdable: bool,
}

impl Binder<'_> {
    /// DECLARE.
    pub(crate) fn cursor(&mut self, declared: &[ast::Declare]) -> SqlResult<(NewCursor, Bound)> {
        let [declared] = declared else {
            return Err(SqlError::unsupported("several variables of DECLARE"));
        };
        let ast::Declare {
            names,
            data_type,
            assignment,
            declare_type,
            binary,
            sensitive,
            scroll,
            hold,
            for_query,
        } = declared;
        let ([name], Some(DeclareType::Cursor), Some(query)) = (&**names, declare_type, for_query)
        else {
            return Err(SqlError::unsupported("this form of DECLARE"));
        };
        refuse(data_type.is_some() || assignment.is_some(), "this form of DECLARE")?;
        // How its rows look is up to the client that fetches them.
        refuse(*binary == Some(true), "DECLARE BINARY CURSOR")?;
        if changed_by(query).is_some() {
            let message = "DECLARE CURSOR must not contain data-modifying statements in WITH";
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message));
        }
        let (is_holdable, has_locks) = (*hold == Some(true), !query.locks.is_empty());
        let lock = query.locks.first().map_or(LockType::Update, |own| own.lock_type);
        let locking = |what: &str| format!("DECLARE {what} ... FOR {lock} is not supported");
        let read_only = |kind: &str| format!("{kind} cursors must be READ ONLY.");
        if has_locks && is_holdable {
            let error = SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, locking("CURSOR WITH HOLD"));
            return Err(error.detail(read_only("Holdable")));
        }
        if has_locks && *scroll == Some(true) {
            let error = SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, locking("SCROLL CURSOR"));
            return Err(error.detail(read_only("Scrollable")));
        }
        if has_locks && *sensitive == Some(true) {
            let message = format!("DECLARE INSENSITIVE CURSOR ... FOR {lock} is not valid");
            let error = SqlError::new(SqlState::INVALID_CURSOR_DEFINITION, message);
            return Err(error.detail(read_only("Insensitive")));
        }
        let is_scrollable = scroll.unwrap_or(!has_locks);
        let bound = self.statement(query)?;
        Ok((NewCursor { name: fold(name), is_scrollable, is_holdable }, bound))
    }

    /// The values that EXECUTE gives to a statement. The types that this wants are the parameters
    /// that the binder knows.
    ///
    /// # Errors
    /// 42601 if they are not as many; 42804 if one is of a type that is not taken for its type.
    pub(crate) fn given_values(&mut self, name: &str, values: &[ast::Expr]) -> SqlResult<Bound> {
        let wanted: Vec<SqlType> =
            std::mem::take(&mut self.parameters).into_iter().flatten().collect();
        if wanted.len() != values.len() {
            let message = format!("wrong number of parameters for prepared statement \"{name}\"");
            let (wanted, given) = (wanted.len(), values.len());
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, message)
                .detail(format!("Expected {wanted} parameters but got {given}.")));
        }
        let scope = Scope::inside(None);
        let mut stage = Stage::new(&scope, "EXECUTE parameters");
        let mut exprs = Vec::with_capacity(values.len());
        for (at, (value, to)) in values.iter().zip(&wanted).enumerate() {
            let typed = self.expr(value, &mut stage)?;
            if !self.parameters.is_empty() {
                // The values of the statement that has EXECUTE in it are not handed on.
                let number = self.parameters.len();
                let message = format!("there is no parameter ${number}");
                return Err(
                    self.place(SqlError::new(SqlState::UNDEFINED_PARAMETER, message), value)
                );
            }
            let from = typed.ty;
            let fits = from.scalar == Scalar::Unknown
                || from.plain() == to.plain()
                || can_cast(from, *to, CastContext::Assignment);
            if !fits {
                let message = format!(
                    "parameter ${} of type {} cannot be coerced to the expected type {}",
                    at + 1,
                    from.name(),
                    to.name()
                );
                let error = SqlError::new(SqlState::DATATYPE_MISMATCH, message)
                    .hint("You will need to rewrite or cast the expression.");
                return Err(self.place(error, value));
            }
            let expr = self.coerce(typed, *to, CastContext::Assignment);
            exprs.push(expr.map_err(|error| self.place(error, value))?);
        }
        let columns = wanted.iter().map(|ty| OutputColumn::new("?column?", *ty)).collect();
        Ok(Bound { plan: plan_of_rows(vec![(exprs, stage.applies)], wanted.len()), columns })
    }
}
