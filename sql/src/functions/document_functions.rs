//! Functions that build documents of JSON, and that change and measure them.

use super::CallContext;
use super::arguments::{argument, text};
use super::documents::{contains_document, follow, key_text, look, of_text, print_json};
use super::signature::{Body, Table, Types};
use super::strings::check_length;
use crate::error::{SqlError, SqlResult, SqlState};
use crate::types::Datum;
use crate::types::json::{self, Node, Value};

fn build_array(types: &Types, values: &[Datum], context: &CallContext<'_>) -> SqlResult<Datum> {
    let mut out = String::from("[");
    for (at, value) in values.iter().enumerate() {
        out.push_str(if at > 0 { ", " } else { "" });
        print_json(value, types.argument(at), context.settings, &mut out);
    }
    out.push(']');
    of_text(types, out)
}

fn build_object(types: &Types, values: &[Datum], context: &CallContext<'_>) -> SqlResult<Datum> {
    let invalid = |what| SqlError::new(SqlState::INVALID_PARAMETER, what);
    if !values.len().is_multiple_of(2) {
        return Err(invalid("argument list must have even number of elements".to_owned()).hint(
            "The arguments of json_build_object() must consist of alternating keys and values.",
        ));
    }
    let mut out = String::from("{");
    for (pair, at) in values.chunks_exact(2).zip((0..).step_by(2)) {
        let [key, value] = pair else { continue };
        if key.is_null() {
            return Err(invalid(format!("argument {}: key must not be null", at + 1)));
        }
        out.push_str(if at > 0 { ", " } else { "" });
        json::print_string(&key_text(key, types.argument(at), context.settings), &mut out);
        out.push_str(" : ");
        print_json(value, types.argument(at + 1), context.settings, &mut out);
    }
    out.push('}');
    of_text(types, out)
}

fn to_json(types: &Types, values: &[Datum], context: &CallContext<'_>) -> SqlResult<Datum> {
    let mut out = String::new();
    print_json(argument(values, 0), types.argument(0), context.settings, &mut out);
    of_text(types, out)
}

pub(super) fn register_functions(table: &mut Table<Body>) {
    for (name, signature) in [
        ("json_build_array", "lax stable -> json"),
        ("json_build_array", "lax stable variadic any -> json"),
        ("jsonb_build_array", "lax stable -> jsonb"),
        ("jsonb_build_array", "lax stable variadic any -> jsonb"),
    ] {
        table.add_typed(name, signature, build_array);
    }
    for (name, signature) in [
        ("json_build_object", "lax stable -> json"),
        ("json_build_object", "lax stable variadic any -> json"),
        ("jsonb_build_object", "lax stable -> jsonb"),
        ("jsonb_build_object", "lax stable variadic any -> jsonb"),
    ] {
        table.add_typed(name, signature, build_object);
    }
    for (name, signature) in [
        ("to_json", "stable any -> json"),
        ("to_jsonb", "stable any -> jsonb"),
        ("row_to_json", "stable record -> json"),
        ("array_to_json", "stable anyarray -> json"),
    ] {
        table.add_typed(name, signature, to_json);
    }
    for (name, signature) in [("json_typeof", "json -> text"), ("jsonb_typeof", "jsonb -> text")] {
        table.add(name, signature, |v, _| Ok(Datum::text(json::parse(text(v, 0)?)?.type_name())));
    }
    for (name, signature) in
        [("json_array_length", "json -> int4"), ("jsonb_array_length", "jsonb -> int4")]
    {
        table.add(name, signature, array_length);
    }
    register_paths(table);
}

fn register_paths(table: &mut Table<Body>) {
    for (name, signature) in [
        ("json_extract_path", "json variadic text -> json"),
        ("jsonb_extract_path", "jsonb variadic text -> jsonb"),
    ] {
        table.add(name, signature, |v, _| {
            look(v, |node| Ok(follow(node, v.get(1..).unwrap_or_default())), false)
        });
    }
    for (name, signature) in [
        ("json_extract_path_text", "json variadic text -> text"),
        ("jsonb_extract_path_text", "jsonb variadic text -> text"),
    ] {
        table.add(name, signature, |v, _| {
            look(v, |node| Ok(follow(node, v.get(1..).unwrap_or_default())), true)
        });
    }
    for (name, signature) in
        [("json_strip_nulls", "json -> json"), ("jsonb_strip_nulls", "jsonb -> jsonb")]
    {
        table.add_typed(name, signature, |types, v, _| {
            let document = text(v, 0)?;
            of_text(types, strip(document, &json::parse(document)?))
        });
    }
    table.add("jsonb_pretty", "jsonb -> text", |v, _| {
        let document = text(v, 0)?;
        let mut out = String::new();
        pretty(document, &json::parse(document)?, 0, &mut out)?;
        Ok(Datum::text(out))
    });
    table.add("jsonb_contains", "jsonb jsonb -> bool", |v, context| {
        contains_document(text(v, 0)?, text(v, 1)?, context).map(Datum::Bool)
    });
}

fn array_length(values: &[Datum], _: &CallContext<'_>) -> SqlResult<Datum> {
    let invalid = |what| Err(SqlError::new(SqlState::INVALID_PARAMETER, what));
    match json::parse(text(values, 0)?)?.value {
        Value::Array(nodes) => Ok(Datum::I32(i32::try_from(nodes.len()).unwrap_or(i32::MAX))),
        Value::Object(_) => invalid("cannot get array length of a non-array"),
        _ => invalid("cannot get array length of a scalar"),
    }
}

/// A document without the members of objects that are null.
fn strip(document: &str, node: &Node) -> String {
    match &node.value {
        Value::Object(members) => {
            let kept = members.iter().filter(|(_, node)| !matches!(node.value, Value::Null));
            let part = |(key, node): &(String, Node)| {
                let mut out = String::new();
                json::print_string(key, &mut out);
                format!("{out}:{}", strip(document, node))
            };
            format!("{{{}}}", kept.map(part).collect::<Vec<_>>().join(","))
        }
        Value::Array(nodes) => {
            let parts: Vec<String> = nodes.iter().map(|node| strip(document, node)).collect();
            format!("[{}]", parts.join(","))
        }
        _ => node.text(document).to_owned(),
    }
}

fn pretty(document: &str, node: &Node, depth: usize, out: &mut String) -> SqlResult<()> {
    let indent = |depth: usize, out: &mut String| {
        check_length(out.len(), 4 * depth)?;
        out.push('\n');
        out.push_str(&"    ".repeat(depth));
        SqlResult::Ok(())
    };
    match &node.value {
        Value::Object(members) => {
            out.push('{');
            for (at, (key, node)) in members.iter().enumerate() {
                out.push_str(if at > 0 { "," } else { "" });
                indent(depth + 1, out)?;
                json::print_string(key, out);
                out.push_str(": ");
                pretty(document, node, depth + 1, out)?;
            }
            indent(depth, out)?;
            out.push('}');
        }
        Value::Array(nodes) => {
            out.push('[');
            for (at, node) in nodes.iter().enumerate() {
                out.push_str(if at > 0 { "," } else { "" });
                indent(depth + 1, out)?;
                pretty(document, node, depth + 1, out)?;
            }
            indent(depth, out)?;
            out.push(']');
        }
        _ => out.push_str(node.text(document)),
    }
    Ok(())
}
