//! Dropping and emptying tables.

use crate::catalogue::definition::{DROPPED, NAMES, TABLES};
use crate::catalogue::handles::Table;
use crate::encoding::key::KeyBuf;
use crate::encoding::row_builder::RowBuilder;
use crate::error::TxnError;
use crate::transaction::txn::Txn;

impl Txn<'_> {
    /// Drops a table with its indexes. Its pages are given back to the pool after the transaction
    /// has committed, once no snapshot needs them.
    ///
    /// # Errors
    /// [`TxnError::Schema`] if there is no such table; and as
    /// [`create_table`](Self::create_table).
    pub async fn drop_table(&mut self, table: Table) -> Result<(), TxnError> {
        self.open_definitions()?;
        let mark = self.begin_change();
        let dropped = Box::pin(self.drop_all_of(table)).await;
        self.close_change(mark, dropped).await
    }

    async fn drop_all_of(&mut self, table: Table) -> Result<(), TxnError> {
        let definition = self.definition(table).await?;
        let number = table.catalogue_number();
        let mut buffer = Vec::new();
        let pieces = definition.pieces(self.db.engine.page_bytes())?;
        self.delete_pieces(number, pieces).await?;
        let tables = self.system_table(TABLES);
        self.delete_row(tables, &KeyBuf::new().i64(number), &mut buffer).await?;
        let name = KeyBuf::new().text(&definition.stored.schema.name);
        self.delete_row(self.system_table(NAMES), &name, &mut buffer).await?;
        self.delete_statistics(table).await?;
        for root in definition.roots() {
            self.drop_tree(root).await?;
        }
        self.note_changed_tables();
        Ok(())
    }

    /// Removes all rows of a table, without a look at them: it gets new trees. It waits for no row
    /// lock: transactions that have locked rows of the table end in [`TxnError::Stale`], as do all
    /// that have used the trees before.
    ///
    /// # Errors
    /// As [`drop_table`](Self::drop_table).
    pub async fn truncate(&mut self, table: Table) -> Result<(), TxnError> {
        self.open_definitions()?;
        let mark = self.begin_change();
        let emptied = Box::pin(self.give_new_trees(table)).await;
        self.close_change(mark, emptied).await
    }

    async fn give_new_trees(&mut self, table: Table) -> Result<(), TxnError> {
        let before = self.definition(table).await?;
        let mut after = before.clone();
        let stamp = self.stamp_of_new_trees().await?;
        let limit = after.stored.schema.max_rows_per_page.unwrap_or(u16::MAX);
        after.stored.primary = self.create_tree(limit, stamp).await?;
        after.identity = self.new_version();
        for (root, index) in after.stored.indexes.iter_mut().zip(&mut after.indexes) {
            *root = self.create_tree(u16::MAX, stamp).await?;
            index.identity = self.new_version();
        }
        if let Some(values) = &mut after.values {
            values.root = self.create_tree(u16::MAX, stamp).await?;
            values.identity = self.new_version();
        }
        for root in before.roots() {
            self.drop_tree(root).await?;
        }
        self.redefine(table, &before, &after).await?;
        // What this transaction has changed in the trees before.
        self.work.writes.forget_trees(|tree| Table::of_tree(tree) == table);
        Ok(())
    }

    /// Notes that the pages of a tree are to be given back if this transaction commits.
    pub(super) async fn drop_tree(&mut self, root: u64) -> Result<(), TxnError> {
        let dropped = self.system_table(DROPPED);
        let mut row = RowBuilder::new(&dropped.layout);
        let row = row.i64(root.cast_signed()).i64(0).i16(0).i64(0).finish()?;
        self.insert_row(dropped, row).await?;
        self.work.drops_trees = true;
        Ok(())
    }
}
