//! An operator that counts what another gives.

use std::mem;

use selkie_fabric::BoxFuture;
use selkie_fabric::env::Env;

use super::context::{BoxOperator, ExecContext, Operator, Row};
use crate::error::SqlResult;
use crate::explain::Counted;

/// Counts rows and time of its input.
pub(crate) struct Measured {
    pub(crate) number: usize,
    pub(crate) input: BoxOperator,
    pub(crate) has_begun: bool,
}

impl Operator for Measured {
    fn next<'a>(
        &'a mut self,
        context: &'a mut ExecContext<'_, '_>,
    ) -> BoxFuture<'a, SqlResult<Option<Vec<Row>>>> {
        Box::pin(async move {
            let now = |context: &ExecContext<'_, '_>| {
                context.counts.env.as_ref().map(Env::now).unwrap_or_default()
            };
            let started = now(context);
            let batch = self.input.next(context).await;
            let took = now(context).saturating_sub(started);
            let nodes = &mut context.counts.nodes;
            if nodes.len() <= self.number {
                nodes.resize(self.number + 1, Counted::default());
            }
            if let Some(counted) = nodes.get_mut(self.number) {
                counted.loops += u64::from(!mem::replace(&mut self.has_begun, true));
                counted.took += took;
                let rows = batch.as_ref().ok().and_then(Option::as_ref).map_or(0, Vec::len);
                counted.rows += rows as u64;
            }
            batch
        })
    }
}
