//! Which function a call means, by the rules of PostgreSQL's chapter "Type Conversion".

use std::sync::Arc;

use super::absent::{absent_function, absent_operator};
use super::math::checked_float;
use super::signature::{Body, FUNCTIONS, OPERATORS, Parameter, Signature, Types};
use super::{Eval, Resolved, Volatility};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::types::cast::{self, CastContext, Category, can_cast, common_type};
use crate::types::{Scalar, SqlType};

/// A signature that a call may mean.
struct Candidate<'a, B> {
    signature: &'a Signature<B>,
    /// The parameters, as often as they are given.
    parameters: Vec<Parameter>,
}

/// What came of the search.
pub(super) enum Choice<'a, B> {
    One(&'a Signature<B>, Types),
    None,
    Several,
}

fn is_unknown(ty: SqlType) -> bool {
    ty.scalar == Scalar::Unknown && !ty.is_array
}

fn is_exact(parameter: Parameter, ty: SqlType) -> bool {
    matches!(parameter, Parameter::Type(wanted) if wanted == ty.plain())
}

fn accepts(parameter: Parameter, ty: SqlType) -> bool {
    match parameter {
        _ if is_unknown(ty) => true,
        Parameter::Type(wanted) => can_cast(ty, wanted, CastContext::Implicit),
        Parameter::Any | Parameter::Element => true,
        Parameter::NonArray => !ty.is_array,
        Parameter::Array => ty.is_array,
    }
}

fn category(parameter: Parameter) -> Category {
    match parameter {
        Parameter::Type(ty) => ty.category(),
        _ => Category::Pseudo,
    }
}

fn is_preferred(parameter: Parameter) -> bool {
    matches!(parameter, Parameter::Type(ty) if ty.is_preferred())
}

impl<B> Candidate<'_, B> {
    fn fits(&self, arguments: &[SqlType], test: impl Fn(Parameter, SqlType) -> bool) -> bool {
        self.parameters.iter().zip(arguments).all(|(parameter, ty)| test(*parameter, *ty))
    }

    fn count(&self, arguments: &[SqlType], test: impl Fn(Parameter, SqlType) -> bool) -> usize {
        let pairs = self.parameters.iter().zip(arguments);
        pairs.filter(|(parameter, ty)| test(**parameter, **ty)).count()
    }
}

/// The parameters of a signature for so many arguments.
fn expand<B>(signature: &Signature<B>, count: usize) -> Option<Vec<Parameter>> {
    let mut parameters = signature.parameters.clone();
    if signature.is_variadic && count > parameters.len() {
        let last = *parameters.last()?;
        parameters.resize(count, last);
    }
    (parameters.len() == count).then_some(parameters)
}

/// Keeps the candidates of the greatest score.
fn keep_best<B>(
    candidates: &mut Vec<Candidate<'_, B>>,
    score: impl Fn(&Candidate<'_, B>) -> usize,
) {
    let best = candidates.iter().map(&score).max().unwrap_or(0);
    candidates.retain(|candidate| score(candidate) == best);
}

/// Chooses among signatures of one name.
pub(super) fn choose<'a, B>(
    signatures: &'a [Signature<B>],
    arguments: &[SqlType],
) -> SqlResult<Choice<'a, B>> {
    let mut candidates: Vec<Candidate<'a, B>> = signatures
        .iter()
        .filter_map(|signature| {
            let parameters = expand(signature, arguments.len())?;
            Some(Candidate { signature, parameters })
        })
        .collect();
    if let Some(exact) = candidates.iter().find(|candidate| candidate.fits(arguments, is_exact)) {
        return finish(exact, arguments);
    }
    candidates.retain(|candidate| candidate.fits(arguments, accepts));
    if candidates.len() > 1 {
        keep_best(&mut candidates, |candidate| candidate.count(arguments, is_exact));
        keep_best(&mut candidates, |candidate| {
            candidate.count(arguments, |parameter, ty| {
                is_exact(parameter, ty) || (!is_unknown(ty) && is_preferred(parameter))
            })
        });
    }
    if candidates.len() > 1 && arguments.iter().any(|ty| is_unknown(*ty)) {
        choose_for_unknown(&mut candidates, arguments);
    }
    match candidates.as_slice() {
        [] => Ok(Choice::None),
        [one] => finish(one, arguments),
        _ => Ok(Choice::Several),
    }
}

