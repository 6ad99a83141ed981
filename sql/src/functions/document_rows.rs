//! Rows of documents: `json_to_record`, `json_to_recordset` and their kin, whose columns the query
//! defines.

use std::sync::Arc;

use super::arguments::text;
use super::rows::{ResolvedRows, RowIterator};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::types::json::{self, Node, Value};
use crate::types::text_format::from_text;
use crate::types::{Array, Datum, FormatSettings, Scalar, SqlType};

/// A function whose rows are as a column definition list says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowsOfDocument {
    name: &'static str,
    is_binary: bool,
    /// Whether it gives a row for each element of an array.
    is_set: bool,
}

/// The function of a name, if it is one of these.
pub(crate) fn rows_of_document(name: &str) -> Option<RowsOfDocument> {
    let (name, is_binary, is_set) = match name {
        "json_to_record" => ("json_to_record", false, false),
        "jsonb_to_record" => ("jsonb_to_record", true, false),
        "json_to_recordset" => ("json_to_recordset", false, true),
        "jsonb_to_recordset" => ("jsonb_to_recordset", true, true),
        _ => return None,
    };
    Some(RowsOfDocument { name, is_binary, is_set })
}

const NO_ARRAY: &str = "expected JSON array";

fn invalid(message: String) -> SqlError {
    SqlError::new(SqlState::INVALID_PARAMETER, message)
}

impl RowsOfDocument {
    /// Whether NULL gives a row without values, and not none.
    pub(crate) const fn has_row_of_null(self) -> bool {
        !self.is_set
    }

    /// The function with its columns.
    pub(crate) fn with_columns(self, columns: Vec<(String, SqlType)>) -> ResolvedRows {
        let arguments = vec![if self.is_binary { SqlType::JSONB } else { SqlType::JSON }];
        let own: Arc<[(String, SqlType)]> = columns.clone().into();
        let rows = move |values: &[Datum], context: &super::CallContext<'_>| {
            self.rows(text(values, 0)?, &own, context.settings)
        };
        ResolvedRows { arguments, columns, rows: Arc::new(rows), pause: None }
    }

    fn rows(
        self,
        document: &str,
        columns: &[(String, SqlType)],
        settings: &FormatSettings,
    ) -> SqlResult<RowIterator> {
        let name = self.name;
        let node = json::parse(document)?;
        let kind = |node: &Node| match &node.value {
            Value::Object(_) => "object",
            Value::Array(_) => "array",
            _ => "scalar",
        };
        let mut rows = Vec::new();
        if !self.is_set {
            if kind(&node) != "object" {
                let article = if kind(&node) == "array" { "an" } else { "a" };
                let kind = kind(&node);
                return Err(invalid(format!("cannot call populate_composite on {article} {kind}")));
            }
            rows.push(row(document, &node, columns, settings));
            return Ok(Box::new(rows.into_iter()));
        }
        let Value::Array(nodes) = &node.value else {
            let kind = if kind(&node) == "scalar" { "scalar" } else { "non-array" };
            return Err(invalid(format!("cannot call {name} on a {kind}")));
        };
        for node in nodes {
            if kind(node) != "object" {
                return Err(invalid(format!("argument of {name} must be an array of objects")));
            }
            rows.push(Ok(row(document, node, columns, settings)?));
        }
        Ok(Box::new(rows.into_iter()))
    }
}

/// The members of an object that columns are called by.
fn row(
    document: &str,
    node: &Node,
    columns: &[(String, SqlType)],
    settings: &FormatSettings,
) -> SqlResult<Vec<Datum>> {
    let value = |(name, ty): &(String, SqlType)| match node.member(name) {
        None => Ok(Datum::Null),
        Some(node) => value_of(document, node, *ty, settings).map_err(|error| {
            match error.message() == NO_ARRAY {
                true => error.hint(format!("See the value of key \"{name}\".")),
                false => error,
            }
        }),
    };
    columns.iter().map(value).collect()
}

