//! All functions and operators with their signatures, for the catalogue.

use super::Volatility;
use super::rows::ROWS;
use super::signature::{AGGREGATES, FUNCTIONS, OPERATORS, Parameter, Table};

/// What kind of function it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FunctionKind {
    /// It gives a value of values.
    Plain,
    /// It gives rows.
    Rows,
    /// It gives a value of rows.
    Aggregate,
}

/// A function of a signature.
#[derive(Clone, Debug)]
pub struct FunctionEntry {
    /// What it is called.
    pub name: &'static str,
    /// The numbers of the types of its parameters.
    pub arguments: Vec<u32>,
    /// The number of the type of its result.
    pub returns: u32,
    /// What kind it is.
    pub kind: FunctionKind,
    /// Whether it gives NULL where an argument is NULL.
    pub is_strict: bool,
    /// Whether its last parameter may be given any number of times.
    pub is_variadic: bool,
    /// On what its result depends.
    pub volatility: Volatility,
    /// Its types as a text, by which two functions of a name differ.
    pub signature: String,
}

/// All functions, in the order of their names.
#[must_use]
pub fn function_entries() -> Vec<FunctionEntry> {
    let mut all = Vec::new();
    add(&FUNCTIONS, FunctionKind::Plain, &mut all);
    add(&ROWS, FunctionKind::Rows, &mut all);
    add(&AGGREGATES, FunctionKind::Aggregate, &mut all);
    all.sort_by(|left, right| (left.name, &left.signature).cmp(&(right.name, &right.signature)));
    all
}

/// An operator of a signature.
#[derive(Clone, Debug)]
pub struct OperatorEntry {
    /// Its sign.
    pub name: &'static str,
    /// The numbers of the types of its operands: one, if it stands before it.
    pub operands: Vec<u32>,
    /// The number of the type of its result.
    pub returns: u32,
}

/// All operators, in the order of their signs.
#[must_use]
pub fn operator_entries() -> Vec<OperatorEntry> {
    let entry = |(name, signature): (&'static str, &super::signature::Signature<_>)| {
        let operands = signature.parameters.iter().copied().map(number).collect();
        OperatorEntry { name, operands, returns: number(signature.returns) }
    };
    let mut all: Vec<OperatorEntry> = OPERATORS.all().map(entry).collect();
    all.sort_by(|left, right| (left.name, &left.operands).cmp(&(right.name, &right.operands)));
    all
}

fn add<B>(table: &Table<B>, kind: FunctionKind, all: &mut Vec<FunctionEntry>) {
    for (name, signature) in table.all() {
        let arguments: Vec<u32> = signature.parameters.iter().copied().map(number).collect();
        let returns = number(signature.returns);
        all.push(FunctionEntry {
            name,
            returns,
            kind,
            is_strict: signature.is_strict,
            is_variadic: signature.is_variadic,
            volatility: signature.volatility,
            signature: format!("{arguments:?} {returns}"),
            arguments,
        });
    }
}

/// PostgreSQL's number of the type of a parameter.
fn number(parameter: Parameter) -> u32 {
    match parameter {
        Parameter::Type(ty) => ty.oid(),
        Parameter::Any => 2276,
        Parameter::Element => 2283,
        Parameter::NonArray => 2776,
        Parameter::Array => 2277,
    }
}
