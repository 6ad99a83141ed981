//! Numbers of objects of the catalogue as texts: `oid`, and the types that show a name for it.

use std::fmt::Write;

use super::datum::Datum;
use super::object_names::ObjectNames;
use super::pseudo_types::{known_name, type_named};
use super::settings::FormatSettings;
use super::sql_type::{Scalar, SqlType};
use super::text_format::parse_oid;
use crate::error::{SqlError, SqlResult, SqlState};

/// Appends a whole number of 64 bits, or the name that it stands for in a type.
pub(crate) fn print(value: i64, ty: SqlType, settings: &FormatSettings, out: &mut String) {
    let number = u32::try_from(value).unwrap_or(0);
    let names = settings.names.get();
    let name =
        match ty.scalar {
            Scalar::Regproc | Scalar::Regprocedure => names
                .and_then(|names| names.function_name(number, ty.scalar == Scalar::Regprocedure)),
            Scalar::Regoper | Scalar::Regoperator => names
                .and_then(|names| names.operator_name(number, ty.scalar == Scalar::Regoperator)),
            Scalar::Regcollation => names.and_then(|names| names.collation_name(number)),
            Scalar::Regclass => names.and_then(|names| names.relation_name(number)),
            Scalar::Regnamespace => names.and_then(|names| names.schema_name(number)),
            Scalar::Regrole => names.and_then(|names| names.role_name(number)),
            _ => None,
        };
    if let Some(name) = name {
        return out.push_str(&name);
    }
    if ty.scalar == Scalar::Regtype
        && let Some(name) = u32::try_from(value).ok().and_then(known_name)
    {
        return out.push_str(&name);
    }
    if value == 0 && matches!(ty.scalar, Scalar::Regoper | Scalar::Regoperator) {
        return out.push('0');
    }
    if value == 0
        && matches!(
            ty.scalar,
            Scalar::Regclass
                | Scalar::Regtype
                | Scalar::Regproc
                | Scalar::Regprocedure
                | Scalar::Regcollation
                | Scalar::Regnamespace
                | Scalar::Regrole
        )
    {
        return out.push('-');
    }
    let _ = write!(out, "{value}");
}

/// Reads a value of a type that shows names. A number is taken as it is.
pub(crate) fn parse(text: &str, ty: SqlType, settings: &FormatSettings) -> SqlResult<Datum> {
    let find = |what, find: fn(&dyn ObjectNames, &str) -> Option<u32>| {
        parse_name(text, what, settings, |names| find(names, text))
    };
    match ty.scalar {
        Scalar::Regtype => parse_regtype(text),
        Scalar::Regoper | Scalar::Regoperator => parse_callable(text, ty, settings),
        _ if text == "-" => Ok(Datum::I64(0)),
        Scalar::Regproc | Scalar::Regprocedure => parse_callable(text, ty, settings),
        Scalar::Regcollation => find("collation", |names, text| names.collation_oid(text)),
        Scalar::Regnamespace => find("schema", |names, text| names.schema_oid(text)),
        Scalar::Regrole => find("role", |names, text| names.role_oid(text)),
        _ => find("relation", |names, text| names.relation_oid(text)),
    }
}

/// The number of an object that is given by its number or its name.
fn parse_name(
    text: &str,
    what: &str,
    settings: &FormatSettings,
    find: impl Fn(&dyn ObjectNames) -> Option<u32>,
) -> SqlResult<Datum> {
    if text.starts_with(|c: char| c.is_ascii_digit()) {
        return Ok(Datum::I64(parse_oid(text, "oid")?));
    }
    let state = match what {
        "relation" => SqlState::UNDEFINED_TABLE,
        "schema" => SqlState::INVALID_SCHEMA_NAME,
        _ => SqlState::UNDEFINED_OBJECT,
    };
    let missing = || SqlError::new(state, format!("{what} \"{text}\" does not exist"));
    let oid = settings.names.get().and_then(find);
    oid.map(|oid| Datum::I64(i64::from(oid))).ok_or_else(missing)
}

/// The number of a function or operator that is given by its number or its name, and of some types
/// by the types of its arguments.
fn parse_callable(text: &str, ty: SqlType, settings: &FormatSettings) -> SqlResult<Datum> {
    let is_number = text.starts_with(|c: char| c.is_ascii_digit());
    match settings.names.get().filter(|_| !is_number) {
        Some(names) => Ok(Datum::I64(i64::from(names.callable_oid(text, ty.scalar)?))),
        None => Ok(Datum::I64(parse_oid(text, "oid")?)),
    }
}

fn parse_regtype(text: &str) -> SqlResult<Datum> {
    if text == "-" {
        return Ok(Datum::I64(0));
    }
    if let Ok(oid) = parse_oid(text, "regtype") {
        return Ok(Datum::I64(oid));
    }
    let oid = type_named(text).ok_or_else(|| {
        SqlError::new(SqlState::UNDEFINED_OBJECT, format!("type \"{text}\" does not exist"))
    })?;
    Ok(Datum::I64(i64::from(oid)))
}
