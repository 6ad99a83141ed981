//! Defaults and conditions as PostgreSQL prints them: literals tell their types, and what an
//! operator casts is cast. The plain form has parentheses around every operator; the pretty one,
//! which `psql` asks for, only where PostgreSQL's does.

use sqlparser::ast::{
    BinaryOperator, Expr as Ast, FunctionArg, FunctionArgExpr, FunctionArguments, InTarget,
    UnaryOperator, Value, visit_expressions,
};
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::parser::Parser;
use std::ops::ControlFlow;

use super::definitions::quoted;
use super::snapshot::SystemTable;
use crate::bind::fold;
use crate::types::{Scalar, SqlType};

fn parse(text: &str) -> Option<Ast> {
    Parser::new(&PostgreSqlDialect {}).try_with_sql(text).ok()?.parse_expr().ok()
}

/// The positions of the columns that a condition names, each once.
pub(super) fn columns_of(condition: &str, table: &SystemTable) -> Vec<usize> {
    let mut columns = Vec::new();
    if let Some(ast) = parse(condition) {
        let _ = visit_expressions(&ast, |own| {
            if let Ast::Identifier(name) = own
                && let Some(at) = table.def.column(&fold(name))
                && !columns.contains(&at)
            {
                columns.push(at);
            }
            ControlFlow::<()>::Continue(())
        });
    }
    columns
}

/// A condition over the columns of a table. One that cannot be read is as it was written.
pub(super) fn expression(text: &str, table: &SystemTable, is_pretty: bool) -> String {
    let printer = Printer { table, is_pretty };
    parse(text).map_or_else(|| text.to_owned(), |ast| printer.print(&ast))
}

/// The default of a column of a type.
pub(super) fn default_expression(text: &str, ty: SqlType) -> String {
    match parse(text) {
        Some(Ast::Value(value)) => match &value.value {
            Value::Boolean(value) => value.to_string(),
            Value::SingleQuotedString(text) => literal(text, ty),
            Value::Null => format!("NULL::{}", ty.plain().name()),
            other => other.to_string(),
        },
        Some(Ast::UnaryOp { op: UnaryOperator::Minus, expr }) if matches!(*expr, Ast::Value(_)) => {
            format!("'-{expr}'::integer")
        }
        Some(Ast::Function(function)) => match &function.args {
            FunctionArguments::None => function.to_string().to_uppercase(),
            FunctionArguments::List(list) => {
                sequence_call(&function, &list.args).unwrap_or_else(|| function.to_string())
            }
            FunctionArguments::Subquery(_) => function.to_string(),
        },
        _ => text.to_owned(),
    }
}

/// A call of a function of sequences, of which the first argument names one.
fn sequence_call(function: &sqlparser::ast::Function, args: &[FunctionArg]) -> Option<String> {
    let name = fold(function.name.0.last()?.as_ident()?);
    let (first, rest) = args.split_first()?;
    let FunctionArg::Unnamed(FunctionArgExpr::Expr(first)) = first else { return None };
    let mut sequence = unnested(first);
    while let Ast::Cast { expr, .. } = sequence {
        sequence = unnested(expr);
    }
    let Ast::Value(value) = sequence else { return None };
    let Value::SingleQuotedString(sequence) = &value.value else { return None };
    if !matches!(&*name, "nextval" | "currval" | "setval") {
        return None;
    }
    let sequence = format!("'{}'::regclass", sequence.replace('\'', "''"));
    let rest = rest.iter().map(ToString::to_string);
    let all: Vec<String> = std::iter::once(sequence).chain(rest).collect();
    Some(format!("{name}({})", all.join(", ")))
}

fn literal(text: &str, ty: SqlType) -> String {
    let name = match ty.scalar {
        Scalar::Char if !ty.is_array => "bpchar".to_owned(),
        _ => ty.plain().name(),
    };
    format!("'{}'::{name}", text.replace('\'', "''"))
}

struct Printer<'p> {
    table: &'p SystemTable,
    is_pretty: bool,
}

