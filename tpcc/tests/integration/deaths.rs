//! A compute node dies and takes pages with it: the others go on, and say what is lost and nothing
//! else.

use std::sync::Arc;
use std::time::Duration;

use selkie_pool::ComputeIndex;
use selkie_tpcc::transactions::payment;
use selkie_tpcc::{
    Config, InputSource, NuConstants, Random, Scale, TpccCluster, TpccNode, TransactionType, check,
    load, measure,
};
use selkie_txn::{KeyRange, Table, key};

use crate::setup::{THREADS, session, silent, small};

/// A survivor, which has loaded all, and a node that is to die.
struct Pair {
    cluster: TpccCluster,
    victim: Arc<TpccNode>,
    config: Config,
}

impl Pair {
    fn run<T>(config: Config, test: impl AsyncFnOnce(&mut Pair) -> T) -> T {
        let config = Config { compute_nodes: 2, ..config };
        let runtime = selkie_fabric::RealRuntime::with_seed(THREADS, config.seed).unwrap();
        let env = runtime.env();
        runtime.block_on(async {
            let mut cluster = TpccCluster::start(&env, &config).await.unwrap();
            // It has not loaded anything: it would take inner pages of the trees along, which a
            // scan need not read.
            let victim = cluster.nodes.pop().unwrap();
            load(&cluster, &config, &silent()).await.unwrap();
            let mut pair = Pair { cluster, victim, config };
            let result = test(&mut pair).await;
            pair.cluster.close().await.unwrap();
            result
        })
    }

    fn warehouses(&self) -> i32 {
        self.config.warehouses.cast_signed()
    }

    async fn collect(&self) -> check::Facts {
        check::collect(&self.cluster.nodes, self.warehouses(), 2, &silent()).await.unwrap()
    }

    /// The victim dies; returns when the survivor has recovered.
    async fn dies(&self) {
        let node = ComputeIndex::new(self.victim.engine.node().index() as u16);
        let (pool, env) = (self.cluster.pool(), self.cluster.env());
        pool.declare_dead(node).await.unwrap();
        let started = env.now();
        while !pool.lost().is_empty() {
            assert!(env.now() - started < Duration::from_secs(30), "no recovery");
            env.sleep(Duration::from_millis(1)).await;
        }
    }
}

/// The victim holds the page of this row when it dies.
async fn hold(node: &TpccNode, table: Table, key: &[u8]) {
    let mut txn = node.db.begin();
    txn.get_for_update(table, key).await.unwrap().expect("there is no such row");
    txn.commit().await.unwrap();
}

#[test]
fn what_cannot_be_read_is_known_to_the_row() {
    for part in 0..7 {
        Pair::run(small(), async |pair| {
            let whole = pair.collect().await;
            assert_eq!(whole.lost_pages(), 0);
            let (node, tables) = (&pair.victim, pair.victim.tables);
            let (table, key) = match part {
                0 => ("warehouse", key![1]),
                1 => ("district", key![1, 4]),
                2 => ("customer", key![1, 4, 17]),
                3 => ("orders", key![1, 4, 30]),
                4 => ("order_line", key![1, 4, 17, 2]),
                5 => ("history", key![1, 0, 117i64]),
                _ => ("new_order", key![1, 4, 25]),
            };
            let handle = match part {
                0 => tables.warehouse,
                1 => tables.district,
                2 => tables.customer,
                3 => tables.orders,
                4 => tables.order_line,
                5 => tables.history,
                _ => tables.new_order,
            };
            hold(node, handle, &key).await;
            pair.dies().await;

            let facts = pair.collect().await;
            assert_eq!(facts.lost_pages(), 1, "{table}");
            let missing = whole.rows() - facts.rows();
            assert!(missing > 0 && missing < 250, "{table}: {missing}");
            let unread = check::unread_rows(&facts, &pair.config.scale);
            assert_eq!(unread.len(), 1, "{unread:?}");
            assert_eq!(unread[0].table, table);
            // Of these two no other table tells how many rows there are.
            let told = (part < 5).then_some(missing);
            assert_eq!(unread[0].at_least, told, "{table}");
            let judgement = check::judge(&facts, &pair.config.scale);
            assert_eq!(judgement.broken, [], "{table}");
            assert!(!judgement.unjudged.is_empty(), "{table}");
        });
    }
}

