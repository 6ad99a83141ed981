//! Queries that give one row of several columns: `(a, b) = (SELECT ..)` as a condition and behind
//! SET, and rows that are compared with all rows of a query.

use sqlparser::ast::{
    BinaryOperator, Expr as Ast, FunctionArg, FunctionArgExpr, FunctionArguments, ObjectNamePart,
    Query,
};

use super::Binder;
use super::expr::negate;
use super::stage::Stage;
use crate::error::{SqlError, SqlResult, SqlState};
use crate::plan::{ApplyKind, Expr, Plan, Quantifier, Typed};
use crate::types::{Datum, SqlType};

impl Binder<'_> {
    /// The columns of the only row of a query, which are NULL if it gives none.
    pub(super) fn row_of_query(
        &mut self,
        query: &Query,
        stage: &mut Stage<'_>,
    ) -> SqlResult<Vec<Typed>> {
        let (bound, is_correlated) = self.subquery(query, stage)?;
        // A subquery is one column. What it gives is an array but that its elements are of several
        // types, which nobody sees: they are taken apart at once.
        let elements = (0..bound.columns.len()).map(Expr::Column).collect();
        let exprs = [Expr::Array { elements, element: SqlType::TEXT }];
        let plan = Plan::Project { input: Box::new(bound.plan), exprs: exprs.into() };
        let row = stage.apply(plan, ApplyKind::Scalar, is_correlated);
        let element = |(index, ty)| {
            let (array, indexes) = (Box::new(row.clone()), vec![Expr::Const(Datum::I32(index))]);
            Typed::new(Expr::Element { array, indexes }, ty)
        };
        Ok((1..).zip(bound.columns.iter().map(|own| own.ty)).map(element).collect())
    }

    /// `(a, b) = (SELECT ..)`.
    pub(super) fn row_compared(
        &mut self,
        parts: &[Ast],
        op: &BinaryOperator,
        query: &Query,
        stage: &mut Stage<'_>,
    ) -> SqlResult<Typed> {
        let negated = match op {
            BinaryOperator::Eq => false,
            BinaryOperator::NotEq => true,
            _ => return Err(SqlError::unsupported("this operator between a row and a query")),
        };
        let mut operands = Vec::new();
        for part in parts {
            operands.push(self.expr(part, stage)?);
        }
        let row = self.row_of_query(query, stage)?;
        if row.len() != operands.len() {
            let few = row.len() < operands.len();
            let message = format!("subquery has too {} columns", if few { "few" } else { "many" });
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
        }
        let mut equal = Vec::new();
        for (operand, column) in operands.into_iter().zip(row) {
            equal.push(self.operator("=", Some(operand), column)?.expr);
        }
        Ok(Typed::new(negate(Expr::And(equal), negated), SqlType::BOOL))
    }

    /// `operand operator ANY (query)`, or ALL.
    pub(super) fn quantified_query(
        &mut self,
        (operand, operator): (&Ast, &str),
        query: &Query,
        quantifier: Quantifier,
        stage: &mut Stage<'_>,
    ) -> SqlResult<Typed> {
        let all = quantifier == Quantifier::All;
        let Ast::Tuple(parts) = operand else {
            let parts = std::slice::from_ref(operand);
            return self.compared_subquery(parts, operator, query, all, stage);
        };
        // Rows are equal if all their parts are.
        match (operator, quantifier) {
            ("=", Quantifier::Any) => self.compared_subquery(parts, "=", query, false, stage),
            ("<>", Quantifier::All) => {
                let any = self.compared_subquery(parts, "=", query, false, stage)?;
                Ok(Typed::new(negate(any.expr, true), SqlType::BOOL))
            }
            _ => Err(SqlError::unsupported("this operator between a row and the rows of a query")),
        }
    }

    /// `operand LIKE ANY (patterns)`: an array or a query.
    pub(super) fn like_any(
        &mut self,
        operator: &str,
        (operand, patterns): (&Ast, &Ast),
        (quantifier, escape): (Quantifier, bool),
        stage: &mut Stage<'_>,
    ) -> SqlResult<Typed> {
        if escape {
            let message = "syntax error at or near \"escape\"";
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
        }
        let mut patterns = patterns;
        while let Ast::Nested(inner) = patterns {
            patterns = inner;
        }
        if let Ast::Subquery(query) = patterns {
            return self.quantified_query((operand, operator), query, quantifier, stage);
        }
        self.quantified_array((operand, operator), patterns, quantifier, stage)
    }
}

/// The patterns behind LIKE that are all to be alike, or any: the parser takes ALL and SOME for
/// names of functions there.
pub(super) fn quantified_patterns(pattern: &Ast) -> Option<(Quantifier, &Ast)> {
    let Ast::Function(function) = pattern else { return None };
    let [ObjectNamePart::Identifier(name)] = &*function.name.0 else { return None };
    let quantifier = match &*name.value.to_ascii_lowercase() {
        _ if name.quote_style.is_some() => return None,
        "all" => Quantifier::All,
        "some" => Quantifier::Any,
        _ => return None,
    };
    let FunctionArguments::List(list) = &function.args else { return None };
    match &*list.args {
        [FunctionArg::Unnamed(FunctionArgExpr::Expr(patterns))] => Some((quantifier, patterns)),
        _ => None,
    }
}
