//! A loaded database for a test to work on.

use std::future::Future;
use std::sync::Arc;

use selkie_fabric::RealRuntime;
use selkie_tpcc::{Config, Network, Progress, Scale, Session, Silent, TpccCluster, TpccNode, load};

pub(crate) const THREADS: usize = 2;

/// One warehouse of the smallest scale on one node with everything cached.
pub(crate) fn small() -> Config {
    Config {
        warehouses: 1,
        compute_nodes: 1,
        network: Network::Real { threads: THREADS },
        scale: Scale::divided_by(100),
        ..Config::default()
    }
}

pub(crate) fn silent() -> Arc<dyn Progress> {
    Arc::new(Silent)
}

/// Loads a database and lets `test` work on it.
pub(crate) fn with_loaded<T, F, Fut>(config: &Config, test: F) -> T
where
    F: FnOnce(Arc<TpccCluster>) -> Fut,
    Fut: Future<Output = T>,
{
    let runtime = RealRuntime::with_seed(THREADS, config.seed).unwrap();
    let env = runtime.env();
    runtime.block_on(async {
        let cluster = Arc::new(TpccCluster::start(&env, config).await.unwrap());
        load(&cluster, config, &silent()).await.unwrap();
        let result = test(Arc::clone(&cluster)).await;
        Arc::into_inner(cluster).expect("the test kept the cluster").close().await.unwrap();
        result
    })
}

/// A session of a worker with a number of its own.
pub(crate) fn session(node: &TpccNode, writer: i32) -> Session<'_> {
    Session::new(&node.db, node.tables, writer)
}
