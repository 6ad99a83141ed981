//! Parts of values: elements and slices of arrays, fields of rows, and whole rows of tables.

use std::sync::Arc;

use sqlparser::ast::{AccessExpr, Expr as Ast, Ident, Subscript};

use super::scope::ScopeColumn;
use super::select_list::{Item, without_parentheses};
use super::stage::Stage;
use super::{Binder, Scope, fold, refuse};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::functions::{Resolved, ResolvedAggregate, Volatility, fields_of, row_type, slice};
use crate::parse_fields::ALL_FIELDS;
use crate::plan::{Branch, Expr, Typed};
use crate::types::cast::CastContext;
use crate::types::{Datum, Field, Scalar, SqlType};

impl Binder<'_> {
    /// A part of a value: `a[1]`, `(row).field`, or several behind each other.
    pub(super) fn part_of(
        &mut self,
        root: &Ast,
        chain: &[AccessExpr],
        stage: &mut Stage<'_>,
    ) -> SqlResult<Typed> {
        let (mut value, mut chain) = match (of_table(root, stage.scope), chain) {
            (Some(table), [AccessExpr::Dot(Ast::Identifier(field)), rest @ ..]) => {
                (self.column(Some((None, &table)), &fold(field), stage)?, rest)
            }
            _ => (self.expr(root, stage)?, chain),
        };
        while let Some(first) = chain.first() {
            let is_subscript = |own: &&AccessExpr| matches!(own, AccessExpr::Subscript(_));
            match first {
                AccessExpr::Dot(Ast::Identifier(field)) => {
                    value = field_of(value, &fold(field))?;
                    chain = chain.get(1..).unwrap_or_default();
                }
                AccessExpr::Dot(_) => {
                    return Err(SqlError::unsupported("this access to a part of a value"));
                }
                AccessExpr::Subscript(_) => {
                    let count = chain.iter().take_while(is_subscript).count();
                    let (subscripts, rest) = chain.split_at(count);
                    (value, chain) = (self.element(value, subscripts, stage)?, rest);
                }
            }
        }
        Ok(value)
    }

    fn element(
        &mut self,
        array: Typed,
        subscripts: &[AccessExpr],
        stage: &mut Stage<'_>,
    ) -> SqlResult<Typed> {
        refuse(array.ty == SqlType::JSONB, "a subscript of jsonb")?;
        if !array.ty.is_array {
            let ty = array.ty.name();
            let message =
                format!("cannot subscript type {ty} because it does not support subscripting");
            return Err(SqlError::new(SqlState::DATATYPE_MISMATCH, message));
        }
        let is_slice =
            |own: &AccessExpr| matches!(own, AccessExpr::Subscript(Subscript::Slice { .. }));
        if subscripts.iter().any(is_slice) {
            return self.slice(array, subscripts, stage);
        }
        let mut indexes = Vec::new();
        for own in subscripts {
            let AccessExpr::Subscript(Subscript::Index { index }) = own else { continue };
            indexes.push(self.index(index, stage)?);
        }
        let ty = array.ty.element();
        Ok(Typed::new(Expr::Element { array: Box::new(array.expr), indexes }, ty))
    }

    fn index(&mut self, index: &Ast, stage: &mut Stage<'_>) -> SqlResult<Expr> {
        let index = self.expr(index, stage)?;
        self.coerce(index, SqlType::INT4, CastContext::Assignment)
    }

    /// A slice: if one of the subscripts is one, another `[n]` is `[1:n]`.
    fn slice(
        &mut self,
        array: Typed,
        subscripts: &[AccessExpr],
        stage: &mut Stage<'_>,
    ) -> SqlResult<Typed> {
        let ty = array.ty;
        let mut arguments = vec![array.expr];
        // Of each subscript, whether its bounds are given.
        let mut given = Vec::new();
        for own in subscripts {
            let (low, high) = match own {
                AccessExpr::Subscript(Subscript::Slice { lower_bound, upper_bound, stride }) => {
                    refuse(stride.is_some(), "a stride of a slice")?;
                    given.push((lower_bound.is_some(), upper_bound.is_some()));
                    (lower_bound.as_ref(), upper_bound.as_ref())
                }
                AccessExpr::Subscript(Subscript::Index { index }) => {
                    given.push((true, true));
                    arguments.push(Expr::Const(Datum::I32(1)));
                    (None, Some(index))
                }
                AccessExpr::Dot(_) => continue,
            };
            for bound in [low, high].into_iter().flatten() {
                arguments.push(self.index(bound, stage)?);
            }
        }
        let types = std::iter::repeat_n(SqlType::INT4, arguments.len().saturating_sub(1));
        let function = Resolved {
            name: "slice".into(),
            arguments: std::iter::once(ty).chain(types).collect(),
            returns: if ty.is_vector() { SqlType::array(ty.scalar) } else { ty },
            is_strict: true,
            volatility: Volatility::Immutable,
            eval: Arc::new(move |values, _| slice(values, &given)),
        };
        let returns = function.returns;
        let (function, comparison) = (Box::new(function), None);
        Ok(Typed::new(Expr::Call { function, arguments, comparison }, returns))
    }

    /// A row of fields that have these names.
    pub(super) fn named_row(
        &mut self,
        values: &[Ast],
        names: &[String],
        stage: &mut Stage<'_>,
    ) -> SqlResult<Typed> {
        let parts = values.iter().map(|value| self.expr(value, stage));
        let parts = parts.collect::<SqlResult<Vec<_>>>()?;
        let name = |own: &String| Arc::from(own.as_str());
        let fields =
            names.iter().map(name).zip(&parts).map(|(name, own)| Field { name, ty: own.ty });
        Ok(row_of_fields(fields.collect(), parts.into_iter().map(|own| own.expr).collect()))
    }

    /// The row of a table of FROM as one value; `None` if there is no such table.
    pub(super) fn whole_row(
        &mut self,
        table: &str,
        stage: &mut Stage<'_>,
    ) -> SqlResult<Option<Typed>> {
        let (input, is_grouped) = match &stage.grouping {
            Some(own) => (own.input, true),
            None => (stage.scope, false),
        };
        let Some(columns) = input.columns_of(table) else { return Ok(None) };
        if let [own] = &*columns
            && own.is_row
        {
            return self.column(Some((None, table)), &own.name, stage).map(Some);
        }
        self.names_rows = true;
        let may_be_filled = columns.iter().any(|own| own.may_be_filled);
        let (mut fields, mut values, mut all) = (Vec::new(), Vec::new(), Vec::new());
        for ScopeColumn { name, is_shown, .. } in columns {
            // Hidden ones tell a row of NULLs from one that a join has filled up; groups are not
            // made by them.
            if !is_shown && (is_grouped || !may_be_filled) {
                continue;
            }
            let column = self.column(Some((None, table)), &name, stage)?;
            if is_shown {
                let name = name.split('\0').next().unwrap_or_default().into();
                fields.push(Field { name, ty: column.ty });
                values.push(column.expr.clone());
            }
            all.push(column.expr);
        }
        let Typed { expr: row, ty } = row_of_fields(fields.into(), values);
        if !may_be_filled {
            return Ok(Some(Typed::new(row, ty)));
        }
        let operand = Box::new(Expr::Row { values: all, fields: [].into() });
        let condition = Expr::IsNull { operand, negated: false };
        let branches = vec![Branch { condition, result: Expr::Const(Datum::Null) }];
        Ok(Some(Typed::new(Expr::Case { branches, otherwise: Some(Box::new(row)) }, ty)))
    }

    /// Makes a document of the last argument of an aggregate that makes one of all, where how it is
    /// printed depends on the session: the aggregate does not know that.
    pub(super) fn as_documents(
        &mut self,
        function: &str,
        arguments: &mut [Expr],
        aggregate: &ResolvedAggregate,
    ) -> SqlResult<()> {
        let (Some(argument), Some(ty)) = (arguments.last_mut(), aggregate.arguments.last()) else {
            return Ok(());
        };
        let makes_one =
            matches!(function, "json_agg" | "jsonb_agg" | "json_object_agg" | "jsonb_object_agg");
        if makes_one && matches!(ty.scalar, Scalar::Record | Scalar::TimestampTz) {
            let value = Typed::new(std::mem::replace(argument, Expr::TRUE), *ty);
            *argument = self.built_in("to_json", vec![value])?.expr;
        }
        Ok(())
    }

    /// The items that `(row).*` stands for; `None` if an expression is no such one.
    pub(super) fn all_fields(
        &mut self,
        expr: &Ast,
        scope: &Scope<'_>,
    ) -> SqlResult<Option<Vec<Item>>> {
        let Ast::CompoundFieldAccess { root, access_chain } = expr else { return Ok(None) };
        let Some((AccessExpr::Dot(Ast::Identifier(last)), chain)) = access_chain.split_last()
        else {
            return Ok(None);
        };
        if last.value != ALL_FIELDS {
            return Ok(None);
        }
        if let (Some(table), []) = (of_table(root, scope), chain) {
            return self.items_of_table((None, &table), scope).map(Some);
        }
        let mut stage = Stage::new(scope, "SELECT");
        let row = self.part_of(root, chain, &mut stage)?;
        let Some(fields) = fields_of(row.ty) else {
            return Err(match row.ty.scalar {
                Scalar::Record if !row.ty.is_array => {
                    SqlError::unsupported("* of a row whose fields have no names")
                }
                _ => no_row("*", row.ty),
            });
        };
        let item = |(name, _): (&'static str, SqlType)| {
            let field = Ident::with_quote('"', name);
            let mut access_chain = chain.to_vec();
            access_chain.push(AccessExpr::Dot(Ast::Identifier(field)));
            let expr = Ast::CompoundFieldAccess { root: root.clone(), access_chain };
            Item { expr, name: name.to_owned() }
        };
        Ok(Some(fields.into_iter().map(item).collect()))
    }
}

