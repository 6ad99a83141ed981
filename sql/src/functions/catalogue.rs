//! Functions that tell of objects of the catalogue.
//!
//! Those that look at the definitions of tables find them with the settings of formats; which they
//! are tells [`needs_names`], so that a statement that calls one reads the definitions first.

use bigdecimal::ToPrimitive;

use super::CallContext;
use super::arguments::{argument, number};
use super::signature::{Body, Table};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::parse_fields::ALL_FIELDS;
use crate::types::object_names::ObjectNames;
use crate::types::{Datum, SqlType};

/// The names of functions that need the definitions of tables.
const NEED_NAMES: [&str; 13] = [
    "col_description",
    "current_setting",
    "obj_description",
    "pg_get_constraintdef",
    "pg_get_indexdef",
    "pg_get_userbyid",
    "pg_get_viewdef",
    "pg_relation_is_publishable",
    "pg_relation_is_updatable",
    "pg_table_is_visible",
    "to_regclass",
    "pg_get_serial_sequence",
    "row_security_active",
];

/// Whether a call of this function needs the definitions of tables.
#[must_use]
pub fn needs_names(function: &str) -> bool {
    NEED_NAMES.contains(&function)
        || super::catalogue_objects::NEED_NAMES.contains(&function)
        || super::privileges::is_one(function)
}

/// PostgreSQL's numbers of encodings that are named here.
const ENCODINGS: [(i32, &str); 4] = [(0, "SQL_ASCII"), (6, "UTF8"), (8, "LATIN1"), (24, "WIN1252")];

