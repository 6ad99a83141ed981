//! Expressions as SQL, for people.

use crate::plan::{Comparison, Expr, Quantifier, SortKey};
use crate::types::text_format::{natural_type, to_string};
use crate::types::{Datum, FormatSettings};

/// What columns are called.
#[derive(Clone, Copy)]
pub(super) struct Names<'n> {
    /// Those of a row.
    pub(super) own: &'n [String],
    /// Those of the rows of enclosing queries, the innermost last.
    pub(super) outer: &'n [Vec<String>],
}

/// An expression over columns of these names.
#[recursive::recursive]
pub(super) fn text(expr: &Expr, names: Names<'_>) -> String {
    let of = |expr: &Expr| text(expr, names);
    match expr {
        Expr::Const(value) => constant(value),
        Expr::Param(number) => format!("${}", number + 1),
        Expr::Column(at) => {
            names.own.get(*at).cloned().unwrap_or_else(|| format!("column {}", at + 1))
        }
        Expr::Outer { level, column } => {
            let name = names.outer.iter().nth_back(*level).and_then(|row| row.get(*column));
            name.cloned().unwrap_or_else(|| format!("outer {}.{}", level + 1, column + 1))
        }
        Expr::Call { function, arguments, comparison } => {
            let sign: &str = match comparison {
                Some(comparison) => sign(*comparison),
                None => &function.name,
            };
            let is_operator = !sign.starts_with(|c: char| c.is_alphabetic() || c == '_');
            match (is_operator, &**arguments) {
                (true, [left, right]) => format!("({} {sign} {})", of(left), of(right)),
                (true, [operand]) => format!("({sign} {})", of(operand)),
                _ => format!("{sign}({})", list(arguments, names)),
            }
        }
        Expr::Cast { operand, to, .. } => format!("({})::{}", of(operand), to.name()),
        Expr::And(all) => joined(all, " AND ", names),
        Expr::Or(all) => joined(all, " OR ", names),
        Expr::Not(operand) => format!("(NOT {})", of(operand)),
        Expr::IsNull { operand, negated } => format!("({} IS {}NULL)", of(operand), not(*negated)),
        Expr::IsBool { operand, value, negated } => {
            let value = if *value { "TRUE" } else { "FALSE" };
            format!("({} IS {}{value})", of(operand), not(*negated))
        }
        Expr::IsDistinct { left, right, negated } => {
            format!("({} IS {}DISTINCT FROM {})", of(left), not(*negated), of(right))
        }
        Expr::Case { branches, otherwise } => {
            let mut text = "CASE".to_owned();
            for branch in branches {
                let (condition, result) = (of(&branch.condition), of(&branch.result));
                text += &format!(" WHEN {condition} THEN {result}");
            }
            if let Some(otherwise) = otherwise {
                text += &format!(" ELSE {}", of(otherwise));
            }
            text + " END"
        }
        Expr::Coalesce(all) => format!("COALESCE({})", list(all, names)),
        Expr::Extreme { operands, greatest } => {
            let name = if *greatest { "GREATEST" } else { "LEAST" };
            format!("{name}({})", list(operands, names))
        }
        Expr::InList { operand, list: values, negated, .. } => {
            format!("({} {}IN ({}))", of(operand), not(*negated), list(values, names))
        }
        Expr::Quantified { operand, operator, array, quantifier } => {
            let word = if *quantifier == Quantifier::Any { "ANY" } else { "ALL" };
            format!("({} {} {word} ({}))", of(operand), operator.name, of(array))
        }
        Expr::Array { elements, .. } => format!("ARRAY[{}]", list(elements, names)),
        Expr::Element { array, indexes } => format!("({})[{}]", of(array), list(indexes, names)),
        Expr::Row { values: all, .. } => format!("ROW({})", list(all, names)),
    }
}

/// The sign of a comparison.
pub(super) fn sign(comparison: Comparison) -> &'static str {
    match comparison {
        Comparison::Equal => "=",
        Comparison::Less => "<",
        Comparison::LessEqual => "<=",
        Comparison::Greater => ">",
        Comparison::GreaterEqual => ">=",
    }
}

/// Expressions with commas between them.
pub(super) fn list(exprs: &[Expr], names: Names<'_>) -> String {
    exprs.iter().map(|expr| text(expr, names)).collect::<Vec<_>>().join(", ")
}

/// The columns of an order.
pub(super) fn order(keys: &[SortKey], names: Names<'_>) -> String {
    let key = |key: &SortKey| {
        let direction = if key.descending { " DESC" } else { "" };
        let nulls = match (key.descending, key.nulls_first) {
            (false, true) => " NULLS FIRST",
            (true, false) => " NULLS LAST",
            _ => "",
        };
        format!("{}{direction}{nulls}", text(&key.expr, names))
    };
    keys.iter().map(key).collect::<Vec<_>>().join(", ")
}

fn joined(all: &[Expr], word: &str, names: Names<'_>) -> String {
    let parts: Vec<_> = all.iter().map(|expr| text(expr, names)).collect();
    format!("({})", parts.join(word))
}

fn not(negated: bool) -> &'static str {
    if negated { "NOT " } else { "" }
}

fn constant(value: &Datum) -> String {
    if value.is_null() {
        return "NULL".to_owned();
    }
    let shown = to_string(value, natural_type(value), &FormatSettings::default());
    match value {
        Datum::I16(_) | Datum::I32(_) | Datum::I64(_) | Datum::F32(_) | Datum::F64(_) => shown,
        Datum::Bool(_) | Datum::Numeric(_) => shown,
        _ => format!("'{}'", shown.replace('\'', "''")),
    }
}
