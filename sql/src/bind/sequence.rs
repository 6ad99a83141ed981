//! Sequences: calls of their functions, and what columns and statements say of new ones.
//!
//! The next value of a sequence may have to be waited for, and expressions are evaluated without
//! waiting. So a call is bound as a subquery is: a value that is applied to each row below the
//! expression. It is taken also where a CASE or COALESCE does not come to it.

use selkie_txn::SequenceSchema;
use sqlparser::ast::{
    self, Expr as Ast, FunctionArg, FunctionArgExpr, GeneratedAs, SequenceOptions, UnaryOperator,
    Value,
};

use super::stage::Stage;
use super::{Binder, refuse};
use crate::catalogue::Identity;
use crate::error::{SqlError, SqlResult, SqlState};
use crate::functions::ResolvedRows;
use crate::plan::{ApplyKind, Expr, Plan, SequenceCall, SequenceFunction, Typed};
use crate::schemas::names_of_text;
use crate::types::cast::CastContext;
use crate::types::{Datum, Scalar, SqlType};

/// A sequence that is created with a column.
#[derive(Clone)]
pub(crate) struct NewSequence {
    pub(crate) column: String,
    /// Without its name.
    pub(crate) schema: SequenceSchema,
}

impl NewSequence {
    pub(crate) fn of_column(
        column: &str,
        ty: SqlType,
        options: &[SequenceOptions],
    ) -> SqlResult<Self> {
        let schema = sequence_schema("", Some(ty), options)?;
        Ok(Self { column: column.to_owned(), schema })
    }
}

/// The type of a column that is serial.
pub(super) fn serial_type(ty: &ast::DataType) -> Option<SqlType> {
    let ast::DataType::Custom(name, modifiers) = ty else { return None };
    if !modifiers.is_empty() {
        return None;
    }
    let scalar = match &*super::name_parts(name).ok()?.pop()? {
        "serial" | "serial4" => Scalar::Int4,
        "bigserial" | "serial8" => Scalar::Int8,
        "smallserial" | "serial2" => Scalar::Int2,
        _ => return None,
    };
    Some(SqlType::new(scalar))
}

/// How an identity column gets its values.
pub(crate) fn identity_of(generated: &GeneratedAs, ty: SqlType) -> SqlResult<Identity> {
    if !matches!(ty.scalar, Scalar::Int2 | Scalar::Int4 | Scalar::Int8) || ty.is_array {
        let message = "identity column type must be smallint, integer, or bigint";
        return Err(SqlError::new(SqlState::INVALID_PARAMETER, message));
    }
    match generated {
        GeneratedAs::Always => Ok(Identity::Always),
        GeneratedAs::ByDefault => Ok(Identity::ByDefault),
        GeneratedAs::ExpStored => Err(SqlError::unsupported("a generated column")),
    }
}

