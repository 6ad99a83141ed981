//! Functions in FROM that give rows.

use std::sync::Arc;

use sqlparser::ast::{self, FunctionArg, FunctionArgExpr, ObjectName, TableAlias};

use super::from::{Part, alias_columns, scope_of};
use super::names::function_name;
use super::query::rename;
use super::scope::Scope;
use super::sequence::{sequence_function, without_regclass};
use super::stage::{PendingApply, Stage, with_applies};
use super::{Binder, OutputColumn, fold, name_parts};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::functions::{
    ResolvedRows, needs_names, resolve_pause, resolve_rows, resolve_unnest, rows_of_document,
};
use crate::plan::{Expr, Join, JoinKind, Plan, Typed};
use crate::types::cast::CastContext;
use crate::types::{Array, Datum, SqlType};

impl Binder<'_> {
    /// The function `unnest`, for which the parser has a node of its own.
    pub(super) fn unnest<'s>(
        &mut self,
        arrays: &[ast::Expr],
        ordinality: bool,
        alias: &Option<TableAlias>,
        before: Option<&Scope<'s>>,
        outer: Option<&'s Scope<'s>>,
    ) -> SqlResult<Part<'s>> {
        let given = |own: &ast::Expr| FunctionArg::Unnamed(FunctionArgExpr::Expr(own.clone()));
        let args: Vec<FunctionArg> = arrays.iter().map(given).collect();
        let name = ObjectName::from(vec![ast::Ident::new("unnest")]);
        self.rows(&name, &args, ordinality, alias, before, outer)
    }

    /// A function in FROM. One that gives a value gives a row of it.
    pub(super) fn rows<'s>(
        &mut self,
        name: &ObjectName,
        args: &[FunctionArg],
        ordinality: bool,
        alias: &Option<TableAlias>,
        before: Option<&Scope<'s>>,
        outer: Option<&'s Scope<'s>>,
    ) -> SqlResult<Part<'s>> {
        let parts = name_parts(name)?;
        let Some(function) = function_name(&parts).map(str::to_owned) else {
            let name = parts.join(".");
            return Err(SqlError::unsupported(format!("a function of schema {name}")));
        };
        self.uses_catalogue |= needs_names(&function);
        let seen = Scope::inside(before.or(outer));
        let mut stage = Stage::new(&seen, "functions in FROM");
        let reached = std::mem::replace(&mut self.reached, usize::MAX);
        let given = self.arguments(args, &mut stage);
        let is_lateral = before.is_some_and(|before| self.reached <= before.depth);
        self.reached = self.reached.min(reached);
        let given = given?;
        let types: Vec<SqlType> = given.iter().map(|own| own.ty).collect();
        let is_unnest = function == "unnest" && !types.is_empty();
        let of_document = rows_of_document(&function).filter(|_| given.len() == 1);
        let resolved = match of_document {
            Some(own) => Ok(Some(own.with_columns(defined_columns(alias.as_ref(), ordinality)?))),
            None if is_unnest => resolve_unnest(&types),
            None => resolve_rows(&function, &types),
        };
        let resolved = resolved.map_err(|error| self.place(error, name))?;
        let called = alias.as_ref().map_or_else(|| function.clone(), |alias| fold(&alias.name));
        let Some(resolved) = resolved else {
            let value = self.value_of_call(&function, args, given, &mut stage);
            let value = value.map_err(|error| self.place(error, name))?;
            let mut columns = vec![OutputColumn::new(&*called, value.ty)];
            let mut exprs = vec![value.expr];
            if ordinality {
                columns.push(OutputColumn::new(ORDINALITY, SqlType::INT8));
                exprs.push(Expr::Const(Datum::I64(1)));
            }
            let scope = scope_of_rows(&mut columns, alias.as_ref(), &called, outer)?;
            let input = Box::new(with_applies(Plan::One, stage.applies));
            return Ok(Part {
                plan: Plan::Project { input, exprs: exprs.into() },
                scope,
                is_lateral,
            });
        };
        let mut arguments = Vec::new();
        for (given, ty) in given.into_iter().zip(resolved.arguments.clone()) {
            let argument = self.coerce(given, ty, CastContext::Implicit)?;
            arguments.push(match of_document {
                Some(own) if own.has_row_of_null() => or_empty_object(argument),
                _ if is_unnest => or_empty(argument, ty),
                _ => argument,
            });
        }
        let single = resolved.columns.len() == 1;
        let mut columns: Vec<OutputColumn> = resolved
            .columns
            .iter()
            .map(|(name, ty)| {
                // A function that gives one value calls it as the table is called.
                let is_own = single && *name == function;
                OutputColumn::new(if is_own { &*called } else { &**name }, *ty)
            })
            .collect();
        if ordinality {
            columns.push(OutputColumn::new(ORDINALITY, SqlType::INT8));
        }
        let scope = match of_document {
            None => scope_of_rows(&mut columns, alias.as_ref(), &called, outer)?,
            Some(_) => scope_of(&called, &columns, outer)?,
        };
        let call = RowsCall { function: Arc::new(resolved), arguments, ordinality };
        let plan = call.behind(stage.applies, columns.len());
        Ok(Part { plan, scope, is_lateral })
    }

    /// What a function gives that is one of a value, and not of rows.
    fn value_of_call(
        &mut self,
        function: &str,
        args: &[FunctionArg],
        given: Vec<Typed>,
        stage: &mut Stage<'_>,
    ) -> SqlResult<Typed> {
        if let Some(own) = sequence_function(function) {
            let given = self.arguments(&without_regclass(function, args), stage)?;
            return self.sequence_call(own, function, given, stage);
        }
        let types: Vec<SqlType> = given.iter().map(|own| own.ty).collect();
        if let Some(pause) = resolve_pause(function, &types)? {
            return self.pause_call(pause, given, stage);
        }
        let value = self.built_in(function, given)?;
        self.settle_type(value)
    }
}

