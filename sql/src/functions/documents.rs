//! Operators of `json` and `jsonb`, and values as JSON.

use std::collections::BTreeSet;

use super::CallContext;
use super::arguments::{array, text, whole};
use super::interrupts::Interrupts;
use super::signature::{Body, Table, Types};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::types::json::{self, Node, Value};
use crate::types::text_format::to_string;
use crate::types::{Datum, FormatSettings, Scalar, SqlType};

/// A node as `->>` gives it: a string without quotes, null as NULL.
pub(super) fn node_text(document: &str, node: &Node) -> Datum {
    match &node.value {
        Value::Null => Datum::Null,
        Value::String(value) => Datum::text(value.as_str()),
        _ => Datum::text(node.text(document)),
    }
}

/// A value as a key of an object.
pub(super) fn key_text(value: &Datum, ty: SqlType, settings: &FormatSettings) -> String {
    match value {
        Datum::Bool(value) => value.to_string(),
        value => to_string(value, ty, settings),
    }
}

/// Appends a value as JSON.
pub(super) fn print_json(value: &Datum, ty: SqlType, settings: &FormatSettings, out: &mut String) {
    match value {
        Datum::Null => out.push_str("null"),
        Datum::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        Datum::Json(value) => out.push_str(value),
        Datum::I16(_) | Datum::I32(_) | Datum::I64(_) | Datum::Numeric(Some(_)) => {
            out.push_str(&to_string(value, ty, settings));
        }
        Datum::F32(number) if number.is_finite() => out.push_str(&to_string(value, ty, settings)),
        Datum::F64(number) if number.is_finite() => out.push_str(&to_string(value, ty, settings)),
        Datum::Array(array) => {
            print_array(&array.dimensions, &mut array.elements.iter(), ty.element(), settings, out);
        }
        Datum::Record(own) => {
            out.push('{');
            for (at, (value, ty)) in own.typed().enumerate() {
                out.push_str(if at > 0 { "," } else { "" });
                json::print_string(own.fields.get(at).map_or("", |own| &own.name), out);
                out.push(':');
                print_json(value, ty, settings, out);
            }
            out.push('}');
        }
        Datum::Timestamp(_) => {
            // ISO 8601, whatever the session's style is.
            let time_zone = settings.time_zone.clone();
            let iso = FormatSettings { time_zone, ..FormatSettings::default() };
            let mut shown = to_string(value, ty, &iso).replacen(' ', "T", 1);
            let offset = shown.rfind(['+', '-']).filter(|_| ty.scalar == Scalar::TimestampTz);
            if offset.is_some_and(|at| shown.len() - at == 3) {
                shown.push_str(":00");
            }
            json::print_string(&shown, out);
        }
        value => json::print_string(&to_string(value, ty, settings), out),
    }
}

fn print_array<'a>(
    dimensions: &[(usize, i32)],
    elements: &mut impl Iterator<Item = &'a Datum>,
    ty: SqlType,
    settings: &FormatSettings,
    out: &mut String,
) {
    let (length, rest) = match dimensions.split_first() {
        Some((&(length, _), rest)) => (length, rest),
        None => (0, dimensions),
    };
    out.push('[');
    for at in 0..length {
        out.push_str(if at > 0 { "," } else { "" });
        if rest.is_empty() {
            print_json(elements.next().unwrap_or(&Datum::Null), ty, settings, out);
        } else {
            print_array(rest, &mut *elements, ty, settings, out);
        }
    }
    out.push(']');
}

/// A text of JSON as a value of the type that is returned.
pub(super) fn of_text(types: &Types, text: String) -> SqlResult<Datum> {
    Ok(Datum::Json(match types.returns.scalar {
        Scalar::Jsonb => json::canonical(&text)?.into(),
        _ => text.into(),
    }))
}

/// Follows a path of keys and indexes.
pub(super) fn follow<'a>(node: &'a Node, path: &[Datum]) -> Option<&'a Node> {
    let mut node = node;
    for step in path {
        let Datum::Text(step) = step else { return None };
        node = match &node.value {
            Value::Object(_) => node.member(step)?,
            Value::Array(_) => node.element(step.trim().parse().ok()?)?,
            _ => return None,
        };
    }
    Some(node)
}

/// The element of a document at a position. A `jsonb` that is a scalar is its own only element.
fn element<'a>(types: &Types, node: &'a Node, at: i64) -> Option<&'a Node> {
    match &node.value {
        Value::Array(_) => node.element(at),
        Value::Object(_) => None,
        _ => (types.argument(0) == SqlType::JSONB && matches!(at, 0 | -1)).then_some(node),
    }
}