/// A node as a value of a type: texts are read as the type's input is, other nodes by what is
/// written.
fn value_of(
    document: &str,
    node: &Node,
    ty: SqlType,
    settings: &FormatSettings,
) -> SqlResult<Datum> {
    match &node.value {
        Value::Null => Ok(Datum::Null),
        Value::String(value) if ty.is_array => from_text(value, ty, settings),
        _ if ty.is_array => {
            let (mut lengths, mut elements) = (Vec::new(), Vec::new());
            gather(document, node, ty.element(), 0, (&mut lengths, &mut elements), settings)?;
            let is_empty = elements.is_empty();
            let dimensions = lengths.into_iter().filter(|_| !is_empty).map(|own| (own, 1));
            let dimensions = dimensions.collect();
            Ok(Datum::Array(Arc::new(Array { element: ty.scalar, dimensions, elements })))
        }
        _ if matches!(ty.scalar, Scalar::Json | Scalar::Jsonb) => {
            from_text(node.text(document), ty, settings)
        }
        Value::String(value) => from_text(value, ty, settings),
        _ => from_text(node.text(document), ty, settings),
    }
}

/// Adds the elements of an array, and those of the arrays in it, which have to be equally long.
fn gather(
    document: &str,
    node: &Node,
    element: SqlType,
    depth: usize,
    (lengths, elements): (&mut Vec<usize>, &mut Vec<Datum>),
    settings: &FormatSettings,
) -> SqlResult<()> {
    let Value::Array(nodes) = &node.value else {
        return Err(SqlError::new(SqlState::INVALID_TEXT, NO_ARRAY));
    };
    match lengths.get(depth) {
        // What is deeper than the first element is no array.
        None if !elements.is_empty() => return Err(uneven()),
        None => lengths.push(nodes.len()),
        Some(length) if *length != nodes.len() => return Err(uneven()),
        Some(_) => {}
    }
    let is_nested = |node: &Node| matches!(node.value, Value::Array(_));
    for node in nodes {
        let is_json = matches!(element.scalar, Scalar::Json | Scalar::Jsonb);
        if is_nested(node) && !is_json {
            gather(document, node, element, depth + 1, (lengths, elements), settings)?;
        } else if lengths.len() > depth + 1 {
            return Err(SqlError::new(SqlState::INVALID_TEXT, NO_ARRAY));
        } else {
            elements.push(value_of(document, node, element, settings)?);
        }
    }
    Ok(())
}

fn uneven() -> SqlError {
    SqlError::new(SqlState::INVALID_TEXT, "malformed JSON array")
        .detail("Multidimensional arrays must have sub-arrays with matching dimensions.")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(name: &str, document: &str, columns: &[(&str, &str)]) -> SqlResult<String> {
        let columns: Vec<(String, SqlType)> = columns
            .iter()
            .map(|(name, ty)| ((*name).to_owned(), SqlType::by_name(ty).unwrap()))
            .collect();
        let settings = FormatSettings::default();
        let found = rows_of_document(name).unwrap().rows(document, &columns, &settings)?;
        let mut out = Vec::new();
        for row in found {
            let shown = |(value, (_, ty)): (&Datum, &(String, SqlType))| match value {
                Datum::Null => "NULL".to_owned(),
                value => crate::types::text_format::to_string(value, *ty, &settings),
            };
            out.push(row?.iter().zip(&columns).map(shown).collect::<Vec<_>>().join("|"));
        }
        Ok(out.join(" "))
    }

    #[test]
    fn members_become_columns() {
        let columns = [("a", "int4"), ("b", "text"), ("c", "int4[]"), ("d", "jsonb")];
        let document = r#"[{"a":1,"b":"x","c":[1,null],"d":"q"},{"a":"2","b":{"x":1},"c":"{3}"}]"#;
        let given = rows("jsonb_to_recordset", document, &columns).unwrap();
        assert_eq!(given, "1|x|{1,NULL}|\"q\" 2|{\"x\":1}|{3}|NULL");
        let deep = rows("json_to_record", r#"{"a":[[1,2],[3,4]]}"#, &[("a", "int4[]")]);
        assert_eq!(deep.unwrap(), "{{1,2},{3,4}}");
        for (name, document, state) in [
            ("json_to_record", "[1]", SqlState::INVALID_PARAMETER),
            ("json_to_recordset", "1", SqlState::INVALID_PARAMETER),
            ("json_to_recordset", "[1]", SqlState::INVALID_PARAMETER),
            ("json_to_record", r#"{"c":[[1],[2,3]]}"#, SqlState::INVALID_TEXT),
            ("json_to_record", r#"{"c":[1,[2]]}"#, SqlState::INVALID_TEXT),
            ("json_to_record", r#"{"c":{}}"#, SqlState::INVALID_TEXT),
            ("json_to_record", r#"{"a":"abc"}"#, SqlState::INVALID_TEXT),
        ] {
            assert_eq!(rows(name, document, &columns).unwrap_err().state(), state, "{document}");
        }
    }
}
