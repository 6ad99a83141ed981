//! Expressions.

use sqlparser::ast::{self, BinaryOperator, CastKind, Expr as Ast, UnaryOperator};

use super::fields::row_of;
use super::groups::grouped;
use super::power::power_of_sign;
use super::scope::Qualifier;
use super::stage::Stage;
use super::{Binder, fold, name_parts, refuse};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::functions::{Resolved, resolve_operator};
use crate::plan::{Branch, Comparison, Expr, Quantifier, Typed};
use crate::types::cast::CastContext;
use crate::types::{Scalar, SqlType};

impl Binder<'_> {
    /// An expression of a clause.
    #[recursive::recursive]
    pub(super) fn expr(&mut self, ast: &Ast, stage: &mut Stage<'_>) -> SqlResult<Typed> {
        if let Some(key) = grouped(ast, stage) {
            return Ok(key);
        }
        let bound = self.expr_unplaced(ast, stage);
        bound.map_err(|error| self.place(error, ast))
    }

    fn expr_unplaced(&mut self, ast: &Ast, stage: &mut Stage<'_>) -> SqlResult<Typed> {
        match ast {
            Ast::Nested(inner) => self.expr(inner, stage),
            Ast::Value(value) => self.literal(value),
            Ast::Identifier(name) => self.column(None, &fold(name), stage),
            Ast::CompoundIdentifier(names) => match &*names.iter().map(fold).collect::<Vec<_>>() {
                [table, name] => self.column(Some((None, table)), name, stage),
                [schema, table, name] if self.has_schema(schema) => {
                    self.column(Some((Some(schema), table)), name, stage)
                }
                _ => Err(SqlError::unsupported("a column with so many qualifiers")),
            },
            Ast::TypedString(typed) => {
                let ast::TypedString { data_type, value, uses_odbc_syntax: _ } = typed;
                let ty = SqlType::parse(data_type)?;
                let text = self.literal(value)?;
                Ok(Typed::new(self.coerce(text, ty, CastContext::Explicit)?, ty))
            }
            Ast::Interval(interval) => self.interval(interval),
            Ast::Cast { kind, expr, data_type, format } => {
                refuse(format.is_some(), "CAST with FORMAT")?;
                let is_plain = matches!(kind, CastKind::Cast | CastKind::DoubleColon);
                refuse(!is_plain, "a cast that gives NULL on an error")?;
                let to = SqlType::parse(data_type)?;
                if let (Ast::Array(array), true) = (&**expr, to.is_array)
                    && array.elem.is_empty()
                {
                    let (elements, element) = (Vec::new(), SqlType::new(to.scalar));
                    return Ok(Typed::new(Expr::Array { elements, element }, to));
                }
                let operand = self.expr(expr, stage)?;
                Ok(Typed::new(self.coerce(operand, to, CastContext::Explicit)?, to))
            }
            Ast::BinaryOp { left, op, right } => self.binary(left, op, right, stage),
            Ast::UnaryOp { op, expr } => self.unary(op, expr, stage),
            Ast::Case { case_token: _, end_token: _, operand, conditions, else_result } => {
                self.case(operand.as_deref(), conditions, else_result.as_deref(), stage)
            }
            Ast::Exists { subquery, negated } => self.exists(subquery, *negated, stage),
            Ast::Subquery(query) => self.scalar_subquery(query, stage),
            Ast::Array(ast::Array { elem, named: _ }) => self.array(elem, stage),
            Ast::Tuple(parts) => {
                let parts = parts.iter().map(|part| self.expr(part, stage));
                Ok(row_of(parts.collect::<SqlResult<_>>()?))
            }
            Ast::Collate { expr, collation } => {
                let name = name_parts(collation)?.pop().unwrap_or_default();
                let is_known = matches!(name.as_str(), "C" | "POSIX" | "default" | "ucs_basic");
                refuse(!is_known, "a collation other than \"C\"")?;
                self.expr(expr, stage)
            }
            Ast::Function(function) => self.function(function, stage),
            other => self.test(other, stage),
        }
    }

    /// An expression that asks something of a value.
    fn test(&mut self, ast: &Ast, stage: &mut Stage<'_>) -> SqlResult<Typed> {
        match ast {
            Ast::IsNull(operand) => self.is_null(operand, false, stage),
            Ast::IsNotNull(operand) => self.is_null(operand, true, stage),
            Ast::IsTrue(operand) => self.is_bool(operand, true, false, stage),
            Ast::IsNotTrue(operand) => self.is_bool(operand, true, true, stage),
            Ast::IsFalse(operand) => self.is_bool(operand, false, false, stage),
            Ast::IsNotFalse(operand) => self.is_bool(operand, false, true, stage),
            Ast::IsUnknown(operand) => self.is_unknown(operand, false, stage),
            Ast::IsNotUnknown(operand) => self.is_unknown(operand, true, stage),
            Ast::IsDistinctFrom(left, right) => self.is_distinct(left, right, false, stage),
            Ast::IsNotDistinctFrom(left, right) => self.is_distinct(left, right, true, stage),
            Ast::Between { expr, negated, low, high } => {
                let operand = self.expr(expr, stage)?;
                let (low, high) = (self.expr(low, stage)?, self.expr(high, stage)?);
                let at_least = self.operator(">=", Some(operand.clone()), low)?;
                let at_most = self.operator("<=", Some(operand), high)?;
                let both = Expr::And(vec![at_least.expr, at_most.expr]);
                Ok(Typed::new(negate(both, *negated), SqlType::BOOL))
            }
            Ast::In { expr, target, negated, global } => {
                refuse(*global, "GLOBAL IN")?;
                self.is_in(expr, target, *negated, stage)
            }
            Ast::Like { negated, any, expr, pattern, escape_char } => {
                let operator = if *negated { "!~~" } else { "~~" };
                self.like(operator, (expr, pattern), (*any, escape_char), stage)
            }
            Ast::ILike { negated, any, expr, pattern, escape_char } => {
                let operator = if *negated { "!~~*" } else { "~~*" };
                self.like(operator, (expr, pattern), (*any, escape_char), stage)
            }
            Ast::AnyOp { left, compare_op, right, is_some: _ } => {
                self.quantified(left, compare_op, right, Quantifier::Any, stage)
            }
            Ast::AllOp { left, compare_op, right } => {
                self.quantified(left, compare_op, right, Quantifier::All, stage)
            }
            other => self.special_syntax(other, stage),
        }
    }

    pub(super) fn column(
        &mut self,
        table: Option<Qualifier<'_>>,
        name: &str,
        stage: &mut Stage<'_>,
    ) -> SqlResult<Typed> {
        let found = match stage.scope.find(table, name) {
            Ok(found) => found,
            Err(error) => {
                let ungrouped = ungrouped(table, name, stage);
                if table.is_none()
                    && error.state() == SqlState::UNDEFINED_COLUMN
                    && ungrouped.is_none()
                    && let Some(row) = self.whole_row(name, stage)?
                {
                    return Ok(row);
                }
                return Err(ungrouped.unwrap_or(error));
            }
        };
        let depth = stage.scope.depth.saturating_sub(found.level);
        self.reached = self.reached.min(depth);
        self.names_watched |= depth == 0 && self.watched.is_some_and(|width| found.at < width);
        Ok(found.typed())
    }

    /// An operator with its operands, whose types choose it.
    pub(super) fn operator(
        &mut self,
        name: &str,
        left: Option<Typed>,
        right: Typed,
    ) -> SqlResult<Typed> {
        let function = resolve_operator(name, left.as_ref().map(|left| left.ty), right.ty)?;
        let order = Comparison::of(&function);
        let mut call = self.call(function, left.into_iter().chain([right]).collect())?;
        if let Expr::Call { comparison, .. } = &mut call.expr {
            *comparison = order;
        }
        Ok(call)
    }

    /// A call of a function that fits its arguments.
    pub(super) fn call(&mut self, function: Resolved, given: Vec<Typed>) -> SqlResult<Typed> {
        let mut arguments = Vec::with_capacity(given.len());
        for (given, ty) in given.into_iter().zip(function.arguments.clone()) {
            arguments.push(self.coerce(given, ty, CastContext::Implicit)?);
        }
        let returns = function.returns;
        Ok({
            let (function, comparison) = (Box::new(function), None);
            Typed::new(Expr::Call { function, arguments, comparison }, returns)
        })
    }

    fn binary(
        &mut self,
        left: &Ast,
        op: &BinaryOperator,
        right: &Ast,
        stage: &mut Stage<'_>,
    ) -> SqlResult<Typed> {
        if let BinaryOperator::And | BinaryOperator::Or = op {
            let (is_and, mut parts) = (*op == BinaryOperator::And, Vec::new());
            // A long chain is one list, and not a deep tree.
            let (mut left, mut rights) = (left, vec![right]);
            while let Ast::BinaryOp { left: first, op: own, right } = left
                && own == op
            {
                rights.push(&**right);
                left = &**first;
            }
            for part in std::iter::once(left).chain(rights.into_iter().rev()) {
                let part = self.expr(part, stage)?;
                let part = self.condition(part, if is_and { "AND" } else { "OR" })?;
                match (part, is_and) {
                    // A very long chain is parsed as a tree of shorter ones.
                    (Expr::And(own), true) | (Expr::Or(own), false) => parts.extend(own),
                    (part, _) => parts.push(part),
                }
            }
            let expr = if is_and { Expr::And(parts) } else { Expr::Or(parts) };
            return Ok(Typed::new(expr, SqlType::BOOL));
        }
        if let (Ast::Tuple(left), Ast::Tuple(right)) = (left, right) {
            return self.rows_compared(left, op, right, stage);
        }
        if let (Ast::Tuple(left), Ast::Subquery(query)) = (left, right) {
            return self.row_compared(left, op, query, stage);
        }
        let (left, right) = (self.expr(left, stage)?, self.expr(right, stage)?);
        let name = operator_name(op)?;
        self.operator(&name, Some(left), right)
    }

    /// A comparison of rows, part by part.
    fn rows_compared(
        &mut self,
        left: &[Ast],
        op: &BinaryOperator,
        right: &[Ast],
        stage: &mut Stage<'_>,
    ) -> SqlResult<Typed> {
        if *op == BinaryOperator::Overlaps {
            return self.overlaps(left, right, stage);
        }
        if left.len() != right.len() {
            let message = "unequal number of entries in row expressions";
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
        }
        let mut pairs = Vec::new();
        for (left, right) in left.iter().zip(right) {
            let (left, right) = (self.expr(left, stage)?, self.expr(right, stage)?);
            pairs.push((self.once(left, stage)?, self.once(right, stage)?));
        }
        match op {
            BinaryOperator::Eq | BinaryOperator::NotEq => {
                let equal = pairs
                    .into_iter()
                    .map(|(left, right)| Ok(self.operator("=", Some(left), right)?.expr));
                let all = Expr::And(equal.collect::<SqlResult<_>>()?);
                Ok(Typed::new(negate(all, *op == BinaryOperator::NotEq), SqlType::BOOL))
            }
            BinaryOperator::Lt
            | BinaryOperator::LtEq
            | BinaryOperator::Gt
            | BinaryOperator::GtEq => {
                let strict = match op {
                    BinaryOperator::Lt | BinaryOperator::LtEq => "<",
                    _ => ">",
                };
                let last = operator_name(op)?;
                let bound = self.first_bound(&pairs, &format!("{strict}="))?;
                let mut compared: Option<Expr> = None;
                for (left, right) in pairs.into_iter().rev() {
                    compared = Some(match compared {
                        None => self.operator(&last, Some(left), right)?.expr,
                        Some(rest) => {
                            let less = self.operator(strict, Some(left.clone()), right.clone())?;
                            let equal = self.operator("=", Some(left), right)?;
                            Expr::Or(vec![less.expr, Expr::And(vec![equal.expr, rest])])
                        }
                    });
                }
                let compared = compared.unwrap_or(Expr::TRUE);
                let all = match bound {
                    Some(bound) => Expr::And(vec![bound, compared]),
                    None => compared,
                };
                Ok(Typed::new(all, SqlType::BOOL))
            }
            _ => Err(SqlError::unsupported("this operator between rows")),
        }
    }

    /// Whether two periods have a moment in common.
    fn overlaps(&mut self, left: &[Ast], right: &[Ast], stage: &mut Stage<'_>) -> SqlResult<Typed> {
        for (side, parts) in [("left", left), ("right", right)] {
            if parts.len() != 2 {
                let message =
                    format!("wrong number of parameters on {side} side of OVERLAPS expression");
                return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
            }
        }
        let parts = left.iter().chain(right).map(|part| self.expr(part, stage));
        let parts = parts.collect::<SqlResult<Vec<_>>>()?;
        self.named_call("overlaps", parts)
    }

    /// What an order of rows says of their first parts. A key can be bounded by it where one of
    /// these is a column. It is NULL or false only where the whole is so too.
    fn first_bound(&mut self, pairs: &[(Typed, Typed)], op: &str) -> SqlResult<Option<Expr>> {
        let [(left, right), _, ..] = pairs else { return Ok(None) };
        let is_column = |own: &Typed| matches!(own.expr, Expr::Column(_));
        if !is_column(left) && !is_column(right) {
            return Ok(None);
        }
        Ok(Some(self.operator(op, Some(left.clone()), right.clone())?.expr))
    }

    fn unary(
        &mut self,
        op: &UnaryOperator,
        operand: &Ast,
        stage: &mut Stage<'_>,
    ) -> SqlResult<Typed> {
        // The least integer has no positive counterpart.
        if let (UnaryOperator::Minus, Ast::Value(value)) = (op, operand)
            && let ast::Value::Number(digits, false) = &value.value
        {
            let mut value = value.clone();
            value.value = ast::Value::Number(format!("-{digits}"), false);
            return self.literal(&value);
        }
        if let Some(power) = power_of_sign(op, operand) {
            return self.expr(&power, stage);
        }
        let operand = self.expr(operand, stage)?;
        let name = match op {
            UnaryOperator::Not => {
                let operand = self.condition(operand, "NOT")?;
                return Ok(Typed::new(Expr::Not(Box::new(operand)), SqlType::BOOL));
            }
            UnaryOperator::Plus => "+",
            UnaryOperator::Minus => "-",
            UnaryOperator::BitwiseNot => "~",
            UnaryOperator::PGAbs => "@",
            UnaryOperator::PGSquareRoot => "|/",
            UnaryOperator::PGCubeRoot => "||/",
            other => return Err(SqlError::unsupported(format!("the operator {other}"))),
        };
        self.operator(name, None, operand)
    }

    fn is_null(&mut self, operand: &Ast, negated: bool, stage: &mut Stage<'_>) -> SqlResult<Typed> {
        let operand = self.expr(operand, stage)?;
        // What else a parameter is used for tells its type.
        let operand = match operand.expr {
            Expr::Param(_) => operand.expr,
            _ => self.settle_type(operand)?.expr,
        };
        let operand = Box::new(operand);
        Ok(Typed::new(Expr::IsNull { operand, negated }, SqlType::BOOL))
    }

    fn is_unknown(
        &mut self,
        operand: &Ast,
        negated: bool,
        stage: &mut Stage<'_>,
    ) -> SqlResult<Typed> {
        let operand = self.expr(operand, stage)?;
        let operand = Box::new(self.condition(operand, "IS UNKNOWN")?);
        Ok(Typed::new(Expr::IsNull { operand, negated }, SqlType::BOOL))
    }

    fn is_bool(
        &mut self,
        operand: &Ast,
        value: bool,
        negated: bool,
        stage: &mut Stage<'_>,
    ) -> SqlResult<Typed> {
        let operand = self.expr(operand, stage)?;
        let operand =
            Box::new(self.condition(operand, if value { "IS TRUE" } else { "IS FALSE" })?);
        Ok(Typed::new(Expr::IsBool { operand, value, negated }, SqlType::BOOL))
    }

    fn is_distinct(
        &mut self,
        left: &Ast,
        right: &Ast,
        negated: bool,
        stage: &mut Stage<'_>,
    ) -> SqlResult<Typed> {
        let (left, right) = (self.expr(left, stage)?, self.expr(right, stage)?);
        // The types have to have an equality.
        let equal = resolve_operator("=", Some(left.ty), right.ty)?;
        let &[first, second] = &*equal.arguments else {
            return Err(SqlError::internal("an equality of other than two"));
        };
        let left = Box::new(self.coerce(left, first, CastContext::Implicit)?);
        let right = Box::new(self.coerce(right, second, CastContext::Implicit)?);
        Ok(Typed::new(Expr::IsDistinct { left, right, negated }, SqlType::BOOL))
    }

    fn case(
        &mut self,
        operand: Option<&Ast>,
        conditions: &[ast::CaseWhen],
        otherwise: Option<&Ast>,
        stage: &mut Stage<'_>,
    ) -> SqlResult<Typed> {
        let operand = match operand {
            Some(operand) => {
                let operand = self.expr(operand, stage)?;
                Some(self.once(operand, stage)?)
            }
            None => None,
        };
        let (mut tests, mut results) = (Vec::new(), Vec::new());
        for ast::CaseWhen { condition, result } in conditions {
            let condition = self.expr(condition, stage)?;
            tests.push(match &operand {
                Some(operand) => self.operator("=", Some(operand.clone()), condition)?.expr,
                None => self.condition(condition, "CASE/WHEN")?,
            });
            results.push(self.expr(result, stage)?);
        }
        results.extend(otherwise.map(|result| self.expr(result, stage)).transpose()?);
        let (mut results, ty) = self.unify(results)?;
        let otherwise = if otherwise.is_some() { results.pop().map(Box::new) } else { None };
        let branches = tests.into_iter().zip(results);
        let branches = branches.map(|(condition, result)| Branch { condition, result }).collect();
        Ok(Typed::new(Expr::Case { branches, otherwise }, ty))
    }

    fn array(&mut self, elements: &[Ast], stage: &mut Stage<'_>) -> SqlResult<Typed> {
        let elements = elements.iter().map(|own| self.expr(own, stage));
        let elements = elements.collect::<SqlResult<Vec<_>>>()?;
        if elements.is_empty() {
            let message = "cannot determine type of empty array";
            return Err(SqlError::new(SqlState::INDETERMINATE_TYPE, message)
                .hint("Explicitly cast to the desired type, for example ARRAY[]::integer[]."));
        }
        let (elements, element) = self.unify(elements)?;
        let element = if element.scalar == Scalar::Unknown { SqlType::TEXT } else { element };
        refuse(element.is_array, "an array of arrays")?;
        Ok(Typed::new(Expr::Array { elements, element }, SqlType::array(element.scalar)))
    }
}

