//! Where FETCH and MOVE lead. Rows are numbered from 1; a cursor stands on one of them, or on 0
//! before the first, or on the number behind the last.

use sqlparser::ast::{FetchDirection, Value, ValueWithSpan};

use crate::error::{SqlError, SqlResult, SqlState};

/// Which rows are wanted, seen from where the cursor stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    /// So many of the next ones; all without a number.
    Forward(Option<u64>),
    /// So many of those before, the nearest first; all without a number.
    Backward(Option<u64>),
    /// The one on which the cursor stands.
    Present,
    /// The row of a number; of a negative one, counted from the end.
    Absolute(i64),
    /// The row that many behind, or before.
    Relative(i64),
}

/// Rows, and where the cursor stands when they were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Motion {
    /// The number of the first.
    pub(super) first: u64,
    pub(super) rows: u64,
    pub(super) is_backward: bool,
    pub(super) position: u64,
}

/// A cursor that moves.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) position: u64,
    /// How many rows there are.
    pub(super) rows: u64,
    pub(super) is_scrollable: bool,
}

impl Direction {
    /// The direction that a statement names.
    pub(super) fn of(direction: &FetchDirection) -> SqlResult<Self> {
        let signed = |count: i64| match count {
            0 => Self::Present,
            1.. => Self::Forward(Some(count.unsigned_abs())),
            _ => Self::Backward(Some(count.unsigned_abs())),
        };
        let count = |limit: Option<&ValueWithSpan>| limit.map_or(Ok(1), number);
        Ok(match direction {
            FetchDirection::Count { limit } => signed(number(limit)?),
            FetchDirection::Next => Self::Forward(Some(1)),
            FetchDirection::Prior => Self::Backward(Some(1)),
            FetchDirection::First => Self::Absolute(1),
            FetchDirection::Last => Self::Absolute(-1),
            FetchDirection::Absolute { limit } => Self::Absolute(number(limit)?),
            FetchDirection::Relative { limit } => match number(limit)? {
                0 => Self::Present,
                distance => Self::Relative(distance),
            },
            FetchDirection::All | FetchDirection::ForwardAll => Self::Forward(None),
            FetchDirection::Forward { limit } => signed(count(limit.as_ref())?),
            FetchDirection::Backward { limit } => signed(-count(limit.as_ref())?),
            FetchDirection::BackwardAll => Self::Backward(None),
        })
    }
}

fn number(limit: &ValueWithSpan) -> SqlResult<i64> {
    let Value::Number(digits, _) = &limit.value else {
        return Err(SqlError::unsupported("FETCH of a count that is no number"));
    };
    let number = digits.parse::<i32>();
    number.map(i64::from).map_err(|_| SqlError::internal("a count that is no whole number"))
}

impl Place {
    /// The rows of a direction. `is_move` if they are only passed by.
    ///
    /// # Errors
    /// 55000 if the cursor only goes forward.
    pub(super) fn motion(self, direction: Direction, is_move: bool) -> SqlResult<Motion> {
        match direction {
            Direction::Forward(count) => Ok(self.forward(count)),
            Direction::Backward(count) => self.backward(count),
            Direction::Present => {
                let is_on_row = (1..=self.rows).contains(&self.position);
                if is_on_row && !is_move {
                    self.check_back()?;
                }
                let position = self.position;
                let rows = u64::from(is_on_row);
                Ok(Motion { first: position, rows, is_backward: false, position })
            }
            Direction::Absolute(number) => self.absolute(number),
            Direction::Relative(distance) => {
                let far = distance.unsigned_abs();
                if distance > 0 {
                    return Ok(self.one(self.position.saturating_add(far)));
                }
                self.check_back()?;
                Ok(self.one(self.position.saturating_sub(far)))
            }
        }
    }

    fn forward(self, count: Option<u64>) -> Motion {
        let left = self.rows.saturating_sub(self.position);
        let rows = count.map_or(left, |count| count.min(left));
        let position = match count {
            Some(count) if count <= left => self.position + count,
            _ => self.rows + 1,
        };
        Motion { first: self.position + 1, rows, is_backward: false, position }
    }

    fn backward(self, count: Option<u64>) -> SqlResult<Motion> {
        self.check_back()?;
        let left = self.position.saturating_sub(1);
        let rows = count.map_or(left, |count| count.min(left));
        let position = match count {
            Some(count) if count <= left => self.position - count,
            _ => 0,
        };
        Ok(Motion { first: left, rows, is_backward: true, position })
    }

