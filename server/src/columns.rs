//! Columns, as clients are told of them.

use pgwire::messages::PgWireBackendMessage;
use pgwire::messages::data::{FieldDescription, NoData, ParameterDescription, RowDescription};
use selkie_sql::{OutputColumn, Scalar, SqlResult, SqlType};

use crate::frontend::violation;

/// The size of the values of a type in memory, as PostgreSQL says it; -1 if they differ.
fn size(ty: SqlType) -> i16 {
    if ty.is_array {
        return -1;
    }
    match ty.scalar {
        Scalar::Bool | Scalar::SingleChar => 1,
        Scalar::Int2 => 2,
        Scalar::Int4 | Scalar::Float4 | Scalar::Date | Scalar::Oid => 4,
        Scalar::Regclass | Scalar::Regtype | Scalar::Regproc | Scalar::Void => 4,
        Scalar::Regprocedure | Scalar::Regoper | Scalar::Regoperator => 4,
        Scalar::Regcollation | Scalar::Regnamespace | Scalar::Regrole => 4,
        Scalar::Int8 | Scalar::Float8 | Scalar::Time => 8,
        Scalar::Timestamp | Scalar::TimestampTz => 8,
        Scalar::Interval | Scalar::Uuid => 16,
        Scalar::Name => 64,
        Scalar::Unknown => -2,
        _ => -1,
    }
}

/// The columns of rows in such formats.
pub(crate) fn row_description(columns: &[OutputColumn], formats: &[i16]) -> PgWireBackendMessage {
    let field = |(at, column): (usize, &OutputColumn)| {
        // A literal that nothing has given a type is text to a client.
        let ty = shown(column.ty);
        FieldDescription::new(
            column.name.clone(),
            column.origin.map_or(0, |own| own.table.cast_signed()),
            column.origin.map_or(0, |own| own.column),
            ty.oid(),
            size(ty),
            ty.shown_modifier(),
            format_of(formats, at),
        )
    };
    PgWireBackendMessage::RowDescription(RowDescription::new(
        columns.iter().enumerate().map(field).collect(),
    ))
}

/// The columns of a statement, or that it gives no rows.
pub(crate) fn description(columns: &[OutputColumn], formats: &[i16]) -> PgWireBackendMessage {
    if columns.is_empty() {
        return PgWireBackendMessage::NoData(NoData::new());
    }
    row_description(columns, formats)
}

/// The types of the parameters of a statement.
pub(crate) fn parameter_description(types: &[SqlType]) -> PgWireBackendMessage {
    let types = types.iter().map(|ty| shown(*ty).oid()).collect();
    PgWireBackendMessage::ParameterDescription(ParameterDescription::new(types))
}

fn shown(ty: SqlType) -> SqlType {
    if ty == SqlType::UNKNOWN { SqlType::TEXT } else { ty }
}

/// The format of the value at a place: 0 for text, 1 for binary.
pub(crate) fn format_of(formats: &[i16], at: usize) -> i16 {
    match formats {
        [] => 0,
        [all] => *all,
        each => each.get(at).copied().unwrap_or_default(),
    }
}

/// Refuses formats that are none, or that are not as many as the values.
pub(crate) fn check_formats(formats: &[i16], values: usize, what: &str) -> SqlResult<()> {
    if let Some(unknown) = formats.iter().find(|format| !matches!(format, 0 | 1)) {
        return Err(violation(format!("unsupported format code: {unknown}")));
    }
    if formats.len() > 1 && formats.len() != values {
        let count = formats.len();
        return Err(violation(format!(
            "bind message has {count} {what} formats but {values} {what}s"
        )));
    }
    Ok(())
}
