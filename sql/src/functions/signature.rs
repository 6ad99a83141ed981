//! Signatures of functions, and tables of them.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::aggregates::{self, NewAccumulator};
use super::{
    CallContext, Volatility, arithmetic, array_forms, arrays, byte_strings, catalogue,
    catalogue_objects, comparison, dates, document_functions, document_objects, document_paths,
    documents, from_char, locks, math, moments, number_text, numbers, parts, patterns, periods,
    privileges, regex_parts, strings, system, text_forms, to_char, trigonometry,
};
use crate::error::SqlResult;
use crate::types::{Datum, SqlType};

/// What a parameter takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parameter {
    /// Values of this type.
    Type(SqlType),
    /// Any value as it is.
    Any,
    /// Values of a type that all parameters of this kind and elements of arrays have in common.
    Element,
    /// The same, but no array.
    NonArray,
    /// An array of such elements.
    Array,
}

/// The types of a call.
#[derive(Clone, Debug)]
pub(super) struct Types {
    pub(super) arguments: Vec<SqlType>,
    pub(super) returns: SqlType,
}

impl Types {
    /// The type of an argument.
    pub(super) fn argument(&self, at: usize) -> SqlType {
        self.arguments.get(at).copied().unwrap_or(SqlType::TEXT)
    }
}

/// What computes a result.
#[derive(Clone, Copy)]
pub(super) enum Body {
    /// Of values alone.
    Plain(fn(&[Datum], &CallContext<'_>) -> SqlResult<Datum>),
    /// Of one float.
    OfFloat(fn(f64) -> f64),
    /// Of values and their types.
    Typed(fn(&Types, &[Datum], &CallContext<'_>) -> SqlResult<Datum>),
}

/// A function with its parameters.
pub(super) struct Signature<B> {
    pub(super) parameters: Vec<Parameter>,
    /// Whether the last parameter may be given any number of times, but once at least.
    pub(super) is_variadic: bool,
    pub(super) returns: Parameter,
    pub(super) is_strict: bool,
    pub(super) volatility: Volatility,
    pub(super) body: B,
}

/// All signatures of each name.
pub(super) struct Table<B> {
    signatures: HashMap<&'static str, Vec<Signature<B>>>,
    /// Signatures that cannot be read; a test sees to it that there are none.
    pub(super) mistakes: Vec<&'static str>,
}

impl<B> Table<B> {
    pub(super) fn new() -> Self {
        Self { signatures: HashMap::new(), mistakes: Vec::new() }
    }

    /// The signatures of a name.
    pub(super) fn get(&self, name: &str) -> Option<&[Signature<B>]> {
        self.signatures.get(name).map(Vec::as_slice)
    }

    /// All signatures with their names.
    pub(super) fn all(&self) -> impl Iterator<Item = (&'static str, &Signature<B>)> {
        self.signatures.iter().flat_map(|(name, all)| all.iter().map(move |own| (*name, own)))
    }

    /// Adds a signature: words `lax` (called with NULL), `stable`, `volatile`, `variadic`, types,
    /// `->` and a type. `any`, `anyelement`, `anynonarray` and `anyarray` are as in PostgreSQL,
    /// but that all of the latter follow the rules of `anycompatible`.
    pub(super) fn add_body(&mut self, name: &'static str, signature: &'static str, body: B) {
        match parse(signature, body) {
            Some(signature) => self.signatures.entry(name).or_default().push(signature),
            None => self.mistakes.push(signature),
        }
    }
}

impl Table<Body> {
    /// Adds a function that needs to know no types.
    pub(super) fn add(
        &mut self,
        name: &'static str,
        signature: &'static str,
        body: fn(&[Datum], &CallContext<'_>) -> SqlResult<Datum>,
    ) {
        self.add_body(name, signature, Body::Plain(body));
    }

    /// Adds a function that is given the types of the call.
    pub(super) fn add_typed(
        &mut self,
        name: &'static str,
        signature: &'static str,
        body: fn(&Types, &[Datum], &CallContext<'_>) -> SqlResult<Datum>,
    ) {
        self.add_body(name, signature, Body::Typed(body));
    }
}

fn parse<B>(text: &str, body: B) -> Option<Signature<B>> {
    let (left, right) = text.split_once("->")?;
    let mut signature = Signature {
        parameters: Vec::new(),
        is_variadic: false,
        returns: parameter(right.trim())?,
        is_strict: true,
        volatility: Volatility::Immutable,
        body,
    };
    for word in left.split_ascii_whitespace() {
        match word {
            "lax" => signature.is_strict = false,
            "stable" => signature.volatility = Volatility::Stable,
            "volatile" => signature.volatility = Volatility::Volatile,
            "variadic" => signature.is_variadic = true,
            _ => signature.parameters.push(parameter(word)?),
        }
    }
    (!signature.is_variadic || !signature.parameters.is_empty()).then_some(signature)
}

fn parameter(word: &str) -> Option<Parameter> {
    Some(match word {
        "any" => Parameter::Any,
        "anyelement" => Parameter::Element,
        "anynonarray" => Parameter::NonArray,
        "anyarray" => Parameter::Array,
        _ => Parameter::Type(SqlType::by_name(word)?),
    })
}

/// Functions, by their names.
pub(super) static FUNCTIONS: LazyLock<Table<Body>> = LazyLock::new(|| {
    let mut table = Table::new();
    arithmetic::register_functions(&mut table);
    arrays::register_functions(&mut table);
    byte_strings::register_functions(&mut table);
    array_forms::register_functions(&mut table);
    catalogue::register_functions(&mut table);
    catalogue_objects::register_functions(&mut table);
    privileges::register_functions(&mut table);
    dates::register_functions(&mut table);
    document_functions::register_functions(&mut table);
    document_paths::register_functions(&mut table);
    document_objects::register_functions(&mut table);
    math::register_functions(&mut table);
    moments::register_functions(&mut table);
    number_text::register_functions(&mut table);
    numbers::register_functions(&mut table);
    to_char::register_functions(&mut table);
    from_char::register_functions(&mut table);
    parts::register_functions(&mut table);
    patterns::register_functions(&mut table);
    regex_parts::register_functions(&mut table);
    periods::register_functions(&mut table);
    strings::register_functions(&mut table);
    trigonometry::register_functions(&mut table);
    text_forms::register_functions(&mut table);
    system::register_functions(&mut table);
    locks::register_functions(&mut table);
    table
});

/// Operators, by their signs. Those before their operand have one parameter.
pub(super) static OPERATORS: LazyLock<Table<Body>> = LazyLock::new(|| {
    let mut table = Table::new();
    arithmetic::register_operators(&mut table);
    comparison::register_operators(&mut table);
    arrays::register_operators(&mut table);
    dates::register_operators(&mut table);
    document_paths::register_operators(&mut table);
    documents::register_operators(&mut table);
    math::register_operators(&mut table);
    patterns::register_operators(&mut table);
    strings::register_operators(&mut table);
    table
});

/// Aggregates, by their names.
pub(super) static AGGREGATES: LazyLock<Table<NewAccumulator>> = LazyLock::new(|| {
    let mut table = Table::new();
    aggregates::register(&mut table);
    table
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_signature_can_be_read() {
        assert_eq!(FUNCTIONS.mistakes, Vec::<&str>::new());
        assert_eq!(OPERATORS.mistakes, Vec::<&str>::new());
        assert_eq!(AGGREGATES.mistakes, Vec::<&str>::new());
    }
}
