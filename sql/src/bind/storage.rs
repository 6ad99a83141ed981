//! What statements say of how rows and indexes are stored, and that changes nothing here.

use sqlparser::ast::{self, ObjectName};

use super::name_parts;
use crate::error::{SqlError, SqlResult, SqlState};
use crate::types::{Scalar, SqlType};

/// Whether it is a parameter of how full pages are made, which are as full as their tree makes
/// them, or of when a table is vacuumed, of which there is nothing.
pub(crate) fn is_storage_parameter(name: &ObjectName) -> bool {
    name_parts(name).is_ok_and(|parts| match &*parts {
        [name] => name == "fillfactor" || name.starts_with("autovacuum_"),
        _ => false,
    })
}

/// Whether an option is such a parameter with its value.
pub(crate) fn is_storage_option(option: &ast::SqlOption) -> bool {
    matches!(option, ast::SqlOption::KeyValue { key, value: _ } if is_storage_parameter(key))
}

/// Refuses an operator class of a column of an index unless it is the one that the index has:
/// text is compared byte by byte, as the classes of patterns do.
///
/// # Errors
/// 42704 if there is no such class; 42804 if it is one of another type.
pub(crate) fn check_operator_class(class: &ObjectName, ty: SqlType) -> SqlResult<()> {
    let parts = name_parts(class)?;
    let name = match &*parts {
        [name] => name,
        [schema, name] if schema == "pg_catalog" => name,
        _ => return Err(SqlError::unsupported(format!("the operator class {class}"))),
    };
    const TEXT: [&str; 4] = ["text_ops", "varchar_ops", "text_pattern_ops", "varchar_pattern_ops"];
    const BPCHAR: [&str; 2] = ["bpchar_ops", "bpchar_pattern_ops"];
    let own = format!("{}_ops", ty.plain().catalogue_name());
    let is_own = match ty.scalar {
        _ if ty.is_array => name == "array_ops",
        Scalar::Text | Scalar::Varchar => TEXT.contains(&&**name),
        Scalar::Char => BPCHAR.contains(&&**name),
        _ => *name == own,
    };
    if is_own {
        return Ok(());
    }
    let others = [
        "int2",
        "int4",
        "int8",
        "float4",
        "float8",
        "numeric",
        "bool",
        "bytea",
        "date",
        "time",
        "timestamp",
        "timestamptz",
        "interval",
        "uuid",
        "jsonb",
        "array",
    ];
    let is_known = TEXT.contains(&&**name)
        || BPCHAR.contains(&&**name)
        || others.iter().any(|own| name.strip_suffix("_ops") == Some(own));
    if is_known {
        let ty = ty.plain().name();
        let message = format!("operator class \"{name}\" does not accept data type {ty}");
        return Err(SqlError::new(SqlState::DATATYPE_MISMATCH, message));
    }
    let message = format!("operator class \"{name}\" does not exist for access method \"btree\"");
    Err(SqlError::new(SqlState::UNDEFINED_OBJECT, message))
}

/// Whether a parameter of an index changes nothing: as [`is_storage_parameter`], or whether equal
/// keys are stored once.
pub(crate) fn is_index_parameter(option: &ast::Expr) -> bool {
    let ast::Expr::BinaryOp { left, op: ast::BinaryOperator::Eq, right: _ } = option else {
        return false;
    };
    let ast::Expr::Identifier(name) = &**left else { return false };
    matches!(&*super::fold(name), "fillfactor" | "deduplicate_items")
}

/// Whether a collation is the one that there is.
pub(super) fn is_bytewise(collation: &ObjectName) -> bool {
    let name = name_parts(collation).ok().and_then(|mut parts| parts.pop());
    matches!(name.as_deref(), Some("C" | "POSIX" | "default" | "ucs_basic"))
}