    fn absolute(self, number: i64) -> SqlResult<Motion> {
        let far = number.unsigned_abs();
        if number < 0 {
            self.check_back()?;
            return Ok(self.one((self.rows + 1).saturating_sub(far)));
        }
        // As PostgreSQL goes there: from the first row if that is nearer.
        let is_from_first = far.saturating_sub(1) <= self.position.min(self.rows) / 2;
        let is_back = if is_from_first { self.position > 0 } else { far <= self.position };
        if is_back {
            self.check_back()?;
        }
        Ok(self.one(far))
    }

    /// The row of a number, if there is one.
    fn one(self, number: u64) -> Motion {
        let rows = u64::from((1..=self.rows).contains(&number));
        let position = number.min(self.rows + 1);
        Motion { first: number, rows, is_backward: false, position }
    }

    fn check_back(self) -> SqlResult<()> {
        if self.is_scrollable {
            return Ok(());
        }
        let message = "cursor can only scan forward";
        Err(SqlError::new(SqlState::OBJECT_NOT_READY, message)
            .hint("Declare it with SCROLL option to enable backward scan."))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use super::*;

    fn moved(position: u64, direction: Direction) -> (Vec<u64>, u64) {
        let place = Place { position, rows: 3, is_scrollable: true };
        let motion = place.motion(direction, false).unwrap();
        let numbers = (0..motion.rows).map(|at| match motion.is_backward {
            true => motion.first - at,
            false => motion.first + at,
        });
        (numbers.collect(), motion.position)
    }

    #[test]
    fn rows_are_those_that_postgresql_gives() {
        use Direction::{Absolute, Backward, Forward, Present, Relative};
        for (position, direction, rows, after) in [
            (0, Forward(Some(1)), vec![1], 1),
            (0, Forward(Some(3)), vec![1, 2, 3], 3),
            (0, Forward(Some(4)), vec![1, 2, 3], 4),
            (3, Forward(Some(1)), vec![], 4),
            (4, Forward(Some(1)), vec![], 4),
            (1, Forward(None), vec![2, 3], 4),
            (4, Backward(Some(1)), vec![3], 3),
            (4, Backward(Some(9)), vec![3, 2, 1], 0),
            (2, Backward(Some(1)), vec![1], 1),
            (1, Backward(Some(1)), vec![], 0),
            (0, Backward(Some(1)), vec![], 0),
            (3, Backward(None), vec![2, 1], 0),
            (2, Present, vec![2], 2),
            (0, Present, vec![], 0),
            (4, Present, vec![], 4),
            (3, Absolute(1), vec![1], 1),
            (0, Absolute(3), vec![3], 3),
            (0, Absolute(4), vec![], 4),
            (2, Absolute(0), vec![], 0),
            (0, Absolute(-1), vec![3], 3),
            (0, Absolute(-3), vec![1], 1),
            (0, Absolute(-4), vec![], 0),
            (1, Relative(2), vec![3], 3),
            (1, Relative(9), vec![], 4),
            (4, Relative(-1), vec![3], 3),
            (3, Relative(-2), vec![1], 1),
            (3, Relative(-3), vec![], 0),
        ] {
            assert_eq!(moved(position, direction), (rows, after), "{position}: {direction:?}");
        }
    }

    #[test]
    fn a_cursor_that_only_goes_forward_is_not_led_back() {
        use Direction::{Absolute, Backward, Forward, Present, Relative};
        let refused = |position, direction, is_move| {
            let place = Place { position, rows: 9, is_scrollable: false };
            place.motion(direction, is_move).is_err()
        };
        for (position, direction) in [
            (0, Backward(Some(1))),
            (2, Backward(None)),
            (2, Present),
            (2, Relative(-1)),
            (2, Absolute(0)),
            (2, Absolute(1)),
            (9, Absolute(5)),
            (5, Absolute(5)),
            (2, Absolute(-1)),
        ] {
            assert!(refused(position, direction, false), "{position}: {direction:?}");
        }
        for (position, direction) in [
            (0, Forward(None)),
            (0, Absolute(1)),
            (0, Absolute(0)),
            (5, Absolute(6)),
            (5, Relative(1)),
            (0, Present),
        ] {
            assert!(!refused(position, direction, false), "{position}: {direction:?}");
        }
        assert!(!refused(2, Present, true), "nothing is read");
    }
}
