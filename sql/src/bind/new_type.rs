//! ALTER COLUMN with TYPE: the values that the rows and the default get.

use sqlparser::ast::{self, DataType, GeneratedAs};

use super::modify::table_scope;
use super::scope::{SchemaName, Scope};
use super::sequence::identity_of;
use super::stage::Stage;
use super::{Binder, refuse};
use crate::catalogue::{ColumnDef, TableDef};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::plan::Expr;
use crate::types::cast::{CastContext, can_cast};
use crate::types::stored::column_type;
use crate::types::{Datum, Scalar, SqlType};

/// What a column becomes.
pub(crate) struct NewType {
    pub(crate) at: usize,
    pub(crate) ty: SqlType,
    /// Its value, over the rows as they are.
    pub(crate) value: Expr,
    /// As SQL.
    pub(crate) default: Option<String>,
}

/// The type that a column of a table gets.
///
/// # Errors
/// 42804 if its values or its default are not taken for values of the type.
pub(crate) fn bind_new_type(
    binder: &mut Binder<'_>,
    table: &TableDef,
    at: usize,
    data_type: &DataType,
    using: Option<&ast::Expr>,
) -> SqlResult<NewType> {
    let Some(column) = table.columns.get(at) else {
        return Err(SqlError::internal("a column that is not there"));
    };
    let ty = SqlType::parse(data_type)?;
    column_type(ty)?;
    if column.identity.is_some() {
        identity_of(&GeneratedAs::Always, ty)?;
    }
    let name = &column.name;
    let value = match using {
        Some(using) => {
            let scope = table_scope(table, &table.name, SchemaName::Any)?;
            let mut stage = Stage::new(&scope, "transform expressions");
            let bound = binder.expr(using, &mut stage)?;
            let what = "a subquery, or a value of a sequence, in a transform expression";
            refuse(!stage.applies.is_empty(), what)?;
            if !fits(bound.ty, ty) {
                let to = ty.name();
                let message = format!(
                    "result of USING clause for column \"{name}\" cannot be cast automatically to type {to}"
                );
                let error = SqlError::new(SqlState::DATATYPE_MISMATCH, message);
                return Err(error.hint("You might need to add an explicit cast."));
            }
            binder.coerce(bound, ty, CastContext::Assignment)?
        }
        None if fits(column.ty, ty) => {
            let own = crate::plan::Typed::new(Expr::Column(at), column.ty);
            binder.coerce(own, ty, CastContext::Assignment)?
        }
        None => {
            let to = ty.name();
            let message = format!("column \"{name}\" cannot be cast automatically to type {to}");
            let error = SqlError::new(SqlState::DATATYPE_MISMATCH, message);
            let hint = format!(
                "You might need to specify \"USING {}::{to}\".",
                crate::schemas::quoted(name)
            );
            return Err(error.hint(hint));
        }
    };
    let default = new_default(binder, column, ty)?;
    Ok(NewType { at, ty, value, default })
}

fn fits(from: SqlType, to: SqlType) -> bool {
    from.scalar == Scalar::Unknown
        || from.plain() == to.plain()
        || can_cast(from, to, CastContext::Assignment)
}

/// The default that a column has when it is of another type: what it was, as a value of that.
fn new_default(
    binder: &mut Binder<'_>,
    column: &ColumnDef,
    ty: SqlType,
) -> SqlResult<Option<String>> {
    let Some(default) = &column.default else { return Ok(None) };
    let ast = super::default_expr(default)?;
    let scope = Scope::inside(None);
    let mut stage = Stage::new(&scope, "DEFAULT expressions");
    binder.own_sequence.clone_from(&column.sequence);
    let bound = binder.as_stored(|own| own.expr(&ast, &mut stage));
    binder.own_sequence = None;
    let bound = bound?;
    let is_literal = bound.ty.scalar == Scalar::Unknown;
    if is_literal && matches!(bound.expr, Expr::Const(Datum::Null)) {
        return Ok(Some(default.clone()));
    }
    // A literal is one of the type that the column has had.
    let from = if is_literal { column.ty.plain() } else { bound.ty };
    if !fits(from, ty) {
        let message = format!(
            "default for column \"{}\" cannot be cast automatically to type {}",
            column.name,
            ty.name()
        );
        return Err(SqlError::new(SqlState::DATATYPE_MISMATCH, message));
    }
    let is_same = !is_literal || from == ty.plain() || from == SqlType::TEXT;
    Ok(Some(if is_same { default.clone() } else { format!("CAST({default} AS {})", from.name()) }))
}
