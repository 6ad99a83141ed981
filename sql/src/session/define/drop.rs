//! DROP TABLE and TRUNCATE.

use selkie_txn::Txn;
use sqlparser::ast::{self, ObjectName};

use super::{find, found, sequence, view};
use crate::bind::{refuse, table_key};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::exec::from_txn;

pub(super) async fn drop_tables(
    txn: &mut Txn<'_>,
    names: &[ObjectName],
    if_exists: bool,
    cascade: bool,
) -> SqlResult<()> {
    for name in names {
        let key = table_key(name)?;
        match find(txn, &key).await? {
            Some(table) if table.view.is_some() => return Err(view::not_a(&table, "table")),
            Some(table) => view::drop_with_views(txn, &key, &table, cascade).await?,
            None if if_exists => {}
            None => {
                let message = format!("table \"{key}\" does not exist");
                return Err(SqlError::new(SqlState::UNDEFINED_TABLE, message));
            }
        }
    }
    Ok(())
}

pub(super) async fn truncate(txn: &mut Txn<'_>, truncate: &ast::Truncate) -> SqlResult<()> {
    let ast::Truncate {
        table_names,
        partitions,
        table: _,
        if_exists,
        identity,
        // No other table depends on the rows.
        cascade: _,
        on_cluster,
    } = truncate;
    let is_odd = partitions.is_some() || *if_exists || on_cluster.is_some();
    refuse(is_odd, "this form of TRUNCATE")?;
    let restarts = matches!(identity, Some(ast::TruncateIdentityOption::Restart));
    for own in table_names {
        let table = found(txn, &table_key(&own.name)?).await?;
        if table.view.is_some() {
            return Err(view::not_a(&table, "table"));
        }
        let emptied = txn.truncate(table.table).await;
        emptied.map_err(|error| from_txn(error, Some(&table)))?;
        if restarts {
            sequence::restart(txn, &table).await?;
        }
    }
    Ok(())
}