/// A row of values that have no names.
pub(super) fn row_of(parts: Vec<Typed>) -> Typed {
    let fields = Field::numbered(parts.iter().map(|own| own.ty));
    let values = parts.into_iter().map(|own| own.expr).collect();
    Typed::new(Expr::Row { values, fields }, SqlType::RECORD)
}

fn row_of_fields(fields: Arc<[Field]>, values: Vec<Expr>) -> Typed {
    let ty = row_type(fields.iter().map(|own| (&*own.name, own.ty)));
    Typed::new(Expr::Row { values, fields }, ty)
}

/// The table whose row an expression is, by its name.
fn of_table(expr: &Ast, scope: &Scope<'_>) -> Option<String> {
    let Ast::Identifier(name) = without_parentheses(expr) else { return None };
    let name = fold(name);
    let is_column = match scope.find(None, &name) {
        Ok(_) => true,
        Err(error) => error.state() != SqlState::UNDEFINED_COLUMN,
    };
    let is_row = |own: &[ScopeColumn]| !matches!(own, [own] if own.is_row);
    (!is_column && scope.columns_of(&name).as_deref().is_some_and(is_row)).then_some(name)
}

fn no_row(name: &str, ty: SqlType) -> SqlError {
    let ty = ty.name();
    let message =
        format!("column notation .{name} applied to type {ty}, which is not a composite type");
    SqlError::new(SqlState::WRONG_OBJECT_TYPE, message)
}

