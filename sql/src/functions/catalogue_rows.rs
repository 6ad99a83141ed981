//! Functions of the catalogue that give rows.

use super::CallContext;
use super::arguments::array;
use super::composites::{KEYWORDS, OPTIONS, PRIVILEGES};
use super::rows::{RowIterator, RowsBody, in_rows};
use super::signature::Table;
use crate::error::{SqlError, SqlResult, SqlState};
use crate::types::Datum;

/// The words of SQL, each with the letter of its kind and whether it may be a label without AS, as
/// PostgreSQL has them.
const WORDS: &str = include_str!("keywords.txt");

/// The letters of privileges.
const LETTERS: [(char, &str); 14] = [
    ('a', "INSERT"),
    ('r', "SELECT"),
    ('w', "UPDATE"),
    ('d', "DELETE"),
    ('D', "TRUNCATE"),
    ('x', "REFERENCES"),
    ('t', "TRIGGER"),
    ('X', "EXECUTE"),
    ('U', "USAGE"),
    ('C', "CREATE"),
    ('T', "TEMPORARY"),
    ('c', "CONNECT"),
    ('s', "SET"),
    ('A', "ALTER SYSTEM"),
];

pub(super) fn register(table: &mut Table<RowsBody>) {
    let mut add = |name, signature, columns, rows| {
        table.add_body(name, signature, RowsBody { columns, rows });
    };
    add("pg_get_keywords", "-> record", KEYWORDS, keywords);
    add("pg_options_to_table", "text[] -> record", OPTIONS, options);
    add("aclexplode", "text[] -> record", PRIVILEGES, privileges);
}

fn keywords(_: &[Datum], _: &CallContext<'_>) -> SqlResult<RowIterator> {
    let word = |line: &str| {
        let mut parts = line.split(' ').map(str::to_owned);
        let (word, kind, label) = (parts.next()?, parts.next()?, parts.next()?);
        let what = match &*kind {
            "U" => "unreserved",
            "C" => "unreserved (cannot be function or type name)",
            "T" => "reserved (can be function or type name)",
            _ => "reserved",
        };
        let is_label = label == "t";
        let of_label = if is_label { "can be bare label" } else { "requires AS" };
        let (word, kind) = (Datum::text(word), Datum::text(kind));
        Some(vec![word, kind, Datum::Bool(is_label), Datum::text(what), Datum::text(of_label)])
    };
    Ok(in_rows(WORDS.lines().filter_map(word)))
}

fn texts(values: &[Datum]) -> SqlResult<Vec<String>> {
    let text = |value: &Datum| match value {
        Datum::Text(text) => Some(text.to_string()),
        _ => None,
    };
    Ok(array(values, 0)?.elements.iter().filter_map(text).collect())
}

fn options(values: &[Datum], _: &CallContext<'_>) -> SqlResult<RowIterator> {
    let option = |text: String| match text.split_once('=') {
        Some((name, value)) => vec![Datum::text(name), Datum::text(value)],
        None => vec![Datum::text(text), Datum::Null],
    };
    Ok(in_rows(texts(values)?.into_iter().map(option)))
}

/// Privileges that are written as `grantee=letters/grantor`, of which a letter with a star may be
/// granted further.
fn privileges(values: &[Datum], context: &CallContext<'_>) -> SqlResult<RowIterator> {
    let mut rows = Vec::new();
    for item in texts(values)? {
        let wrong = || {
            let message = format!("invalid input syntax for type aclitem: \"{item}\"");
            SqlError::new(SqlState::INVALID_TEXT, message)
        };
        let (grantee, rest) = item.rsplit_once('=').ok_or_else(wrong)?;
        let (letters, grantor) = rest.split_once('/').ok_or_else(wrong)?;
        let role = |name: &str| match context.settings.names.get() {
            _ if name.is_empty() => Datum::I64(0),
            Some(names) => Datum::I64(names.role_oid(name).unwrap_or(0).into()),
            None => Datum::I64(0),
        };
        let (grantor, grantee) = (role(grantor), role(grantee));
        let mut letters = letters.chars().peekable();
        while let Some(letter) = letters.next() {
            let known = LETTERS.iter().find(|own| own.0 == letter).ok_or_else(wrong)?;
            let is_grantable = letters.next_if_eq(&'*').is_some();
            let (kind, is_grantable) = (Datum::text(known.1), Datum::Bool(is_grantable));
            rows.push(vec![grantor.clone(), grantee.clone(), kind, is_grantable]);
        }
    }
    Ok(in_rows(rows))
}
