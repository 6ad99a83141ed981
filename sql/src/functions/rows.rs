//! Functions that give rows.

use std::fmt;
use std::iter;
use std::sync::{Arc, LazyLock};

use bigdecimal::BigDecimal;
use bigdecimal::Zero;
use selkie_txn::Interval;

use super::CallContext;
use super::PauseOf;
use super::arguments::{argument, array, boolean, interval, moment, number, text, whole};
use super::composites::{EACH_JSON, EACH_JSONB, EACH_TEXT, EXPANDED_ARRAY, Fields};
use super::resolve::{Choice, ambiguous_function, choose, undefined_function};
use super::signature::Table;
use crate::error::{SqlError, SqlResult, SqlState};
use crate::types::json::{self, Value};
use crate::types::{Array, Datum, Scalar, SqlType, calendar, numeric};

/// Rows as they are asked for.
pub type RowIterator = Box<dyn Iterator<Item = SqlResult<Vec<Datum>>> + Send>;
/// What gives the rows of a call.
pub type RowsOf = fn(&[Datum], &CallContext<'_>) -> SqlResult<RowIterator>;

/// What gives the rows of a call whose types are known.
pub type ResolvedRowsOf =
    Arc<dyn Fn(&[Datum], &CallContext<'_>) -> SqlResult<RowIterator> + Send + Sync>;

/// A call, whose types are known, of a function that gives rows. If an argument is NULL there are
/// none.
#[derive(Clone)]
pub struct ResolvedRows {
    /// The type that each argument has to be cast to.
    pub arguments: Vec<SqlType>,
    /// The names and types of what a row has.
    pub columns: Vec<(String, SqlType)>,
    /// What gives the rows.
    pub rows: ResolvedRowsOf,
    /// How long is waited before.
    pub pause: Option<PauseOf>,
}

impl fmt::Debug for ResolvedRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResolvedRows")
            .field("arguments", &self.arguments)
            .field("columns", &self.columns)
            .finish_non_exhaustive()
    }
}

/// A function that gives rows, and the names of their columns if there are several or if the one
/// is not called as the function.
#[derive(Clone, Copy)]
pub(super) struct RowsBody {
    pub(super) columns: Fields,
    pub(super) rows: RowsOf,
}

const RELID: Fields = &[("relid", None)];
const VALUE: Fields = &[("value", None)];

pub(super) static ROWS: LazyLock<Table<RowsBody>> = LazyLock::new(|| {
    let mut table = Table::new();
    register(&mut table);
    super::catalogue_rows::register(&mut table);
    table
});

/// Whether there is a function of this name that gives rows.
#[must_use]
pub fn gives_rows(name: &str) -> bool {
    ROWS.get(name).is_some()
}

/// The names of the columns of the rows that a function gives, if they are several.
#[must_use]
pub(crate) fn columns_of_rows(name: &str) -> Vec<&'static str> {
    let first = ROWS.get(name).and_then(<[_]>::first);
    let columns = first.map_or(&[][..], |own| own.body.columns);
    if columns.len() > 1 { columns.iter().map(|own| own.0).collect() } else { Vec::new() }
}

/// Whether it gives as many rows as an array has elements.
#[must_use]
pub(crate) fn is_by_array(name: &str) -> bool {
    matches!(name, "unnest" | "generate_subscripts" | "_pg_expandarray")
}

/// The function with rows that a call means; `None` if there is none of that name.
///
/// # Errors
/// [`SqlState::UNDEFINED_FUNCTION`] if none takes such arguments, [`SqlState::AMBIGUOUS_FUNCTION`]
/// if several do.
pub fn resolve_rows(name: &str, arguments: &[SqlType]) -> SqlResult<Option<ResolvedRows>> {
    let Some(signatures) = ROWS.get(name) else { return Ok(None) };
    match choose(signatures, arguments)? {
        Choice::One(signature, types) => {
            let RowsBody { columns, rows } = signature.body;
            let mut columns: Vec<(String, SqlType)> = columns
                .iter()
                .map(|(name, ty)| ((*name).to_owned(), ty.unwrap_or(types.returns)))
                .collect();
            if columns.is_empty() {
                columns.push((name.to_owned(), types.returns));
            }
            let (arguments, rows) = (types.arguments, Arc::new(rows));
            Ok(Some(ResolvedRows { arguments, columns, rows, pause: None }))
        }
        Choice::Several => Err(ambiguous_function(name, arguments)),
        Choice::None => Err(undefined_function(name, arguments)),
    }
}

