//! The load: in bulk, or row by row.

use std::ops::Range;

use selkie_btree::{DEFAULT_FILL, StampRule};
use selkie_txn::{BulkLoadOptions, key};

use super::config::Config;
use super::record::key_of;
use super::schema::Tables;
use super::store::{Via, loaded_row};
use crate::benchmark::LoadProgress;
use crate::cluster::Node;
use crate::error::TpccError;

/// Records after which a bulk load says how far it is.
const STEP: usize = 512;

/// Loads all records in the order of their keys.
pub(super) async fn load_in_bulk(
    config: &Config,
    node: &Node<Tables>,
    progress: &LoadProgress,
) -> Result<u64, TpccError> {
    let mut keys: Vec<i64> = (0..config.records.into()).map(key_of).collect();
    keys.sort_unstable();
    let (rules, mut buffer) = (config.rules(), Vec::new());
    if config.via == Via::Tree {
        let tree = node.db.tree(node.tables.records)?;
        let mut load = tree.bulk_load(&node.engine, DEFAULT_FILL, StampRule::Latest).await?;
        for keys in keys.chunks(STEP) {
            for key in keys {
                rules.encode_loaded(*key, &mut buffer);
                load.push(&key![*key], &buffer).await?;
            }
            progress.advance(keys.len() as u64)?;
        }
        return Ok(load.finish().await?);
    }
    let table = node.tables.records;
    let mut load = node.db.bulk_load(table, BulkLoadOptions::default()).await?;
    let mut row = node.db.row(table)?;
    for keys in keys.chunks(STEP) {
        for key in keys {
            load.push(loaded_row(rules, *key, &mut row, &mut buffer)?).await?;
        }
        progress.advance(keys.len() as u64)?;
    }
    Ok(load.finish().await?)
}

/// Inserts the records of these numbers, counted from 1, in one transaction where there are such.
pub(super) async fn insert(
    config: &Config,
    node: &Node<Tables>,
    numbers: Range<i32>,
) -> Result<u64, TpccError> {
    let (rules, mut buffer) = (config.rules(), Vec::new());
    let keys = numbers.map(|number| key_of(u64::from(number.unsigned_abs()) - 1));
    let mut records = 0;
    if config.via == Via::Tree {
        let tree = node.db.tree(node.tables.records)?;
        for key in keys {
            rules.encode_loaded(key, &mut buffer);
            // What an attempt before has inserted stays.
            tree.upsert(&node.engine, &key![key], &buffer).await?;
            records += 1;
        }
        return Ok(records);
    }
    let table = node.tables.records;
    let (mut txn, mut row) = (node.db.begin(), node.db.row(table)?);
    for key in keys {
        txn.insert(table, loaded_row(rules, key, &mut row, &mut buffer)?).await?;
        records += 1;
    }
    txn.commit().await?;
    Ok(records)
}
