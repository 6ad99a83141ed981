//! How many rows plans give, by what ANALYZE has found of the tables that they read.
//!
//! Conditions count as independent of each other. Values that are not known before the statement
//! runs count as any value of their column; conditions of which nothing is known leave what
//! PostgreSQL supposes. Of a plan that reads a table which was never analyzed nothing is said:
//! what rests on estimates is done for other plans only.

use std::collections::HashMap;
use std::ops::Bound;

use selkie_txn::{ColumnStatistics, Table, TableStatistics};

use super::expr::{Comparison, Expr, Quantifier};
use super::node::{Access, Join, JoinKind, KeyItem, Plan, Scan, SetOperator};
use crate::types::stored::{column_type, with_value};
use crate::types::{Datum, Scalar, SqlType};

/// The fraction of rows for which an equation holds of which nothing is known.
const EQUAL: f64 = 0.005;
/// The same, of an inequation.
const RANGE: f64 = 1.0 / 3.0;
/// The same, of a pattern.
const LIKE: f64 = 0.05;
/// The same, of any other condition.
const OTHER: f64 = 0.5;
/// Rows of a function, and elements of an array.
const ROWS_OF_FUNCTION: f64 = 1000.0;
const ELEMENTS: f64 = 10.0;
/// Different values of an expression of which nothing is known, at most.
const DISTINCT: f64 = 200.0;

/// What is known of tables.
#[derive(Debug, Default)]
pub(crate) struct Statistics(HashMap<Table, TableStatistics>);

