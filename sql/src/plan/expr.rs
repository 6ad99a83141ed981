//! Expressions with names and types resolved.

use std::sync::Arc;

use crate::functions::{Resolved, Volatility};
use crate::types::cast::CastContext;
use crate::types::{Datum, Field, Scalar, SqlType};

/// An expression and its type.
#[derive(Clone, Debug)]
pub(crate) struct Typed {
    pub(crate) expr: Expr,
    pub(crate) ty: SqlType,
}

impl Typed {
    pub(crate) const fn new(expr: Expr, ty: SqlType) -> Self {
        Self { expr, ty }
    }
}

/// Whether a comparison has to hold for one or for all elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Quantifier {
    Any,
    All,
}

/// What a comparison asks of two values, by one order that both have: they are of one type, or
/// whole numbers or floats of any width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Comparison {
    Equal,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
}

impl Comparison {
    /// That of an operator.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "=" => Self::Equal,
            "<" => Self::Less,
            "<=" => Self::LessEqual,
            ">" => Self::Greater,
            ">=" => Self::GreaterEqual,
            _ => return None,
        })
    }

    /// That of a resolved operator, if its operands have one order.
    pub(crate) fn of(function: &Resolved) -> Option<Self> {
        let &[left, right] = &*function.arguments else { return None };
        let have_one_order = left.plain() == right.plain()
            || is_whole(left) && is_whole(right)
            || is_float(left) && is_float(right);
        Self::named(&function.name).filter(|_| have_one_order)
    }

    /// The same with the sides exchanged.
    pub(crate) const fn turned(self) -> Self {
        match self {
            Self::Equal => Self::Equal,
            Self::Less => Self::Greater,
            Self::LessEqual => Self::GreaterEqual,
            Self::Greater => Self::Less,
            Self::GreaterEqual => Self::LessEqual,
        }
    }
}

fn is_whole(ty: SqlType) -> bool {
    !ty.is_array && matches!(ty.scalar, Scalar::Int2 | Scalar::Int4 | Scalar::Int8)
}

fn is_float(ty: SqlType) -> bool {
    !ty.is_array && matches!(ty.scalar, Scalar::Float4 | Scalar::Float8)
}

/// A branch of a CASE.
#[derive(Clone, Debug)]
pub(crate) struct Branch {
    /// Of type boolean.
    pub(crate) condition: Expr,
    pub(crate) result: Expr,
}

/// An expression over one row. It contains no subquery: what a subquery gives is a column of its
/// input ([`super::Plan::Apply`]), so that an expression is evaluated without waiting.
#[derive(Clone, Debug)]
pub(crate) enum Expr {
    Const(Datum),
    /// A parameter of the statement, from 0.
    Param(usize),
    /// A column of the input row.
    Column(usize),
    /// A column of the row of an enclosing query: 0 is the innermost.
    Outer {
        level: usize,
        column: usize,
    },
    /// A function or operator. NULL if it is strict and an argument is NULL.
    Call {
        function: Box<Resolved>,
        arguments: Vec<Expr>,
        comparison: Option<Comparison>,
    },
    Cast {
        operand: Box<Expr>,
        from: SqlType,
        to: SqlType,
        context: CastContext,
    },
    /// NULL if none is false and one is NULL.
    And(Vec<Expr>),
    Or(Vec<Expr>),
    Not(Box<Expr>),
    IsNull {
        operand: Box<Expr>,
        negated: bool,
    },
    /// IS TRUE, IS FALSE; never NULL.
    IsBool {
        operand: Box<Expr>,
        value: bool,
        negated: bool,
    },
    /// IS DISTINCT FROM, by the order of the type; never NULL.
    IsDistinct {
        left: Box<Expr>,
        right: Box<Expr>,
        negated: bool,
    },
    /// The first branch whose condition is true; the others are not evaluated.
    Case {
        branches: Vec<Branch>,
        otherwise: Option<Box<Expr>>,
    },
    /// The first that is not NULL; those behind it are not evaluated.
    Coalesce(Vec<Expr>),
    /// The greatest of those that are not NULL, or the least.
    Extreme {
        operands: Vec<Expr>,
        greatest: bool,
    },
    /// `operand IN (list)`, with the equality of its type.
    InList {
        operand: Box<Expr>,
        list: Vec<Expr>,
        equal: Box<Resolved>,
        negated: bool,
    },
    /// `operand operator ANY (array)`.
    Quantified {
        operand: Box<Expr>,
        operator: Box<Resolved>,
        array: Box<Expr>,
        quantifier: Quantifier,
    },
    /// `ARRAY[...]`; its type says that of the elements.
    Array {
        elements: Vec<Expr>,
        element: SqlType,
    },
    /// An element of an array, NULL if there is none; the index counts from the array's first.
    Element {
        array: Box<Expr>,
        indexes: Vec<Expr>,
    },
    /// `ROW(...)`, and the row of a table.
    Row {
        values: Vec<Expr>,
        fields: Arc<[Field]>,
    },
}

