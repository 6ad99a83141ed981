//! Arguments with a name: `make_interval(days => 10)`.

use std::borrow::Cow;

use sqlparser::ast::{Expr as Ast, FunctionArg, FunctionArgExpr, FunctionArgOperator, Value};

use super::{Binder, fold};
use crate::error::{SqlError, SqlResult, SqlState};

/// The names of the parameters of a function, with what those are that may be left out.
type Parameters = &'static [(&'static str, Option<Missing>)];

/// The value of a parameter that is not given.
#[derive(Clone, Copy)]
enum Missing {
    Zero,
    Bool(bool),
    Text(&'static str),
    /// The function may be called without it, and nothing behind it is given then.
    None,
}

const ZERO: Option<Missing> = Some(Missing::Zero);
const END: Option<Missing> = Some(Missing::None);

fn parameters(function: &str) -> Option<Parameters> {
    Some(match function {
        "make_interval" => &[
            ("years", ZERO),
            ("months", ZERO),
            ("weeks", ZERO),
            ("days", ZERO),
            ("hours", ZERO),
            ("mins", ZERO),
            ("secs", ZERO),
        ],
        "make_date" => &[("year", None), ("month", None), ("day", None)],
        "make_time" => &[("hour", None), ("min", None), ("sec", None)],
        "make_timestamp" => &[
            ("year", None),
            ("month", None),
            ("mday", None),
            ("hour", None),
            ("min", None),
            ("sec", None),
        ],
        "make_timestamptz" => &[
            ("year", None),
            ("month", None),
            ("mday", None),
            ("hour", None),
            ("min", None),
            ("sec", None),
            ("timezone", END),
        ],
        "jsonb_set" => &[
            ("jsonb_in", None),
            ("path", None),
            ("replacement", None),
            ("create_if_missing", Some(Missing::Bool(true))),
        ],
        "jsonb_set_lax" => &[
            ("jsonb_in", None),
            ("path", None),
            ("replacement", None),
            ("create_if_missing", Some(Missing::Bool(true))),
            ("null_value_treatment", Some(Missing::Text("use_json_null"))),
        ],
        "jsonb_insert" => &[
            ("jsonb_in", None),
            ("path", None),
            ("replacement", None),
            ("insert_after", Some(Missing::Bool(false))),
        ],
        "parse_ident" => &[("str", None), ("strict", Some(Missing::Bool(true)))],
        _ => return None,
    })
}

impl Missing {
    fn argument(self) -> Option<FunctionArg> {
        let value = match self {
            Self::Zero => Value::Number("0".to_owned(), false),
            Self::Bool(value) => Value::Boolean(value),
            Self::Text(value) => Value::SingleQuotedString(value.to_owned()),
            Self::None => return None,
        };
        Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(Ast::Value(value.with_empty_span()))))
    }
}

/// The name of an argument, and the argument, if it has one.
fn named(arg: &FunctionArg) -> SqlResult<Option<(String, &FunctionArgExpr)>> {
    let (name, arg, operator) = match arg {
        FunctionArg::Unnamed(_) => return Ok(None),
        FunctionArg::Named { name, arg, operator }
        | FunctionArg::ExprNamed { name: Ast::Identifier(name), arg, operator } => {
            (name, arg, operator)
        }
        FunctionArg::ExprNamed { .. } => {
            return Err(SqlError::new(
                SqlState::SYNTAX_ERROR,
                "an argument has a name that is none",
            ));
        }
    };
    let is_known =
        matches!(operator, FunctionArgOperator::RightArrow | FunctionArgOperator::Assignment);
    if !is_known {
        let message = format!("syntax error at or near \"{operator}\"");
        return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
    }
    Ok(Some((fold(name), arg)))
}

impl Binder<'_> {
    /// Arguments as they are without names.
    pub(super) fn in_order<'a>(
        &self,
        function: &str,
        args: &'a [FunctionArg],
    ) -> SqlResult<Cow<'a, [FunctionArg]>> {
        if args.iter().all(|own| matches!(own, FunctionArg::Unnamed(_))) {
            return Ok(Cow::Borrowed(args));
        }
        let mut given: Vec<(Option<String>, FunctionArgExpr)> = Vec::new();
        for arg in args {
            let failed =
                |message: String| self.place(SqlError::new(SqlState::SYNTAX_ERROR, message), arg);
            match (named(arg)?, arg) {
                (Some((name, _)), _) if given.iter().any(|own| own.0.as_ref() == Some(&name)) => {
                    return Err(failed(format!("argument name \"{name}\" used more than once")));
                }
                (Some((name, arg)), _) => given.push((Some(name), arg.clone())),
                (None, _) if given.iter().any(|own| own.0.is_some()) => {
                    let message = "positional argument cannot follow named argument";
                    return Err(failed(message.to_owned()));
                }
                (None, FunctionArg::Unnamed(arg)) => given.push((None, arg.clone())),
                (None, _) => {}
            }
        }
        let ordered = parameters(function).and_then(|parameters| ordered(parameters, given));
        let ordered = ordered.ok_or_else(|| {
            let shown: Vec<String> = args.iter().map(ToString::to_string).collect();
            let message = format!("function {function}({}) does not exist", shown.join(", "));
            SqlError::new(SqlState::UNDEFINED_FUNCTION, message).hint(
                "No function matches the given name and argument types. You might need to add \
                 explicit type casts.",
            )
        })?;
        Ok(Cow::Owned(ordered))
    }
}

/// Each argument at the place of its parameter, and what is not given in between; `None` if a name
/// is none of these, or a parameter is given twice or has to be given.
fn ordered(
    parameters: Parameters,
    given: Vec<(Option<String>, FunctionArgExpr)>,
) -> Option<Vec<FunctionArg>> {
    let mut places: Vec<Option<FunctionArg>> = vec![None; parameters.len()];
    for (at, (name, arg)) in given.into_iter().enumerate() {
        let at = match &name {
            Some(name) => parameters.iter().position(|(own, _)| own == name)?,
            None => at,
        };
        let place = places.get_mut(at).filter(|place| place.is_none())?;
        *place = Some(FunctionArg::Unnamed(arg));
    }
    let mut all = Vec::new();
    for (place, (_, missing)) in places.into_iter().zip(parameters) {
        match (place, missing) {
            (Some(arg), _) => all.push(arg),
            (None, Some(missing)) => all.extend(missing.argument()),
            (None, None) => return None,
        }
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_put_in_the_order_of_their_parameters() {
        let number = |text: &str| {
            let value = Value::Number(text.to_owned(), false);
            FunctionArgExpr::Expr(Ast::Value(value.with_empty_span()))
        };
        let shown = |function: &str, given: &[(Option<&str>, &str)]| {
            let given = given.iter().map(|(name, text)| (name.map(str::to_owned), number(text)));
            let all = ordered(parameters(function)?, given.collect())?;
            Some(all.iter().map(ToString::to_string).collect::<Vec<_>>().join(","))
        };
        let named = |name| Some(name);
        let days = shown("make_interval", &[(None, "1"), (named("days"), "10")]);
        assert_eq!(days.as_deref(), Some("1,0,0,10,0,0,0"));
        let date = [(named("day"), "3"), (named("year"), "1"), (named("month"), "2")];
        assert_eq!(shown("make_date", &date).as_deref(), Some("1,2,3"));
        assert_eq!(shown("make_date", &[(named("year"), "1")]), None);
        assert_eq!(shown("make_interval", &[(None, "1"), (named("years"), "2")]), None);
        assert_eq!(shown("make_interval", &[(named("fortnights"), "2")]), None);
    }
}
