//! Parts of values and rows, in the one form that names are looked up in.
//!
//! The parser has `t.a[1]` for a part of `t` that is called `a`, where PostgreSQL has an element of
//! the column `t.a`; it has `row(1, 2)` for a call of a function, and nothing for `(x).*`.

use std::mem::{replace, take};
use std::ops::ControlFlow;

use sqlparser::ast::{
    AccessExpr, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident,
    ObjectNamePart, Statement, Value, VisitMut, VisitorMut,
};
use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Token, TokenWithSpan, Word};

/// The field that stands for all: no statement is likely to name one so.
pub(crate) const ALL_FIELDS: &str = "?*?";

/// Names what stands behind `).` if that is `*`. Whether there may be something to bring in form.
pub(crate) fn name_all_fields(tokens: &mut [TokenWithSpan]) -> bool {
    let mut may_have_parts = false;
    // What the two words before are.
    let (mut is_end, mut is_part) = (false, false);
    for own in tokens {
        match &own.token {
            Token::Whitespace(_) => continue,
            Token::Mul if is_part => {
                let (value, quote_style) = (ALL_FIELDS.to_owned(), Some('"'));
                let keyword = Keyword::NoKeyword;
                own.token = Token::Word(Word { value, quote_style, keyword });
            }
            Token::LBracket => may_have_parts = true,
            Token::Word(word) if word.keyword == Keyword::ROW => may_have_parts = true,
            _ => {}
        }
        is_part = is_end && own.token == Token::Period;
        is_end = own.token == Token::RParen;
    }
    may_have_parts
}

/// Brings statements in that form.
pub(crate) fn in_form(statements: &mut [Statement]) {
    for statement in statements {
        let _ = statement.visit(&mut Form);
    }
}

struct Form;

impl VisitorMut for Form {
    type Break = ();

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        match expr {
            Expr::CompoundFieldAccess { root, access_chain } => name_column(root, access_chain),
            Expr::Function(function) => {
                if let Some(parts) = parts_of_row(function) {
                    *expr = Expr::Tuple(parts);
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

/// Has a name with its qualifiers for the root of what parts are taken of.
fn name_column(root: &mut Expr, chain: &mut Vec<AccessExpr>) {
    let is_name = |own: &&AccessExpr| matches!(own, AccessExpr::Dot(Expr::Identifier(_)));
    let count = chain.iter().take_while(is_name).count();
    if count == 0 || !matches!(root, Expr::Identifier(_) | Expr::CompoundIdentifier(_)) {
        return;
    }
    let mut names = match replace(root, Expr::value(Value::Null)) {
        Expr::Identifier(name) => vec![name],
        Expr::CompoundIdentifier(names) => names,
        _ => Vec::new(),
    };
    names.extend(chain.drain(..count).filter_map(|own| match own {
        AccessExpr::Dot(Expr::Identifier(name)) => Some(name),
        _ => None,
    }));
    *root = Expr::CompoundIdentifier(names);
}

/// The parts of `row(...)` of two or more.
fn parts_of_row(function: &mut Function) -> Option<Vec<Expr>> {
    let is_row =
        |name: &Ident| name.quote_style.is_none() && name.value.eq_ignore_ascii_case("row");
    let [ObjectNamePart::Identifier(name)] = &*function.name.0 else { return None };
    if !is_row(name) || function.over.is_some() || function.filter.is_some() {
        return None;
    }
    let FunctionArguments::List(list) = &mut function.args else { return None };
    let is_plain =
        |own: &FunctionArg| matches!(own, FunctionArg::Unnamed(FunctionArgExpr::Expr(_)));
    if list.args.len() < 2 || !list.args.iter().all(is_plain) || !list.clauses.is_empty() {
        return None;
    }
    let part = |own| match own {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(own)) => Some(own),
        _ => None,
    };
    Some(take(&mut list.args).into_iter().filter_map(part).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::parse;

    #[test]
    fn parts_of_columns_and_rows_have_one_form() {
        for (sql, shown) in [
            ("select t.a[1]", "SELECT t.a[1]"),
            ("select s.t.a[1][2]", "SELECT s.t.a[1][2]"),
            ("select (r.a).b", "SELECT (r.a).b"),
            ("select row(1, 2), Row(3)", "SELECT (1, 2), Row(3)"),
            ("select (f(x)) . *", "SELECT (f(x)).\"?*?\""),
            ("select 2 * (a)", "SELECT 2 * (a)"),
        ] {
            let statements = parse(sql).unwrap();
            assert_eq!(statements[0].to_string(), shown);
        }
        let mut found = 0;
        let mut statements = parse("select t.a[1], (r.a).b").unwrap();
        let _ = sqlparser::ast::visit_expressions_mut(&mut statements, |own| {
            found += usize::from(matches!(own, Expr::CompoundIdentifier(_)));
            ControlFlow::<()>::Continue(())
        });
        assert_eq!(found, 2);
    }
}
