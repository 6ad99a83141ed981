//! Changes of a document at the end of a path: `jsonb_set`, `jsonb_insert`, `#-`.

use super::arguments::{argument, array, boolean, text};
use super::documents::member;
use super::signature::{Body, Table};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::types::Datum;
use crate::types::json::{self, Node, Value};

/// What is done at the end of a path.
#[derive(Clone, Copy)]
enum Change<'a> {
    /// The value is replaced; one that is missing is added if that is said.
    Set {
        value: &'a str,
        creates: bool,
    },
    /// A value is put before an element, or behind it, or added to an object.
    Insert {
        value: &'a str,
        is_after: bool,
    },
    Delete,
}

impl<'a> Change<'a> {
    /// What is added where there is nothing yet.
    const fn added(self) -> Option<&'a str> {
        match self {
            Self::Set { value, creates: true } | Self::Insert { value, .. } => Some(value),
            Self::Set { .. } | Self::Delete => None,
        }
    }
}

fn invalid(message: impl Into<String>) -> SqlError {
    SqlError::new(SqlState::INVALID_PARAMETER, message)
}

/// A document that is being changed.
struct Changed<'a> {
    document: &'a str,
    path: &'a [Datum],
    change: Change<'a>,
}

impl Changed<'_> {
    /// The step of the path at a level.
    fn step(&self, level: usize) -> SqlResult<&str> {
        match self.path.get(level) {
            Some(Datum::Text(step)) => Ok(step),
            _ => {
                let message = format!("path element at position {} is null", level + 1);
                Err(SqlError::new(SqlState::NULL_VALUE_NOT_ALLOWED, message))
            }
        }
    }

    /// A node behind so many steps, changed.
    fn node(&self, node: &Node, level: usize) -> SqlResult<String> {
        match &node.value {
            _ if level >= self.path.len() => Ok(node.text(self.document).to_owned()),
            Value::Object(members) => self.object(members, level),
            Value::Array(nodes) => self.array(nodes, level),
            _ => Ok(node.text(self.document).to_owned()),
        }
    }

    fn object(&self, members: &[(String, Node)], level: usize) -> SqlResult<String> {
        let (step, is_last) = (self.step(level)?, level + 1 == self.path.len());
        let (mut parts, mut is_found) = (Vec::new(), false);
        for (key, node) in members {
            if key != step {
                parts.push(member(key, node.text(self.document)));
                continue;
            }
            is_found = true;
            match self.change {
                _ if !is_last => parts.push(member(key, &self.node(node, level + 1)?)),
                Change::Set { value, .. } => parts.push(member(key, value)),
                Change::Insert { .. } => {
                    let hint = "Try using the function jsonb_set to replace key value.";
                    return Err(invalid("cannot replace existing key").hint(hint));
                }
                Change::Delete => {}
            }
        }
        if is_last && !is_found {
            parts.extend(self.change.added().map(|value| member(step, value)));
        }
        json::canonical(&format!("{{{}}}", parts.join(", ")))
    }

    fn array(&self, nodes: &[Node], level: usize) -> SqlResult<String> {
        let (step, is_last) = (self.step(level)?, level + 1 == self.path.len());
        let at: i32 = step.trim().parse().map_err(|_| {
            let message =
                format!("path element at position {} is not an integer: \"{step}\"", level + 1);
            SqlError::new(SqlState::INVALID_TEXT, message)
        })?;
        let (at, count) = (i64::from(at), nodes.len() as i64);
        let at = if at < 0 { at + count } else { at };
        let mut parts = Vec::with_capacity(nodes.len() + 1);
        if is_last && at < 0 {
            parts.extend(self.change.added().map(str::to_owned));
        }
        for (node, own) in nodes.iter().zip(0i64..) {
            let text = || node.text(self.document).to_owned();
            match self.change {
                _ if own != at => parts.push(text()),
                _ if !is_last => parts.push(self.node(node, level + 1)?),
                Change::Set { value, .. } => parts.push(value.to_owned()),
                Change::Insert { value, is_after: false } => {
                    parts.extend([value.to_owned(), text()]);
                }
                Change::Insert { value, is_after: true } => {
                    parts.extend([text(), value.to_owned()]);
                }
                Change::Delete => {}
            }
        }
        if is_last && at >= count {
            parts.extend(self.change.added().map(str::to_owned));
        }
        Ok(format!("[{}]", parts.join(", ")))
    }
}

/// The document of a call, changed at the end of the path behind it.
fn changed(values: &[Datum], change: Change<'_>) -> SqlResult<Datum> {
    let document = text(values, 0)?;
    let path = array(values, 1)?;
    if path.dimensions.len() > 1 {
        let message = "wrong number of array subscripts";
        return Err(SqlError::new(SqlState::ARRAY_SUBSCRIPT, message));
    }
    let node = json::parse(document)?;
    if !matches!(node.value, Value::Object(_) | Value::Array(_)) {
        let is_deletion = matches!(change, Change::Delete);
        let what = if is_deletion { "delete" } else { "set" };
        return Err(invalid(format!("cannot {what} path in scalar")));
    }
    let is_empty = matches!(&node.value, Value::Object(own) if own.is_empty())
        || matches!(&node.value, Value::Array(own) if own.is_empty());
    if path.elements.is_empty() || is_empty && change.added().is_none() {
        return Ok(argument(values, 0).clone());
    }
    let changed = Changed { document, path: &path.elements, change };
    Ok(Datum::Json(changed.node(&node, 0)?.into()))
}

