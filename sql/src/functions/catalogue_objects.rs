//! Functions of the catalogue that find objects by their names, or tell what is little known of
//! them.

use super::CallContext;
use super::arguments::{argument, text, whole};
use super::signature::{Body, Table, Types};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::types::binary_format::to_binary;
use crate::types::object_names::ObjectNames;
use crate::types::{Array, Datum, Scalar, SqlType};

/// The functions of this file that need the definitions of tables.
pub(super) const NEED_NAMES: [&str; 9] = [
    "acldefault",
    "aclexplode",
    "to_regcollation",
    "to_regnamespace",
    "to_regoper",
    "to_regoperator",
    "to_regproc",
    "to_regprocedure",
    "to_regrole",
];

pub(super) fn register_functions(table: &mut Table<Body>) {
    by_name(table);
    of_functions(table);
    nothing(table);
    counts(table);
    table.add("parse_ident", "text -> text[]", parts_of_name);
    let last_start = |_: &[Datum], context: &CallContext<'_>| {
        Ok(context.sessions.begun().map_or(Datum::Null, Datum::Timestamp))
    };
    table.add("pg_postmaster_start_time", "stable -> timestamptz", last_start);
    table.add("pg_conf_load_time", "stable -> timestamptz", last_start);
    table.add("pg_get_serial_sequence", "stable text text -> text", |values, context| {
        let (name, column) = (text(values, 0)?, text(values, 1)?);
        let Some(names) = context.settings.names.get() else { return Ok(Datum::Null) };
        Ok(names.serial_sequence(name, column)?.map_or(Datum::Null, Datum::text))
    });
    table.add("pg_encoding_max_length", "int4 -> int4", |values, _| {
        Ok(match whole(values, 0)? {
            6 => Datum::I32(4),
            0 | 8 | 24 => Datum::I32(1),
            _ => Datum::Null,
        })
    });
    table.add("pg_relation_is_updatable", "stable regclass bool -> int4", |values, context| {
        let oid = u32::try_from(whole(values, 0)?).unwrap_or(0);
        let names = context.settings.names.get();
        // INSERT, UPDATE and DELETE.
        let is_table = names.is_some_and(|names| names.is_table(oid));
        Ok(Datum::I32(if is_table { 8 | 4 | 16 } else { 0 }))
    });
    table.add_typed("pg_column_size", "any -> int4", |types, values, _| {
        size_of(argument(values, 0), types.argument(0))
    });
    table.add_typed("pg_collation_for", "lax stable any -> text", collation_for);
    table.add("acldefault", "stable \"char\" oid -> text[]", default_privileges);
}

/// Functions that give the number of an object, or NULL if there is none.
fn by_name(table: &mut Table<Body>) {
    fn found(
        values: &[Datum],
        context: &CallContext<'_>,
        find: impl Fn(&dyn ObjectNames, &str) -> Option<u32>,
    ) -> SqlResult<Datum> {
        let (name, names) = (text(values, 0)?, context.settings.names.get());
        let oid = names.and_then(|names| find(names, name));
        Ok(oid.map_or(Datum::Null, |oid| Datum::I64(oid.into())))
    }
    table.add("to_regnamespace", "stable text -> regnamespace", |values, context| {
        found(values, context, |names, name| names.schema_oid(name))
    });
    table.add("to_regrole", "stable text -> regrole", |values, context| {
        found(values, context, |names, name| names.role_oid(name))
    });
    table.add("to_regcollation", "stable text -> regcollation", |values, context| {
        found(values, context, |names, name| names.collation_oid(name))
    });
    table.add("to_regproc", "stable text -> regproc", |values, context| {
        found(values, context, |names, name| names.callable_oid(name, Scalar::Regproc).ok())
    });
    table.add("to_regprocedure", "stable text -> regprocedure", |values, context| {
        found(values, context, |names, name| names.callable_oid(name, Scalar::Regprocedure).ok())
    });
    table.add("to_regoper", "stable text -> regoper", |values, context| {
        found(values, context, |names, name| names.callable_oid(name, Scalar::Regoper).ok())
    });
    table.add("to_regoperator", "stable text -> regoperator", |values, context| {
        found(values, context, |names, name| names.callable_oid(name, Scalar::Regoperator).ok())
    });
}

/// Functions that tell of functions.
fn of_functions(table: &mut Table<Body>) {
    fn told(values: &[Datum], tell: impl Fn(u32) -> Option<String>) -> SqlResult<Datum> {
        let oid = u32::try_from(whole(values, 0)?).unwrap_or(0);
        Ok(tell(oid).map_or(Datum::Null, Datum::text))
    }
    for name in ["pg_get_function_arguments", "pg_get_function_identity_arguments"] {
        table.add(name, "stable oid -> text", |values, _| {
            told(values, crate::system::function_arguments)
        });
    }
    table.add("pg_get_function_result", "stable oid -> text", |values, _| {
        told(values, crate::system::function_result)
    });
}