/// The function `unnest` of arrays, which go in step: a column for each. Where an array is NULL an
/// empty one has to be given.
///
/// # Errors
/// As [`resolve_rows`].
pub fn resolve_unnest(arguments: &[SqlType]) -> SqlResult<Option<ResolvedRows>> {
    let mut all = ResolvedRows {
        arguments: Vec::new(),
        columns: Vec::new(),
        rows: Arc::new(unnest_in_step),
        pause: None,
    };
    for &argument in arguments {
        if argument.scalar == Scalar::Unknown {
            return Err(ambiguous_function("unnest", &[argument]));
        }
        let Some(one) = resolve_rows("unnest", &[argument])? else { return Ok(None) };
        all.arguments.extend(one.arguments);
        all.columns.extend(one.columns);
    }
    Ok(Some(all))
}

fn nothing(_: &[Datum], _: &CallContext<'_>) -> SqlResult<RowIterator> {
    Ok(Box::new(iter::empty()))
}

fn register(table: &mut Table<RowsBody>) {
    let mut add = |name, signature, columns, rows| {
        table.add_body(name, signature, RowsBody { columns, rows });
    };
    for signature in [
        "int4 int4 -> int4",
        "int4 int4 int4 -> int4",
        "int8 int8 -> int8",
        "int8 int8 int8 -> int8",
    ] {
        add("generate_series", signature, &[], whole_series);
    }
    for signature in ["numeric numeric -> numeric", "numeric numeric numeric -> numeric"] {
        add("generate_series", signature, &[], numeric_series);
    }
    add("generate_series", "timestamp timestamp interval -> timestamp", &[], moment_series);
    add("generate_series", "timestamptz timestamptz interval -> timestamptz", &[], zoned_series);
    add("unnest", "anyarray -> anyelement", &[], unnest);
    add("_pg_expandarray", "anyarray -> anyelement", EXPANDED_ARRAY, expanded);
    add("generate_subscripts", "anyarray int4 -> int4", &[], subscripts);
    add("generate_subscripts", "anyarray int4 bool -> int4", &[], subscripts);
    add("regexp_split_to_table", "text text -> text", &[], split_pattern);
    add("regexp_split_to_table", "text text text -> text", &[], split_pattern);
    add("regexp_matches", "text text -> text[]", &[], matches);
    add("regexp_matches", "text text text -> text[]", &[], matches);
    add("string_to_table", "text text -> text", &[], split_text);
    add("string_to_table", "text text text -> text", &[], split_text);
    // There are no partitions.
    add("pg_partition_ancestors", "regclass -> regclass", RELID, nothing);
    add("json_array_elements", "json -> json", VALUE, elements);
    add("jsonb_array_elements", "jsonb -> jsonb", VALUE, elements);
    add("json_array_elements_text", "json -> text", VALUE, element_texts);
    add("jsonb_array_elements_text", "jsonb -> text", VALUE, element_texts);
    add("json_each", "json -> record", EACH_JSON, each);
    add("jsonb_each", "jsonb -> record", EACH_JSONB, each);
    add("json_each_text", "json -> record", EACH_TEXT, each_text);
    add("jsonb_each_text", "jsonb -> record", EACH_TEXT, each_text);
    add("json_object_keys", "json -> text", &[], keys);
    add("jsonb_object_keys", "jsonb -> text", &[], keys);
}

/// Rows as they are asked for.
pub(super) fn in_rows(
    rows: impl IntoIterator<Item = Vec<Datum>, IntoIter: Send + 'static>,
) -> RowIterator {
    Box::new(rows.into_iter().map(Ok))
}

fn of_values(values: impl IntoIterator<Item = Datum, IntoIter: Send + 'static>) -> RowIterator {
    Box::new(values.into_iter().map(|value| Ok(vec![value])))
}

fn no_step() -> SqlError {
    SqlError::new(SqlState::INVALID_PARAMETER, "step size cannot equal zero")
}

