//! Functions that give rows in the items of a select list.
//!
//! `SELECT a, unnest(b) FROM t` is `SELECT a, f.v FROM t, LATERAL unnest(b) f(v)`, and where such a
//! function gives rows of several fields, `(f(x)).k` is a column of it and `f(x)` a row of all. The
//! same call is made once. Several calls go in step by their numbers (WITH ORDINALITY), so their
//! numbers of rows have to be equal: that is certain where they are of the same array, or of arrays
//! of `pg_index`. Others are not rewritten, which leaves them an error.

use std::ops::ControlFlow;

use sqlparser::ast::{
    self, AccessExpr, BinaryOperator, Expr as Ast, Function, FunctionArg, FunctionArgExpr,
    FunctionArguments, GroupByExpr, Ident, Select, SelectItem, StructField, TableAlias,
    TableAliasColumnDef, TableFactor, TableWithJoins, VisitMut, VisitorMut,
};

use super::aggregate::has_aggregate;
use super::column_name::name_of;
use super::names::function_name;
use super::{fold, name_parts};
use crate::functions::{columns_of_rows, gives_rows, is_by_array};
use crate::parse_fields::ALL_FIELDS;

/// The column of a function that gives one value in a row.
const VALUE: &str = "v";
/// What names of such tables begin with.
const ROWS: &str = "?rows";
/// The column of its number.
const NUMBER: &str = "ordinality";

