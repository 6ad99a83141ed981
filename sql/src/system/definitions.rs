//! Indexes and constraints as PostgreSQL prints them.

use super::deparse;
use super::snapshot::{Key, SystemTable};
pub(super) use crate::schemas::quoted;

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
