//! Functions and operators: their rows, and how they are named.

use std::sync::LazyLock;

use super::oids;
use super::operators::known_equality;
use super::record::{Cell, Record, vector};
use super::relation::{PG_CATALOG, Relation};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::functions::{
    FunctionEntry, FunctionKind, OperatorEntry, Volatility, function_entries, operator_entries,
};
use crate::schemas::{names_of_text, quoted};
use crate::types::pseudo_types::{type_name, type_named};
use crate::types::{Datum, Scalar};

type Rows = Vec<Vec<Datum>>;

/// What reads and prints the values of types, and the functions of sequences: a statement does not
/// call them as the others. Each line has a number, a name, a volatility, the numbers of the types
/// of arguments and, behind an arrow, that of the result.
const OF_TYPES: &str = include_str!("io_functions.txt");

/// The language of functions that are built in.
pub(super) const INTERNAL_LANGUAGE: u32 = 12;

/// A function.
struct Function {
    oid: u32,
    name: &'static str,
    /// The numbers of types.
    arguments: Vec<u32>,
    returns: u32,
    kind: FunctionKind,
    is_strict: bool,
    is_variadic: bool,
    volatility: &'static str,
}

/// An operator.
struct Operator {
    oid: u32,
    name: &'static str,
    /// 0 of one that stands before its operand.
    left: u32,
    right: u32,
    returns: u32,
}

static FUNCTIONS: LazyLock<Vec<Function>> = LazyLock::new(|| {
    let of_types = OF_TYPES.lines().filter_map(of_line);
    of_types.chain(function_entries().into_iter().map(Function::from)).collect()
});

static OPERATORS: LazyLock<Vec<Operator>> =
    LazyLock::new(|| operator_entries().into_iter().map(Operator::from).collect());

fn of_line(line: &'static str) -> Option<Function> {
    let (left, returns) = line.split_once(" -> ")?;
    let mut words = left.split(' ');
    let (oid, name, volatility) = (words.next()?.parse().ok()?, words.next()?, words.next()?);
    let arguments = words.map(|word| word.parse().ok()).collect::<Option<Vec<u32>>>()?;
    let (kind, is_strict, is_variadic) = (FunctionKind::Plain, true, false);
    let returns = returns.parse().ok()?;
    Some(Function { oid, name, arguments, returns, kind, is_strict, is_variadic, volatility })
}

impl From<FunctionEntry> for Function {
    fn from(own: FunctionEntry) -> Self {
        let FunctionEntry { name, arguments, returns, kind, is_strict, is_variadic, .. } = own;
        let volatility = match own.volatility {
            Volatility::Immutable => "i",
            Volatility::Stable => "s",
            Volatility::Volatile => "v",
        };
        let oid = oids::function(&format!("{name} {}", own.signature));
        Self { oid, name, arguments, returns, kind, is_strict, is_variadic, volatility }
    }
}

impl From<OperatorEntry> for Operator {
    fn from(OperatorEntry { name, operands, returns }: OperatorEntry) -> Self {
        let (left, right) = match *operands {
            [right] => (0, right),
            [left, right, ..] => (left, right),
            [] => (0, 0),
        };
        let known = if name == "=" { known_equality(left, right) } else { None };
        let oid = known.unwrap_or_else(|| oids::operator(&format!("{name} {operands:?}")));
        Self { oid, name, left, right, returns }
    }
}

/// The function of a number.
fn function(oid: u32) -> Option<&'static Function> {
    FUNCTIONS.iter().find(|own| own.oid == oid)
}

/// The rows of a relation, if it is of this file.
pub(super) fn rows(relation: &'static Relation) -> Option<Rows> {
    Some(match relation.full_name {
        "pg_catalog.pg_proc" => FUNCTIONS.iter().map(|own| function_row(relation, own)).collect(),
        "pg_catalog.pg_operator" => {
            OPERATORS.iter().map(|own| operator_row(relation, own)).collect()
        }
        _ => return None,
    })
}

