//! Functions that tell what a role may do.

use super::CallContext;
use super::signature::{Body, Table};
use crate::error::SqlResult;
use crate::types::Datum;

/// Whether a function is one of this file: they need the definitions of tables.
pub(super) fn is_one(function: &str) -> bool {
    function == "pg_has_role" || (function.starts_with("has_") && function.ends_with("_privilege"))
}

/// Of an object that the last argument but one names; of columns it is the last but two.
macro_rules! functions {
    ($table:ident: $($name:literal)*) => {
        $(for signature in [
            "stable oid text -> bool",
            "stable text text -> bool",
            "stable name oid text -> bool",
            "stable name text text -> bool",
            "stable oid oid text -> bool",
            "stable oid text text -> bool",
        ] {
            $table.add($name, signature, |values, context| ask($name, values, 0, context));
        })*
    };
}

pub(super) fn register_functions(table: &mut Table<Body>) {
    functions! { table:
        "has_table_privilege"
        "has_schema_privilege"
        "has_database_privilege"
        "has_sequence_privilege"
        "has_function_privilege"
        "has_type_privilege"
        "has_language_privilege"
        "has_tablespace_privilege"
        "has_any_column_privilege"
        "has_foreign_data_wrapper_privilege"
        "has_server_privilege"
        "pg_has_role"
    }
    for signature in [
        "stable oid int2 text -> bool",
        "stable oid text text -> bool",
        "stable text text text -> bool",
        "stable text int2 text -> bool",
        "stable name oid int2 text -> bool",
        "stable name text text text -> bool",
    ] {
        table.add("has_column_privilege", signature, |values, context| {
            // A privilege of a table is one of all its columns, and there are no others.
            ask("has_column_privilege", values, 1, context)
        });
    }
}

fn ask(
    function: &str,
    values: &[Datum],
    columns: usize,
    context: &CallContext<'_>,
) -> SqlResult<Datum> {
    let Some(names) = context.settings.names.get() else { return Ok(Datum::Null) };
    let Some((Datum::Text(wanted), rest)) = values.split_last() else { return Ok(Datum::Null) };
    let of = rest.len().checked_sub(columns).and_then(|end| rest.get(..end));
    let Some((object, role)) = of.and_then(<[Datum]>::split_last) else { return Ok(Datum::Null) };
    let found = names.has_privilege(function, role.first(), object, wanted)?;
    Ok(found.map_or(Datum::Null, Datum::Bool))
}