type Call = fn(&[Datum], &CallContext<'_>) -> SqlResult<Datum>;

pub(super) fn register_functions(table: &mut Table<Body>) {
    visibility(table);
    definitions(table);
    sizes(table);
    comments(table);
    for (name, signature) in [
        // There is nothing that these could tell of.
        ("pg_get_triggerdef", "stable oid -> text"),
        ("pg_get_triggerdef", "stable oid bool -> text"),
        ("pg_get_ruledef", "stable oid -> text"),
        ("pg_get_ruledef", "stable oid bool -> text"),
        ("pg_get_functiondef", "stable oid -> text"),
        ("pg_get_function_sqlbody", "stable oid -> text"),
        ("pg_get_partkeydef", "stable oid -> text"),
        ("pg_get_statisticsobjdef", "stable oid -> text"),
        ("pg_get_statisticsobjdef_columns", "stable oid -> text"),
        ("pg_get_partition_constraintdef", "stable oid -> text"),
        ("pg_tablespace_location", "stable oid -> text"),
        ("inet_server_addr", "stable -> text"),
        ("inet_client_addr", "stable -> text"),
        ("pg_describe_object", "stable oid oid int4 -> text"),
    ] {
        table.add(name, signature, |_, _| Ok(Datum::Null));
    }
    for (name, signature) in [
        ("pg_is_in_recovery", "volatile -> bool"),
        ("pg_is_other_temp_schema", "stable oid -> bool"),
        ("row_security_active", "stable oid -> bool"),
    ] {
        table.add(name, signature, |_, _| Ok(Datum::Bool(false)));
    }
    table.add("pg_my_temp_schema", "stable -> oid", |_, _| Ok(Datum::I64(0)));
    table.add("getdatabaseencoding", "stable -> name", |_, _| Ok(Datum::text("UTF8")));
    table.add("pg_encoding_to_char", "stable int4 -> name", |values, _| {
        let Datum::I32(number) = argument(values, 0) else { return Ok(Datum::Null) };
        let found = ENCODINGS.iter().find(|own| own.0 == *number);
        Ok(Datum::text(found.map_or("", |own| own.1)))
    });
    table.add("pg_char_to_encoding", "stable name -> int4", |values, _| {
        let Datum::Text(name) = argument(values, 0) else { return Ok(Datum::Null) };
        let found = ENCODINGS.iter().find(|own| own.1.eq_ignore_ascii_case(name));
        Ok(Datum::I32(found.map_or(-1, |own| own.0)))
    });
    table.add("pg_get_viewdef", "stable oid -> text", view);
    table.add("pg_get_viewdef", "stable oid bool -> text", view);
    table.add("pg_get_viewdef", "stable oid int4 -> text", view);
    table.add("pg_get_viewdef", "stable text -> text", view_by_name);
    table.add("pg_get_viewdef", "stable text bool -> text", view_by_name);
    table.add("current_setting", "stable text -> text", setting);
    table.add("current_setting", "stable text bool -> text", |values, context| {
        match setting(values, context) {
            Err(_) if matches!(argument(values, 1), Datum::Bool(true)) => Ok(Datum::Null),
            found => found,
        }
    });
}

fn comments(table: &mut Table<Body>) {
    table.add("obj_description", "stable oid -> text", |values, context| {
        text_or_null(names(context).and_then(|names| names.comment(oid(values, 0), None, 0)))
    });
    for (name, is_shared) in [("obj_description", false), ("shobj_description", true)] {
        let of_class: Call = match is_shared {
            false => |values, context| comment_of(values, context, false),
            true => |values, context| comment_of(values, context, true),
        };
        table.add(name, "stable oid name -> text", of_class);
    }
    table.add("col_description", "stable oid int4 -> text", |values, context| {
        let Datum::I32(column) = argument(values, 1) else { return Ok(Datum::Null) };
        let Ok(column) = usize::try_from(*column) else { return Ok(Datum::Null) };
        let comment =
            |names: &dyn ObjectNames| names.comment(oid(values, 0), Some("pg_class"), column);
        text_or_null(names(context).and_then(comment))
    });
}

/// The comment of an object of a class, which is one of those that are of no database or not.
fn comment_of(values: &[Datum], context: &CallContext<'_>, is_shared: bool) -> SqlResult<Datum> {
    let Datum::Text(class) = argument(values, 1) else { return Ok(Datum::Null) };
    if matches!(&**class, "pg_database" | "pg_authid") != is_shared {
        return Ok(Datum::Null);
    }
    let comment = |names: &dyn ObjectNames| names.comment(oid(values, 0), Some(class), 0);
    text_or_null(names(context).and_then(comment))
}

fn view(values: &[Datum], context: &CallContext<'_>) -> SqlResult<Datum> {
    text_or_null(names(context).and_then(|names| definition_of(names, oid(values, 0))))
}

fn view_by_name(values: &[Datum], context: &CallContext<'_>) -> SqlResult<Datum> {
    let (Datum::Text(name), Some(names)) = (argument(values, 0), names(context)) else {
        return Ok(Datum::Null);
    };
    let Some(oid) = names.relation_oid(name) else {
        let message = format!("relation \"{name}\" does not exist");
        return Err(SqlError::new(SqlState::UNDEFINED_TABLE, message));
    };
    text_or_null(definition_of(names, oid))
}

/// The text of a view, with all fields of a row as statements write them.
fn definition_of(names: &dyn ObjectNames, view: u32) -> Option<String> {
    let all = format!(".\"{ALL_FIELDS}\"");
    names.view_definition(view).map(|text| text.replace(&all, ".*"))
}

fn names<'c>(context: &'c CallContext<'_>) -> Option<&'c dyn ObjectNames> {
    context.settings.names.get()
}

fn oid(values: &[Datum], at: usize) -> u32 {
    match argument(values, at) {
        Datum::I64(value) => u32::try_from(*value).unwrap_or(0),
        _ => 0,
    }
}

fn text_or_null(text: Option<String>) -> SqlResult<Datum> {
    Ok(text.map_or(Datum::Null, Datum::text))
}

fn setting(values: &[Datum], context: &CallContext<'_>) -> SqlResult<Datum> {
    let Datum::Text(name) = argument(values, 0) else { return Ok(Datum::Null) };
    match names(context) {
        Some(names) => names.setting(name).map(Datum::text),
        None => Ok(Datum::Null),
    }
}

fn visibility(table: &mut Table<Body>) {
    table.add("pg_table_is_visible", "stable oid -> bool", |values, context| {
        let visible = names(context).and_then(|names| names.is_visible(oid(values, 0)));
        Ok(visible.map_or(Datum::Null, Datum::Bool))
    });
    // All of these are in pg_catalog, which is always searched.
    for name in [
        "pg_type_is_visible",
        "pg_function_is_visible",
        "pg_operator_is_visible",
        "pg_opclass_is_visible",
        "pg_opfamily_is_visible",
        "pg_collation_is_visible",
        "pg_conversion_is_visible",
        "pg_statistics_obj_is_visible",
        "pg_ts_config_is_visible",
        "pg_ts_dict_is_visible",
        "pg_ts_parser_is_visible",
        "pg_ts_template_is_visible",
    ] {
        table.add(name, "stable oid -> bool", |_, _| Ok(Datum::Bool(true)));
    }
    table.add("to_regclass", "stable text -> regclass", |values, context| {
        let Datum::Text(name) = argument(values, 0) else { return Ok(Datum::Null) };
        let found = names(context).and_then(|names| names.relation_oid(name));
        Ok(found.map_or(Datum::Null, |oid| Datum::I64(oid.into())))
    });
    table.add("to_regtype", "stable text -> regtype", |values, _| {
        let Datum::Text(name) = argument(values, 0) else { return Ok(Datum::Null) };
        let found = SqlType::by_name(&name.to_ascii_lowercase());
        Ok(found.map_or(Datum::Null, |ty| Datum::I64(ty.oid().into())))
    });
}

fn definitions(table: &mut Table<Body>) {
    table.add("pg_get_indexdef", "stable oid -> text", |values, context| {
        text_or_null(names(context).and_then(|names| names.index_definition(oid(values, 0), 0)))
    });
    table.add("pg_get_indexdef", "stable oid int4 bool -> text", |values, context| {
        let Datum::I32(column) = argument(values, 1) else { return Ok(Datum::Null) };
        let column = usize::try_from(*column).unwrap_or(usize::MAX);
        let found = names(context).and_then(|own| own.index_definition(oid(values, 0), column));
        text_or_null(found)
    });
    let constraint: Call = |values, context| {
        let is_pretty = matches!(argument(values, 1), Datum::Bool(true));
        let found = names(context);
        text_or_null(found.and_then(|own| own.constraint_definition(oid(values, 0), is_pretty)))
    };
    table.add("pg_get_constraintdef", "stable oid -> text", constraint);
    table.add("pg_get_constraintdef", "stable oid bool -> text", constraint);
    // Expressions are kept as they are printed.
    let expression: Call = |values, _| Ok(argument(values, 0).clone());
    table.add("pg_get_expr", "stable text oid -> text", expression);
    table.add("pg_get_expr", "stable text oid bool -> text", expression);
    table.add("pg_get_userbyid", "stable oid -> name", |values, context| {
        let oid = oid(values, 0);
        let name = names(context).and_then(|names| names.user_name(oid));
        Ok(Datum::text(name.unwrap_or_else(|| format!("unknown (OID={oid})"))))
    });
    table.add("pg_relation_is_publishable", "stable regclass -> bool", |_, _| {
        Ok(Datum::Bool(false))
    });
}

fn sizes(table: &mut Table<Body>) {
    // Pages are not counted by table.
    for (name, signature) in [
        ("pg_relation_size", "volatile regclass -> int8"),
        ("pg_relation_size", "volatile regclass text -> int8"),
        ("pg_total_relation_size", "volatile regclass -> int8"),
        ("pg_table_size", "volatile regclass -> int8"),
        ("pg_indexes_size", "volatile regclass -> int8"),
        ("pg_database_size", "volatile oid -> int8"),
        ("pg_database_size", "volatile name -> int8"),
        ("pg_tablespace_size", "volatile oid -> int8"),
        ("pg_tablespace_size", "volatile name -> int8"),
    ] {
        table.add(name, signature, |_, _| Ok(Datum::Null));
    }
    table.add("pg_size_pretty", "int8 -> text", |values, _| {
        let Datum::I64(bytes) = argument(values, 0) else { return Ok(Datum::Null) };
        Ok(Datum::text(size(*bytes)))
    });
    // As sums of sizes are.
    table.add("pg_size_pretty", "numeric -> text", |values, _| {
        let Some(bytes) = number(values, 0)? else { return Ok(Datum::text("NaN bytes")) };
        Ok(Datum::text(size(bytes.to_i64().unwrap_or(i64::MAX))))
    });
}

/// A number of bytes in the unit that leaves fewer than 10240 of it, rounded.
fn size(bytes: i64) -> String {
    const MOST: u64 = 10 * 1024;
    let (sign, mut size) = (if bytes < 0 { "-" } else { "" }, bytes.unsigned_abs());
    if size < MOST {
        return format!("{sign}{size} bytes");
    }
    // A half of a unit more is kept while it is divided.
    size >>= 9;
    let mut units = ["kB", "MB", "GB", "TB", "PB"].into_iter().peekable();
    while let Some(unit) = units.next() {
        if size < 2 * MOST - 1 || units.peek().is_none() {
            return format!("{sign}{} {unit}", size.div_ceil(2));
        }
        size >>= 10;
    }
    String::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_in_the_unit_that_fits() {
        // As PostgreSQL 15 gives them.
        for (bytes, shown) in [
            (0, "0 bytes"),
            (10_239, "10239 bytes"),
            (10_240, "10 kB"),
            (10_485_247, "10239 kB"),
            (10_485_248, "10 MB"),
            (-10_240, "-10 kB"),
            (1 << 40, "1024 GB"),
        ] {
            assert_eq!(size(bytes), shown);
        }
    }
}
