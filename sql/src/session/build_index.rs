//! CREATE INDEX on its own: in transactions of its own, while others change the table.

use std::sync::Arc;
use std::time::Duration;

use selkie_txn::NewIndex;

use super::Session;
use crate::catalogue::TableDef;
use crate::client::Client;
use crate::error::{SqlError, SqlResult};
use crate::exec::from_txn;
use crate::session_list::{IndexProgress, Listed};

/// An index that is to be built.
pub(super) struct NewIndexBuild {
    pub(super) table: Arc<TableDef>,
    pub(super) index: NewIndex,
    /// CONCURRENTLY was said. The same is done without it.
    pub(super) is_concurrent: bool,
}

/// What others see of a build, until this is dropped.
struct Seen<'l>(&'l Listed);

impl<'l> Seen<'l> {
    fn begin(listed: &'l Listed, progress: IndexProgress) -> Self {
        listed.change(|own| own.index = Some(progress));
        Self(listed)
    }

    fn tell(&self, rows_done: u64) {
        self.0.change(|own| {
            if let Some(index) = &mut own.index {
                index.rows_done = rows_done;
                // It was an estimate, and others may have added some.
                index.rows_total = index.rows_total.max(rows_done);
            }
        });
    }
}

impl Drop for Seen<'_> {
    fn drop(&mut self) {
        self.0.change(|own| own.index = None);
    }
}

impl Session {
    /// Builds an index, tells how far it is, and says so in the end.
    pub(super) async fn build_index(
        &self,
        build: NewIndexBuild,
        end: Option<Duration>,
        client: &Arc<dyn Client>,
    ) -> SqlResult<String> {
        let NewIndexBuild { table, index, is_concurrent } = build;
        let database = self.txn.database().clone();
        // What is wrong with the table is told when the index is built.
        let estimated = self.unless_ended(database.estimated_rows(table.table)).await?;
        let rows_total = estimated.unwrap_or_default();
        let table_number = table.table.number();
        let progress = IndexProgress { table_number, is_concurrent, rows_done: 0, rows_total };
        let seen = Seen::begin(&self.listed, progress);
        let tell = |rows_done: u64| {
            seen.tell(rows_done);
            client.progress(rows_done, rows_total.max(rows_done));
        };
        let (ended, mut why) = (self.ended_at(end), None);
        let until = Box::pin(async { why = Some(ended.await) });
        let built = database.create_index_until(table.table, index, until, &tell).await;
        match built.map_err(|error| from_txn(error, Some(&table)))? {
            Some(_) => Ok("CREATE INDEX".to_owned()),
            None => Err(why.unwrap_or_else(|| SqlError::internal("an index was given up"))),
        }
    }
}
