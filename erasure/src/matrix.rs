//! Matrices of GF(2^8): the generator of a code, and inverses.

use crate::field::{inverse, multiply, power};
use crate::shape::Shape;
use crate::split_set::MAX_SPLITS;

/// Coefficients of a split, one for each input; zeros follow.
pub(crate) type Row = [u8; MAX_SPLITS];

/// The rows of all splits, data first.
///
/// It is the Vandermonde matrix of 0, 1, 2, ..., multiplied by the inverse of its first k rows: so
/// these become the identity, and any k rows remain independent, since any k rows of a Vandermonde
/// matrix are. This is also how `reed-solomon-erasure` makes it, so that either reads what the
/// other wrote.
pub(crate) fn generator(shape: Shape) -> Option<Vec<Row>> {
    let vandermonde = |split: usize| -> Row {
        let mut row = Row::default();
        for (exponent, entry) in row.iter_mut().enumerate().take(shape.data()) {
            *entry = power(split as u8, exponent);
        }
        row
    };
    let top: Vec<Row> = (0..shape.data()).map(vandermonde).collect();
    let top = invert(&top)?;
    Some((0..shape.splits()).map(|split| times(&vandermonde(split), &top)).collect())
}

/// A row times a matrix.
pub(crate) fn times(row: &Row, matrix: &[Row]) -> Row {
    let mut product = Row::default();
    for (factor, other) in row.iter().zip(matrix) {
        add(&mut product, *factor, other);
    }
    product
}

/// The inverse of a square matrix, by Gauss and Jordan; none if it is singular.
#[expect(clippy::indexing_slicing, reason = "a square matrix has at most `MAX_SPLITS` columns")]
pub(crate) fn invert(matrix: &[Row]) -> Option<Vec<Row>> {
    let unit = |place: usize| {
        let mut row = Row::default();
        row.iter_mut().skip(place).take(1).for_each(|entry| *entry = 1);
        row
    };
    let mut rows: Vec<(Row, Row)> = matrix.iter().enumerate().map(|(i, r)| (*r, unit(i))).collect();
    for column in 0..rows.len() {
        let entry = |row: &(Row, Row)| row.0[column];
        let pivot = rows.iter().skip(column).position(|row| entry(row) != 0)? + column;
        rows.swap(column, pivot);
        let found = rows.get(column)?;
        let scale = inverse(entry(found));
        let (mut left, mut right) = (Row::default(), Row::default());
        add(&mut left, scale, &found.0);
        add(&mut right, scale, &found.1);
        for (place, row) in rows.iter_mut().enumerate() {
            if place == column {
                *row = (left, right);
            } else {
                let factor = entry(row);
                add(&mut row.0, factor, &left);
                add(&mut row.1, factor, &right);
            }
        }
    }
    Some(rows.into_iter().map(|row| row.1).collect())
}

/// Adds `factor` times `other` to `row`.
fn add(row: &mut Row, factor: u8, other: &Row) {
    for (entry, other) in row.iter_mut().zip(other) {
        *entry ^= multiply(factor, *other);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(size: usize) -> Vec<Row> {
        (0..size).map(|i| std::array::from_fn(|j| u8::from(i == j))).collect()
    }

    #[test]
    fn generators_begin_with_the_identity() {
        for data in 1..=MAX_SPLITS {
            let shape = Shape::new(data, MAX_SPLITS - data).unwrap();
            let rows = generator(shape).unwrap();
            assert_eq!(rows.len(), MAX_SPLITS);
            assert_eq!(rows[..data], identity(data));
            assert!(rows[data..].iter().all(|row| row[..data].iter().all(|c| *c != 0)));
        }
    }

    #[test]
    fn a_matrix_times_its_inverse_is_the_identity() {
        let rows = generator(Shape::new(5, 5).unwrap()).unwrap();
        let lower = &rows[5..];
        let inverse = invert(lower).unwrap();
        let product: Vec<Row> = lower.iter().map(|row| times(row, &inverse)).collect();
        assert_eq!(product, identity(5));
    }

    #[test]
    fn rows_are_exchanged_where_a_pivot_is_zero_and_singular_ones_are_refused() {
        let mut swapped = identity(3);
        swapped.swap(0, 2);
        assert_eq!(invert(&swapped), Some(swapped.clone()));
        swapped[1] = swapped[0];
        assert_eq!(invert(&swapped), None);
    }
}