impl Statistics {
    /// Adds what is known of a table. That it was empty tells nothing: it is to be filled.
    pub(crate) fn add(&mut self, table: Table, found: TableStatistics) {
        if found.rows > 0 {
            self.0.insert(table, found);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many rows a plan gives; `None` if it reads a table of which nothing is known.
    #[recursive::recursive]
    pub(crate) fn rows(&self, plan: &Plan) -> Option<f64> {
        Some(match plan {
            Plan::One | Plan::Sequence(_) | Plan::Advisory(_) => 1.0,
            Plan::Nothing { .. } => 0.0,
            Plan::Values { rows, .. } => rows.len() as f64,
            Plan::Rows { .. } => ROWS_OF_FUNCTION,
            // Fewer than one is said of none: the table may have changed.
            Plan::Scan(scan) => (self.rows_of_table(scan)? * self.of_scan(scan)).max(1.0),
            Plan::Shared { plan, .. } => self.rows(plan)?,
            Plan::Measured { input, .. }
            | Plan::Project { input, .. }
            | Plan::Apply { input, .. }
            | Plan::Window { input, .. }
            | Plan::Sort { input, .. } => self.rows(input)?,
            Plan::Lock(lock) => self.rows(&lock.input)?,
            Plan::Together { main, .. } => self.rows(main)?,
            Plan::Filter { input, condition } => {
                (self.rows(input)? * self.fraction(condition, &[input])).max(1.0)
            }
            Plan::Join(join) => self.of_join(join)?.max(1.0),
            Plan::Merge(merge) => self.of_join(&merge.join)?.max(1.0),
            Plan::Aggregate { keys, .. } if keys.is_empty() => 1.0,
            Plan::Aggregate { input, keys, .. }
            | Plan::Grouped { input, keys, .. }
            | Plan::Distinct { input, keys, .. } => {
                let rows = self.rows(input)?;
                let groups: f64 = keys.iter().map(|key| self.distinct(key, input, rows)).product();
                groups.min(rows)
            }
            Plan::Limit { input, limit, offset } => {
                let rows = (self.rows(input)? - count(offset.as_ref()).unwrap_or(0.0)).max(0.0);
                count(limit.as_ref()).map_or(rows, |limit| rows.min(limit))
            }
            Plan::Set { operator, left, right, .. } => {
                let (left, right) = (self.rows(left)?, self.rows(right)?);
                match operator {
                    SetOperator::Union => left + right,
                    SetOperator::Intersect => left.min(right),
                    SetOperator::Except => left,
                }
            }
            Plan::CopyIn { .. }
            | Plan::Working { .. }
            | Plan::Recursive { .. }
            | Plan::Insert(_)
            | Plan::Modify(_) => return None,
        })
    }

    /// The rows of the table that is read.
    pub(super) fn rows_of_table(&self, scan: &Scan) -> Option<f64> {
        self.0.get(&scan.table.table).map(|found| found.rows as f64)
    }

    /// The fraction of rows for which all of these hold, over the columns of one plan or of two
    /// beside each other.
    pub(super) fn fraction_of_all(&self, conditions: &[Expr], inputs: &[&Plan]) -> f64 {
        let mut ranges: HashMap<usize, (Bound<&Datum>, Bound<&Datum>)> = HashMap::new();
        let mut fraction = 1.0;
        for condition in conditions {
            match range_of(condition) {
                // Both ends of a range are looked at together.
                Some((at, low, high)) if self.column(at, inputs).is_some() => {
                    let own = ranges.entry(at).or_insert((Bound::Unbounded, Bound::Unbounded));
                    own.0 = if matches!(low, Bound::Unbounded) { own.0 } else { low };
                    own.1 = if matches!(high, Bound::Unbounded) { own.1 } else { high };
                }
                _ => fraction *= self.fraction(condition, inputs),
            }
        }
        for (at, (low, high)) in ranges {
            let column = self.column(at, inputs);
            fraction *= column.and_then(|own| own.between(low, high)).unwrap_or(RANGE);
        }
        fraction
    }

    /// The fraction of rows for which a condition holds.
    #[recursive::recursive]
    pub(super) fn fraction(&self, condition: &Expr, inputs: &[&Plan]) -> f64 {
        let fraction = match condition {
            Expr::Const(Datum::Bool(true)) => 1.0,
            Expr::Const(_) => 0.0,
            Expr::And(all) => self.fraction_of_all(all, inputs),
            Expr::Or(all) => {
                let none: f64 = all.iter().map(|own| 1.0 - self.fraction(own, inputs)).product();
                1.0 - none
            }
            Expr::Not(own) => 1.0 - self.fraction(own, inputs),
            Expr::IsNull { operand, negated } => {
                let nulls = self.column_of(operand, inputs).map_or(EQUAL, |own| own.found.nulls);
                if *negated { 1.0 - nulls } else { nulls }
            }
            Expr::Call { arguments, comparison: Some(comparison), .. } => match &**arguments {
                [first, second] => self.compared(first, second, *comparison, inputs),
                _ => OTHER,
            },
            Expr::Call { function, .. } => match &*function.name {
                "~~" | "~~*" => LIKE,
                "<>" => 1.0 - EQUAL,
                "=" => EQUAL,
                _ => OTHER,
            },
            Expr::InList { operand, list, negated, .. } => {
                let one = |own| self.compared(operand, own, Comparison::Equal, inputs);
                let all = list.iter().map(one).sum::<f64>().min(1.0);
                if *negated { 1.0 - all } else { all }
            }
            Expr::Quantified { operand, array, quantifier: Quantifier::Any, .. } => {
                ELEMENTS * self.compared(operand, array, Comparison::Equal, inputs)
            }
            _ => OTHER,
        };
        fraction.clamp(0.0, 1.0)
    }

    fn compared(
        &self,
        first: &Expr,
        second: &Expr,
        comparison: Comparison,
        inputs: &[&Plan],
    ) -> f64 {
        let (left, right) = (self.column_of(first, inputs), self.column_of(second, inputs));
        if comparison != Comparison::Equal {
            let (column, value, comparison) = match (left, right) {
                (Some(column), None) => (column, second, comparison),
                (None, Some(column)) => (column, first, comparison.turned()),
                _ => return RANGE,
            };
            let Expr::Const(value) = bare(value) else { return RANGE };
            let (low, high) = bounds(comparison, value);
            return column.between(low, high).unwrap_or(RANGE);
        }
        match (left, right) {
            (Some(left), Some(right)) => {
                let most = left.found.distinct.max(right.found.distinct).max(1.0);
                (1.0 - left.found.nulls) * (1.0 - right.found.nulls) / most
            }
            (Some(column), None) => column.equal(second),
            (None, Some(column)) => column.equal(first),
            (None, None) => EQUAL,
        }
    }

    /// The fraction of the rows of a table that its key and its filter leave.
    fn of_scan(&self, scan: &Scan) -> f64 {
        let whole = Plan::Scan(scan.clone().into());
        let inputs = [&whole];
        let column = |index, at: usize| {
            let (columns, _) = scan.table.key(index)?;
            self.column(*columns.get(at)?, &inputs)
        };
        let equal = |index, at, value: &Expr| {
            column(index, at).map_or(EQUAL, |own: Column<'_>| own.equal(value))
        };
        let by_key = match &scan.access {
            Access::Range { index, prefix, low, high, .. } => {
                let values = prefix.iter().enumerate();
                let prefixed: f64 = values.map(|(at, value)| equal(*index, at, value)).product();
                let own = |bound: &super::node::KeyBound| match bare(&bound.value) {
                    Expr::Const(value) if bound.inclusive => Bound::Included(value.clone()),
                    Expr::Const(value) => Bound::Excluded(value.clone()),
                    _ => Bound::Unbounded,
                };
                // What only leaves out NULL leaves about all.
                let low = low.as_ref().filter(|bound| !bound.is_not_null());
                let (from, to) = (low.map(own), high.as_ref().map(own));
                let is_known = |own: &Option<Bound<Datum>>| !matches!(own, Some(Bound::Unbounded));
                let ranged = match (&from, &to) {
                    (None, None) => 1.0,
                    (low, high) if is_known(low) && is_known(high) => {
                        let side =
                            |own: &'_ Option<Bound<Datum>>| own.clone().unwrap_or(Bound::Unbounded);
                        let (low, high) = (side(low), side(high));
                        let found = column(*index, prefix.len());
                        found
                            .and_then(|own| own.between(low.as_ref(), high.as_ref()))
                            .unwrap_or(RANGE)
                    }
                    _ => RANGE,
                };
                prefixed * ranged
            }
            Access::Each { index, prefix, values, suffix } => {
                let before = prefix.iter().enumerate();
                let before: f64 = before.map(|(at, value)| equal(*index, at, value)).product();
                let at = prefix.len();
                let one = |own: &KeyItem| match own {
                    KeyItem::One(value) => equal(*index, at, value),
                    KeyItem::Elements(value) => ELEMENTS * equal(*index, at, value),
                };
                let each: f64 = values.iter().map(one).sum::<f64>().min(1.0);
                let behind = suffix.iter().enumerate();
                let behind = behind.map(|(own, value)| equal(*index, at + 1 + own, value));
                before * each * behind.product::<f64>()
            }
        };
        let filter = scan.filter.as_ref().map_or(1.0, |own| self.fraction(own, &inputs));
        (by_key * filter).clamp(0.0, 1.0)
    }

    fn of_join(&self, join: &Join) -> Option<f64> {
        let (left, right) = (self.rows(&join.left)?, self.rows(&join.right)?);
        let inputs = [&join.left, &join.right];
        let (mut fraction, mut partnered) = (1.0, 1.0_f64);
        for (of_left, of_right) in &join.equal {
            let own = self.distinct(of_left, &join.left, left);
            let other = self.distinct(of_right, &join.right, right);
            fraction /= own.max(other).max(1.0);
            partnered = partnered.min(other / own.max(1.0));
        }
        if let Some(condition) = &join.condition {
            fraction *= self.fraction(condition, &inputs);
        }
        let both = left * right * fraction;
        if join.is_lateral || join.equal.is_empty() {
            partnered = if left > 0.0 { (both / left).min(1.0) } else { 0.0 };
        }
        Some(match join.kind {
            JoinKind::Inner => both,
            JoinKind::Left => both.max(left),
            JoinKind::Right => both.max(right),
            JoinKind::Full => both.max(left).max(right),
            JoinKind::Semi => left * partnered.min(1.0),
            JoinKind::Anti => left * (1.0 - partnered.min(1.0)),
        })
    }

    /// How many different values an expression has over the rows of a plan, of which there are so
    /// many.
    fn distinct(&self, expr: &Expr, input: &Plan, rows: f64) -> f64 {
        let known = self.column_of(expr, &[input]);
        let values =
            known.map_or(DISTINCT, |own| own.found.distinct + f64::from(own.found.nulls > 0.0));
        values.min(rows).max(1.0)
    }

    /// The column of a table that an expression is, maybe as another type.
    fn column_of(&self, expr: &Expr, inputs: &[&Plan]) -> Option<Column<'_>> {
        match bare(expr) {
            Expr::Column(at) => self.column(*at, inputs),
            _ => None,
        }
    }

    /// The column of a table that a column of plans beside each other is.
    fn column(&self, mut at: usize, inputs: &[&Plan]) -> Option<Column<'_>> {
        for input in inputs {
            let width = input.width();
            if at < width {
                return self.column_in(input, at);
            }
            at -= width;
        }
        None
    }

    #[recursive::recursive]
    fn column_in(&self, plan: &Plan, at: usize) -> Option<Column<'_>> {
        match plan {
            Plan::Scan(scan) => {
                let column = scan.table.columns.get(at)?;
                let found = self.0.get(&scan.table.table)?.column(&column.name)?;
                Some(Column { found, ty: column.ty })
            }
            Plan::Shared { plan, .. } => self.column_in(plan, at),
            Plan::Measured { input, .. }
            | Plan::Filter { input, .. }
            | Plan::Sort { input, .. }
            | Plan::Limit { input, .. }
            | Plan::Distinct { input, .. } => self.column_in(input, at),
            Plan::Lock(lock) => self.column_in(&lock.input, at),
            Plan::Apply { input, .. } | Plan::Window { input, .. } => {
                if at < input.width() {
                    self.column_in(input, at)
                } else {
                    None
                }
            }
            Plan::Project { input, exprs } => match bare(exprs.get(at)?) {
                Expr::Column(at) => self.column_in(input, *at),
                _ => None,
            },
            Plan::Aggregate { input, keys, .. } | Plan::Grouped { input, keys, .. } => {
                match bare(keys.get(at)?) {
                    Expr::Column(at) => self.column_in(input, *at),
                    _ => None,
                }
            }
            Plan::Join(join) => self.column_in_join(join, at),
            Plan::Merge(merge) => self.column_in_join(&merge.join, at),
            _ => None,
        }
    }

