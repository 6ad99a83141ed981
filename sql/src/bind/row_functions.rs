//! Functions that give rows as items of a select list.
//!
//! `SELECT a, unnest(b) FROM t` is
//! `SELECT a, f.v FROM t, LATERAL unnest(b) WITH ORDINALITY f(v, n)`. Several of them go in step,
//! so their numbers of rows have to be equal: that is certain where they are of the same array, or
//! of arrays of `pg_index`. Others are not rewritten, which leaves them an error.

use sqlparser::ast::{
    BinaryOperator, Expr as Ast, Function, FunctionArg, FunctionArgExpr, FunctionArguments,
    GroupByExpr, Ident, Select, SelectItem, TableAlias, TableAliasColumnDef, TableFactor,
    TableWithJoins,
};

use super::aggregate::has_aggregate;
use super::{fold, name_parts};
use crate::functions::gives_rows;

/// The SELECT with such functions in FROM; `None` if it has none.
pub(super) fn rewritten(select: &Select) -> Option<Select> {
    let function = |item: &SelectItem| match item {
        SelectItem::UnnamedExpr(Ast::Function(own)) => called(own).map(|name| (own.clone(), name)),
        SelectItem::ExprWithAlias { expr: Ast::Function(own), alias } => {
            called(own).map(|_| (own.clone(), fold(alias)))
        }
        _ => None,
    };
    let found: Vec<(usize, Function, String)> = (0..)
        .zip(&select.projection)
        .filter_map(|(at, item)| function(item).map(|(own, name)| (at, own, name)))
        .collect();
    let (_, first, _) = found.first()?;
    let array = arguments(first)?.first()?;
    let in_step = found.iter().all(|(_, own, _)| {
        let is_alike = |own: &FunctionArg| own == array || is_of_index(own) && is_of_index(array);
        arguments(own).and_then(<[_]>::first).is_some_and(is_alike) && is_by_array(own)
    });
    let is_plain = match &select.group_by {
        GroupByExpr::Expressions(keys, _) => keys.is_empty() && select.having.is_none(),
        GroupByExpr::All(_) => false,
    };
    let has_aggregates = select.projection.iter().any(|item| match item {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => {
            has_aggregate(expr)
        }
        _ => false,
    });
    if !is_plain || has_aggregates || (found.len() > 1 && !in_step) {
        return None;
    }
    let mut select = select.clone();
    for (number, (at, function, name)) in found.into_iter().enumerate() {
        let table = table_name(number);
        let args = arguments(&function)?.to_vec();
        let column = |name: &str| TableAliasColumnDef { name: quoted(name), data_type: None };
        let alias = TableAlias {
            explicit: true,
            name: quoted(&table),
            columns: vec![column("v"), column("n")],
            at: None,
        };
        let relation = TableFactor::Function {
            lateral: true,
            name: function.name,
            args,
            with_ordinality: true,
            alias: Some(alias),
        };
        select.from.push(TableWithJoins { relation, joins: Vec::new() });
        if let Some(item) = select.projection.get_mut(at) {
            let expr = member(&table, "v");
            *item = SelectItem::ExprWithAlias { expr, alias: quoted(&name) };
        }
        if number > 0 {
            let equal = Ast::BinaryOp {
                left: Box::new(member(&table_name(0), "n")),
                op: BinaryOperator::Eq,
                right: Box::new(member(&table, "n")),
            };
            select.selection = Some(match select.selection.take() {
                None => equal,
                Some(other) => Ast::BinaryOp {
                    left: Box::new(Ast::Nested(Box::new(other))),
                    op: BinaryOperator::And,
                    right: Box::new(equal),
                },
            });
        }
    }
    Some(select)
}

/// No name that a statement is likely to have.
fn table_name(number: usize) -> String {
    format!("?rows{number}?")
}

fn quoted(name: &str) -> Ident {
    Ident::with_quote('"', name)
}

fn member(table: &str, column: &str) -> Ast {
    Ast::CompoundIdentifier(vec![quoted(table), quoted(column)])
}

/// The name of a function that gives rows.
fn called(function: &Function) -> Option<String> {
    let name = name_parts(&function.name).ok()?.pop()?;
    (function.over.is_none() && function.filter.is_none() && gives_rows(&name)).then_some(name)
}

/// Whether it gives as many rows as an array has elements.
fn is_by_array(function: &Function) -> bool {
    let name = name_parts(&function.name).ok().and_then(|mut parts| parts.pop());
    matches!(name.as_deref(), Some("unnest" | "generate_subscripts"))
}

/// Whether it is an array of `pg_index` that has an element for each column of the index.
fn is_of_index(argument: &FunctionArg) -> bool {
    let FunctionArg::Unnamed(FunctionArgExpr::Expr(Ast::CompoundIdentifier(names))) = argument
    else {
        return false;
    };
    let name = names.last().map(fold);
    matches!(name.as_deref(), Some("indkey" | "indclass" | "indoption" | "indcollation"))
}

fn arguments(function: &Function) -> Option<&[FunctionArg]> {
    let FunctionArguments::List(list) = &function.args else { return None };
    let is_plain = |own: &FunctionArg| match own {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(own)) => !matches!(own, Ast::Subquery(_)),
        _ => false,
    };
    list.args.iter().all(is_plain).then_some(&*list.args)
}
