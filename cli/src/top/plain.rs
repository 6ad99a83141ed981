//! A snapshot as a plain table, for scripts and logs.

use comfy_table::{CellAlignment, Table, presets};

use super::snapshot::{ComputeRow, HotRow, MemoryRow, Rates, Snapshot};
use super::units::{age, count, part, rate, size};

/// Headers of the memory nodes' rows.
pub(crate) const MEMORY: [&str; 6] = ["memory node", "state", "beat/lease", "lent", "used", "cpu"];
/// Headers of the compute nodes' rows.
pub(crate) const COMPUTE: [&str; 10] = [
    "compute node",
    "state",
    "beat/lease",
    "cache",
    "ops/s",
    "accesses/s",
    "hits",
    "trips/s",
    "inv in/s",
    "inv out/s",
];
/// Headers of the hottest lines' rows.
pub(crate) const HOTTEST: [&str; 5] = ["hottest page", "home", "events", "at most", "nodes"];

pub(crate) fn memory_cells(row: &MemoryRow, lease_s: f64) -> [String; 6] {
    [
        row.node.clone(),
        row.state.to_string(),
        age(row.silent_s, lease_s),
        size(row.lent_bytes),
        size(row.leased_bytes),
        part(row.cpu),
    ]
}

pub(crate) fn compute_cells(row: &ComputeRow, lease_s: f64) -> [String; 10] {
    let cache = row.frames_used.zip(row.frames.filter(|frames| *frames > 0));
    let cache = cache.map(|(used, frames)| used as f64 / frames as f64);
    let [operations, accesses, hits, trips, received, sent] = row
        .rates
        .as_ref()
        .map_or_else(|| [const { String::new() }; 6].map(|_| "-".to_owned()), rates);
    let (node, state, age) = (row.node.clone(), row.state.to_string(), age(row.silent_s, lease_s));
    [node, state, age, part(cache), operations, accesses, hits, trips, received, sent]
}

fn rates(rates: &Rates) -> [String; 6] {
    [
        rate(rates.operations),
        rate(Some(rates.accesses)),
        part(rates.hit_ratio),
        rate(rates.round_trips),
        rate(Some(rates.invalidations_received)),
        rate(Some(rates.invalidations_sent)),
    ]
}

/// The sums, in a row of the compute nodes.
pub(crate) fn total_cells(snapshot: &Snapshot) -> [String; 10] {
    let [operations, accesses, hits, trips, received, sent] = rates(&snapshot.total);
    let (none, all) = (String::new, "all".to_owned());
    [all, none(), none(), none(), operations, accesses, hits, trips, received, sent]
}

pub(crate) fn hot_cells(row: &HotRow) -> [String; 5] {
    let gcl = format!("{:#x}", row.gcl);
    [gcl, row.home.clone(), count(row.at_least), count(row.at_most), row.nodes.join(" ")]
}

/// The first line: how the pool is, as `pool status` has it.
pub(crate) fn headline(snapshot: &Snapshot) -> String {
    format!("pool {}: {}", snapshot.pool, snapshot.says)
}

/// A line about its time, and what it keeps.
pub(crate) fn times(snapshot: &Snapshot) -> String {
    let Snapshot { lease_s, lost_pages, .. } = snapshot;
    let lost = if *lost_pages > 0 { format!(", {lost_pages} pages lost") } else { String::new() };
    let latest = snapshot.latest().map_or_else(String::new, |(node, silence)| {
        format!(", longest silence {silence:.1} s ({node})")
    });
    format!("lease {lease_s} s{latest}{lost}{}", snapshots(snapshot))
}

/// A counter of all compute nodes.
fn sum(snapshot: &Snapshot, of: fn(&ComputeRow) -> Option<u64>) -> u64 {
    snapshot.compute_nodes.iter().filter_map(of).sum()
}