impl Printer<'_> {
    /// Around an operator in the plain form.
    fn framed(&self, text: String) -> String {
        if self.is_pretty { text } else { format!("({text})") }
    }

    fn cast(&self, text: &str, to: &str) -> String {
        if self.is_pretty { format!("{text}::{to}") } else { format!("({text})::{to}") }
    }

    fn print(&self, ast: &Ast) -> String {
        match ast {
            Ast::Nested(inner) => self.print(inner),
            Ast::Identifier(name) => quoted(&fold(name)),
            Ast::Value(value) => match &value.value {
                Value::Boolean(value) => value.to_string(),
                Value::SingleQuotedString(text) => literal(text, SqlType::TEXT),
                other => other.to_string(),
            },
            Ast::BinaryOp { left, op: op @ (BinaryOperator::And | BinaryOperator::Or), right } => {
                let word = if *op == BinaryOperator::And { "AND" } else { "OR" };
                let (left, right) = (self.within_bool(left, op), self.within_bool(right, op));
                self.framed(format!("{left} {word} {right}"))
            }
            Ast::BinaryOp { left, op, right } => {
                let sign = if *op == BinaryOperator::NotEq { "<>".into() } else { op.to_string() };
                self.operator(left, &sign, right)
            }
            Ast::Like { negated, expr, pattern, escape_char: None, any: false } => {
                self.operator(expr, if *negated { "!~~" } else { "~~" }, pattern)
            }
            Ast::UnaryOp { op: UnaryOperator::Not, expr } => {
                self.framed(format!("NOT {}", self.in_parentheses(expr)))
            }
            Ast::UnaryOp { op: UnaryOperator::Minus, expr } if matches!(**expr, Ast::Value(_)) => {
                format!("'-{expr}'::integer")
            }
            Ast::IsNull(operand) => self.framed(format!("{} IS NULL", self.print(operand))),
            Ast::IsNotNull(operand) => self.framed(format!("{} IS NOT NULL", self.print(operand))),
            Ast::Between { expr, negated: false, low, high } => {
                let (low, high) = (self.operator(expr, ">=", low), self.operator(expr, "<=", high));
                self.framed(format!("{low} AND {high}"))
            }
            Ast::In { expr, target: InTarget::List(list), negated, global: false } => {
                self.list(expr, list, *negated)
            }
            Ast::Function(function) => self.function(function),
            other => other.to_string(),
        }
    }

    /// An operand of AND or OR: the pretty form has parentheses where the sense needs them.
    fn within_bool(&self, ast: &Ast, outer: &BinaryOperator) -> String {
        let inner = unnested(ast);
        let is_or = matches!(inner, Ast::BinaryOp { op: BinaryOperator::Or, .. });
        let text = self.print(inner);
        if self.is_pretty && is_or && *outer == BinaryOperator::And {
            return format!("({text})");
        }
        // A chain of one operator is flat.
        match inner {
            Ast::BinaryOp { op, .. } if op == outer && !self.is_pretty => {
                text.get(1..text.len().saturating_sub(1)).unwrap_or(&text).to_owned()
            }
            _ => text,
        }
    }

    fn in_parentheses(&self, ast: &Ast) -> String {
        let inner = unnested(ast);
        let text = self.print(inner);
        let is_operator = matches!(inner, Ast::BinaryOp { .. } | Ast::Like { .. });
        if self.is_pretty && is_operator { format!("({text})") } else { text }
    }

    fn operator(&self, left: &Ast, sign: &str, right: &Ast) -> String {
        let (left_type, right_type) = (self.ty(left), self.ty(right));
        let ty = match (left_type, right_type) {
            (Some(left), Some(right)) => Some(wider(left, right)),
            (left, right) => left.or(right),
        };
        let left = self.operand(left, ty, sign, true);
        let right = self.operand(right, ty, sign, false);
        self.framed(format!("{left} {sign} {right}"))
    }

    /// An operand as a value of the type that the operator takes.
    fn operand(&self, ast: &Ast, ty: Option<SqlType>, sign: &str, is_left: bool) -> String {
        let inner = unnested(ast);
        if let (Ast::Value(value), Some(ty)) = (inner, ty)
            && let Value::SingleQuotedString(text) = &value.value
        {
            let is_varchar = ty.scalar == Scalar::Varchar;
            return literal(text, if is_varchar { SqlType::TEXT } else { ty });
        }
        let text = match inner {
            Ast::BinaryOp { op, .. }
                if !self.is_pretty || binds(&op.to_string(), sign, is_left) =>
            {
                self.print(inner)
            }
            _ => self.in_parentheses(inner),
        };
        let from = self.ty(inner);
        match (from.map(|own| own.scalar), ty.map(|own| own.scalar)) {
            (Some(Scalar::Varchar), _) => self.cast(&text, "text"),
            (Some(Scalar::Int2 | Scalar::Int4 | Scalar::Int8), Some(Scalar::Numeric)) => {
                self.cast(&text, "numeric")
            }
            (
                Some(Scalar::Int2 | Scalar::Int4 | Scalar::Int8 | Scalar::Numeric),
                Some(Scalar::Float4 | Scalar::Float8),
            ) => self.cast(&text, "double precision"),
            _ => text,
        }
    }

    fn list(&self, operand: &Ast, list: &[Ast], negated: bool) -> String {
        let ty = self.ty(operand).unwrap_or(SqlType::TEXT);
        let element = |own: &Ast| match own {
            Ast::Value(value) => match &value.value {
                Value::SingleQuotedString(text) => literal(text, ty),
                _ => self.operand(own, Some(ty), "=", false),
            },
            own => self.operand(own, Some(ty), "=", false),
        };
        let elements: Vec<String> = list.iter().map(element).collect();
        let mut array = format!("ARRAY[{}]", elements.join(", "));
        if ty.scalar == Scalar::Varchar {
            array = self.cast(&array, "text[]");
        }
        let operand = self.operand(operand, Some(ty), "=", true);
        let test = if negated { "<> ALL" } else { "= ANY" };
        self.framed(format!("{operand} {test} ({array})"))
    }

    fn function(&self, function: &sqlparser::ast::Function) -> String {
        let FunctionArguments::List(list) = &function.args else {
            return function.to_string().to_uppercase();
        };
        let argument = |own: &FunctionArg| match own {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(own)) => {
                let text = self.print(own);
                let is_varchar = self.ty(own).is_some_and(|ty| ty.scalar == Scalar::Varchar);
                if is_varchar { self.cast(&text, "text") } else { text }
            }
            other => other.to_string(),
        };
        let arguments: Vec<String> = list.args.iter().map(argument).collect();
        format!("{}({})", function.name, arguments.join(", "))
    }

    /// The type of an expression, as far as it can be told.
    fn ty(&self, ast: &Ast) -> Option<SqlType> {
        match ast {
            Ast::Nested(inner) => self.ty(inner),
            Ast::Identifier(name) => {
                let at = self.table.def.column(&fold(name))?;
                self.table.def.columns.get(at).map(|own| own.ty.plain())
            }
            Ast::Value(value) => match &value.value {
                Value::Number(digits, _) if digits.parse::<i32>().is_ok() => Some(SqlType::INT4),
                Value::Number(digits, _) if digits.parse::<i64>().is_ok() => Some(SqlType::INT8),
                Value::Number(..) => Some(SqlType::NUMERIC),
                Value::Boolean(_) => Some(SqlType::BOOL),
                _ => None,
            },
            Ast::UnaryOp { op: UnaryOperator::Minus, expr } => self.ty(expr),
            Ast::Cast { data_type, .. } => SqlType::parse(data_type).ok(),
            Ast::BinaryOp {
                left,
                op:
                    BinaryOperator::Plus
                    | BinaryOperator::Minus
                    | BinaryOperator::Multiply
                    | BinaryOperator::Divide
                    | BinaryOperator::Modulo,
                right,
            } => Some(wider(self.ty(left)?, self.ty(right)?)),
            _ => None,
        }
    }
}

fn unnested(ast: &Ast) -> &Ast {
    let mut inner = ast;
    while let Ast::Nested(own) = inner {
        inner = own;
    }
    inner
}

/// The type of two numbers that holds both.
fn wider(left: SqlType, right: SqlType) -> SqlType {
    let rank = |ty: SqlType| match ty.scalar {
        Scalar::Int2 => 1,
        Scalar::Int4 => 2,
        Scalar::Int8 => 3,
        Scalar::Numeric => 4,
        Scalar::Float4 | Scalar::Float8 => 5,
        _ => 0,
    };
    if rank(right) > rank(left) { right } else { left }
}

/// Whether an operand needs no parentheses in the pretty form, which knows the rules of `+`, `-`,
/// `*`, `/` and `%` only.
fn binds(inner: &str, outer: &str, is_left: bool) -> bool {
    let rank = |sign: &str| match sign {
        "+" | "-" => Some(1),
        "*" | "/" | "%" => Some(2),
        _ => None,
    };
    match (rank(inner), rank(outer)) {
        (Some(inner), Some(outer)) => inner > outer || inner == outer && is_left,
        _ => false,
    }
}