fn whole_series(values: &[Datum], _: &CallContext<'_>) -> SqlResult<RowIterator> {
    let is_narrow = matches!(argument(values, 0), Datum::I32(_));
    let (first, last) = (whole(values, 0)?, whole(values, 1)?);
    let step = if values.len() > 2 { whole(values, 2)? } else { 1 };
    if step == 0 {
        return Err(no_step());
    }
    let within = move |value: &i64| if step > 0 { *value <= last } else { *value >= last };
    let series = iter::successors(Some(first).filter(within), move |value| {
        value.checked_add(step).filter(within)
    });
    Ok(of_values(series.map(move |value| match i32::try_from(value) {
        Ok(value) if is_narrow => Datum::I32(value),
        _ => Datum::I64(value),
    })))
}

fn numeric_series(values: &[Datum], _: &CallContext<'_>) -> SqlResult<RowIterator> {
    let one = BigDecimal::from(1);
    let invalid = |what: &str, value: &str| {
        SqlError::new(SqlState::INVALID_PARAMETER, format!("{what} cannot be {value}"))
    };
    let first = number(values, 0)?.ok_or_else(|| invalid("start value", "NaN"))?.clone();
    let last = number(values, 1)?.ok_or_else(|| invalid("stop value", "NaN"))?.clone();
    let step = match values.len() {
        0..=2 => one,
        _ => number(values, 2)?.ok_or_else(|| invalid("step size", "NaN"))?.clone(),
    };
    if step.is_zero() {
        return Err(no_step());
    }
    let goes_up = step > BigDecimal::zero();
    let within = move |value: &BigDecimal| if goes_up { *value <= last } else { *value >= last };
    let mut next = Some(first);
    Ok(Box::new(iter::from_fn(move || {
        let value = next.take().filter(&within)?;
        next = numeric::add(&value, &step).ok();
        Some(Ok(vec![numeric::datum(value)]))
    })))
}

fn series_of_moments(
    values: &[Datum],
    plus: impl Fn(i64, Interval) -> SqlResult<i64> + Send + 'static,
) -> SqlResult<RowIterator> {
    let (first, last) = (moment(values, 0)?, moment(values, 1)?);
    let step = interval(values, 2)?;
    let length = step.length_us();
    if length == 0 {
        return Err(no_step());
    }
    if !calendar::is_finite(first) {
        return Err(calendar::timestamp_out_of_range());
    }
    let within = move |value: &i64| if length > 0 { *value <= last } else { *value >= last };
    let mut next = Some(Ok(first));
    Ok(Box::new(iter::from_fn(move || match next.take()? {
        Ok(value) if within(&value) => {
            // A step that leads back would never end.
            next = Some(plus(value, step)).filter(|following| {
                following.as_ref().map_or(true, |following| (*following > value) == (length > 0))
            });
            Some(Ok(vec![Datum::Timestamp(value)]))
        }
        Ok(_) => None,
        Err(error) => Some(Err(error)),
    })))
}

fn moment_series(values: &[Datum], _: &CallContext<'_>) -> SqlResult<RowIterator> {
    series_of_moments(values, calendar::add_interval)
}

fn zoned_series(values: &[Datum], context: &CallContext<'_>) -> SqlResult<RowIterator> {
    let zone = context.settings.time_zone.clone();
    series_of_moments(values, move |value, step| zone.add_interval(value, step))
}

fn unnest(values: &[Datum], _: &CallContext<'_>) -> SqlResult<RowIterator> {
    let array = Arc::clone(array(values, 0)?);
    let mut at = 0;
    Ok(Box::new(iter::from_fn(move || {
        let value = array.elements.get(at)?.clone();
        at += 1;
        Some(Ok(vec![value]))
    })))
}

/// Each element with its number.
fn expanded(values: &[Datum], _: &CallContext<'_>) -> SqlResult<RowIterator> {
    let array = Arc::clone(array(values, 0)?);
    let count = i32::try_from(array.elements.len()).unwrap_or(i32::MAX);
    let element = move |at: i32| {
        let value = usize::try_from(at - 1).ok().and_then(|at| array.elements.get(at));
        Ok(vec![value.cloned().unwrap_or(Datum::Null), Datum::I32(at)])
    };
    Ok(Box::new((1..=count).map(element)))
}

/// Arrays that are shorter than the longest have NULLs behind their end.
fn unnest_in_step(values: &[Datum], _: &CallContext<'_>) -> SqlResult<RowIterator> {
    let arrays = (0..values.len()).map(|at| array(values, at).map(Arc::clone));
    let arrays = arrays.collect::<SqlResult<Vec<_>>>()?;
    let longest = arrays.iter().map(|own| own.elements.len()).max().unwrap_or(0);
    let value = |array: &Array, at| array.elements.get(at).cloned().unwrap_or(Datum::Null);
    Ok(Box::new(
        (0..longest).map(move |at| Ok(arrays.iter().map(|array| value(array, at)).collect())),
    ))
}