fn function_row(relation: &'static Relation, own: &Function) -> Vec<Datum> {
    let is_set = own.kind == FunctionKind::Rows;
    let variadic = own.arguments.last().copied().filter(|_| own.is_variadic).unwrap_or(0);
    Record::new(relation)
        .set("oid", own.oid)
        .set("proname", own.name)
        .set("pronamespace", oids::PG_CATALOG)
        .set("proowner", oids::OWNER)
        .set("prolang", INTERNAL_LANGUAGE)
        .set("procost", 1)
        .set("prorows", if is_set { 1000 } else { 0 })
        .set("provariadic", variadic)
        .set("prokind", if own.kind == FunctionKind::Aggregate { "a" } else { "f" })
        .set("proisstrict", own.is_strict)
        .set("proretset", is_set)
        .set("provolatile", own.volatility)
        .set("proparallel", "s")
        .set("pronargs", own.arguments.len())
        .set("prorettype", own.returns)
        .set("proargtypes", vector(own.arguments.iter().copied().map(Cell::from)))
        .set("prosrc", own.name)
        .row()
}

fn operator_row(relation: &'static Relation, own: &Operator) -> Vec<Datum> {
    Record::new(relation)
        .set("oid", own.oid)
        .set("oprname", own.name)
        .set("oprnamespace", oids::PG_CATALOG)
        .set("oprowner", oids::OWNER)
        .set("oprkind", if own.left == 0 { "l" } else { "b" })
        .set("oprcanmerge", own.name == "=")
        .set("oprcanhash", own.name == "=")
        .set("oprleft", own.left)
        .set("oprright", own.right)
        .set("oprresult", own.returns)
        .row()
}

/// The types of the parameters of a function, as PostgreSQL prints them.
pub(crate) fn function_arguments(oid: u32) -> Option<String> {
    function(oid).map(Function::argument_list)
}

/// What a function gives, likewise.
pub(crate) fn function_result(oid: u32) -> Option<String> {
    function(oid).map(Function::result)
}

impl Function {
    fn argument_list(&self) -> String {
        let last = self.arguments.len().wrapping_sub(1);
        let argument = |(at, oid): (usize, &u32)| {
            let is_variadic = self.is_variadic && at == last;
            format!("{}{}", if is_variadic { "VARIADIC " } else { "" }, type_name(*oid))
        };
        let all: Vec<String> = self.arguments.iter().enumerate().map(argument).collect();
        all.join(", ")
    }

    fn result(&self) -> String {
        let set = if self.kind == FunctionKind::Rows { "SETOF " } else { "" };
        format!("{set}{}", type_name(self.returns))
    }
}

/// As [`ObjectNames::function_name`](crate::types::object_names::ObjectNames::function_name).
pub(super) fn function_name(oid: u32, with_types: bool) -> Option<String> {
    let own = function(oid)?;
    let name = quoted(own.name);
    if with_types {
        let types: Vec<String> = own.arguments.iter().map(|oid| type_name(*oid)).collect();
        return Some(format!("{name}({})", types.join(",")));
    }
    let is_only = FUNCTIONS.iter().filter(|other| other.name == own.name).count() == 1;
    Some(if is_only { name } else { format!("{PG_CATALOG}.{name}") })
}

/// As [`ObjectNames::operator_name`](crate::types::object_names::ObjectNames::operator_name).
pub(super) fn operator_name(oid: u32, with_types: bool) -> Option<String> {
    let own = OPERATORS.iter().find(|own| own.oid == oid)?;
    if with_types {
        let left = if own.left == 0 { "NONE".to_owned() } else { type_name(own.left) };
        return Some(format!("{}({left},{})", own.name, type_name(own.right)));
    }
    let is_only = OPERATORS.iter().filter(|other| other.name == own.name).count() == 1;
    Some(if is_only { own.name.to_owned() } else { format!("{PG_CATALOG}.{}", own.name) })
}