/// The error of a column that is there, and is not grouped.
fn ungrouped(table: Option<Qualifier<'_>>, name: &str, stage: &Stage<'_>) -> Option<SqlError> {
    let found = stage.grouping.as_ref()?.input.find(table, name).ok()?;
    let full = stage.grouping.as_ref()?.input.full_name(found.at)?;
    let message = format!(
        "column \"{full}\" must appear in the GROUP BY clause or be used in an aggregate function"
    );
    Some(SqlError::new(SqlState::GROUPING_ERROR, message))
}

/// The expression, or its opposite.
pub(super) fn negate(expr: Expr, negated: bool) -> Expr {
    if negated { Expr::Not(Box::new(expr)) } else { expr }
}

/// What PostgreSQL calls an operator.
pub(super) fn operator_name(op: &BinaryOperator) -> SqlResult<String> {
    Ok(match op {
        BinaryOperator::PGCustomBinaryOperator(names) => match &**names {
            [name] => name.clone(),
            [schema, name] if schema == "pg_catalog" => name.clone(),
            _ => return Err(SqlError::unsupported("an operator of another schema")),
        },
        BinaryOperator::NotEq => "<>".to_owned(),
        BinaryOperator::PGBitwiseXor => "#".to_owned(),
        BinaryOperator::PGExp | BinaryOperator::BitwiseXor => "^".to_owned(),
        other => other.to_string(),
    })
}