/// Guesses the types of literals: by the categories that candidates take, then by the others.
fn choose_for_unknown<B>(candidates: &mut Vec<Candidate<'_, B>>, arguments: &[SqlType]) {
    let mut chosen = Vec::new();
    for (at, _) in arguments.iter().enumerate().filter(|(_, ty)| is_unknown(**ty)) {
        let categories: Vec<Category> = candidates
            .iter()
            .filter_map(|candidate| candidate.parameters.get(at).copied().map(category))
            .collect();
        let first = categories.first().copied();
        if categories.contains(&Category::String) {
            chosen.push((at, Category::String));
        } else if let Some(first) = first.filter(|first| categories.iter().all(|c| c == first)) {
            chosen.push((at, first));
        } else {
            chosen.clear();
            break;
        }
    }
    if !chosen.is_empty() {
        let in_category = |candidate: &Candidate<'_, B>| {
            chosen.iter().all(|(at, wanted)| {
                candidate.parameters.get(*at).is_some_and(|found| category(*found) == *wanted)
            })
        };
        if candidates.iter().any(in_category) {
            candidates.retain(in_category);
        }
        for (at, _) in &chosen {
            let preferred = |candidate: &Candidate<'_, B>| {
                candidate.parameters.get(*at).copied().is_some_and(is_preferred)
            };
            if candidates.iter().any(preferred) {
                candidates.retain(preferred);
            }
        }
    }
    if candidates.len() > 1 {
        // Literals are taken to be of the one type that all other arguments have.
        let mut known = arguments.iter().copied().filter(|ty| !is_unknown(*ty));
        let Some(first) = known.next() else { return };
        if known.all(|ty| ty.plain() == first.plain()) {
            let all = vec![first; arguments.len()];
            let mut fitting = candidates.iter().filter(|candidate| candidate.fits(&all, accepts));
            if let (Some(one), None) = (fitting.next(), fitting.next()) {
                let (signature, parameters) = (one.signature, one.parameters.clone());
                *candidates = vec![Candidate { signature, parameters }];
            }
        }
    }
}

/// Fills in the types of what is polymorphic.
fn finish<'a, B>(candidate: &Candidate<'a, B>, arguments: &[SqlType]) -> SqlResult<Choice<'a, B>> {
    let returns = candidate.signature.returns;
    let pairs = || candidate.parameters.iter().copied().zip(arguments.iter().copied());
    let elements: Vec<SqlType> = pairs()
        .filter_map(|(parameter, ty)| match parameter {
            Parameter::Element | Parameter::NonArray => Some(ty.plain()),
            Parameter::Array if is_unknown(ty) => Some(ty),
            Parameter::Array => Some(ty.element().plain()),
            _ => None,
        })
        .collect();
    // Literals alone become texts; an array cannot be made of arrays.
    let element = match &*elements {
        [] => SqlType::TEXT,
        // Values that have no type in common are taken by no such function.
        elements => match common_type(elements) {
            Ok(element) => element,
            Err(_) => return Ok(Choice::None),
        },
    };
    let makes_array = |parameter| parameter == Parameter::Array;
    if element.is_array && (makes_array(returns) || pairs().any(|(p, _)| makes_array(p))) {
        return Ok(Choice::None);
    }
    let resolve = |parameter, given: SqlType| match parameter {
        Parameter::Type(ty) => ty,
        Parameter::Any if is_unknown(given) => SqlType::TEXT,
        Parameter::Any => given,
        Parameter::Element | Parameter::NonArray => element,
        Parameter::Array => SqlType { is_array: true, ..element },
    };
    let types = pairs().map(|(parameter, ty)| resolve(parameter, ty)).collect();
    let returns = resolve(returns, SqlType::TEXT);
    Ok(Choice::One(candidate.signature, Types { arguments: types, returns }))
}