    fn column_in_join(&self, join: &Join, at: usize) -> Option<Column<'_>> {
        match at.checked_sub(join.left_width) {
            None => self.column_in(&join.left, at),
            Some(at) => self.column_in(&join.right, at),
        }
    }
}

/// A column of a table of which something is known.
struct Column<'s> {
    found: &'s ColumnStatistics,
    ty: SqlType,
}

impl Column<'_> {
    /// The fraction of rows that have this value, or any one if it is not known.
    fn equal(&self, value: &Expr) -> f64 {
        match bare(value) {
            Expr::Const(Datum::Null) => 0.0,
            Expr::Const(value) => self.equal_to(value).unwrap_or_else(|| self.any()),
            _ => self.any(),
        }
    }

    fn any(&self) -> f64 {
        (1.0 - self.found.nulls) / self.found.distinct.max(1.0)
    }

    fn equal_to(&self, value: &Datum) -> Option<f64> {
        let (stored, value) = (column_type(self.ty).ok()?, fitted(value, self.ty)?);
        let found = with_value(&value, self.ty, |value| self.found.fraction_equal(stored, value));
        found.ok()?.ok()
    }

    fn between(&self, low: Bound<&Datum>, high: Bound<&Datum>) -> Option<f64> {
        // The part below the high end, without what is below the low one.
        let upper = match high {
            Bound::Unbounded => 1.0 - self.found.nulls,
            high => self.below(high)?,
        };
        let lower = match low {
            Bound::Unbounded => 0.0,
            Bound::Included(value) => self.below(Bound::Excluded(value))?,
            Bound::Excluded(value) => self.below(Bound::Included(value))?,
        };
        Some((upper - lower).max(0.0))
    }

    fn below(&self, end: Bound<&Datum>) -> Option<f64> {
        let stored = column_type(self.ty).ok()?;
        let (value, is_included) = match end {
            Bound::Included(value) => (value, true),
            Bound::Excluded(value) => (value, false),
            Bound::Unbounded => return None,
        };
        let value = fitted(value, self.ty).filter(|value| !value.is_null())?;
        let found = with_value(&value, self.ty, |value| {
            let end = if is_included { Bound::Included(value) } else { Bound::Excluded(value) };
            self.found.fraction_between(stored, Bound::Unbounded, end)
        });
        found.ok()?.ok()
    }
}

