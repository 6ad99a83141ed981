//! UNION ALL of any number of queries: the rows of one after the other. As a list, for as a tree it
//! would be as deep as it is long, and each row would go through all of its levels.

use std::collections::VecDeque;

use selkie_fabric::BoxFuture;

use super::build::build;
use super::context::{BoxOperator, ExecContext, Operator, Row};
use crate::error::SqlResult;
use crate::plan::{Plan, SetOperator};

/// The rows of some inputs.
pub(crate) struct Append {
    /// Those that have not given all.
    inputs: VecDeque<BoxOperator>,
}

impl Append {
    /// Of what is united with others already, and of one more.
    pub(crate) fn new(left: &Plan, right: &Plan) -> Self {
        let mut inputs = VecDeque::from([build(right)]);
        let mut rest = left;
        while let Plan::Set { operator: SetOperator::Union, all: true, left, right } = rest {
            inputs.push_front(build(right));
            rest = left;
        }
        inputs.push_front(build(rest));
        Self { inputs }
    }
}

impl Operator for Append {
    fn next<'a>(
        &'a mut self,
        context: &'a mut ExecContext<'_, '_>,
    ) -> BoxFuture<'a, SqlResult<Option<Vec<Row>>>> {
        Box::pin(async move {
            while let Some(input) = self.inputs.front_mut() {
                if let Some(batch) = input.next(context).await? {
                    return Ok(Some(batch));
                }
                self.inputs.pop_front();
            }
            Ok(None)
        })
    }
}