fn subscripts(values: &[Datum], _: &CallContext<'_>) -> SqlResult<RowIterator> {
    let array = array(values, 0)?;
    let dimension = usize::try_from(whole(values, 1)?).ok().and_then(|at| at.checked_sub(1));
    let is_reverse = values.len() > 2 && boolean(values, 2)?;
    let Some(&(length, first)) = dimension.and_then(|at| array.dimensions.get(at)) else {
        return Ok(Box::new(iter::empty()));
    };
    let length = i32::try_from(length).unwrap_or(i32::MAX);
    let last = first.saturating_add(length);
    Ok(if is_reverse {
        of_values((first..last).rev().map(Datum::I32))
    } else {
        of_values((first..last).map(Datum::I32))
    })
}

fn split_pattern(values: &[Datum], context: &CallContext<'_>) -> SqlResult<RowIterator> {
    let flags = super::patterns::flags_of_all(values, "regexp_split_to_table()")?;
    super::patterns::split(text(values, 0)?, text(values, 1)?, flags, context).map(of_values)
}

fn matches(values: &[Datum], context: &CallContext<'_>) -> SqlResult<RowIterator> {
    let flags = if values.len() > 2 { text(values, 2)? } else { "" };
    super::patterns::all_matches(text(values, 0)?, text(values, 1)?, flags, context).map(of_values)
}

fn split_text(values: &[Datum], _: &CallContext<'_>) -> SqlResult<RowIterator> {
    let null = if values.len() > 2 { Some(text(values, 2)?) } else { None };
    super::arrays::split(text(values, 0)?, Some(text(values, 1)?), null).map(of_values)
}

/// The members of a document that is an object.
fn members(values: &[Datum], name: &str) -> SqlResult<Vec<(String, String, Datum)>> {
    let document = text(values, 0)?;
    let node = json::parse(document)?;
    let Value::Object(members) = node.value else {
        return Err(SqlError::new(
            SqlState::INVALID_PARAMETER,
            format!("cannot call {name} on a non-object"),
        ));
    };
    let member = |(key, node): (String, json::Node)| {
        (key, node.text(document).to_owned(), super::documents::node_text(document, &node))
    };
    Ok(members.into_iter().map(member).collect())
}

fn array_nodes(document: &str) -> SqlResult<Vec<json::Node>> {
    match json::parse(document)?.value {
        Value::Array(nodes) => Ok(nodes),
        Value::Object(_) => Err(SqlError::new(
            SqlState::INVALID_PARAMETER,
            "cannot extract elements from an object",
        )),
        _ => {
            Err(SqlError::new(SqlState::INVALID_PARAMETER, "cannot extract elements from a scalar"))
        }
    }
}

fn elements(values: &[Datum], _: &CallContext<'_>) -> SqlResult<RowIterator> {
    let document = text(values, 0)?;
    let nodes = array_nodes(document)?;
    let parts: Vec<Datum> =
        nodes.iter().map(|node| Datum::Json(node.text(document).into())).collect();
    Ok(of_values(parts))
}

fn element_texts(values: &[Datum], _: &CallContext<'_>) -> SqlResult<RowIterator> {
    let document = text(values, 0)?;
    let nodes = array_nodes(document)?;
    let parts: Vec<Datum> =
        nodes.iter().map(|node| super::documents::node_text(document, node)).collect();
    Ok(of_values(parts))
}

fn each(values: &[Datum], _: &CallContext<'_>) -> SqlResult<RowIterator> {
    let members = members(values, "json_each")?.into_iter();
    Ok(Box::new(members.map(|(key, json, _)| Ok(vec![Datum::text(key), Datum::Json(json.into())]))))
}

fn each_text(values: &[Datum], _: &CallContext<'_>) -> SqlResult<RowIterator> {
    let members = members(values, "json_each_text")?.into_iter();
    Ok(Box::new(members.map(|(key, _, text)| Ok(vec![Datum::text(key), text]))))
}

fn keys(values: &[Datum], _: &CallContext<'_>) -> SqlResult<RowIterator> {
    let members = members(values, "json_object_keys")?.into_iter();
    Ok(of_values(members.map(|(key, _, _)| Datum::text(key)).collect::<Vec<_>>()))
}