/// Functions of what is not here.
fn nothing(table: &mut Table<Body>) {
    for (name, signature) in [
        // Values are given to nodes in blocks, so nobody knows the last.
        ("pg_sequence_last_value", "volatile regclass -> int8"),
        ("inet_server_port", "stable -> int4"),
        ("inet_client_port", "stable -> int4"),
        ("pg_column_compression", "stable any -> text"),
        ("pg_get_statisticsobjdef_expressions", "stable oid -> text[]"),
        ("pg_relation_filenode", "stable regclass -> oid"),
        ("pg_relation_filepath", "stable regclass -> text"),
    ] {
        table.add(name, signature, |_, _| Ok(Datum::Null));
    }
    table.add("pg_jit_available", "volatile -> bool", |_, _| Ok(Datum::Bool(false)));
    table.add("pg_trigger_depth", "volatile -> int4", |_, _| Ok(Datum::I32(0)));
    table.add("pg_blocking_pids", "volatile int4 -> int4[]", |_, _| {
        Ok(super::arrays::of_elements(Scalar::Int4, Vec::new()))
    });
}

/// Counts of what was done with tables and indexes, which are not kept.
fn counts(table: &mut Table<Body>) {
    for name in [
        "pg_stat_get_numscans",
        "pg_stat_get_tuples_returned",
        "pg_stat_get_tuples_fetched",
        "pg_stat_get_tuples_inserted",
        "pg_stat_get_tuples_updated",
        "pg_stat_get_tuples_deleted",
        "pg_stat_get_tuples_hot_updated",
        "pg_stat_get_live_tuples",
        "pg_stat_get_dead_tuples",
        "pg_stat_get_mod_since_analyze",
        "pg_stat_get_blocks_fetched",
        "pg_stat_get_blocks_hit",
    ] {
        table.add(name, "stable oid -> int8", |_, _| Ok(Datum::I64(0)));
    }
    for name in [
        "pg_stat_get_last_vacuum_time",
        "pg_stat_get_last_autovacuum_time",
        "pg_stat_get_last_analyze_time",
        "pg_stat_get_last_autoanalyze_time",
    ] {
        table.add(name, "stable oid -> timestamptz", |_, _| Ok(Datum::Null));
    }
}

/// The parts of a name, folded as a statement folds them.
fn parts_of_name(values: &[Datum], _: &CallContext<'_>) -> SqlResult<Datum> {
    let name = text(values, 0)?;
    let parts = crate::schemas::names_of_text(name).map_err(|_| {
        let message = format!("string is not a valid identifier: \"{name}\"");
        SqlError::new(SqlState::INVALID_PARAMETER, message)
    })?;
    let parts = parts.into_iter().map(Datum::text).collect();
    Ok(super::arrays::of_elements(Scalar::Text, parts))
}

/// The bytes that a value takes in a row of PostgreSQL.
fn size_of(value: &Datum, ty: SqlType) -> SqlResult<Datum> {
    /// Longest value of any length whose length is one byte.
    const SHORT: usize = 126;
    let bytes = match usize::try_from(ty.bytes_len()) {
        Ok(bytes) => bytes,
        Err(_) => {
            let mut bytes = Vec::new();
            to_binary(value, ty, &mut bytes)?;
            bytes.len() + if bytes.len() > SHORT { 4 } else { 1 }
        }
    };
    Ok(Datum::I32(i32::try_from(bytes).unwrap_or(i32::MAX)))
}

fn collation_for(types: &Types, _: &[Datum], _: &CallContext<'_>) -> SqlResult<Datum> {
    match types.argument(0).scalar {
        Scalar::Text | Scalar::Varchar | Scalar::Char => Ok(Datum::text("\"default\"")),
        Scalar::Name => Ok(Datum::text("\"C\"")),
        _ => {
            let ty = types.argument(0).name();
            let message = format!("collations are not supported by type {ty}");
            Err(SqlError::new(SqlState::DATATYPE_MISMATCH, message))
        }
    }
}

/// The privileges of an object of a kind and an owner, as long as nothing was granted.
fn default_privileges(values: &[Datum], context: &CallContext<'_>) -> SqlResult<Datum> {
    let (everyone, owner) = match text(values, 0)? {
        "c" => ("", ""),
        "r" => ("", "arwdDxt"),
        "s" => ("", "rwU"),
        "d" => ("Tc", "CTc"),
        "f" => ("X", "X"),
        "l" | "T" => ("U", "U"),
        "L" => ("", "rw"),
        "n" => ("", "UC"),
        "p" => ("", "sA"),
        "t" => ("", "C"),
        "F" | "S" => ("", "U"),
        other => {
            let message = format!("unrecognized object type abbreviation: {other}");
            return Err(SqlError::new(SqlState::INTERNAL_ERROR, message));
        }
    };
    let oid = u32::try_from(whole(values, 1)?).unwrap_or(0);
    let names = context.settings.names.get();
    let name = names.and_then(|names| names.role_name(oid)).unwrap_or_else(|| oid.to_string());
    let items = [("", everyone), (&*name, owner)];
    let items = items.into_iter().filter(|(_, letters)| !letters.is_empty());
    let elements: Vec<Datum> = items
        .map(|(grantee, letters)| Datum::text(format!("{grantee}={letters}/{name}")))
        .collect();
    let dimensions = if elements.is_empty() { Vec::new() } else { vec![(elements.len(), 1)] };
    Ok(Datum::Array(std::sync::Arc::new(Array { element: Scalar::Text, dimensions, elements })))
}
