//! What all reports say about nodes and data.

use comfy_table::Table;
use selkie_txn::Protocol;
use serde_json::{Map, Value, json};

use super::tables::object;
use super::units::{bytes, count, precise};
use crate::cluster::ClusterShape;
use crate::run::LoadReport;

impl ClusterShape {
    /// The keys of the configuration that all drivers have.
    pub(crate) fn to_json(&self) -> Map<String, Value> {
        let setup = &self.setup;
        object(json!({
            "duration_s": setup.duration.as_secs_f64(),
            "compute_nodes": setup.compute_nodes,
            "memory_nodes": setup.memory_nodes,
            "coding": setup.coding.to_string(),
            "protocol": setup.protocol.name(),
            "durability": setup.durability.name(),
            "log_bytes": setup.durability.capacity(),
            "workers": setup.workers,
            "threads": setup.network.threads(),
            "cache_bytes": self.cache_bytes(),
            "memory_bytes_per_node": self.pool().bytes_per_node,
            "gcl": setup.gcl_bytes,
            "seed": setup.seed,
        }))
    }

    /// Adds what all drivers say about their nodes and their data; `nodes` is what more there is to
    /// the nodes.
    pub(crate) fn say(&self, nodes: &str, load: &LoadReport, after: u64, table: &mut Table) {
        let setup = &self.setup;
        let mut row = |name: &str, value: String| {
            table.add_row(vec![name.to_owned(), value]);
        };
        row("compute nodes", format!("{}{nodes}", setup.compute_nodes));
        let processors = match setup.network.threads() {
            Some(threads) => format!("on {threads} threads"),
            None => "each on a processor of its own".to_owned(),
        };
        row("workers", format!("{} a node, {processors}", setup.workers));
        let protocol = match setup.protocol {
            Protocol::TwoPhase => "2pl: two-phase locking without waiting",
            Protocol::Timestamp => "to: in the order of timestamps",
            Protocol::Optimistic => "occ: optimistic, with validation at commit",
            Protocol::Snapshot => "snapshot: optimistic for rows, snapshots to read",
        };
        row("transactions", protocol.to_owned());
        row("durability", setup.durability.to_string());
        let lent = bytes(self.pool().bytes_per_node);
        row("memory nodes", format!("{}, {lent} each", setup.memory_nodes));
        row("coding", setup.coding.to_string());
        let database = load.database_bytes;
        let loaded = match load.rows {
            0 => "there before".to_owned(),
            rows => {
                let took = precise(load.duration.as_secs_f64());
                format!("loaded ({} rows in {took} {})", count(rows), setup.network.seconds())
            }
        };
        let sizes = format!("{} {loaded}, {} after the run", bytes(database), bytes(after));
        row("database", sizes);
        let cache = self.cache_bytes();
        let share = 100.0 * cache as f64 / database.max(1) as f64;
        let cache = format!(
            "{} a compute node, {} % of the loaded database",
            bytes(cache),
            count(share.round() as u64)
        );
        row("cache", cache);
        row("cache line", format!("{} bytes, seed {}", setup.gcl_bytes, setup.seed));
    }
}
