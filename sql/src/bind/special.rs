//! Calls of functions, and operators with a syntax of their own.

use std::sync::Arc;

use sqlparser::ast::{
    self, BinaryOperator, CeilFloorKind, Expr as Ast, FunctionArg, FunctionArgExpr,
    FunctionArguments, InTarget, Query, TrimWhereField,
};

use super::expr::{negate, operator_name};
use super::fields::row_of;
use super::names::function_name;
use super::row_query::quantified_patterns;
use super::sequence::{sequence_function, without_regclass};
use super::stage::{COMPARED, Stage, WINDOWS};
use super::{Binder, fold, name_parts, refuse};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::functions::{
    CallContext, Resolved, gives_rows, needs_names, resolve_function, resolve_operator,
    resolve_pause,
};
use crate::plan::{AdvisoryFunction, ApplyKind, Expr, Quantifier, Typed};
use crate::types::cast::CastContext;
use crate::types::{Datum, Scalar, SqlType};

impl Binder<'_> {
    /// A function by its name.
    pub(super) fn named_call(&mut self, name: &str, given: Vec<Typed>) -> SqlResult<Typed> {
        let types: Vec<SqlType> = given.iter().map(|own| own.ty).collect();
        self.uses_catalogue |= needs_names(name);
        self.uses_path |= matches!(name, "current_schema" | "current_schemas");
        let function = resolve_function(name, &types)?;
        self.call(function, given)
    }

    pub(super) fn special_syntax(&mut self, ast: &Ast, stage: &mut Stage<'_>) -> SqlResult<Typed> {
        let text = |text: String| Typed::new(Expr::Const(Datum::text(text)), SqlType::UNKNOWN);
        match ast {
            Ast::Extract { field, syntax: _, expr } => {
                let operand = self.expr(expr, stage)?;
                self.named_call("extract", vec![text(field.to_string().to_lowercase()), operand])
            }
            Ast::AtTimeZone { timestamp, time_zone } => {
                let (time, zone) = (self.expr(timestamp, stage)?, self.expr(time_zone, stage)?);
                self.named_call("timezone", vec![zone, time])
            }
            Ast::Ceil { expr, field } => self.rounded("ceil", expr, field, stage),
            Ast::Floor { expr, field } => self.rounded("floor", expr, field, stage),
            Ast::Position { expr, r#in } => {
                let (part, whole) = (self.expr(expr, stage)?, self.expr(r#in, stage)?);
                self.named_call("position", vec![whole, part])
            }
            Ast::Substring { expr, substring_from, substring_for, special: _, shorthand: _ } => {
                let mut given = vec![self.expr(expr, stage)?];
                let one = || Typed::new(Expr::Const(Datum::I32(1)), SqlType::INT4);
                match substring_from {
                    Some(from) => given.push(self.expr(from, stage)?),
                    None => given.push(one()),
                }
                given.extend(substring_for.as_ref().map(|own| self.expr(own, stage)).transpose()?);
                self.named_call("substring", given)
            }
            Ast::Trim { trim_where, trim_what, expr, trim_characters } => {
                let name = match trim_where {
                    None | Some(TrimWhereField::Both) => "btrim",
                    Some(TrimWhereField::Leading) => "ltrim",
                    Some(TrimWhereField::Trailing) => "rtrim",
                };
                let mut given = vec![self.expr(expr, stage)?];
                given.extend(trim_what.as_ref().map(|own| self.expr(own, stage)).transpose()?);
                for own in trim_characters.iter().flatten() {
                    given.push(self.expr(own, stage)?);
                }
                self.named_call(name, given)
            }
            Ast::Overlay { expr, overlay_what, overlay_from, overlay_for } => {
                let mut given = vec![self.expr(expr, stage)?, self.expr(overlay_what, stage)?];
                given.push(self.expr(overlay_from, stage)?);
                given.extend(overlay_for.as_ref().map(|own| self.expr(own, stage)).transpose()?);
                self.named_call("overlay", given)
            }
            Ast::SimilarTo { negated, expr, pattern, escape_char } => {
                let mut given = vec![self.expr(expr, stage)?, self.expr(pattern, stage)?];
                given.extend(escape_char.as_ref().map(|own| self.expr(own, stage)).transpose()?);
                let Typed { expr, ty } = self.named_call("similar_to", given)?;
                Ok(Typed::new(negate(expr, *negated), ty))
            }
            Ast::CompoundFieldAccess { root, access_chain } => {
                self.part_of(root, access_chain, stage)
            }
            Ast::Struct { values, fields } => {
                let name = |own: &ast::StructField| own.field_name.as_ref().map(fold);
                let names: Vec<String> = fields.iter().filter_map(name).collect();
                self.named_row(values, &names, stage)
            }
            other => {
                let text = other.to_string();
                let short: String = text.chars().take(60).collect();
                Err(SqlError::unsupported(format!("the expression {short}")))
            }
        }
    }

    fn rounded(
        &mut self,
        name: &str,
        operand: &Ast,
        field: &CeilFloorKind,
        stage: &mut Stage<'_>,
    ) -> SqlResult<Typed> {
        let is_plain =
            matches!(field, CeilFloorKind::DateTimeField(ast::DateTimeField::NoDateTime));
        refuse(!is_plain, "rounding to a field or a scale")?;
        let operand = self.expr(operand, stage)?;
        self.named_call(name, vec![operand])
    }

    pub(super) fn like(
        &mut self,
        operator: &str,
        (operand, pattern): (&Ast, &Ast),
        (any, escape): (bool, &Option<Box<Ast>>),
        stage: &mut Stage<'_>,
    ) -> SqlResult<Typed> {
        let quantified = match any {
            true => Some((Quantifier::Any, pattern)),
            false => quantified_patterns(pattern),
        };
        if let Some((quantifier, patterns)) = quantified {
            let how = (quantifier, escape.is_some());
            return self.like_any(operator, (operand, patterns), how, stage);
        }
        let operand = self.expr(operand, stage)?;
        let mut pattern = self.expr(pattern, stage)?;
        if let Some(escape) = escape {
            let escape = self.expr(escape, stage)?;
            pattern = self.named_call("like_escape", vec![pattern, escape])?;
        }
        self.operator(operator, Some(operand), pattern)
    }

    pub(super) fn is_in(
        &mut self,
        operand: &Ast,
        target: &InTarget,
        negated: bool,
        stage: &mut Stage<'_>,
    ) -> SqlResult<Typed> {
        match target {
            InTarget::List(list) => {
                if let Ast::Tuple(_) = operand {
                    // Rows are compared part by part.
                    let equal = list.iter().map(|own| {
                        let op = BinaryOperator::Eq;
                        let (left, right) = (Box::new(operand.clone()), Box::new(own.clone()));
                        Ok(self.expr(&Ast::BinaryOp { left, op, right }, stage)?.expr)
                    });
                    let any = Expr::Or(equal.collect::<SqlResult<_>>()?);
                    return Ok(Typed::new(negate(any, negated), SqlType::BOOL));
                }
                let mut all = vec![self.expr(operand, stage)?];
                for own in list {
                    all.push(self.expr(own, stage)?);
                }
                let (all, common) = self.unify(all)?;
                let equal = Box::new(resolve_operator("=", Some(common), common)?);
                let mut all = all.into_iter();
                let Some(operand) = all.next().map(Box::new) else {
                    return Err(SqlError::internal("IN without an operand"));
                };
                let list = all.collect();
                Ok(Typed::new(Expr::InList { operand, list, equal, negated }, SqlType::BOOL))
            }
            InTarget::Subquery(query) => {
                let parts = match operand {
                    Ast::Tuple(parts) => &**parts,
                    one => std::slice::from_ref(one),
                };
                let found = self.compared_subquery(parts, "=", query, false, stage)?;
                Ok(Typed::new(negate(found.expr, negated), SqlType::BOOL))
            }
            InTarget::Unnest(_) | InTarget::Table { .. } => {
                Err(SqlError::unsupported("IN with something else than a list or a query"))
            }
        }
    }

    pub(super) fn quantified(
        &mut self,
        operand: &Ast,
        op: &BinaryOperator,
        array: &Ast,
        quantifier: Quantifier,
        stage: &mut Stage<'_>,
    ) -> SqlResult<Typed> {
        let name = operator_name(op)?;
        match array {
            Ast::Subquery(query) => {
                self.quantified_query((operand, &name), query, quantifier, stage)
            }
            array => self.quantified_array((operand, &name), array, quantifier, stage),
        }
    }

    /// `operand operator ANY (array)`, or ALL.
    pub(super) fn quantified_array(
        &mut self,
        (operand, name): (&Ast, &str),
        array: &Ast,
        quantifier: Quantifier,
        stage: &mut Stage<'_>,
    ) -> SqlResult<Typed> {
        let operand = self.expr(operand, stage)?;
        let mut array = self.expr(array, stage)?;
        if array.ty.scalar == Scalar::Unknown {
            let element =
                if operand.ty.scalar == Scalar::Unknown { SqlType::TEXT } else { operand.ty };
            let ty = SqlType::array(element.scalar);
            array = Typed::new(self.coerce(array, ty, CastContext::Implicit)?, ty);
        }
        if !array.ty.is_array {
            let message = "op ANY/ALL (array) requires array on right side";
            return Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message));
        }
        let element = SqlType::new(array.ty.scalar);
        let operator = resolve_operator(name, Some(operand.ty), element)?;
        let &[left, right] = &*operator.arguments else {
            return Err(SqlError::internal("an operator of other than two"));
        };
        let operand = Box::new(self.coerce(operand, left, CastContext::Implicit)?);
        let array =
            Box::new(self.coerce(array, SqlType::array(right.scalar), CastContext::Implicit)?);
        let operator = Box::new(operator);
        Ok(Typed::new(Expr::Quantified { operand, operator, array, quantifier }, SqlType::BOOL))
    }

    pub(super) fn function(
        &mut self,
        function: &ast::Function,
        stage: &mut Stage<'_>,
    ) -> SqlResult<Typed> {
        let parts = name_parts(&function.name)?;
        let Some(name) = function_name(&parts).map(str::to_owned) else {
            let name = parts.join(".");
            return Err(SqlError::unsupported(format!("a function of schema {name}")));
        };
        if name == "array"
            && let FunctionArguments::Subquery(query) = &function.args
        {
            return self.array_subquery(query, stage);
        }
        if let Some(over) = &function.over {
            return self.window(&name, function, over, stage);
        }
        if name == "grouping" {
            return self.grouping_call(function, stage);
        }
        if let Some(call) = self.aggregate(&name, function, stage)? {
            return Ok(call);
        }
        let ast::Function {
            name: _,
            uses_odbc_syntax,
            parameters,
            args,
            within_group,
            filter,
            null_treatment,
            over: _,
        } = function;
        refuse(*uses_odbc_syntax, "the syntax of ODBC")?;
        refuse(*parameters != FunctionArguments::None, "parameters of a function")?;
        refuse(!within_group.is_empty(), "WITHIN GROUP")?;
        refuse(null_treatment.is_some(), "IGNORE NULLS")?;
        if filter.is_some() {
            let message = format!("FILTER specified, but {name} is not an aggregate function");
            return Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message));
        }
        let given = match args {
            FunctionArguments::None => Vec::new(),
            FunctionArguments::Subquery(_) => {
                return Err(SqlError::unsupported("a query as an argument"));
            }
            FunctionArguments::List(list) => {
                let ast::FunctionArgumentList { duplicate_treatment, args, clauses } = list;
                refuse(!clauses.is_empty(), "a clause within the arguments")?;
                if duplicate_treatment.is_some() {
                    let message =
                        format!("DISTINCT specified, but {name} is not an aggregate function");
                    return Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message));
                }
                let args = self.in_order(&name, args)?;
                let args = without_regclass(&name, &args);
                self.arguments(&args, stage)?
            }
        };
        self.called(&name, parts.len() == 1, given, stage)
    }

    /// A call that is of no aggregate; `is_plain` if it names no schema.
    fn called(
        &mut self,
        name: &str,
        is_plain: bool,
        given: Vec<Typed>,
        stage: &mut Stage<'_>,
    ) -> SqlResult<Typed> {
        let types: Vec<SqlType> = given.iter().map(|own| own.ty).collect();
        if let Some(pause) = resolve_pause(name, &types)? {
            return self.pause_call(pause, given, stage);
        }
        match sequence_function(name) {
            Some(function) => self.sequence_call(function, name, given, stage),
            None if name == "row" && is_plain => Ok(row_of(given)),
            None => {
                let bound = self.built_in(name, given).map_err(|error| match error.state() {
                    SqlState::UNDEFINED_FUNCTION if gives_rows(name) => {
                        if stage.clause == "SELECT" {
                            return SqlError::unsupported("this use of a set-returning function");
                        }
                        let message =
                            format!("set-returning functions are not allowed in {}", stage.clause);
                        SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
                    }
                    _ => error,
                })?;
                match AdvisoryFunction::named(name) {
                    Some(function) => self.advisory_call(function, bound, stage),
                    None => Ok(bound),
                }
            }
        }
    }

    pub(super) fn arguments(
        &mut self,
        args: &[FunctionArg],
        stage: &mut Stage<'_>,
    ) -> SqlResult<Vec<Typed>> {
        let argument = |own: &FunctionArg| match own {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(own)) => self.expr(own, stage),
            FunctionArg::Unnamed(_) => {
                Err(SqlError::new(SqlState::SYNTAX_ERROR, "* stands as an argument of count only"))
            }
            FunctionArg::Named { .. } | FunctionArg::ExprNamed { .. } => {
                Err(SqlError::unsupported("an argument with a name"))
            }
        };
        args.iter().map(argument).collect()
    }

    /// Functions whose arguments are not all evaluated, and those of the table.
    pub(super) fn built_in(&mut self, name: &str, given: Vec<Typed>) -> SqlResult<Typed> {
        match (name, given.len()) {
            ("coalesce", 1..) => {
                let (all, ty) = self.unify(given)?;
                Ok(Typed::new(Expr::Coalesce(all), ty))
            }
            ("greatest" | "least", 1..) => {
                let (operands, ty) = self.unify(given)?;
                let greatest = name == "greatest";
                Ok(Typed::new(Expr::Extreme { operands, greatest }, ty))
            }
            ("nullif", 2) => {
                let mut given = given.into_iter();
                let (Some(first), Some(second)) = (given.next(), given.next()) else {
                    return Err(SqlError::internal("NULLIF of other than two"));
                };
                self.null_if(first, second)
            }
            ("position", 2) if !given.is_empty() => self.named_call("strpos", given),
            _ => self.named_call(name, given),
        }
    }

    /// NULL if both are equal, else the first, which is evaluated once. It is of the type that it
    /// is compared in.
    fn null_if(&mut self, first: Typed, second: Typed) -> SqlResult<Typed> {
        let equal = resolve_operator("=", Some(first.ty), second.ty)?;
        let &[returns, _] = &*equal.arguments else {
            return Err(SqlError::internal("an equality of other than two"));
        };
        let (arguments, volatility) = (equal.arguments.clone(), equal.volatility);
        let eval = move |values: &[Datum], context: &CallContext<'_>| {
            let first = values.first().cloned().unwrap_or(Datum::Null);
            if values.iter().any(Datum::is_null) {
                return Ok(first);
            }
            let is_equal = (equal.eval)(values, context)?;
            Ok(if matches!(is_equal, Datum::Bool(true)) { Datum::Null } else { first })
        };
        let (name, eval) = ("nullif".into(), Arc::new(eval));
        let function = Resolved { name, arguments, returns, is_strict: false, volatility, eval };
        self.call(function, vec![first, second])
    }

    pub(super) fn exists(
        &mut self,
        query: &Query,
        negated: bool,
        stage: &mut Stage<'_>,
    ) -> SqlResult<Typed> {
        let (bound, is_correlated) = self.subquery(query, stage)?;
        let found = stage.apply(bound.plan, ApplyKind::Exists, is_correlated);
        Ok(Typed::new(negate(found, negated), SqlType::BOOL))
    }

    pub(super) fn scalar_subquery(
        &mut self,
        query: &Query,
        stage: &mut Stage<'_>,
    ) -> SqlResult<Typed> {
        let (bound, is_correlated) = self.subquery(query, stage)?;
        let ty = only_column(&bound)?;
        Ok(Typed::new(stage.apply(bound.plan, ApplyKind::Scalar, is_correlated), ty))
    }

    fn array_subquery(&mut self, query: &Query, stage: &mut Stage<'_>) -> SqlResult<Typed> {
        let (bound, is_correlated) = self.subquery(query, stage)?;
        let element = only_column(&bound)?;
        refuse(element.is_array, "an array of arrays")?;
        let array = stage.apply(bound.plan, ApplyKind::Array { element }, is_correlated);
        Ok(Typed::new(array, SqlType::array(element.scalar)))
    }

    /// `parts operator ANY (query)`, or ALL.
    pub(super) fn compared_subquery(
        &mut self,
        parts: &[Ast],
        operator: &str,
        query: &Query,
        all: bool,
        stage: &mut Stage<'_>,
    ) -> SqlResult<Typed> {
        let mut operands = Vec::new();
        for part in parts {
            operands.push(self.expr(part, stage)?);
        }
        let (bound, is_correlated) = self.subquery(query, stage)?;
        if bound.columns.len() != operands.len() {
            let few = bound.columns.len() < operands.len();
            let message = format!("subquery has too {} columns", if few { "few" } else { "many" });
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
        }
        let is_of_window = |own: &Expr| matches!(own, Expr::Column(WINDOWS..));
        let mut names_window = false;
        for operand in &operands {
            operand.expr.visit(&mut |own| names_window |= is_of_window(own));
        }
        refuse(names_window, "a comparison of a window function with a query")?;
        let is_grouped = stage.grouping.is_some();
        let first = if is_grouped { COMPARED } else { stage.width + stage.applies.len() };
        let mut compared = Vec::new();
        for (at, (operand, column)) in operands.into_iter().zip(&bound.columns).enumerate() {
            let right = Typed::new(Expr::Column(first + at), column.ty);
            compared.push(self.operator(operator, Some(operand), right)?.expr);
        }
        let comparison = match compared.len() {
            1 => compared.pop().unwrap_or(Expr::TRUE),
            _ => Expr::And(compared),
        };
        let kind = ApplyKind::Compare { comparison, all };
        Ok(Typed::new(stage.apply(bound.plan, kind, is_correlated), SqlType::BOOL))
    }
}

fn only_column(bound: &super::Bound) -> SqlResult<SqlType> {
    match &*bound.columns {
        [column] => Ok(column.ty),
        _ => Err(SqlError::new(SqlState::SYNTAX_ERROR, "subquery must return only one column")),
    }
}
