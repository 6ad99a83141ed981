//! Literals and parameters of an output that have no type yet: what the rows are for gives it.
//!
//! `INSERT INTO t SELECT '2024-01-01', $1` takes the types of the columns of `t`, and
//! `SELECT 1 UNION ALL SELECT NULL` those of the other side. Anywhere else they are text.

use super::{Binder, Bound};
use crate::error::{SqlError, SqlResult};
use crate::plan::{Expr, Plan, Typed};
use crate::types::cast::CastContext;
use crate::types::{Datum, Scalar, SqlType};

/// Whether it is a literal or a parameter that has no type yet.
pub(super) fn is_open(typed: &Typed) -> bool {
    let is_literal =
        matches!(typed.expr, Expr::Param(_) | Expr::Const(Datum::Null | Datum::Text(_)));
    is_literal && has_no_type(typed.ty)
}

fn has_no_type(ty: SqlType) -> bool {
    ty.scalar == Scalar::Unknown && !ty.is_array
}

impl Binder<'_> {
    /// Gives a column of the output a type if it has none.
    pub(super) fn give_type(
        &mut self,
        bound: &mut Bound,
        at: usize,
        ty: SqlType,
        context: CastContext,
    ) -> SqlResult<()> {
        let Some(column) = bound.columns.get_mut(at).filter(|own| has_no_type(own.ty)) else {
            return Ok(());
        };
        self.give_type_in(&mut bound.plan, at, ty, context)?;
        column.ty = ty;
        Ok(())
    }

    /// As [`give_type`](Self::give_type): it is given where the literal stands.
    #[recursive::recursive]
    fn give_type_in(
        &mut self,
        plan: &mut Plan,
        at: usize,
        ty: SqlType,
        context: CastContext,
    ) -> SqlResult<()> {
        let lost = || SqlError::internal("a column of unknown type has no literal");
        match plan {
            Plan::Project { input, exprs } => {
                let mut all = exprs.to_vec();
                let own = all.get_mut(at).ok_or_else(lost)?;
                if let Expr::Column(of_input) = own {
                    return self.give_type_in(input, *of_input, ty, context);
                }
                let literal = Typed::new(own.clone(), SqlType::UNKNOWN);
                *own = self.coerce(literal, ty, context)?;
                *exprs = all.into();
                Ok(())
            }
            Plan::Sort { input, .. } | Plan::Limit { input, .. } => {
                self.give_type_in(input, at, ty, context)
            }
            _ => Err(lost()),
        }
    }
}
