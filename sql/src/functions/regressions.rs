//! Aggregates over pairs of numbers: covariance, correlation and the line of least squares.

use super::aggregates::{NewAccumulator, fold};
use super::arguments::float;
use super::arithmetic::float_overflow;
use super::signature::Table;
use crate::error::SqlResult;
use crate::types::Datum;

/// Sums over pairs (y, x), by the method of Youngs and Cramer: of squares and products of the
/// distances to the means, which keep their digits where the squares of the values would not.
#[derive(Clone, Copy, Default)]
struct Pairs {
    count: f64,
    sum_x: f64,
    sum_y: f64,
    squares_x: f64,
    squares_y: f64,
    products: f64,
}

fn add(state: &mut Pairs, values: &[Datum]) -> SqlResult<()> {
    let (y, x) = (float(values, 0)?, float(values, 1)?);
    let before = *state;
    let count = before.count + 1.0;
    let (sum_x, sum_y) = (before.sum_x + x, before.sum_y + y);
    let mut new = Pairs { count, sum_x, sum_y, ..before };
    if before.count > 0.0 {
        let (far_x, far_y) = (x * count - sum_x, y * count - sum_y);
        let scale = 1.0 / (count * before.count);
        new.squares_x += far_x * far_x * scale;
        new.squares_y += far_y * far_y * scale;
        new.products += far_x * far_y * scale;
        let is_too_large = |sum: f64, is_finite: bool| sum.is_infinite() && is_finite;
        let (finite_x, finite_y) =
            (before.sum_x.is_finite() && x.is_finite(), before.sum_y.is_finite() && y.is_finite());
        if is_too_large(sum_x, finite_x)
            || is_too_large(sum_y, finite_y)
            || is_too_large(new.squares_x, finite_x)
            || is_too_large(new.squares_y, finite_y)
            || is_too_large(new.products, finite_x && finite_y)
        {
            return Err(float_overflow());
        }
    }
    // With a value that is not finite nothing is known of the distances.
    if !x.is_finite() {
        (new.squares_x, new.products) = (f64::NAN, f64::NAN);
    }
    if !y.is_finite() {
        (new.squares_y, new.products) = (f64::NAN, f64::NAN);
    }
    *state = new;
    Ok(())
}

impl Pairs {
    /// A result over at least so many pairs.
    fn over(&self, least: f64, of: impl Fn(&Self) -> f64) -> Option<f64> {
        (self.count >= least).then(|| of(self))
    }

    /// A result over pairs whose x differ.
    fn of_line(&self, of: impl Fn(&Self) -> f64) -> Option<f64> {
        (self.count >= 1.0 && self.squares_x != 0.0).then(|| of(self))
    }

    fn correlation(&self) -> Option<f64> {
        let product = self.squares_x * self.squares_y;
        let is_flat = self.squares_x == 0.0 || self.squares_y == 0.0;
        (self.count >= 1.0 && !is_flat).then(|| self.products / product.sqrt())
    }

    /// The share of the squares of y that the line explains.
    fn explained(&self) -> Option<f64> {
        self.of_line(|own| match own.squares_y == 0.0 {
            true => 1.0,
            false => own.products * own.products / (own.squares_x * own.squares_y),
        })
    }
}

fn of_float(value: Option<f64>) -> Datum {
    value.map_or(Datum::Null, Datum::F64)
}

macro_rules! register_each {
    ($table:ident, $($name:literal: $of:expr;)*) => {$(
        $table.add_body($name, "float8 float8 -> float8", |_| {
            fold(Pairs::default(), add, |state| {
                let of: fn(&Pairs) -> Option<f64> = $of;
                Ok(of_float(of(state)))
            })
        });
    )*};
}

pub(super) fn register(table: &mut Table<NewAccumulator>) {
    table.add_body("regr_count", "float8 float8 -> int8", |_| {
        fold(
            0i64,
            |count, _| {
                *count += 1;
                Ok(())
            },
            |count| Ok(Datum::I64(*count)),
        )
    });
    register_each! {table,
        "regr_sxx": |own| own.over(1.0, |own| own.squares_x);
        "regr_syy": |own| own.over(1.0, |own| own.squares_y);
        "regr_sxy": |own| own.over(1.0, |own| own.products);
        "regr_avgx": |own| own.over(1.0, |own| own.sum_x / own.count);
        "regr_avgy": |own| own.over(1.0, |own| own.sum_y / own.count);
        "regr_r2": Pairs::explained;
        "regr_slope": |own| own.of_line(|own| own.products / own.squares_x);
        "regr_intercept": |own| own.of_line(|own| {
            (own.sum_y - own.sum_x * own.products / own.squares_x) / own.count
        });
        "covar_pop": |own| own.over(1.0, |own| own.products / own.count);
        "covar_samp": |own| own.over(2.0, |own| own.products / (own.count - 1.0));
        "corr": Pairs::correlation;
    }
}