/// Looks into the document of a call.
pub(super) fn look(
    values: &[Datum],
    find: impl Fn(&Node) -> SqlResult<Option<&Node>>,
    as_text: bool,
) -> SqlResult<Datum> {
    let document = text(values, 0)?;
    let node = json::parse(document)?;
    Ok(match find(&node)? {
        Some(found) if as_text => node_text(document, found),
        Some(found) => Datum::Json(found.text(document).into()),
        None => Datum::Null,
    })
}

/// Two documents of which one may contain the other.
struct Containment<'a> {
    a_text: &'a str,
    b_text: &'a str,
    interrupts: &'a Interrupts,
}

impl Containment<'_> {
    fn holds(&self, a: &Node, b: &Node) -> SqlResult<bool> {
        match (&a.value, &b.value) {
            (Value::Object(all), Value::Object(members)) => {
                for (key, wanted) in members {
                    self.interrupts.after(all.len())?;
                    let Some(found) = a.member(key) else { return Ok(false) };
                    if !self.holds(found, wanted)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            (Value::Array(all), Value::Array(wanted)) => {
                for wanted in wanted {
                    if !self.is_in(all, wanted)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            (Value::Object(_) | Value::Array(_), _) | (_, Value::Object(_) | Value::Array(_)) => {
                Ok(false)
            }
            _ => Ok(json::compare(self.a_text, a, self.b_text, b).is_eq()),
        }
    }

    /// Whether one of some elements contains a value.
    fn is_in(&self, all: &[Node], wanted: &Node) -> SqlResult<bool> {
        for found in all {
            self.interrupts.after(1)?;
            if self.holds(found, wanted)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

pub(super) fn contains_document(
    a_text: &str,
    b_text: &str,
    context: &CallContext<'_>,
) -> SqlResult<bool> {
    let (a, b) = (json::parse(a_text)?, json::parse(b_text)?);
    // At the top alone, an array contains a scalar that is one of its elements.
    if let (Value::Array(all), Value::Null | Value::Bool(_) | Value::Number | Value::String(_)) =
        (&a.value, &b.value)
    {
        return Ok(all.iter().any(|found| json::compare(a_text, found, b_text, &b).is_eq()));
    }
    Containment { a_text, b_text, interrupts: context.interrupts }.holds(&a, &b)
}

/// Whether a text is a key of an object or a string of an array.
fn has_key(node: &Node, key: &str) -> bool {
    let is_key = |node: &Node| matches!(&node.value, Value::String(value) if value == key);
    match &node.value {
        Value::Object(_) => node.member(key).is_some(),
        Value::Array(nodes) => nodes.iter().any(is_key),
        Value::String(value) => value == key,
        _ => false,
    }
}

/// Whether a decisive one of some texts is a key: any that is, or any that is not.
fn has_keys(values: &[Datum], any: bool, context: &CallContext<'_>) -> SqlResult<Datum> {
    let node = json::parse(text(values, 0)?)?;
    let count = match &node.value {
        Value::Object(members) => members.len(),
        Value::Array(nodes) => nodes.len(),
        _ => 1,
    };
    for key in &array(values, 1)?.elements {
        context.interrupts.after(count)?;
        if matches!(key, Datum::Text(key) if has_key(&node, key)) == any {
            return Ok(Datum::Bool(any));
        }
    }
    Ok(Datum::Bool(!any))
}

pub(super) fn register_operators(table: &mut Table<Body>) {
    for (name, as_key, as_index) in [
        ("->", "json text -> json", "json int4 -> json"),
        ("->", "jsonb text -> jsonb", "jsonb int4 -> jsonb"),
    ] {
        table.add(name, as_key, |v, _| {
            let key = text(v, 1)?;
            look(v, |node| Ok(node.member(key)), false)
        });
        table.add_typed(name, as_index, |types, v, _| {
            let at = whole(v, 1)?;
            look(v, |node| Ok(element(types, node, at)), false)
        });
    }
    for (as_key, as_index) in
        [("json text -> text", "json int4 -> text"), ("jsonb text -> text", "jsonb int4 -> text")]
    {
        table.add("->>", as_key, |v, _| {
            let key = text(v, 1)?;
            look(v, |node| Ok(node.member(key)), true)
        });
        table.add_typed("->>", as_index, |types, v, _| {
            let at = whole(v, 1)?;
            look(v, |node| Ok(element(types, node, at)), true)
        });
    }
    for signature in ["json text[] -> json", "jsonb text[] -> jsonb"] {
        table.add("#>", signature, |v, _| {
            look(v, |node| Ok(follow(node, &array(v, 1)?.elements)), false)
        });
    }
    for signature in ["json text[] -> text", "jsonb text[] -> text"] {
        table.add("#>>", signature, |v, _| {
            look(v, |node| Ok(follow(node, &array(v, 1)?.elements)), true)
        });
    }
    table.add("@>", "jsonb jsonb -> bool", |v, context| {
        contains_document(text(v, 0)?, text(v, 1)?, context).map(Datum::Bool)
    });
    table.add("<@", "jsonb jsonb -> bool", |v, context| {
        contains_document(text(v, 1)?, text(v, 0)?, context).map(Datum::Bool)
    });
    register_keys(table);
}

fn register_keys(table: &mut Table<Body>) {
    table.add("?", "jsonb text -> bool", |v, _| {
        Ok(Datum::Bool(has_key(&json::parse(text(v, 0)?)?, text(v, 1)?)))
    });
    table.add("?|", "jsonb text[] -> bool", |v, context| has_keys(v, true, context));
    table.add("?&", "jsonb text[] -> bool", |v, context| has_keys(v, false, context));
    table.add("||", "jsonb jsonb -> jsonb", concatenate);
    table.add("-", "jsonb text -> jsonb", |v, _| {
        let key = text(v, 1)?;
        remove(text(v, 0)?, |name, _| name == Some(key))
    });
    table.add("-", "jsonb text[] -> jsonb", |v, _| {
        let mut keys = BTreeSet::new();
        for key in &array(v, 1)?.elements {
            if let Datum::Text(key) = key {
                keys.insert(&**key);
            }
        }
        remove(text(v, 0)?, |name, _| name.is_some_and(|name| keys.contains(name)))
    });
    table.add("-", "jsonb int4 -> jsonb", |v, _| {
        let (document, at) = (text(v, 0)?, whole(v, 1)?);
        let Value::Array(nodes) = json::parse(document)?.value else {
            return Err(SqlError::new(
                SqlState::INVALID_PARAMETER,
                "cannot delete from object using integer index",
            ));
        };
        let at = if at < 0 { at + nodes.len() as i64 } else { at };
        remove(document, |_, index| index as i64 == at)
    });
}

/// A document without the members and elements that a test tells. A string in an array counts as
/// a name.
fn remove(document: &str, test: impl Fn(Option<&str>, usize) -> bool) -> SqlResult<Datum> {
    let node = json::parse(document)?;
    let parts: Vec<String> = match &node.value {
        Value::Object(members) => members
            .iter()
            .enumerate()
            .filter(|(at, (key, _))| !test(Some(key), *at))
            .map(|(_, (key, node))| member(key, node.text(document)))
            .collect(),
        Value::Array(nodes) => nodes
            .iter()
            .enumerate()
            .filter(|(at, node)| match &node.value {
                Value::String(value) => !test(Some(value), *at),
                _ => !test(None, *at),
            })
            .map(|(_, node)| node.text(document).to_owned())
            .collect(),
        _ => {
            return Err(SqlError::new(SqlState::INVALID_PARAMETER, "cannot delete from scalar"));
        }
    };
    let inner = parts.join(", ");
    Ok(Datum::Json(match node.value {
        Value::Object(_) => format!("{{{inner}}}").into(),
        _ => format!("[{inner}]").into(),
    }))
}

pub(super) fn member(key: &str, value: &str) -> String {
    let mut out = String::new();
    json::print_string(key, &mut out);
    out.push_str(": ");
    out.push_str(value);
    out
}

fn concatenate(values: &[Datum], _: &CallContext<'_>) -> SqlResult<Datum> {
    let (a_text, b_text) = (text(values, 0)?, text(values, 1)?);
    let (a, b) = (json::parse(a_text)?, json::parse(b_text)?);
    if let (Value::Object(a), Value::Object(b)) = (&a.value, &b.value) {
        let of = |members: &[(String, Node)], text: &str| -> Vec<String> {
            members.iter().map(|(key, node)| member(key, node.text(text))).collect()
        };
        let mut all = of(a, a_text);
        all.extend(of(b, b_text));
        return Ok(Datum::Json(json::canonical(&format!("{{{}}}", all.join(", ")))?.into()));
    }
    // Anything else is made an array of one.
    let parts = |node: &Node, text: &str| -> Vec<String> {
        match &node.value {
            Value::Array(nodes) => nodes.iter().map(|node| node.text(text).to_owned()).collect(),
            _ => vec![node.text(text).to_owned()],
        }
    };
    let mut all = parts(&a, a_text);
    all.extend(parts(&b, b_text));
    Ok(Datum::Json(format!("[{}]", all.join(", ")).into()))
}
