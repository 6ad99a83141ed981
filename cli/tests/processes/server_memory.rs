//! The memory that the clients of a server have together.

use crate::server::{block_on, connect, rows, start_with, state};

#[test]
fn clients_share_the_memory_of_a_server() {
    let (_server, addr) = start_with("embedded:", &["--client-memory", "16M"]);
    block_on(async {
        let (one, other) = (connect(addr).await, connect(addr).await);
        // What goes on in temporary files does so, at several clients at once.
        let distinct = "select count(distinct n) from generate_series(1, 200000) n";
        let both = "select count(*) from (select n from generate_series(1, 200000) n \
                    intersect select n from generate_series(100001, 300000) n) s";
        let (counted, found) = tokio::join!(rows(&one, distinct), rows(&other, both));
        assert_eq!(counted[0][0].as_deref(), Some("200000"));
        assert_eq!(found[0][0].as_deref(), Some("100000"));
        // And what does not ends, and no other with it.
        let window = "select max(s) from (select sum(n) over () s \
                      from generate_series(1, 100000) n) w";
        let arrays = "select cardinality(array_fill(1, array[1000000]))";
        for sql in [window, "select length(repeat('x', 5000000))", arrays] {
            let error = one.simple_query(sql).await.unwrap_err();
            assert_eq!(state(&error), "53200", "{sql}");
            let detail = error.as_db_error().unwrap().detail().unwrap();
            assert_eq!(detail, "A client may keep 4194304 bytes.");
        }
        assert_eq!(rows(&one, "select length(repeat('x', 2000000))").await.len(), 1);
        for client in [&one, &other] {
            assert_eq!(rows(client, "select sum(n) from generate_series(1, 9) n").await.len(), 1);
        }
    });
}