/// The SELECT with such functions in FROM; `None` if it has none.
pub(super) fn rewritten(select: &Select) -> Option<Select> {
    if !select.projection.iter().any(may_call) {
        return None;
    }
    let is_plain = match &select.group_by {
        GroupByExpr::Expressions(keys, _) => keys.is_empty() && select.having.is_none(),
        GroupByExpr::All(_) => false,
    };
    let has_aggregates = select.projection.iter().filter_map(expr_of).any(has_aggregate);
    let mut select = select.clone();
    let mut calls = Calls::default();
    for item in &mut select.projection {
        let name = match item {
            SelectItem::UnnamedExpr(expr) if !is_all_fields(expr) => Some(name_of(expr)),
            _ => None,
        };
        let before = calls.made;
        let (SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }) = item else {
            continue;
        };
        let _ = expr.visit(&mut calls);
        if let (Some(name), true) = (name, calls.made > before) {
            let expr = std::mem::replace(expr, Ast::value(ast::Value::Null));
            *item = SelectItem::ExprWithAlias { expr, alias: quoted(&name) };
        }
    }
    let has_windows = select.projection.iter().filter_map(expr_of).any(has_window);
    let is_refused = calls.is_refused || !is_plain || has_aggregates || has_windows;
    if calls.found.is_empty() || is_refused || !calls.are_in_step() {
        return None;
    }
    let has_numbers = calls.found.len() > 1;
    for (at, own) in calls.found.into_iter().enumerate() {
        select.from.push(own.lateral(at, has_numbers)?);
        if at > 0 {
            let (left, right) = (member(&table_name(0), NUMBER), member(&table_name(at), NUMBER));
            let (left, right) = (Box::new(left), Box::new(right));
            let equal = Ast::BinaryOp { left, op: BinaryOperator::Eq, right };
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

fn expr_of(item: &SelectItem) -> Option<&Ast> {
    match item {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => Some(expr),
        _ => None,
    }
}

/// Whether there is a window function in an expression: it is of the rows before functions give
/// several for each.
fn has_window(expr: &Ast) -> bool {
    let over = |expr: &Ast| match expr {
        Ast::Function(own) if own.over.is_some() => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    };
    ast::visit_expressions(expr, over).is_break()
}

/// Whether there is a call in an item, or in a query within it.
fn may_call(item: &SelectItem) -> bool {
    let call = |expr: &Ast| match expr {
        Ast::Function(own) if called(own).is_some() => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    };
    expr_of(item).is_some_and(|expr| ast::visit_expressions(expr, call).is_break())
}

fn is_all_fields(expr: &Ast) -> bool {
    let Ast::CompoundFieldAccess { access_chain, .. } = expr else { return false };
    let last = access_chain.last();
    matches!(last, Some(AccessExpr::Dot(Ast::Identifier(name))) if name.value == ALL_FIELDS)
}

/// A call of a function that gives rows.
struct Call {
    function: Function,
    name: String,
    /// The names of its columns, if there are several.
    columns: Vec<&'static str>,
}

/// Has what they give stand for calls.
#[derive(Default)]
struct Calls {
    found: Vec<Call>,
    /// How many calls there were.
    made: usize,
    /// How many queries within an item it is in: calls are of these.
    queries: usize,
    /// How many expressions it is in that do not evaluate all that is in them.
    conditions: usize,
    /// Whether there is a call where none may be.
    is_refused: bool,
}

impl VisitorMut for Calls {
    type Break = ();

    fn pre_visit_query(&mut self, _: &mut ast::Query) -> ControlFlow<()> {
        self.queries += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut ast::Query) -> ControlFlow<()> {
        self.queries -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Ast) -> ControlFlow<()> {
        self.conditions += usize::from(is_conditional(expr));
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Ast) -> ControlFlow<()> {
        self.conditions -= usize::from(is_conditional(expr));
        let Ast::Function(function) = expr else { return ControlFlow::Continue(()) };
        let Some(name) = called(function).filter(|_| self.queries == 0) else {
            return ControlFlow::Continue(());
        };
        // One of what another gives would have rows for each of its rows.
        let is_nested = arguments(function).is_none_or(|own| own.iter().any(names_rows));
        if self.conditions > 0 || is_nested {
            self.is_refused = true;
            return ControlFlow::Break(());
        }
        self.made += 1;
        let known = self.found.iter().position(|own| own.function == *function);
        let at = known.unwrap_or_else(|| {
            let columns = columns_of_rows(&name);
            self.found.push(Call { function: function.clone(), name, columns });
            self.found.len() - 1
        });
        if let Some(own) = self.found.get(at) {
            *expr = own.row(at);
        }
        ControlFlow::Continue(())
    }
}

impl Calls {
    /// Whether all give equally many rows.
    fn are_in_step(&self) -> bool {
        let [first, others @ ..] = &*self.found else { return true };
        let array = |own: &Call| arguments(&own.function)?.first().cloned();
        others.iter().all(|own| {
            let (one, other) = (array(first), array(own));
            let is_alike = one == other || of_index(one.as_ref()) && of_index(other.as_ref());
            is_alike && [first, own].iter().all(|call| is_of_all(call))
        })
    }
}

impl Call {
    /// What it gives, as an expression.
    fn row(&self, at: usize) -> Ast {
        let table = table_name(at);
        if self.columns.is_empty() {
            return member(&table, VALUE);
        }
        let field = |name: &&str| StructField {
            field_name: Some(quoted(name)),
            field_type: ast::DataType::Unspecified,
            options: None,
        };
        Ast::Struct {
            values: self.columns.iter().map(|name| member(&table, name)).collect(),
            fields: self.columns.iter().map(field).collect(),
        }
    }

    /// It, in FROM.
    fn lateral(self, at: usize, with_ordinality: bool) -> Option<TableWithJoins> {
        let names = if self.columns.is_empty() { vec![VALUE] } else { self.columns };
        let column = |name| TableAliasColumnDef { name: quoted(name), data_type: None };
        let alias = TableAlias {
            explicit: true,
            name: quoted(&table_name(at)),
            columns: names.into_iter().map(column).collect(),
            at: None,
        };
        let relation = TableFactor::Function {
            lateral: true,
            args: arguments(&self.function)?.to_vec(),
            name: self.function.name,
            with_ordinality,
            alias: Some(alias),
        };
        Some(TableWithJoins { relation, joins: Vec::new() })
    }
}

/// Whether not all of an expression is evaluated for each row.
fn is_conditional(expr: &Ast) -> bool {
    match expr {
        Ast::Case { .. } => true,
        Ast::Function(own) => {
            let name = name_parts(&own.name).ok().and_then(|mut parts| parts.pop());
            matches!(name.as_deref(), Some("coalesce"))
        }
        _ => false,
    }
}

/// No name that a statement is likely to have.
fn table_name(number: usize) -> String {
    format!("{ROWS}{number}?")
}

/// Whether a table of FROM is a function of the select list: its columns are found by its name
/// only, and `*` does not show them.
pub(super) fn is_of_select_list(table: &str) -> bool {
    table.starts_with(ROWS)
}

fn quoted(name: &str) -> Ident {
    Ident::with_quote('"', name)
}

fn member(table: &str, column: &str) -> Ast {
    Ast::CompoundIdentifier(vec![quoted(table), quoted(column)])
}

/// Whether an argument names what a call gives.
fn names_rows(argument: &FunctionArg) -> bool {
    let FunctionArg::Unnamed(FunctionArgExpr::Expr(own)) = argument else { return false };
    let of_rows = |expr: &Ast| match expr {
        Ast::CompoundIdentifier(names)
            if names.first().is_some_and(|own| is_of_select_list(&own.value)) =>
        {
            ControlFlow::Break(())
        }
        _ => ControlFlow::Continue(()),
    };
    ast::visit_expressions(own, of_rows).is_break()
}

/// The name of a function that gives rows.
fn called(function: &Function) -> Option<String> {
    let parts = name_parts(&function.name).ok()?;
    let name = function_name(&parts)?;
    let is_plain = function.over.is_none() && function.filter.is_none();
    (is_plain && gives_rows(name)).then(|| name.to_owned())
}

/// Whether a call gives a row for each element of an array. `generate_subscripts` does so of arrays
/// of one dimension, which those of the catalogue are.
fn is_of_all(call: &Call) -> bool {
    let given = arguments(&call.function).unwrap_or_default();
    let is_first = match given.get(1) {
        Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(own))) => may_be_one(own),
        _ => false,
    };
    let is_flat = of_index(given.first()) || of_constraint(given.first());
    is_by_array(&call.name) && (call.name != "generate_subscripts" || is_first && is_flat)
}

/// Whether an expression is 1, or a parameter, which clients have 1 for.
fn may_be_one(expr: &Ast) -> bool {
    match expr {
        Ast::Cast { expr, .. } | Ast::Nested(expr) => may_be_one(expr),
        Ast::Value(own) => match &own.value {
            ast::Value::Number(text, _) | ast::Value::SingleQuotedString(text) => text == "1",
            ast::Value::Placeholder(_) => true,
            _ => false,
        },
        _ => false,
    }
}

/// Whether it is an array of columns of `pg_constraint`.
fn of_constraint(argument: Option<&FunctionArg>) -> bool {
    matches!(named(argument).as_deref(), Some("conkey" | "confkey"))
}

/// The name of the column that an argument is.
fn named(argument: Option<&FunctionArg>) -> Option<String> {
    let Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(argument))) = argument else { return None };
    match argument {
        Ast::CompoundIdentifier(names) => names.last().map(fold),
        Ast::Identifier(name) => Some(fold(name)),
        _ => None,
    }
}

/// Whether it is an array of `pg_index` that has an element for each column of the index.
fn of_index(argument: Option<&FunctionArg>) -> bool {
    let name = named(argument);
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