/// A field of a row.
fn field_of(row: Typed, name: &str) -> SqlResult<Typed> {
    if row.ty.scalar != Scalar::Record || row.ty.is_array {
        return Err(no_row(name, row.ty));
    }
    let fields = fields_of(row.ty).unwrap_or_default();
    let Some(at) = fields.iter().position(|own| own.0 == name) else {
        let message = format!("could not identify column \"{name}\" in record data type");
        return Err(SqlError::new(SqlState::UNDEFINED_COLUMN, message));
    };
    let ty = fields.get(at).map_or(SqlType::UNKNOWN, |own| own.1);
    let expr = match row.expr {
        Expr::Row { mut values, .. } if at < values.len() => values.swap_remove(at),
        expr => {
            let function = Resolved {
                name: "field".into(),
                arguments: vec![row.ty],
                returns: ty,
                is_strict: true,
                volatility: Volatility::Immutable,
                eval: Arc::new(move |values, _| match values.first() {
                    Some(Datum::Record(own)) => {
                        Ok(own.values.get(at).cloned().unwrap_or(Datum::Null))
                    }
                    _ => Ok(Datum::Null),
                }),
            };
            let (function, comparison) = (Box::new(function), None);
            Expr::Call { function, arguments: vec![expr], comparison }
        }
    };
    Ok(Typed::new(expr, ty))
}
