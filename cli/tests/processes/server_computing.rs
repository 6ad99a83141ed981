//! Clients whose statements compute for long without a wait: they are ended as others are, and
//! others are served meanwhile.

use std::time::{Duration, Instant};

use tokio_postgres::NoTls;

use crate::server::{block_on, connect, rows, start, state};

/// Goes through all places of a long text for a long pattern: that takes hours.
const LONG: &str =
    "select repeat('a', 4000000) like '%' || repeat('a', 2000000) || '_b' || repeat('a', 9) || '%'";

/// The expression has so many states that each byte of the text takes a while.
const SEARCH: &str = "select repeat('ab', 50000) ~ '(a?b?c?){300}d'";

#[test]
fn a_statement_that_computes_ends_at_its_timeout() {
    let (_server, addr) = start("embedded:");
    block_on(async {
        let client = connect(addr).await;
        client.batch_execute("set statement_timeout = '500ms'").await.unwrap();
        for sql in [
            LONG,
            "select count(*) from generate_series(1, 10000000) a where (1 + a / 1e7) ^ 0.1234 < 1",
            "select array_agg(a) @> array_agg(a) from generate_series(1, 100000) a",
        ] {
            let begun = Instant::now();
            let error = client.simple_query(sql).await.unwrap_err();
            assert_eq!(state(&error), "57014", "{sql}");
            assert!(begun.elapsed() < Duration::from_secs(10), "{sql}");
        }
        assert_eq!(rows(&client, "select 1").await.len(), 1);
    });
}

#[test]
fn clients_are_served_beside_some_that_compute() {
    let (_server, addr) = start("embedded:");
    block_on(async {
        let mut computing = Vec::new();
        let mut cancels = Vec::new();
        // More than the server has threads, on a machine with few processors.
        for at in 0..6 {
            let client = connect(addr).await;
            cancels.push(client.cancel_token());
            let sql = if at < 5 { LONG } else { SEARCH };
            computing.push(tokio::spawn(async move { client.simple_query(sql).await }));
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
        // Who comes now gets in, and gets answers.
        let other = connect(addr).await;
        for _ in 0..10 {
            assert_eq!(rows(&other, "select 1").await.len(), 1);
        }
        for (at, (cancel, mut statement)) in cancels.iter().zip(computing).enumerate() {
            let ended = loop {
                // What comes before the statement has begun ends nothing.
                cancel.cancel_query(NoTls).await.unwrap();
                let ended = tokio::time::timeout(Duration::from_secs(1), &mut statement).await;
                if let Ok(ended) = ended {
                    break ended.unwrap();
                }
            };
            // A search goes to its end: it is bounded otherwise.
            if at < 5 {
                assert_eq!(state(&ended.unwrap_err()), "57014");
            }
        }
    });
}
