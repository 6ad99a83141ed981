//! Pieces of tables and of JSON objects.

use comfy_table::{CellAlignment, Table, presets::UTF8_BORDERS_ONLY};
use serde_json::{Map, Value};

/// The entries of a JSON object.
pub(crate) fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

/// A table with borders and no lines between its rows.
pub(crate) fn plain() -> Table {
    let mut table = Table::new();
    table.load_preset(UTF8_BORDERS_ONLY);
    table
}

/// Numbers to the right.
pub(super) fn align(table: &mut Table) {
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
}