/// A line about the row locks that the compute nodes have waited for, and one about turns at hot
/// rows; none about what they have not waited for.
pub(crate) fn waits(snapshot: &Snapshot) -> Vec<String> {
    let locks = [
        ("waits", sum(snapshot, |row| row.lock_waits)),
        ("deadlocks", sum(snapshot, |row| row.deadlocks)),
        ("timeouts", sum(snapshot, |row| row.lock_timeouts)),
        ("refused", sum(snapshot, |row| row.lock_refusals)),
    ];
    let turns = [
        ("waits", sum(snapshot, |row| row.turn_waits)),
        ("lost", sum(snapshot, |row| row.turns_lost)),
        ("circles", sum(snapshot, |row| row.turn_circles)),
    ];
    let waited = |of: fn(&ComputeRow) -> Option<f64>| -> f64 {
        snapshot.compute_nodes.iter().filter_map(of).sum()
    };
    let locks = waits_line("row locks", &locks, waited(|row| row.lock_wait_s));
    let turns = waits_line("turns at hot rows", &turns, waited(|row| row.turn_wait_s));
    locks.into_iter().chain(turns).collect()
}

/// What was counted of waits of one kind; none if nothing was.
fn waits_line(kind: &str, figures: &[(&str, u64)], waited: f64) -> Option<String> {
    if figures.iter().all(|(_, number)| *number == 0) {
        return None;
    }
    let figures = figures.iter().map(|(what, number)| format!("{what} {}", count(*number)));
    let figures: Vec<_> = figures.collect();
    Some(format!("{kind}: {}, waited {waited:.1} s", figures.join(", ")))
}

/// Active snapshots of all nodes, and what is kept for them; nothing if there are none.
fn snapshots(snapshot: &Snapshot) -> String {
    let rows = &snapshot.compute_nodes;
    let sum = |of| sum(snapshot, of);
    let (active, bytes) = (sum(|row| row.snapshots), sum(|row| row.image_bytes));
    let (dropped, too_old) = (sum(|row| row.images_dropped), sum(|row| row.snapshots_too_old));
    if (active, bytes, dropped, too_old) == (0, 0, 0, 0) {
        return String::new();
    }
    let oldest = rows.iter().filter_map(|row| row.oldest_snapshot_age).max().unwrap_or(0);
    let images = size(Some(bytes));
    let dropped = if dropped > 0 { format!(", {dropped} dropped") } else { String::new() };
    let too_old = if too_old > 0 { format!(", {too_old} too old") } else { String::new() };
    format!(
        ", {active} snapshots{too_old}, {oldest} commits since the oldest, images {images}{dropped}"
    )
}

/// The whole snapshot.
pub(crate) fn text(snapshot: &Snapshot) -> String {
    let lease_s = snapshot.lease_s;
    let memory = snapshot.memory_nodes.iter().map(|row| memory_cells(row, lease_s).to_vec());
    let compute = snapshot.compute_nodes.iter().map(|row| compute_cells(row, lease_s).to_vec());
    let compute = compute.chain([total_cells(snapshot).to_vec()]);
    let mut text = headline(snapshot) + "\n" + &times(snapshot) + "\n";
    text.extend(waits(snapshot).into_iter().map(|line| line + "\n"));
    text += &table(&MEMORY, memory, 3);
    text += &table(&COMPUTE, compute, 3);
    if !snapshot.hottest.is_empty() {
        text += &table(&HOTTEST, snapshot.hottest.iter().map(|row| hot_cells(row).to_vec()), 2);
    }
    text
}

/// Columns from the one of that number on are numbers; but for the last of the hottest lines.
fn table(headers: &[&str], rows: impl Iterator<Item = Vec<String>>, numbers: usize) -> String {
    let mut table = Table::new();
    table.load_preset(presets::UTF8_BORDERS_ONLY).set_header(headers.to_vec()).add_rows(rows);
    let last = if headers == HOTTEST { HOTTEST.len() - 1 } else { headers.len() };
    for column in table.column_iter_mut().take(last).skip(numbers) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    format!("{table}\n")
}