#[test]
fn the_survivor_goes_on_and_misses_nothing_of_its_own() {
    let config =
        Config { warehouses: 2, duration: Duration::from_secs(1), ..Config { seed: 4, ..small() } };
    Pair::run(config, async |pair| {
        // The victim works at warehouse 2.
        let constants = NuConstants::of_run(4, &Scale::divided_by(100));
        let mut source = InputSource::new(Random::stream(4, 99), constants, 2, vec![2]);
        let writer = session(&pair.victim, 9_000);
        for _ in 0..200 {
            let input = source.payment();
            payment(&writer, &input, 1).await.unwrap();
        }
        pair.dies().await;

        let interval = measure(&pair.cluster, &pair.config, &silent()).await.unwrap();
        let measured = &interval.measurements;
        assert!(measured.completed() > 0, "nothing goes on");
        // Every payment at warehouse 2 needs its row.
        assert!(measured.of(TransactionType::Payment).unwrap().lost > 0, "nothing is lost");
        assert_eq!(measured.seconds().iter().sum::<u64>(), measured.completed());
        assert_eq!(interval.commits.kept() as u64, interval.commits.committed());

        let facts = pair.collect().await;
        assert!(facts.lost_pages() > 0);
        let judgement = check::judge(&facts, &pair.config.scale);
        assert_eq!(judgement.broken, []);
        assert!(!judgement.unjudged.is_empty());
        let look = async |pair: &Pair| {
            let journal = interval.commits.clone();
            let (nodes, warehouses) = (&pair.cluster.nodes, pair.warehouses());
            check::verify_commits(nodes, warehouses, journal, 2, &silent()).await.unwrap()
        };
        let found = look(pair).await;
        assert_eq!(found.missing, 0, "{found:?}");
        assert!(found.found > 0, "{found:?}");
        assert_eq!(found.found + found.on_lost_pages, found.committed);

        // What is gone though its page is there is found to be missing.
        let deleted = delete_last_orders(&pair.cluster.nodes[0]).await;
        let found = look(pair).await;
        assert_eq!(found.missing, deleted, "{found:?}");
        assert!(found.examples[0].starts_with("order (1, "), "{found:?}");
    });
}

/// Deletes the last order of each district of warehouse 1 that is not an initial one; how many
/// there were.
async fn delete_last_orders(node: &TpccNode) -> u64 {
    let mut deleted = 0;
    for district in 1..=10 {
        let mut txn = node.db.begin();
        let orders = KeyRange::prefix(&key![1, district]);
        let Ok(last) = txn.last_for_update(node.tables.orders, &orders).await else { continue };
        let number = last.unwrap().i32(2).unwrap();
        if number > 30 && txn.delete(node.tables.orders, &key![1, district, number]).await.is_ok() {
            txn.commit().await.unwrap();
            deleted += 1;
        }
    }
    assert!(deleted > 0, "there is no order to delete");
    deleted
}

#[test]
fn a_changed_row_is_missing_too() {
    Pair::run(Config { duration: Duration::from_secs(1), ..small() }, async |pair| {
        let interval = measure(&pair.cluster, &pair.config, &silent()).await.unwrap();
        let (nodes, warehouses) = (&pair.cluster.nodes, pair.warehouses());
        let find = async || {
            let journal = interval.commits.clone();
            check::verify_commits(nodes, warehouses, journal, 2, &silent()).await.unwrap()
        };
        let all = find().await;
        assert_eq!((all.found, all.missing, all.on_lost_pages), (all.committed, 0, 0), "{all:?}");

        let node = &nodes[0];
        let mut txn = node.db.begin();
        let orders = KeyRange::prefix(&key![1]);
        let last = txn.last(node.tables.orders, &orders).await.unwrap().unwrap();
        let (district, order) = (last.i32(1).unwrap(), last.i32(2).unwrap());
        let more = |row: &mut selkie_txn::RowMut<'_>| {
            let at = selkie_tpcc::columns::order_line::OL_AMOUNT;
            Ok(row.set_i64(at, row.i64(at)? + 1)?)
        };
        txn.update(node.tables.order_line, &key![1, district, order, 1], more).await.unwrap();
        let payments = KeyRange::from(&key![1, 1]);
        let row = txn.first(node.tables.history, &payments).await.unwrap().unwrap();
        let (writer, sequence) = (row.i32(1).unwrap(), row.i64(2).unwrap());
        txn.delete(node.tables.history, &key![1, writer, sequence]).await.unwrap();
        txn.commit().await.unwrap();

        let found = find().await;
        assert_eq!(found.missing, 2, "{found:?}");
        let order = format!("order (1, {district}, {order}) was committed with ");
        assert!(found.examples[0].starts_with(&order), "{found:?}");
        let payment = format!("payment (1, {writer}, {sequence}) is not there");
        assert_eq!(found.examples[1], payment, "{found:?}");
    });
}