/// An expression without the casts around it.
fn bare(mut expr: &Expr) -> &Expr {
    while let Expr::Cast { operand, .. } = expr {
        expr = operand;
    }
    expr
}

/// A value as one of a column, if it is of its type or another whole number.
fn fitted(value: &Datum, ty: SqlType) -> Option<Datum> {
    let whole = match value {
        Datum::I16(value) => i64::from(*value),
        Datum::I32(value) => i64::from(*value),
        Datum::I64(value) => *value,
        other => return Some(other.clone()),
    };
    match ty.scalar {
        Scalar::Int2 => i16::try_from(whole).ok().map(Datum::I16),
        Scalar::Int4 => i32::try_from(whole).ok().map(Datum::I32),
        _ => Some(Datum::I64(whole)),
    }
}

fn bounds(comparison: Comparison, value: &Datum) -> (Bound<&Datum>, Bound<&Datum>) {
    match comparison {
        Comparison::Equal => (Bound::Included(value), Bound::Included(value)),
        Comparison::Less => (Bound::Unbounded, Bound::Excluded(value)),
        Comparison::LessEqual => (Bound::Unbounded, Bound::Included(value)),
        Comparison::Greater => (Bound::Excluded(value), Bound::Unbounded),
        Comparison::GreaterEqual => (Bound::Included(value), Bound::Unbounded),
    }
}

/// The column and the bounds of an inequation with a constant.
fn range_of(condition: &Expr) -> Option<(usize, Bound<&Datum>, Bound<&Datum>)> {
    let Expr::Call { arguments, comparison: Some(comparison), .. } = condition else { return None };
    let [first, second] = &**arguments else { return None };
    let (at, value, comparison) = match (bare(first), bare(second)) {
        (Expr::Column(at), Expr::Const(value)) => (*at, value, *comparison),
        (Expr::Const(value), Expr::Column(at)) => (*at, value, comparison.turned()),
        _ => return None,
    };
    if comparison == Comparison::Equal || value.is_null() {
        return None;
    }
    let (low, high) = bounds(comparison, value);
    Some((at, low, high))
}

/// A constant number of rows.
fn count(expr: Option<&Expr>) -> Option<f64> {
    match bare(expr?) {
        Expr::Const(Datum::I64(count)) => Some(*count as f64),
        Expr::Const(Datum::I32(count)) => Some(f64::from(*count)),
        _ => None,
    }
}