fn resolved(name: &str, signature: &Signature<Body>, types: Types) -> Resolved {
    let (arguments, returns) = (types.arguments.clone(), types.returns);
    let eval: Eval = match signature.body {
        Body::Plain(body) => Arc::new(body),
        Body::OfFloat(of) => Arc::new(move |values, _| checked_float(values, of)),
        Body::Typed(body) => Arc::new(move |values, context| body(&types, values, context)),
    };
    Resolved {
        name: name.into(),
        arguments,
        returns,
        is_strict: signature.is_strict,
        volatility: signature.volatility,
        eval,
    }
}

/// The names of types, as errors have them.
pub(super) fn names(types: &[SqlType]) -> String {
    let names: Vec<String> = types.iter().map(|ty| ty.plain().name()).collect();
    names.join(", ")
}

pub(super) fn undefined_function(name: &str, arguments: &[SqlType]) -> SqlError {
    let message = format!("function {name}({}) does not exist", names(arguments));
    SqlError::new(SqlState::UNDEFINED_FUNCTION, message).hint(
        "No function matches the given name and argument types. You might need to add explicit \
         type casts.",
    )
}

pub(super) fn ambiguous_function(name: &str, arguments: &[SqlType]) -> SqlError {
    let message = format!("function {name}({}) is not unique", names(arguments));
    SqlError::new(SqlState::AMBIGUOUS_FUNCTION, message).hint(
        "Could not choose a best candidate function. You might need to add explicit type casts.",
    )
}

/// The function that a call means. The name is in lower case, without its schema.
///
/// # Errors
/// [`SqlState::UNDEFINED_FUNCTION`] if there is none, [`SqlState::AMBIGUOUS_FUNCTION`] if there
/// are several.
pub fn resolve_function(name: &str, arguments: &[SqlType]) -> SqlResult<Resolved> {
    let choice = match FUNCTIONS.get(name) {
        Some(signatures) => choose(signatures, arguments)?,
        None => Choice::None,
    };
    match choice {
        Choice::One(signature, types) => Ok(resolved(name, signature, types)),
        Choice::Several => Err(ambiguous_function(name, arguments)),
        Choice::None => cast_by_name(name, arguments).ok_or_else(|| {
            absent_function(name).unwrap_or_else(|| undefined_function(name, arguments))
        }),
    }
}

/// A call of a type's name is a cast: `text(1)`.
fn cast_by_name(name: &str, arguments: &[SqlType]) -> Option<Resolved> {
    let &[from] = arguments else { return None };
    let to = SqlType::by_name(name).filter(|ty| ty.catalogue_name() == name)?;
    if !can_cast(from, to, CastContext::Explicit) {
        return None;
    }
    let from = if is_unknown(from) { SqlType::TEXT } else { from };
    Some(Resolved {
        name: name.into(),
        arguments: vec![from],
        returns: to,
        is_strict: true,
        volatility: Volatility::Stable,
        eval: Arc::new(move |values, context| {
            let value = values.first().cloned().unwrap_or(crate::types::Datum::Null);
            cast::cast(value, from, to, CastContext::Explicit, context.settings)
        }),
    })
}