/// A sequence with these options.
pub(crate) fn sequence_schema(
    name: &str,
    ty: Option<SqlType>,
    options: &[SequenceOptions],
) -> SqlResult<SequenceSchema> {
    let mut ty = ty.unwrap_or(SqlType::new(Scalar::Int8));
    let (mut increment, mut min, mut max, mut start, mut block) = (1, None, None, None, 1);
    let mut cycles = false;
    for option in options {
        match option {
            SequenceOptions::DataType(own) => ty = SqlType::parse(own)?,
            SequenceOptions::IncrementBy(value, _) => increment = number(value)?,
            SequenceOptions::MinValue(value) => min = value.as_ref().map(number).transpose()?,
            SequenceOptions::MaxValue(value) => max = value.as_ref().map(number).transpose()?,
            SequenceOptions::StartWith(value, _) => start = Some(number(value)?),
            SequenceOptions::Cache(value) => block = number(value)?,
            // The parser has it the other way round.
            SequenceOptions::Cycle(is_no) => cycles = !*is_no,
            SequenceOptions::OwnedBy(owner) => refuse(owner.is_some(), "OWNED BY")?,
        }
    }
    let Some((lowest, highest)) = bounds_of(ty) else {
        return Err(invalid("sequence type must be smallint, integer, or bigint"));
    };
    if increment == 0 {
        return Err(invalid("INCREMENT must not be zero"));
    }
    if block < 1 {
        return Err(invalid(format!("CACHE ({block}) must be greater than zero")));
    }
    let ascends = increment > 0;
    let min = min.unwrap_or(if ascends { 1 } else { lowest });
    let max = max.unwrap_or(if ascends { highest } else { -1 });
    for (what, value) in [("MAXVALUE", max), ("MINVALUE", min)] {
        if !(lowest..=highest).contains(&value) {
            let ty = ty.name();
            return Err(invalid(format!(
                "{what} ({value}) is out of range for sequence data type {ty}"
            )));
        }
    }
    if min >= max {
        return Err(invalid(format!("MINVALUE ({min}) must be less than MAXVALUE ({max})")));
    }
    let start = start.unwrap_or(if ascends { min } else { max });
    if start < min {
        return Err(invalid(format!("START value ({start}) cannot be less than MINVALUE ({min})")));
    }
    if start > max {
        let message = format!("START value ({start}) cannot be greater than MAXVALUE ({max})");
        return Err(invalid(message));
    }
    let plain = SequenceSchema::new(name);
    let block = u32::try_from(block).unwrap_or(u32::MAX).clamp(plain.block, MOST_CACHED);
    Ok(SequenceSchema { start, increment, min, max, cycles, block, ..plain })
}

/// The least and the greatest value of a type that a sequence can be of.
pub(crate) fn bounds_of(ty: SqlType) -> Option<(i64, i64)> {
    match ty.scalar {
        Scalar::Int2 if !ty.is_array => Some((i64::from(i16::MIN), i64::from(i16::MAX))),
        Scalar::Int4 if !ty.is_array => Some((i64::from(i32::MIN), i64::from(i32::MAX))),
        Scalar::Int8 if !ty.is_array => Some((i64::MIN, i64::MAX)),
        _ => None,
    }
}

/// Most values that a node takes at a time, whatever CACHE says.
pub(super) const MOST_CACHED: u32 = 1024;

const _: () = assert!(MOST_CACHED <= selkie_txn::MAX_SEQUENCE_BLOCK);

pub(super) fn invalid(message: impl Into<String>) -> SqlError {
    SqlError::new(SqlState::INVALID_PARAMETER, message)
}

/// A number that an option of a sequence has.
pub(super) fn number(value: &Ast) -> SqlResult<i64> {
    let wrong = || invalid(format!("invalid value for a sequence: {value}"));
    let (digits, sign) = match value {
        Ast::UnaryOp { op: UnaryOperator::Minus, expr } => (&**expr, "-"),
        Ast::UnaryOp { op: UnaryOperator::Plus, expr } => (&**expr, ""),
        plain => (plain, ""),
    };
    let Ast::Value(digits) = digits else { return Err(wrong()) };
    let Value::Number(digits, _) = &digits.value else { return Err(wrong()) };
    format!("{sign}{digits}").parse().map_err(|_| wrong())
}

/// The function of sequences of that name.
pub(super) fn sequence_function(name: &str) -> Option<SequenceFunction> {
    Some(match name {
        "nextval" => SequenceFunction::Next,
        "currval" => SequenceFunction::Current,
        "lastval" => SequenceFunction::Last,
        "setval" => SequenceFunction::Set,
        _ => return None,
    })
}

/// The arguments of a call. Of a function of sequences the first is a name, which may be written as
/// a `regclass`.
pub(super) fn without_regclass(function: &str, arguments: &[FunctionArg]) -> Vec<FunctionArg> {
    let mut arguments = arguments.to_vec();
    if sequence_function(function).is_some()
        && let Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(first))) = arguments.first_mut()
        && let Ast::Cast { expr, data_type, .. } = first
        && data_type.to_string().to_lowercase().ends_with("regclass")
    {
        *first = (**expr).clone();
    }
    arguments
}

