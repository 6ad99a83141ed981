//! Parts of values: elements and slices of arrays, fields of rows, and whole rows of tables.

use std::sync::Arc;

use sqlparser::ast::{
    self, AccessExpr, Expr as Ast, FunctionArg, FunctionArgExpr, FunctionArgumentList,
    FunctionArguments, Ident, ObjectName, Subscript,
};

use super::select_list::{Item, without_parentheses};
use super::stage::Stage;
use super::{Binder, Scope, fold, refuse};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::functions::{Resolved, Volatility, fields_of, row_to_json, row_type, slice};
use crate::parse_fields::ALL_FIELDS;
use crate::plan::{Branch, Expr, Typed};
use crate::types::cast::CastContext;
use crate::types::{Datum, Scalar, SqlType};

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
        let mut parts = Vec::new();
        for value in values {
            parts.push(self.expr(value, stage)?);
        }
        let fields = names.iter().map(|name| &**name).zip(parts.iter().map(|own| own.ty));
        let ty = row_type(fields);
        Ok(Typed::new(Expr::Row(parts.into_iter().map(|own| own.expr).collect()), ty))
    }

    /// The row of a table of FROM as one value; `None` if there is no such table.
    pub(super) fn whole_row(
        &mut self,
        table: &str,
        stage: &mut Stage<'_>,
    ) -> SqlResult<Option<Typed>> {
        let Some(row) = self.table_row(table, stage)? else { return Ok(None) };
        let ty = row_type(row.fields.iter().map(|(name, ty)| (&**name, *ty)));
        Ok(Some(Typed::new(row.filled_or(Expr::Row), ty)))
    }

    /// The same as JSON, which has the names of the columns.
    pub(super) fn row_as_json(
        &mut self,
        table: &str,
        stage: &mut Stage<'_>,
    ) -> SqlResult<Option<Typed>> {
        let Some(row) = self.table_row(table, stage)? else { return Ok(None) };
        let (fields, returns) = (row.fields.clone(), SqlType::JSON);
        let function = Resolved {
            name: "row_to_json".into(),
            arguments: fields.iter().map(|own| own.1).collect(),
            returns,
            is_strict: false,
            volatility: Volatility::Stable,
            eval: Arc::new(move |values, context| {
                Ok(Datum::Json(row_to_json(&fields, values, context.settings).into()))
            }),
        };
        let call = |arguments| {
            let (function, comparison) = (Box::new(function), None);
            Expr::Call { function, arguments, comparison }
        };
        Ok(Some(Typed::new(row.filled_or(call), returns)))
    }

    fn table_row(&mut self, table: &str, stage: &mut Stage<'_>) -> SqlResult<Option<TableRow>> {
        let input = stage.grouping.as_ref().map_or(stage.scope, |own| own.input);
        let Some((columns, may_be_filled)) = input.columns_of(table) else { return Ok(None) };
        let may_be_filled = may_be_filled && stage.grouping.is_none();
        let (mut row, mut all) = (TableRow::default(), Vec::new());
        for (name, is_shown) in columns {
            if !is_shown && !may_be_filled {
                continue;
            }
            let column = self.column(Some((None, table)), &name, stage)?;
            if is_shown {
                let name = name.split('\0').next().unwrap_or_default().to_owned();
                row.fields.push((name, column.ty));
                row.values.push(column.expr.clone());
            }
            all.push(column.expr);
        }
        row.all = may_be_filled.then_some(all);
        Ok(Some(row))
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

/// The row of a table.
#[derive(Default)]
struct TableRow {
    fields: Vec<(String, SqlType)>,
    values: Vec<Expr>,
    /// All columns, hidden ones too, if a join may have filled the row up: then they are all NULL,
    /// as they are in no row of a table, which has a key.
    all: Option<Vec<Expr>>,
}

impl TableRow {
    /// What is made of its values; NULL of a row that a join has filled up.
    fn filled_or(self, make: impl FnOnce(Vec<Expr>) -> Expr) -> Expr {
        let made = make(self.values);
        let Some(all) = self.all else { return made };
        let operand = Box::new(Expr::Row(all));
        let condition = Expr::IsNull { operand, negated: false };
        let branches = vec![Branch { condition, result: Expr::Const(Datum::Null) }];
        Expr::Case { branches, otherwise: Some(Box::new(made)) }
    }
}

/// Whether a function makes JSON of its arguments, and so needs the names of fields.
fn makes_json(function: &str) -> bool {
    matches!(
        function,
        "to_json"
            | "to_jsonb"
            | "json_agg"
            | "jsonb_agg"
            | "json_build_array"
            | "jsonb_build_array"
            | "json_build_object"
            | "jsonb_build_object"
            | "json_object_agg"
            | "jsonb_object_agg"
    )
}

/// The arguments of a call, with whole rows as JSON where the function makes that of them.
pub(super) fn with_json_rows(
    function: &str,
    args: &[FunctionArg],
    scope: &Scope<'_>,
) -> SqlResult<Vec<FunctionArg>> {
    let table = |own: &FunctionArg| match own {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(own)) => of_table(own, scope),
        _ => None,
    };
    let has_row = args.iter().any(|own| table(own).is_some());
    refuse(function == "array_agg" && has_row, "an array of whole rows")?;
    let mut args = args.to_vec();
    if has_row && makes_json(function) {
        for own in &mut args {
            if let Some(table) = table(own) {
                *own = FunctionArg::Unnamed(FunctionArgExpr::Expr(json_of(&table)));
            }
        }
    }
    Ok(args)
}

/// A call of `row_to_json` of the row of a table.
fn json_of(table: &str) -> Ast {
    let row = Ast::Identifier(Ident::with_quote('"', table));
    let list = FunctionArgumentList {
        duplicate_treatment: None,
        args: vec![FunctionArg::Unnamed(FunctionArgExpr::Expr(row))],
        clauses: Vec::new(),
    };
    Ast::Function(ast::Function {
        name: ObjectName::from(vec![Ident::new("row_to_json")]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(list),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    })
}

/// The table whose row is all that a call of `row_to_json` has for arguments.
pub(super) fn row_of_json(
    function: &str,
    args: &[FunctionArg],
    scope: &Scope<'_>,
) -> Option<String> {
    match args {
        [FunctionArg::Unnamed(FunctionArgExpr::Expr(own))] if function == "row_to_json" => {
            of_table(own, scope)
        }
        _ => None,
    }
}

/// The table whose row an expression is, by its name.
fn of_table(expr: &Ast, scope: &Scope<'_>) -> Option<String> {
    let Ast::Identifier(name) = without_parentheses(expr) else { return None };
    let name = fold(name);
    (scope.find(None, &name).is_err() && scope.has_table(&name)).then_some(name)
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
        Expr::Row(mut parts) if at < parts.len() => parts.swap_remove(at),
        expr => {
            let function = Resolved {
                name: "field".into(),
                arguments: vec![row.ty],
                returns: ty,
                is_strict: true,
                volatility: Volatility::Immutable,
                eval: Arc::new(move |values, _| match values.first() {
                    Some(Datum::Record(parts)) => Ok(parts.get(at).cloned().unwrap_or(Datum::Null)),
                    _ => Ok(Datum::Null),
                }),
            };
            let (function, comparison) = (Box::new(function), None);
            Expr::Call { function, arguments: vec![expr], comparison }
        }
    };
    Ok(Typed::new(expr, ty))
}