/// As [`ObjectNames::callable_oid`](crate::types::object_names::ObjectNames::callable_oid).
pub(super) fn callable_oid(text: &str, kind: Scalar) -> SqlResult<u32> {
    let is_operator = matches!(kind, Scalar::Regoper | Scalar::Regoperator);
    let what = if is_operator { "operator" } else { "function" };
    let missing = |shown: &str| {
        let message = match is_operator {
            true => format!("operator does not exist: {shown}"),
            false => format!("function \"{shown}\" does not exist"),
        };
        SqlError::new(SqlState::UNDEFINED_FUNCTION, message)
    };
    let has_types = matches!(kind, Scalar::Regprocedure | Scalar::Regoperator);
    let (name, types) = match has_types {
        true => {
            let (name, types) = with_types(text)?;
            (name, Some(types))
        }
        false => (text, None),
    };
    let found: Vec<u32> = match is_operator {
        true => {
            let name = name.trim().strip_prefix("pg_catalog.").unwrap_or(name.trim());
            let fits = |own: &&Operator| {
                let operands = [own.left, own.right];
                own.name == name && types.as_ref().is_none_or(|types| **types == operands)
            };
            OPERATORS.iter().filter(fits).map(|own| own.oid).collect()
        }
        false => {
            let parts = names_of_text(name.trim())?;
            let name = match &*parts {
                [name] => name,
                [schema, name] if schema == PG_CATALOG => name,
                _ => return Err(missing(text)),
            };
            let fits = |own: &&Function| {
                own.name == name && types.as_ref().is_none_or(|types| *types == own.arguments)
            };
            FUNCTIONS.iter().filter(fits).map(|own| own.oid).collect()
        }
    };
    match *found {
        [] => Err(missing(text)),
        [oid] => Ok(oid),
        _ => {
            let shown = if is_operator { text.to_owned() } else { format!("\"{text}\"") };
            let message = format!("more than one {what} named {shown}");
            Err(SqlError::new(SqlState::AMBIGUOUS_FUNCTION, message))
        }
    }
}

/// A name and the numbers of the types in parentheses behind it; NONE is 0.
fn with_types(text: &str) -> SqlResult<(&str, Vec<u32>)> {
    let wrong = |what: &str| SqlError::new(SqlState::INVALID_TEXT, what);
    let (name, rest) = text.split_once('(').ok_or_else(|| wrong("expected a left parenthesis"))?;
    let list = rest.trim_end().strip_suffix(')');
    let list = list.ok_or_else(|| wrong("expected a right parenthesis"))?.trim();
    if list.is_empty() {
        return Ok((name, Vec::new()));
    }
    let ty = |word: &str| match word.trim() {
        word if word.eq_ignore_ascii_case("none") => Ok(0),
        word => type_named(word).ok_or_else(|| {
            let message = format!("type \"{word}\" does not exist");
            SqlError::new(SqlState::UNDEFINED_OBJECT, message)
        }),
    };
    Ok((name, list.split(',').map(ty).collect::<SqlResult<_>>()?))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_line_can_be_read_and_every_number_is_of_one() {
        assert_eq!(OF_TYPES.lines().filter_map(of_line).count(), OF_TYPES.lines().count());
        let functions: HashSet<u32> = FUNCTIONS.iter().map(|own| own.oid).collect();
        assert_eq!(functions.len(), FUNCTIONS.len());
        let operators: HashSet<u32> = OPERATORS.iter().map(|own| own.oid).collect();
        assert_eq!(operators.len(), OPERATORS.len());
    }

    #[test]
    fn functions_and_operators_are_found_by_name() {
        assert_eq!(callable_oid("array_in", Scalar::Regproc).unwrap(), 750);
        assert_eq!(callable_oid("pg_catalog.array_in", Scalar::Regproc).unwrap(), 750);
        assert_eq!(callable_oid("=(int4,integer)", Scalar::Regoperator).unwrap(), 96);
        assert_eq!(operator_name(96, true).as_deref(), Some("=(integer,integer)"));
        assert_eq!(operator_name(96, false).as_deref(), Some("pg_catalog.="));
        let lower = callable_oid("lower(text)", Scalar::Regprocedure).unwrap();
        assert_eq!(function_name(lower, true).as_deref(), Some("lower(text)"));
        for (text, kind, state) in [
            ("nothing", Scalar::Regproc, SqlState::UNDEFINED_FUNCTION),
            ("round", Scalar::Regproc, SqlState::AMBIGUOUS_FUNCTION),
            ("lower(bool)", Scalar::Regprocedure, SqlState::UNDEFINED_FUNCTION),
            ("lower", Scalar::Regprocedure, SqlState::INVALID_TEXT),
            ("=", Scalar::Regoper, SqlState::AMBIGUOUS_FUNCTION),
            ("@@@", Scalar::Regoper, SqlState::UNDEFINED_FUNCTION),
        ] {
            assert_eq!(callable_oid(text, kind).unwrap_err().state(), state, "{text}");
        }
    }
}
