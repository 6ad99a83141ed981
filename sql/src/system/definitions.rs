//! Indexes and constraints as PostgreSQL prints them.

use super::deparse;
use super::snapshot::{Key, SystemTable};

/// Words that a name has to be quoted for.
const RESERVED: [&str; 77] = [
    "all",
    "analyse",
    "analyze",
    "and",
    "any",
    "array",
    "as",
    "asc",
    "asymmetric",
    "both",
    "case",
    "cast",
    "check",
    "collate",
    "column",
    "constraint",
    "create",
    "current_catalog",
    "current_date",
    "current_role",
    "current_time",
    "current_timestamp",
    "current_user",
    "default",
    "deferrable",
    "desc",
    "distinct",
    "do",
    "else",
    "end",
    "except",
    "false",
    "fetch",
    "for",
    "foreign",
    "from",
    "grant",
    "group",
    "having",
    "in",
    "initially",
    "intersect",
    "into",
    "lateral",
    "leading",
    "limit",
    "localtime",
    "localtimestamp",
    "not",
    "null",
    "offset",
    "on",
    "only",
    "or",
    "order",
    "placing",
    "primary",
    "references",
    "returning",
    "select",
    "session_user",
    "some",
    "symmetric",
    "table",
    "then",
    "to",
    "trailing",
    "true",
    "union",
    "unique",
    "user",
    "using",
    "variadic",
    "when",
    "where",
    "window",
    "with",
];

/// A name as a statement has to write it.
pub(super) fn quoted(name: &str) -> String {
    let is_first = |c: char| c.is_ascii_lowercase() || c == '_';
    let is_plain = name.starts_with(is_first)
        && name.chars().all(|c| is_first(c) || c.is_ascii_digit())
        && !RESERVED.contains(&name);
    if is_plain { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}

fn columns(key: &Key<'_>, with_order: bool) -> String {
    let column = |(at, column): (usize, &usize)| {
        let name = quoted(key.table.column_name(*column));
        let order = key.order_of(at);
        // NULLs are last in ascending order by default, and first in descending order.
        let words = match (order.descending, order.nulls_last) {
            _ if !with_order => "",
            (false, true) => "",
            (false, false) => " NULLS FIRST",
            (true, false) => " DESC",
            (true, true) => " DESC NULLS LAST",
        };
        format!("{name}{words}")
    };
    let all: Vec<String> = key.columns.iter().enumerate().map(column).collect();
    all.join(", ")
}

/// The statement that makes an index.
pub(super) fn index_statement(key: &Key<'_>) -> String {
    let unique = if key.is_unique() { "UNIQUE " } else { "" };
    let (name, schema) = (quoted(&key.name), quoted(&key.table.schema));
    let (table, columns) = (quoted(&key.table.def.name), columns(key, true));
    format!("CREATE {unique}INDEX {name} ON {schema}.{table} USING btree ({columns})")
}

/// A key as a constraint.
pub(super) fn key_definition(key: &Key<'_>) -> String {
    let kind = if key.index.is_none() { "PRIMARY KEY" } else { "UNIQUE" };
    format!("{kind} ({})", columns(key, false))
}

/// A CHECK constraint.
pub(super) fn check_definition(condition: &str, table: &SystemTable, is_pretty: bool) -> String {
    let condition = deparse::expression(condition, table, is_pretty);
    format!("CHECK ({condition})")
}
