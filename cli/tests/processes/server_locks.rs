//! Advisory locks of clients of several servers.

use crate::harness::{Pool, Setup};
use crate::server::{block_on, connect, rows, start};

#[test]
fn an_advisory_lock_is_held_over_servers_until_its_session_or_its_server_is_gone() {
    let pool = Pool::start(&Setup { test: "server-locks", ..Setup::default() });
    let ((mut victim, first), (_survivor, second)) = (start(&pool.url), start(&pool.url));
    block_on(async {
        let (here, there) = (connect(first).await, connect(second).await);
        let (lock, tried) = ("select pg_advisory_lock(1)", "select pg_try_advisory_lock(1)");
        rows(&here, lock).await;
        assert_eq!(rows(&there, tried).await, [[Some("f".to_owned())]]);
        // Its client goes, and the session with it.
        drop(here);
        rows(&there, lock).await;
        let here = connect(first).await;
        assert_eq!(rows(&here, tried).await, [[Some("f".to_owned())]]);
        rows(&there, "select pg_advisory_unlock(1)").await;
        rows(&here, lock).await;
        victim.kill();
        rows(&there, lock).await;
    });
}
