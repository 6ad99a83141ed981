//! Calls of functions in tests: arguments and results are texts.

use super::{CallContext, Resolved, resolve_aggregate, resolve_function, resolve_operator};
use super::{resolve_rows, rows::ResolvedRows};
use crate::error::SqlResult;
use crate::types::cast::{CastContext, cast};
use crate::types::text_format::{from_text, to_string};
use crate::types::{Datum, FormatSettings, SqlType, TimeZone};

/// An argument: `int4:5`, or `5` for a literal; `NULL` is NULL.
fn argument(text: &str) -> (SqlType, Option<&str>) {
    let (ty, value) = match text.split_once(':') {
        Some((ty, value)) => match SqlType::by_name(ty) {
            Some(ty) => (ty, value),
            None => (SqlType::UNKNOWN, text),
        },
        None => (SqlType::UNKNOWN, text),
    };
    (ty, (value != "NULL").then_some(value))
}

pub(super) fn settings() -> FormatSettings {
    FormatSettings { time_zone: TimeZone::parse("+02").unwrap(), ..FormatSettings::default() }
}

fn with_context<R>(f: impl FnOnce(&CallContext<'_>) -> R) -> R {
    let settings = settings();
    f(&CallContext {
        settings: &settings,
        transaction_start: 0,
        statement_start: 1_000_000,
        now: 2_000_000,
        user: "alice",
        session_user: "alice",
        is_superuser: true,
        session_number: 1,
        sessions: &crate::SessionList::default(),
        database: "db",
        search_path: &["public".to_owned()],
        to_set: &crate::functions::ToSet::default(),
        random: &|| 0.5,
        interrupts: &crate::functions::Interrupts::default(),
        large_values: &crate::functions::LargeValues::default(),
    })
}

fn values(arguments: &[&str], types: &[SqlType]) -> SqlResult<Vec<Datum>> {
    let settings = settings();
    let value = |(text, to): (&&str, &SqlType)| {
        let (from, value) = argument(text);
        let Some(value) = value else { return Ok(Datum::Null) };
        let value = from_text(value, from, &settings)?;
        cast(value, from, *to, CastContext::Implicit, &settings)
    };
    arguments.iter().zip(types).map(value).collect()
}

fn types_of(arguments: &[&str]) -> Vec<SqlType> {
    arguments.iter().map(|text| argument(text).0).collect()
}

fn shown(value: &Datum, ty: SqlType) -> String {
    if value.is_null() { "NULL".to_owned() } else { to_string(value, ty, &settings()) }
}

fn run(found: &Resolved, arguments: &[&str]) -> SqlResult<String> {
    let values = values(arguments, &found.arguments)?;
    if found.is_strict && values.iter().any(Datum::is_null) {
        return Ok("NULL".to_owned());
    }
    let value = with_context(|context| (found.eval)(&values, context))?;
    Ok(shown(&value, found.returns))
}

/// What a function gives.
pub(super) fn call(name: &str, arguments: &[&str]) -> SqlResult<String> {
    run(&resolve_function(name, &types_of(arguments))?, arguments)
}

/// What an operator between two values gives.
pub(super) fn operate(left: &str, op: &str, right: &str) -> SqlResult<String> {
    let found = resolve_operator(op, Some(argument(left).0), argument(right).0)?;
    run(&found, &[left, right])
}

/// What an aggregate gives over rows of one value.
pub(super) fn aggregate(name: &str, ty: &str, rows: &[&str], more: &[&str]) -> SqlResult<String> {
    let ty = SqlType::by_name(ty).unwrap();
    let mut types = vec![ty];
    types.extend(types_of(more));
    let found = resolve_aggregate(name, &types)?.unwrap();
    let mut state = (found.new)();
    for row in rows {
        let row = format!("{}:{row}", ty.catalogue_name());
        let arguments: Vec<&str> =
            std::iter::once(row.as_str()).chain(more.iter().copied()).collect();
        let values = values(&arguments, &found.arguments)?;
        if !found.is_strict || !values.iter().any(Datum::is_null) {
            state.add(&values)?;
        }
    }
    Ok(shown(&state.finish()?, found.returns))
}

/// The rows that a function gives, values between commas, rows between spaces.
pub(super) fn rows(name: &str, arguments: &[&str]) -> SqlResult<String> {
    let ResolvedRows { arguments: types, columns, rows, pause: _ } =
        resolve_rows(name, &types_of(arguments))?.unwrap();
    let values = values(arguments, &types)?;
    let mut out = Vec::new();
    for row in with_context(|context| rows(&values, context))? {
        let row = row?;
        let cells: Vec<String> =
            row.iter().zip(&columns).map(|(value, (_, ty))| shown(value, *ty)).collect();
        out.push(cells.join(","));
    }
    Ok(out.join(" "))
}