impl Binder<'_> {
    /// The names in the catalogue that a sequence may have, if what it is called stands there.
    fn sequence_keys(&mut self, argument: Option<&Expr>) -> SqlResult<Option<Vec<String>>> {
        let Some(argument) = argument else { return Ok(None) };
        let Expr::Const(Datum::Text(text)) = argument else {
            self.uses_path = true;
            return Ok(None);
        };
        let Ok(parts) = names_of_text(text) else { return Ok(None) };
        // As earlier versions wrote that of a table with a dot in its name.
        if let Some(own) = &self.own_sequence
            && *own == parts.join(".")
        {
            return Ok(Some(vec![own.clone()]));
        }
        match &*parts {
            [schema, _] => self.need_schema(schema),
            _ => self.uses_path |= !self.is_stored,
        }
        let keys = self.path.keys_of(&parts)?;
        // Its schema may come to be there.
        self.uses_path |= keys.is_empty();
        Ok(Some(keys))
    }

    /// A call of a function of sequences.
    pub(super) fn sequence_call(
        &mut self,
        function: SequenceFunction,
        name: &str,
        given: Vec<Typed>,
        stage: &mut Stage<'_>,
    ) -> SqlResult<Typed> {
        let types = match (function, given.len()) {
            (SequenceFunction::Next | SequenceFunction::Current, 1) => &[SqlType::TEXT][..],
            (SequenceFunction::Last, 0) => &[],
            (SequenceFunction::Set, 2) => &[SqlType::TEXT, INT8],
            (SequenceFunction::Set, 3) => &[SqlType::TEXT, INT8, SqlType::BOOL],
            _ => {
                let types: Vec<String> = given.iter().map(|own| own.ty.name()).collect();
                let message = format!("function {name}({}) does not exist", types.join(", "));
                return Err(SqlError::new(SqlState::UNDEFINED_FUNCTION, message));
            }
        };
        let arguments = self.applied_arguments(given, types, stage)?;
        let is_identity = self.is_identity;
        let keys = self.sequence_keys(arguments.first())?;
        let call = SequenceCall { function, keys, arguments, when: None, is_identity };
        let expr = stage.apply(Plan::Sequence(Box::new(call)), ApplyKind::Scalar, true);
        Ok(Typed::new(expr, INT8))
    }

    /// A call of a function that waits.
    pub(super) fn pause_call(
        &mut self,
        function: ResolvedRows,
        given: Vec<Typed>,
        stage: &mut Stage<'_>,
    ) -> SqlResult<Typed> {
        let arguments = self.applied_arguments(given, &function.arguments, stage)?;
        let plan = Plan::Rows { function: function.into(), arguments, ordinality: false };
        Ok(Typed::new(stage.apply(plan, ApplyKind::Scalar, true), SqlType::VOID))
    }

    /// The arguments of a call that is applied to each row, over no row of its own.
    fn applied_arguments(
        &mut self,
        given: Vec<Typed>,
        types: &[SqlType],
        stage: &Stage<'_>,
    ) -> SqlResult<Vec<Expr>> {
        let mut arguments = Vec::new();
        for (own, ty) in given.into_iter().zip(types) {
            let mut own = self.coerce(own, *ty, CastContext::Implicit)?;
            let is_of_row = seen_from_below(&mut own);
            refuse(
                is_of_row && !stage.is_plain(),
                "a column as an argument of a function of sequences, or that waits, beside \
                 aggregates",
            )?;
            arguments.push(own);
        }
        if stage.applies.len() >= MOST_CALLS {
            let message =
                format!("a clause calls functions of sequences too often (allowed: {MOST_CALLS})");
            return Err(SqlError::new(SqlState::STATEMENT_TOO_COMPLEX, message));
        }
        Ok(arguments)
    }
}

/// Makes an expression one of a query that is applied to its rows, which are outer rows there.
/// Whether there are columns in it.
pub(super) fn seen_from_below(expr: &mut Expr) -> bool {
    let mut is_of_row = false;
    expr.visit_mut(&mut |own| match own {
        Expr::Column(column) => {
            is_of_row = true;
            *own = Expr::Outer { level: 0, column: *column };
        }
        Expr::Outer { level, .. } => *level += 1,
        _ => {}
    });
    is_of_row
}

const INT8: SqlType = SqlType::INT8;

/// Most calls of a clause: the plan gets deeper by each.
pub(super) const MOST_CALLS: usize = 400;
