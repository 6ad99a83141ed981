//! What a load leaves behind.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use selkie_tpcc::check;
use selkie_tpcc::columns::{customer as c, item as i, new_order as no, stock as s};
use selkie_tpcc::{Config, Network, ORIGINAL, Scale, TpccCluster, TpccNode};
use selkie_txn::{Direction, Isolation, KeyRange, RowRef, Source};

use crate::setup::{silent, small, with_loaded};

/// Shows every row of a table or index to `visit`.
async fn each(
    node: &TpccNode,
    source: impl Into<Source>,
    mut visit: impl FnMut(RowRef<'_>) + Send,
) {
    let mut txn = node.db.begin_with(Isolation::ReadCommitted);
    let all = KeyRange::all();
    txn.scan(source, &all, Direction::Forward, |row| {
        visit(row);
        Ok(ControlFlow::Continue(()))
    })
    .await
    .unwrap();
    txn.commit().await.unwrap();
}

/// Number of rows and a fingerprint of their bytes, for each table and index.
async fn fingerprints(cluster: &TpccCluster) -> Vec<(u64, u64)> {
    let node = &cluster.nodes[0];
    let tables = node.tables;
    let mut all: Vec<Source> = node.db.tables().map(Source::from).collect();
    all.push(tables.customer_by_name.into());
    all.push(tables.orders_by_customer.into());
    let mut fingerprints = Vec::new();
    for source in all {
        let (mut rows, mut hash) = (0, 0xcbf2_9ce4_8422_2325u64);
        each(node, source, |row| {
            rows += 1;
            for byte in row.as_bytes() {
                hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
            }
        })
        .await;
        fingerprints.push((rows, hash));
    }
    fingerprints
}

#[test]
fn cardinalities_and_contents_are_the_specifications() {
    let config = Config { warehouses: 2, ..small() };
    with_loaded(&config, |cluster| async move {
        let rows: Vec<u64> = fingerprints(&cluster).await.iter().map(|(rows, _)| *rows).collect();
        // 30 customers a district, 9 new orders, 1,000 items; the order of `schemas`.
        let lines = rows[7];
        let expected = [2, 20, 600, 600, 600, 180, 600, lines, 1000, 2000, 600, 600];
        assert_eq!(rows, expected);
        assert!((600 * 9..600 * 11).contains(&lines), "{lines} lines");

        let node = &cluster.nodes[0];
        let (mut original, mut prices) = (0, (i64::MAX, 0));
        each(node, node.tables.item, |row| {
            original += usize::from(row.text(i::I_DATA).unwrap().contains(ORIGINAL));
            let price = row.i64(i::I_PRICE).unwrap();
            prices = (prices.0.min(price), prices.1.max(price));
        })
        .await;
        assert!((60..150).contains(&original), "{original} originals of 1000");
        assert!(prices.0 >= 100 && prices.1 <= 10_000 && prices.0 < prices.1);
        each(node, node.tables.stock, |row| {
            assert!((10..=100).contains(&row.i32(s::S_QUANTITY).unwrap()));
            assert_eq!(row.text(s::S_DIST_10).unwrap().len(), 24);
        })
        .await;
        each(node, node.tables.new_order, |row| assert!(row.i32(no::NO_O_ID).unwrap() > 21)).await;
        let mut names = BTreeSet::new();
        let mut bad = 0;
        each(node, node.tables.customer, |row| {
            let district = (row.i32(c::C_W_ID).unwrap(), row.i32(c::C_D_ID).unwrap());
            names.insert((district, row.text(c::C_LAST).unwrap().to_owned()));
            bad += u32::from(row.text(c::C_CREDIT).unwrap() == "BC");
        })
        .await;
        assert_eq!(names.len(), 20 * 10, "ten names in every district: {names:?}");
        assert!((30..100).contains(&bad), "{bad} of 600 customers with bad credit");

        let facts = check::collect(&cluster.nodes, 2, 1, &silent()).await.unwrap();
        assert_eq!(check::check(&facts, &config.scale), []);
        assert_eq!(facts.lost_pages(), 0);
        assert_eq!(facts.rows(), 2 + 20 + 600 * 3 + 180 + lines);
    });
}

#[test]
fn the_same_seed_loads_the_same_rows_however_they_are_shared() {
    let load = |compute_nodes, threads, seed| {
        let config = Config {
            compute_nodes,
            network: Network::Real { threads },
            seed,
            warehouses: 2,
            ..small()
        };
        with_loaded(&config, |cluster| async move { fingerprints(&cluster).await })
    };
    let alone = load(1, 1, 5);
    assert_eq!(alone, load(3, 2, 5));
    let other = load(1, 1, 6);
    for (at, (one, other)) in alone.iter().zip(&other).enumerate() {
        // NEW-ORDER rows are nothing but their keys.
        assert_eq!(one.1 == other.1, at == 5, "table {at}");
    }
}

/// Verifies every tree; says how many pages each takes.
async fn verified_pages(node: &TpccNode) -> String {
    let tables = node.tables;
    let mut trees: Vec<(String, Source)> = Vec::new();
    for table in node.db.tables() {
        trees.push((node.db.schema(table).unwrap().name.clone(), table.into()));
    }
    trees.push(("customer_by_name".to_owned(), tables.customer_by_name.into()));
    trees.push(("orders_by_customer".to_owned(), tables.orders_by_customer.into()));
    let mut text = String::new();
    for (name, source) in trees {
        let stats = node.db.tree(source).unwrap().verify(&node.engine).await.unwrap();
        let (leaves, inner) = (stats.leaves, stats.inner_pages);
        let fill = 100.0 * stats.fill;
        text += &format!("{name}: {leaves} + {inner} pages, {fill:.0} % full; ");
    }
    text
}

#[test]
fn trees_are_sound_after_a_load_and_sizes_as_estimated() {
    for compute_nodes in [1, 2] {
        let config =
            Config { scale: Scale::divided_by(10), warehouses: 2, compute_nodes, ..small() };
        let estimate = config.database_bytes();
        with_loaded(&config, |cluster| async move {
            let pages = verified_pages(&cluster.nodes[0]).await;
            let used = cluster.used_bytes().await.unwrap();
            let ratio = used as f64 / estimate as f64;
            assert!((0.75..1.3).contains(&ratio), "{used} used, {estimate} estimated: {pages}");
        });
    }
}