/// The columns of a function, as its alias names them. If it gives one value, the name of the
/// function stands for that, and not for a row of it.
fn scope_of_rows<'s>(
    columns: &mut [OutputColumn],
    alias: Option<&TableAlias>,
    called: &str,
    outer: Option<&'s Scope<'s>>,
) -> SqlResult<Scope<'s>> {
    rename(columns, &alias_columns(alias)?, called)?;
    let mut scope = scope_of(called, columns, outer)?;
    if let [own] = &mut *scope.columns {
        own.is_row = true;
    }
    Ok(scope)
}

/// The columns that the alias of a function defines, which gives rows of any columns.
fn defined_columns(
    alias: Option<&TableAlias>,
    ordinality: bool,
) -> SqlResult<Vec<(String, SqlType)>> {
    let invalid = |message| Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
    let columns = alias.map(|alias| alias.columns.as_slice()).unwrap_or_default();
    if columns.is_empty() || columns.iter().any(|own| own.data_type.is_none()) {
        return invalid("a column definition list is required for functions returning \"record\"");
    }
    if ordinality {
        return invalid("WITH ORDINALITY cannot be used with a column definition list");
    }
    let mut defined: Vec<(String, SqlType)> = Vec::new();
    for ast::TableAliasColumnDef { name, data_type } in columns {
        let name = fold(name);
        if defined.iter().any(|(own, _)| *own == name) {
            let message = format!("column name \"{name}\" specified more than once");
            return Err(SqlError::new(SqlState::DUPLICATE_COLUMN, message));
        }
        let ty = data_type.as_ref().map(SqlType::parse).transpose()?;
        defined.push((name, ty.unwrap_or(SqlType::TEXT)));
    }
    Ok(defined)
}

/// A document, or an object without members instead of NULL.
fn or_empty_object(document: Expr) -> Expr {
    Expr::Coalesce(vec![document, Expr::Const(Datum::Json("{}".into()))])
}

/// The name of the column of numbers.
const ORDINALITY: &str = "ordinality";

/// An array, or an empty one for NULL: the rows of the arrays that go in step with it are there.
fn or_empty(array: Expr, ty: SqlType) -> Expr {
    let empty = Array { element: ty.scalar, dimensions: Vec::new(), elements: Vec::new() };
    Expr::Coalesce(vec![array, Expr::Const(Datum::Array(Arc::new(empty)))])
}

/// A call of a function that gives rows.
struct RowsCall {
    function: Arc<ResolvedRows>,
    arguments: Vec<Expr>,
    ordinality: bool,
}

impl RowsCall {
    /// The plan of a call whose arguments name what subqueries give: a lateral join with the one
    /// row of those.
    fn behind(mut self, applies: Vec<PendingApply>, right_width: usize) -> Plan {
        let left_width = applies.len();
        if left_width == 0 {
            return self.plan();
        }
        for argument in &mut self.arguments {
            argument.visit_mut(&mut |own| match own {
                Expr::Column(column) => *own = Expr::Outer { level: 0, column: *column },
                Expr::Outer { level, .. } => *level += 1,
                _ => {}
            });
        }
        let (left, right) = (with_applies(Plan::One, applies), self.plan());
        let join = Join {
            left,
            right,
            left_width,
            right_width,
            kind: JoinKind::Inner,
            equal: Vec::new(),
            condition: None,
            is_lateral: true,
            keeps_order: false,
        };
        let exprs = (left_width..left_width + right_width).map(Expr::Column).collect();
        Plan::Project { input: Box::new(Plan::Join(Box::new(join))), exprs }
    }

    fn plan(self) -> Plan {
        let Self { function, arguments, ordinality } = self;
        Plan::Rows { function, arguments, ordinality }
    }
}
