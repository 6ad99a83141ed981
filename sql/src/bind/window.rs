//! Window functions.

use sqlparser::ast::{self, FunctionArg, FunctionArgExpr, FunctionArguments, WindowType};

use super::query::sort_key;
use super::stage::{Stage, WINDOWS};
use super::window_spec::{named, whole};
use super::{Binder, refuse};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::functions::{is_aggregate, is_ordered_set, resolve_aggregate};
use crate::plan::{Expr, Frame, Typed, WindowCall};
use crate::types::cast::CastContext;
use crate::types::{Scalar, SqlType};

impl Binder<'_> {
    /// A call with OVER: a column behind those of the input.
    pub(super) fn window(
        &mut self,
        name: &str,
        function: &ast::Function,
        over: &WindowType,
        stage: &mut Stage<'_>,
    ) -> SqlResult<Typed> {
        if stage.windows.is_none() {
            let message = format!("window functions are not allowed in {}", stage.clause);
            return Err(SqlError::new(SqlState::WINDOWING_ERROR, message));
        }
        let ast::Function {
            name: _,
            uses_odbc_syntax: _,
            parameters: _,
            args,
            within_group,
            filter,
            null_treatment,
            over: _,
        } = function;
        if is_ordered_set(name) {
            let message = format!("OVER is not supported for ordered-set aggregate {name}");
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message));
        }
        refuse(!within_group.is_empty() || null_treatment.is_some(), "this form of a window call")?;
        refuse(
            filter.is_some() && !is_aggregate(name),
            "FILTER of a function that is no aggregate",
        )?;
        let FunctionArguments::List(list) = args else {
            return Err(SqlError::unsupported("a window function without parentheses"));
        };
        let ast::FunctionArgumentList { duplicate_treatment, args, clauses } = list;
        refuse(duplicate_treatment.is_some(), "DISTINCT of a window function")?;
        refuse(!clauses.is_empty(), "a clause within the arguments of a window function")?;
        let is_star = matches!(&**args, [FunctionArg::Unnamed(FunctionArgExpr::Wildcard)]);
        let given = if is_star { Vec::new() } else { self.arguments(args, stage)? };
        let given =
            given.into_iter().map(|own| self.settle_type(own)).collect::<SqlResult<Vec<_>>>()?;
        let filter = match filter {
            Some(filter) => {
                let filter = self.expr(filter, stage)?;
                Some(self.condition(filter, "FILTER")?)
            }
            None => None,
        };
        let spec = match over {
            WindowType::NamedWindow(name) => named(name, &stage.named_windows)?,
            WindowType::WindowSpec(spec) => whole(spec, &stage.named_windows)?,
        };
        let ast::WindowSpec { window_name: _, partition_by, order_by, window_frame } = &spec;
        let (mut partition, mut order, mut types) = (Vec::new(), Vec::new(), Vec::new());
        for own in partition_by {
            let bound = self.expr(own, stage)?;
            partition.push(self.settle_type(bound)?.expr);
        }
        for own in order_by {
            let bound = self.expr(&own.expr, stage)?;
            let bound = self.settle_type(bound)?;
            types.push(bound.ty);
            order.push(sort_key(bound.expr, own)?);
        }
        let frame = match window_frame {
            Some(frame) => self.frame(frame, (&order, &types), stage)?,
            None => Frame::default(),
        };
        let (aggregate, arguments, ty) = self.window_function(name, given)?;
        let name = name.to_owned();
        let call = WindowCall { aggregate, name, arguments, filter, partition, order, frame };
        let Some(windows) = &mut stage.windows else {
            return Err(SqlError::internal("the windows of a clause are gone"));
        };
        windows.push(call);
        Ok(Typed::new(Expr::Column(WINDOWS + windows.len() - 1), ty))
    }

    /// What a window function is, what it takes and what it gives.
    fn window_function(
        &mut self,
        name: &str,
        given: Vec<Typed>,
    ) -> SqlResult<(Option<crate::functions::ResolvedAggregate>, Vec<Expr>, SqlType)> {
        let types: Vec<SqlType> = given.iter().map(|own| own.ty).collect();
        if is_aggregate(name) {
            let resolved = resolve_aggregate(name, &types)?
                .ok_or_else(|| SqlError::internal(format!("{name} is no aggregate")))?;
            let mut arguments = self.taken_by(given, &resolved)?;
            self.as_documents(name, &mut arguments, &resolved)?;
            let ty = resolved.returns;
            return Ok((Some(resolved), arguments, ty));
        }
        let first = types.first().copied();
        let (takes, gives) = match (name, first) {
            ("row_number" | "rank" | "dense_rank", None) => (vec![], SqlType::INT8),
            ("percent_rank" | "cume_dist", None) => (vec![], SqlType::new(Scalar::Float8)),
            ("ntile", Some(_)) => (vec![SqlType::INT4], SqlType::INT4),
            ("lag" | "lead", Some(ty)) => (vec![ty, SqlType::INT4, ty], ty),
            ("first_value" | "last_value", Some(ty)) => (vec![ty], ty),
            ("nth_value", Some(ty)) => (vec![ty, SqlType::INT4], ty),
            _ => return Err(no_window_function(name, &types)),
        };
        if given.len() > takes.len() || (name == "nth_value" && given.len() != 2) {
            return Err(no_window_function(name, &types));
        }
        let mut arguments = Vec::new();
        for (given, ty) in given.into_iter().zip(takes) {
            arguments.push(self.coerce(given, ty, CastContext::Implicit)?);
        }
        Ok((None, arguments, gives))
    }
}

fn no_window_function(name: &str, types: &[SqlType]) -> SqlError {
    let types: Vec<String> = types.iter().map(|ty| ty.name()).collect();
    let message = format!("window function {name}({}) does not exist", types.join(", "));
    SqlError::new(SqlState::UNDEFINED_FUNCTION, message)
}
