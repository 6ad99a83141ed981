//! How large rows and keys may be, and which values rows have no room for.
//!
//! What counts is how large a row or a key *is*, when it is written: columns may be declared longer
//! than a page. Only a table of which no row can ever be stored is refused when it is created.
//!
//! An entry may be as large as a leaf has room for, with a key of its length ([`max_value`]). In a
//! database for snapshots, a row that takes more than [`in_line_bytes`] has its longest values
//! stored apart ([`long_values`](crate::access::long_values)), if its table has columns that can be
//! so long.

use selkie_btree::{max_key, max_value};

use crate::catalogue::schema::{IndexSchema, TableSchema};
use crate::catalogue::schema_error::SchemaError;
use crate::catalogue::stored_table::nullable_columns;
use crate::catalogue::table_info::{PRIMARY, parts, primary_schema};
use crate::encoding::row_layout::{MAX_NUMBER_BYTES, RowLayout};

/// Eighths of a page that a row takes at most before values are stored apart: one that takes more
/// has its leaf nearly for itself.
const IN_LINE_EIGHTHS: usize = 5;

/// Bytes of the key of a piece of a long value: the id of the value, and which piece it is.
pub(crate) const PIECE_KEY_BYTES: usize = 12;

/// Most bytes of a row, with a key of so many bytes, beyond which values are stored apart.
pub(crate) fn in_line_bytes(page_bytes: usize, key_bytes: usize) -> usize {
    (page_bytes / 8 * IN_LINE_EIGHTHS).min(max_value(page_bytes, key_bytes))
}

/// Bytes of a long value in one piece: nearly a page.
pub(crate) fn piece_bytes(page_bytes: usize) -> usize {
    max_value(page_bytes, PIECE_KEY_BYTES)
}

/// Whether rows of a table can have values that they have no room for.
pub(crate) fn has_long_values(schema: &TableSchema, page_bytes: usize) -> bool {
    let largest = MAX_NUMBER_BYTES + RowLayout::of(schema).max_bytes;
    largest > in_line_bytes(page_bytes, max_key(page_bytes))
        && schema.columns.iter().any(|column| column.ty.fixed_bytes().is_none())
}

/// Refuses a table of which no row can be stored: even the smallest row does not fit a page, or the
/// smallest key of an index is too long.
///
/// # Errors
/// [`SchemaError::EntryTooLarge`] naming table, size and what is allowed. `number_bytes` are those
/// of layout numbers in rows.
pub(crate) fn check_sizes(
    schema: &TableSchema,
    number_bytes: usize,
    page_bytes: usize,
) -> Result<(), SchemaError> {
    let primary_key = least_key_bytes(schema, &primary_schema(schema));
    let check = |index: &str, size: usize, allowed: usize| {
        if size <= allowed {
            return Ok(());
        }
        let (table, index) = (schema.name.clone(), index.to_owned());
        Err(SchemaError::EntryTooLarge { table, index, size, allowed })
    };
    let longest = max_key(page_bytes);
    check(PRIMARY, primary_key, longest)?;
    let row = number_bytes + RowLayout::of(schema).variable_at;
    check(PRIMARY, primary_key + row, primary_key + max_value(page_bytes, primary_key))?;
    for index in &schema.indexes {
        let own = least_key_bytes(schema, index);
        check(&index.name, if index.unique { own } else { own + primary_key }, longest)?;
    }
    Ok(())
}

/// Fewest bytes that the columns of an index take in a key.
fn least_key_bytes(table: &TableSchema, index: &IndexSchema) -> usize {
    let parts = parts(table, index, nullable_columns(table, index));
    parts.iter().map(|part| part.ty.min_key_bytes(part.nullable)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::column_type::{ColumnType, MAX_COLUMN_BYTES};

    fn table() -> TableSchema {
        TableSchema::new("big").column("id", ColumnType::I32).primary_key([0])
    }

    #[test]
    fn only_tables_of_which_no_row_can_be_stored_are_refused() {
        let long = |ty: fn(u32) -> ColumnType| table().column("long", ty(MAX_COLUMN_BYTES));
        assert_eq!(check_sizes(&long(ColumnType::Text).index("by_text", [1]), 2, 512), Ok(()));
        assert_eq!(check_sizes(&long(ColumnType::Bytes), 2, 512), Ok(()));
        let wide = |columns: usize| {
            let names = (0..columns).map(|number| format!("u{number}"));
            names.fold(table(), |table, name| table.column(name, ColumnType::Uuid))
        };
        let most = (max_value(504, 4) - 4) / 16;
        assert_eq!(check_sizes(&wide(most), 0, 504), Ok(()));
        let error = check_sizes(&wide(most + 1), 0, 504).unwrap_err();
        let (size, allowed) = (4 + 4 + 16 * (most + 1), 4 + max_value(504, 4));
        let expected = format!(
            "table big, primary key: every entry takes {size} bytes or more (allowed: {allowed} at \
             this page size)"
        );
        assert_eq!(error.to_string(), expected);
        let key: Vec<usize> = (1..8).collect();
        let error = check_sizes(&wide(10).index("by_all", key.clone()), 0, 504).unwrap_err();
        let expected = format!("table big, by_all: every entry takes {} bytes", 7 * 16 + 4);
        assert!(error.to_string().starts_with(&expected), "{error}");
        assert_eq!(check_sizes(&wide(10).index("by_all", key), 0, 1016), Ok(()));
    }

    #[test]
    fn tables_whose_rows_always_fit_have_no_long_values() {
        for page_bytes in [504, 2040, 8184] {
            let most = in_line_bytes(page_bytes, max_key(page_bytes)) - 4 - 2 - 2;
            let text = |bytes: usize| table().column("text", ColumnType::Text(bytes as u32));
            assert!(!has_long_values(&text(most), page_bytes));
            assert!(has_long_values(&text(most + 1), page_bytes));
            assert!(in_line_bytes(page_bytes, 8) >= page_bytes / 2);
            assert!(piece_bytes(page_bytes) >= page_bytes * 4 / 5);
        }
    }
}
