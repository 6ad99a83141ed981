//! Calls of functions of advisory locks. They may have to wait, so they are bound as those of
//! sequences are: applied to each row below the expression, also where a CASE or COALESCE does not
//! come to them.

use super::sequence::{MOST_CALLS, seen_from_below};
use super::stage::Stage;
use super::{Binder, refuse};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::plan::{AdvisoryCall, AdvisoryFunction, ApplyKind, Expr, Plan, Typed};

impl Binder<'_> {
    /// A call that was bound as one of any function.
    pub(super) fn advisory_call(
        &mut self,
        function: AdvisoryFunction,
        bound: Typed,
        stage: &mut Stage<'_>,
    ) -> SqlResult<Typed> {
        let Typed { expr: Expr::Call { mut arguments, .. }, ty } = bound else {
            return Err(SqlError::internal("a call of an advisory lock is none"));
        };
        for own in &mut arguments {
            let is_of_row = seen_from_below(own);
            refuse(
                is_of_row && !stage.is_plain(),
                "a column as an argument of a function of advisory locks beside aggregates",
            )?;
        }
        if stage.applies.len() >= MOST_CALLS {
            let message = format!(
                "a clause calls functions of advisory locks too often (allowed: {MOST_CALLS})"
            );
            return Err(SqlError::new(SqlState::STATEMENT_TOO_COMPLEX, message));
        }
        let call = AdvisoryCall { function, arguments };
        let expr = stage.apply(Plan::Advisory(Box::new(call)), ApplyKind::Scalar, true);
        Ok(Typed::new(expr, ty))
    }
}