/// Whether a value that is missing is added: unless it is said otherwise.
fn creates(values: &[Datum]) -> SqlResult<bool> {
    if values.len() > 3 { boolean(values, 3) } else { Ok(true) }
}

/// `jsonb_set`, which does with NULL as it is told.
fn set_lax(values: &[Datum]) -> SqlResult<Datum> {
    let unknown = "null_value_treatment must be \"delete_key\", \"return_target\", \
                   \"use_json_null\", or \"raise_exception\"";
    if [0, 1].into_iter().any(|at| argument(values, at).is_null())
        || values.len() > 3 && argument(values, 3).is_null()
    {
        return Ok(Datum::Null);
    }
    let treatment = match argument(values, 4) {
        _ if values.len() < 5 => "use_json_null",
        Datum::Null => return Err(invalid(unknown)),
        _ => text(values, 4)?,
    };
    let creates = creates(values)?;
    if !argument(values, 2).is_null() {
        return changed(values, Change::Set { value: text(values, 2)?, creates });
    }
    match treatment {
        "use_json_null" => changed(values, Change::Set { value: "null", creates }),
        "delete_key" => changed(values, Change::Delete),
        "return_target" => Ok(argument(values, 0).clone()),
        "raise_exception" => {
            let error =
                SqlError::new(SqlState::NULL_VALUE_NOT_ALLOWED, "JSON value must not be null");
            let detail =
                "Exception was raised because null_value_treatment is \"raise_exception\".";
            let hint = "To avoid, either change the null_value_treatment argument or ensure that \
                        an SQL NULL is not passed.";
            Err(error.detail(detail).hint(hint))
        }
        _ => Err(invalid(unknown)),
    }
}

pub(super) fn register_operators(table: &mut Table<Body>) {
    table.add("#-", "jsonb text[] -> jsonb", |v, _| changed(v, Change::Delete));
}

pub(super) fn register_functions(table: &mut Table<Body>) {
    for signature in ["jsonb text[] jsonb -> jsonb", "jsonb text[] jsonb bool -> jsonb"] {
        table.add("jsonb_set", signature, |v, _| {
            changed(v, Change::Set { value: text(v, 2)?, creates: creates(v)? })
        });
        table.add("jsonb_insert", signature, |v, _| {
            let is_after = v.len() > 3 && boolean(v, 3)?;
            changed(v, Change::Insert { value: text(v, 2)?, is_after })
        });
    }
    for signature in [
        "lax jsonb text[] jsonb -> jsonb",
        "lax jsonb text[] jsonb bool -> jsonb",
        "lax jsonb text[] jsonb bool text -> jsonb",
    ] {
        table.add("jsonb_set_lax", signature, |v, _| set_lax(v));
    }
    table.add("jsonb_delete_path", "jsonb text[] -> jsonb", |v, _| changed(v, Change::Delete));
}

#[cfg(test)]
mod tests {
    use super::super::testing::{call, operate};
    use crate::error::SqlState;

    #[test]
    fn documents_are_changed_at_the_end_of_a_path() {
        for (name, arguments, result) in [
            ("jsonb_set", &[r#"{"a":[1,{"b":2}]}"#, "{a,1,b}", "3"][..], r#"{"a": [1, {"b": 3}]}"#),
            ("jsonb_set", &[r#"{"a":1}"#, "{b,c}", "3"], r#"{"a": 1}"#),
            ("jsonb_set", &["[1]", "{-5}", "0"], "[0, 1]"),
            ("jsonb_set", &["[1]", "{5}", "2", "bool:f"], "[1]"),
            ("jsonb_insert", &["[0,1,2]", "{-1}", "9"], "[0, 1, 9, 2]"),
            ("jsonb_insert", &["[0,1,2]", "{-1}", "9", "bool:t"], "[0, 1, 2, 9]"),
            ("jsonb_insert", &[r#"{"a":{}}"#, "{a,b}", "9"], r#"{"a": {"b": 9}}"#),
            ("jsonb_insert", &["[]", "{3}", "9"], "[9]"),
            ("jsonb_set_lax", &[r#"{"a":1}"#, "{a}", "jsonb:NULL"], r#"{"a": null}"#),
        ] {
            assert_eq!(call(name, arguments).unwrap(), result, "{name} of {arguments:?}");
        }
        for (document, path, result) in [
            (r#"{"a":{"b":1,"c":2}}"#, "{a,b}", r#"{"a": {"c": 2}}"#),
            ("[1,[2,3]]", "{1,0}", "[1, [3]]"),
            ("[1,2]", "{-1}", "[1]"),
            ("[1,2]", "{-9}", "[1, 2]"),
            ("[]", "{x}", "[]"),
        ] {
            let given = operate(&format!("jsonb:{document}"), "#-", &format!("text[]:{path}"));
            assert_eq!(given.unwrap(), result, "{document} {path}");
        }
        let refused = |name, arguments: &[&str]| call(name, arguments).unwrap_err().state();
        assert_eq!(refused("jsonb_set", &["1", "{a}", "2"]), SqlState::INVALID_PARAMETER);
        assert_eq!(refused("jsonb_set", &["[1]", "{a}", "2"]), SqlState::INVALID_TEXT);
        let given = [r#"{"a":1}"#, "{a}", "2"];
        assert_eq!(refused("jsonb_insert", &given), SqlState::INVALID_PARAMETER);
    }
}
