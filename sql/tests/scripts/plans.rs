//! Queries find the same rows whatever is known of their tables: before ANALYZE, by what that
//! finds, and by what it has found when the tables were quite different.

use std::fmt::Write;

use selkie_sql::Session;

use super::random::Random;
use super::with_session;

/// The tables, with how many rows they have.
const TABLES: [(&str, usize); 4] = [("ta", 3), ("tb", 8), ("tc", 20), ("td", 40)];

/// An input of a query, whose columns are `id`, `k` and `v`.
fn input(random: &mut Random) -> String {
    let (table, _) = TABLES[random.below(TABLES.len())];
    match random.below(6) {
        0 => format!("(select k as id, max(id) as k, min(v) as v from {table} group by k)"),
        1 => format!("(select id, k, v from {table} union all select k, id, v from tb)"),
        2 => format!("(select distinct k as id, v as k, 1 as v from {table})"),
        _ => table.to_owned(),
    }
}

fn condition(random: &mut Random, names: usize) -> String {
    let (a, b) = (random.below(names), random.below(names));
    let (left, right) = (random.one(&["id", "k", "v"]), random.one(&["id", "k", "v"]));
    match random.below(6) {
        0 => format!("r{a}.{left} = {}", random.below(8)),
        1 => format!("r{a}.{left} between {} and 9", random.below(8)),
        2 => format!("r{a}.{left} is not null"),
        3 => format!("r{a}.{left} in (1, 2, {})", random.below(8)),
        4 => format!("r{a}.{left} < r{b}.{right}"),
        _ => format!("r{a}.{left} = r{b}.{right}"),
    }
}

/// A query over several inputs, each linked to one before it.
fn query(random: &mut Random) -> String {
    let inputs = 2 + random.below(3);
    let mut with = String::new();
    let mut from = String::new();
    for at in 0..inputs {
        let own = input(random);
        let materialized = random.one(&["", "materialized ", "not materialized "]);
        let source = if random.below(3) == 0 {
            let comma = if with.is_empty() { "with" } else { "," };
            write!(with, "{comma} c{at} as {materialized}(select * from {own} x) ").unwrap();
            format!("c{at}")
        } else {
            own
        };
        if at == 0 {
            write!(from, "{source} r0").unwrap();
            continue;
        }
        let kind = random.one(&["join", "join", "join", "left join", "right join", "full join"]);
        let (column, other) = (random.one(&["id", "k"]), random.one(&["id", "k", "v"]));
        let before = random.below(at);
        write!(from, " {kind} {source} r{at} on r{at}.{column} = r{before}.{other}").unwrap();
    }
    let mut filter = condition(random, inputs);
    for _ in 0..random.below(3) {
        write!(filter, " and {}", condition(random, inputs)).unwrap();
    }
    let columns: Vec<String> =
        (0..inputs).map(|at| format!("r{at}.id, r{at}.k, r{at}.v")).collect();
    format!("{with}select {} from {from} where {filter}", columns.join(", "))
}

/// The rows that a query finds, in an order of their own.
async fn rows(session: &mut Session, query: &str) -> Vec<String> {
    let found = session.execute(query).await.unwrap_or_else(|error| panic!("{query}: {error}"));
    let mut rows: Vec<String> = found[0].rows.iter().map(|row| format!("{row:?}")).collect();
    rows.sort();
    rows
}

async fn fill(session: &mut Session, rows_of: impl Fn(usize) -> usize) {
    for (at, (table, _)) in TABLES.iter().enumerate() {
        let rows = rows_of(at);
        let values = "i, case when i % 9 = 0 then null else i % 11 end, i % 5";
        for sql in [
            format!("delete from {table}"),
            format!("insert into {table} select {values} from generate_series(1, {rows}) i"),
        ] {
            session.execute(&sql).await.unwrap();
        }
    }
}

async fn analyze(session: &mut Session) {
    for (table, _) in TABLES {
        session.execute(&format!("analyze {table}")).await.unwrap();
    }
}

#[test]
fn what_is_known_of_tables_changes_no_rows() {
    with_session(async |session| {
        for (table, _) in TABLES {
            for sql in [
                format!("create table {table} (id integer primary key, k integer, v integer)"),
                format!("create index on {table} (k)"),
            ] {
                session.execute(&sql).await.unwrap();
            }
        }
        let own: fn(usize) -> usize = |at| TABLES[at].1;
        let reverse: fn(usize) -> usize = |at| TABLES[TABLES.len() - 1 - at].1;
        fill(session, own).await;
        let mut random = Random(0x5eed_0116);
        let queries: Vec<String> = (0..100).map(|_| query(&mut random)).collect();
        let mut wanted = Vec::new();
        for query in &queries {
            wanted.push(rows(session, query).await);
        }
        assert!(wanted.iter().filter(|rows| !rows.is_empty()).count() > 15);
        // Both what is right, and the reverse of it.
        for of_statistics in [own, reverse] {
            fill(session, of_statistics).await;
            analyze(session).await;
            fill(session, own).await;
            for (query, wanted) in queries.iter().zip(&wanted) {
                assert_eq!(&rows(session, query).await, wanted, "{query}");
            }
        }
    });
}