/// The operator that an expression means; `left` is `None` of one before its operand.
///
/// # Errors
/// As [`resolve_function`].
pub fn resolve_operator(op: &str, left: Option<SqlType>, right: SqlType) -> SqlResult<Resolved> {
    // What PostgreSQL's parser takes for the same.
    let op = if op == "!=" { "<>" } else { op };
    let signatures = OPERATORS.get(op).unwrap_or_default();
    let arguments: Vec<SqlType> = left.into_iter().chain([right]).collect();
    // A literal is first taken to be of the type of the other operand.
    if let Some(left) = left.filter(|left| is_unknown(*left) != is_unknown(right)) {
        let known = if is_unknown(left) { right } else { left }.plain();
        let exact = signatures.iter().find(|signature| {
            expand(signature, 2).is_some_and(|parameters| {
                parameters.iter().all(|parameter| is_exact(*parameter, known))
            })
        });
        if let Some(signature) = exact {
            let candidate = Candidate { signature, parameters: signature.parameters.clone() };
            if let Choice::One(signature, types) = finish(&candidate, &[known, known])? {
                return Ok(resolved(op, signature, types));
            }
        }
        // The same for arrays, of which no operator names the type.
        if known.is_array
            && let Choice::One(signature, types) = choose(signatures, &[known, known])?
        {
            return Ok(resolved(op, signature, types));
        }
    }
    let shown = |ty: SqlType| ty.plain().name();
    let expression = match left {
        Some(left) => format!("{} {op} {}", shown(left), shown(right)),
        None => format!("{op} {}", shown(right)),
    };
    match choose(signatures, &arguments)? {
        Choice::One(signature, types) => Ok(resolved(op, signature, types)),
        Choice::Several => Err(SqlError::new(
            SqlState::AMBIGUOUS_FUNCTION,
            format!("operator is not unique: {expression}"),
        )
        .hint(
            "Could not choose a best candidate operator. You might need to add explicit type \
             casts.",
        )),
        Choice::None => Err(absent_operator(op, left).unwrap_or_else(|| {
            let message = format!("operator does not exist: {expression}");
            SqlError::new(SqlState::UNDEFINED_FUNCTION, message).hint(
                "No operator matches the given name and argument types. You might need to add \
                 explicit type casts.",
            )
        })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_are_chosen_as_postgresql_chooses() {
        let unknown = SqlType::UNKNOWN;
        for (op, left, right, returns) in [
            ("+", SqlType::INT4, SqlType::INT8, SqlType::INT8),
            ("+", SqlType::INT4, SqlType::NUMERIC, SqlType::NUMERIC),
            ("+", SqlType::NUMERIC, SqlType::FLOAT8, SqlType::FLOAT8),
            ("+", SqlType::INT2, unknown, SqlType::INT2),
            ("+", SqlType::DATE, SqlType::INT4, SqlType::DATE),
            ("+", SqlType::DATE, SqlType::INTERVAL, SqlType::TIMESTAMP),
            ("-", SqlType::TIMESTAMP, unknown, SqlType::INTERVAL),
            ("-", SqlType::DATE, SqlType::DATE, SqlType::INT4),
            ("=", SqlType::VARCHAR, unknown, SqlType::BOOL),
            ("=", SqlType::NAME, SqlType::TEXT, SqlType::BOOL),
            ("=", unknown, unknown, SqlType::BOOL),
            ("<", SqlType::DATE, SqlType::TIMESTAMPTZ, SqlType::BOOL),
            ("*", SqlType::INTERVAL, SqlType::INT4, SqlType::INTERVAL),
        ] {
            let found = resolve_operator(op, Some(left), right).unwrap();
            assert_eq!(found.returns, returns, "{} {op} {}", left.name(), right.name());
        }
    }

    #[test]
    fn errors_are_worded_as_those_of_postgresql() {
        let failed = |op, left, right| {
            let error = resolve_operator(op, Some(left), right).err().unwrap();
            (error.state(), error.message().to_owned())
        };
        assert_eq!(
            failed("+", SqlType::INT4, SqlType::BOOL),
            (SqlState::UNDEFINED_FUNCTION, "operator does not exist: integer + boolean".to_owned())
        );
        assert_eq!(
            failed("+", SqlType::UNKNOWN, SqlType::UNKNOWN),
            (SqlState::AMBIGUOUS_FUNCTION, "operator is not unique: unknown + unknown".to_owned())
        );
        let error = resolve_function("foo", &[SqlType::INT4]).err().unwrap();
        assert_eq!(error.message(), "function foo(integer) does not exist");
    }
}