impl Expr {
    /// A constant that is true.
    pub(crate) const TRUE: Self = Self::Const(Datum::Bool(true));

    /// Calls `visit` for this expression and all in it, outermost first.
    #[recursive::recursive]
    pub(crate) fn visit<'e>(&'e self, visit: &mut dyn FnMut(&'e Expr)) {
        visit(self);
        match self {
            Self::Const(_) | Self::Param(_) | Self::Column(_) | Self::Outer { .. } => {}
            Self::Call { arguments, .. } => arguments.iter().for_each(|own| own.visit(visit)),
            Self::Cast { operand, .. }
            | Self::Not(operand)
            | Self::IsNull { operand, .. }
            | Self::IsBool { operand, .. } => operand.visit(visit),
            Self::And(all)
            | Self::Or(all)
            | Self::Coalesce(all)
            | Self::Row { values: all, .. } => {
                all.iter().for_each(|own| own.visit(visit));
            }
            Self::IsDistinct { left, right, .. } => {
                left.visit(visit);
                right.visit(visit);
            }
            Self::Case { branches, otherwise } => {
                for Branch { condition, result } in branches {
                    condition.visit(visit);
                    result.visit(visit);
                }
                otherwise.iter().for_each(|own| own.visit(visit));
            }
            Self::Extreme { operands, .. } => operands.iter().for_each(|own| own.visit(visit)),
            Self::InList { operand, list, .. } => {
                operand.visit(visit);
                list.iter().for_each(|own| own.visit(visit));
            }
            Self::Quantified { operand, array, .. } => {
                operand.visit(visit);
                array.visit(visit);
            }
            Self::Array { elements, .. } => elements.iter().for_each(|own| own.visit(visit)),
            Self::Element { array, indexes } => {
                array.visit(visit);
                indexes.iter().for_each(|own| own.visit(visit));
            }
        }
    }

    /// As [`visit`](Self::visit), with the right to change each.
    #[recursive::recursive]
    pub(crate) fn visit_mut(&mut self, visit: &mut dyn FnMut(&mut Expr)) {
        visit(self);
        match self {
            Self::Const(_) | Self::Param(_) | Self::Column(_) | Self::Outer { .. } => {}
            Self::Call { arguments, .. } => {
                arguments.iter_mut().for_each(|own| own.visit_mut(visit));
            }
            Self::Cast { operand, .. }
            | Self::Not(operand)
            | Self::IsNull { operand, .. }
            | Self::IsBool { operand, .. } => operand.visit_mut(visit),
            Self::And(all)
            | Self::Or(all)
            | Self::Coalesce(all)
            | Self::Row { values: all, .. } => {
                all.iter_mut().for_each(|own| own.visit_mut(visit));
            }
            Self::IsDistinct { left, right, .. } => {
                left.visit_mut(visit);
                right.visit_mut(visit);
            }
            Self::Case { branches, otherwise } => {
                for Branch { condition, result } in branches {
                    condition.visit_mut(visit);
                    result.visit_mut(visit);
                }
                otherwise.iter_mut().for_each(|own| own.visit_mut(visit));
            }
            Self::Extreme { operands, .. } => {
                operands.iter_mut().for_each(|own| own.visit_mut(visit));
            }
            Self::InList { operand, list, .. } => {
                operand.visit_mut(visit);
                list.iter_mut().for_each(|own| own.visit_mut(visit));
            }
            Self::Quantified { operand, array, .. } => {
                operand.visit_mut(visit);
                array.visit_mut(visit);
            }
            Self::Array { elements, .. } => {
                elements.iter_mut().for_each(|own| own.visit_mut(visit));
            }
            Self::Element { array, indexes } => {
                array.visit_mut(visit);
                indexes.iter_mut().for_each(|own| own.visit_mut(visit));
            }
        }
    }

    /// The columns of the input row that it reads.
    pub(crate) fn columns(&self) -> Vec<usize> {
        let mut columns = Vec::new();
        self.visit(&mut |own| {
            if let Self::Column(column) = own {
                columns.push(*column);
            }
        });
        columns
    }

    /// Whether it may have another value each time that it is evaluated.
    pub(crate) fn is_volatile(&self) -> bool {
        let mut found = false;
        self.visit(&mut |own| {
            let function = match own {
                Self::Call { function, .. } => function,
                Self::InList { equal, .. } => equal,
                Self::Quantified { operator, .. } => operator,
                _ => return,
            };
            found |= function.volatility == Volatility::Volatile;
        });
        found
    }
}
