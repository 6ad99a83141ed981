//! What PostgreSQL calls a column of an expression without a name.

use sqlparser::ast::{
    AccessExpr, Expr as Ast, ObjectNamePart, Query, SelectItem, SetExpr, TrimWhereField,
};

use super::fold;
use crate::types::SqlType;

/// The name of a column that has none.
const NONE: &str = "?column?";

/// The name of a column of an expression.
pub(super) fn name_of(expr: &Ast) -> String {
    found(expr).map_or_else(|| NONE.to_owned(), |(name, _)| name)
}

/// A name, and whether it is no more than a makeshift, which a better one of what stands around it
/// replaces.
#[recursive::recursive]
fn found(expr: &Ast) -> Option<(String, bool)> {
    let name = match expr {
        Ast::Identifier(name) => fold(name),
        Ast::CompoundIdentifier(names) => names.last().map(fold)?,
        Ast::Nested(inner) | Ast::Collate { expr: inner, .. } => return found(inner),
        Ast::CompoundFieldAccess { root, access_chain } => {
            let field = access_chain.iter().rev().find_map(|own| match own {
                AccessExpr::Dot(Ast::Identifier(name)) => Some(fold(name)),
                _ => None,
            });
            match field {
                Some(field) => field,
                None => return found(root),
            }
        }
        Ast::Function(function) => match function.name.0.last() {
            Some(ObjectNamePart::Identifier(name)) => fold(name),
            _ => return None,
        },
        Ast::Cast { expr, data_type, .. } => {
            return better(found(expr), SqlType::parse(data_type).ok().map(name_of_type));
        }
        Ast::TypedString(typed) => {
            return better(None, SqlType::parse(&typed.data_type).ok().map(name_of_type));
        }
        Ast::Interval(_) => return better(None, Some("interval".to_owned())),
        Ast::Case { else_result, .. } => {
            return better(else_result.as_deref().and_then(found), Some("case".to_owned()));
        }
        Ast::Subquery(query) => name_in_query(query)?,
        Ast::Exists { negated: false, .. } => "exists".to_owned(),
        Ast::Array(_) => "array".to_owned(),
        Ast::Extract { .. } => "extract".to_owned(),
        Ast::Tuple(_) => "row".to_owned(),
        Ast::Substring { .. } => "substring".to_owned(),
        Ast::Ceil { .. } => "ceil".to_owned(),
        Ast::Floor { .. } => "floor".to_owned(),
        Ast::Position { .. } => "position".to_owned(),
        Ast::Overlay { .. } => "overlay".to_owned(),
        Ast::Trim { trim_where, .. } => match trim_where {
            Some(TrimWhereField::Leading) => "ltrim".to_owned(),
            Some(TrimWhereField::Trailing) => "rtrim".to_owned(),
            Some(TrimWhereField::Both) | None => "btrim".to_owned(),
        },
        Ast::AtTimeZone { .. } => "timezone".to_owned(),
        _ => return None,
    };
    Some((name, false))
}

/// A name of what is within, if it is no makeshift, or else that one.
fn better(inner: Option<(String, bool)>, makeshift: Option<String>) -> Option<(String, bool)> {
    match (inner, makeshift) {
        (Some((name, false)), _) => Some((name, false)),
        (_, Some(makeshift)) => Some((makeshift, true)),
        (inner, None) => inner,
    }
}

/// An array is called as its elements.
fn name_of_type(ty: SqlType) -> String {
    SqlType::new(ty.scalar).catalogue_name()
}

/// The name of the only column of a query.
fn name_in_query(query: &Query) -> Option<String> {
    let mut body = &*query.body;
    loop {
        match body {
            SetExpr::Select(select) => {
                return match select.projection.first()? {
                    SelectItem::UnnamedExpr(expr) => Some(name_of(expr)),
                    SelectItem::ExprWithAlias { expr: _, alias } => Some(fold(alias)),
                    _ => None,
                };
            }
            SetExpr::Query(query) => body = &*query.body,
            SetExpr::SetOperation { left, .. } => body = &**left,
            SetExpr::Values(_) => return Some("column1".to_owned()),
            _ => return None,
        }
    }
}
