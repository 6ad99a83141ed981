//! Queries find the same in tables with indexes, where sides of joins, groups and ends of keys come
//! in order and rows need not be read, as in tables without any.

use selkie_sql::Session;

use super::random::Random;
use super::with_session;

/// Columns of each table: whole numbers, and texts.
const NUMBERS: [&str; 3] = ["id", "k", "s"];

/// A condition on the columns of `name`, or none.
fn filter(random: &mut Random, name: &str) -> String {
    let value = random.below(9);
    match random.below(8) {
        0 => format!("{name}.k = {value}"),
        1 => format!("{name}.k > {value}"),
        2 => format!("{name}.k between {value} and 7"),
        3 => format!("{name}.t < 'c{value}'"),
        4 => format!("{name}.k in (1, 3, {value})"),
        5 => format!("{name}.s is null"),
        6 => format!("{name}.id % 3 = 1"),
        _ => "true".to_owned(),
    }
}

fn join(random: &mut Random) -> String {
    let kind = random.one(&["join", "left join", "right join", "full join"]);
    let equal = match random.below(5) {
        0 => "x.t = y.t".to_owned(),
        1 => "x.k = y.k and y.t = x.t".to_owned(),
        2 => "x.id = y.id".to_owned(),
        _ => format!("x.{} = y.{}", random.one(&NUMBERS), random.one(&NUMBERS)),
    };
    let more = random.one(&["", "", " and x.id < y.id", " and x.k <> 3"]);
    let given = random.one(&["x.id, y.id", "x.k, y.k", "x.*, y.*", "x.t, y.id"]);
    let of_x = filter(random, "x");
    format!("select {given} from @a x {kind} @b y on {equal}{more} where {of_x}")
}

fn partners(random: &mut Random) -> String {
    let (own, other) = (random.one(&NUMBERS), random.one(&NUMBERS));
    let (of_x, of_y) = (filter(random, "x"), filter(random, "y"));
    let not = random.one(&["", "not "]);
    match random.below(2) {
        0 => format!(
            "select x.id from @a x where x.{own} in (select {other} from @b y where {of_y})"
        ),
        _ => format!(
            "select x.id, x.k from @a x where {of_x} and {not}exists \
             (select 1 from @b y where y.{other} = x.{own})"
        ),
    }
}

fn groups(random: &mut Random) -> String {
    let keys = random.one(&["k", "t", "k, t", "t, k", "id", "s", "s, k"]);
    let of_x = filter(random, "x");
    let calls = "count(*), min(id), count(distinct t), array_agg(s order by s, id)";
    let order = random.one(&["", " order by 1", " order by 1 desc"]);
    match random.below(4) {
        0 => format!("select distinct {keys} from @a x where {of_x}{order}"),
        1 => format!("select {keys}, count(*) from @a x where {of_x} group by {keys}{order}"),
        2 => format!(
            "select y.k, g.n from @b y join (select k, count(*) as n from @a x where {of_x} \
             group by k) g on g.k = y.k"
        ),
        _ => format!("select {keys}, {calls} from @a x where {of_x} group by {keys}"),
    }
}

fn ends(random: &mut Random) -> String {
    let of_x = filter(random, "x");
    let of = |random: &mut Random| {
        let name = random.one(&["min", "max"]);
        format!("{name}({})", random.one(&["k", "t", "id", "s"]))
    };
    match random.below(3) {
        0 => format!("select {} from @a x where {of_x}", of(random)),
        1 => format!("select {}, {} from @a x where {of_x}", of(random), of(random)),
        _ => format!("select count(*), count(k), sum(s) from @a x where {of_x}"),
    }
}

/// What a query begins with whose rows have an order.
const IN_ORDER: &str = "/* in order */";

/// An order in which no two rows are the same.
fn sorted(random: &mut Random) -> String {
    let first = random.one(&["k", "k desc", "k desc nulls last", "t, k", "t desc, k desc", "s"]);
    let last = random.one(&["id", "id desc"]);
    let given = random.one(&["id", "id, k", "id, t, k", "*"]);
    let of_x = filter(random, "x");
    let limit = random.one(&["", " limit 5", " limit 4 offset 3"]);
    format!("{IN_ORDER} select {given} from @a x where {of_x} order by {first}, {last}{limit}")
}

/// The rows of a query of tables whose names begin like this, in order if they have one.
async fn rows(session: &mut Session, query: &str, tables: &str) -> Vec<String> {
    let sql = query.replace('@', tables);
    let found = session.execute(&sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    let mut rows: Vec<String> = found[0].rows.iter().map(|row| format!("{row:?}")).collect();
    if !query.starts_with(IN_ORDER) {
        rows.sort();
    }
    rows
}

/// Tables `ka` and `kb` with keys, and `na` and `nb` with the same rows and none.
async fn fill(session: &mut Session) {
    for (table, rows) in [("a", 40), ("b", 90)] {
        for sql in [
            format!("create table k{table} (id int primary key, k int, t text, s smallint)"),
            format!("create index on k{table} (k)"),
            format!("create index on k{table} (k desc nulls last, t)"),
            format!("create index on k{table} (t, k desc)"),
            format!("create unique index on k{table} (s, id)"),
            format!(
                "insert into k{table} select i, nullif(i * 7 % 13, 5), 'c' || nullif(i % 4, 2), \
                 nullif(i % 6, 1) from generate_series(1, {rows}) i"
            ),
            format!("create table n{table} as select id, k, t, s from k{table}"),
        ] {
            session.execute(&sql).await.unwrap();
        }
    }
}

#[test]
fn what_comes_in_order_is_what_is_hashed_and_sorted() {
    with_session(async |session| {
        fill(session).await;
        let mut random = Random(0x5eed_0117);
        let forms = [join, partners, groups, ends, sorted];
        let queries: Vec<String> =
            (0..400).map(|at| forms[at % forms.len()](&mut random)).collect();
        let mut found = 0;
        for is_changed in [false, true] {
            session.execute("begin").await.unwrap();
            for tables in ["k", "n"] {
                if is_changed {
                    let sql = format!(
                        "update {tables}a set k = k + 1, t = 'c3' where id % 5 = 0; \
                         delete from {tables}b where id % 7 = 0; \
                         insert into {tables}b values (500, 3, null, null), (501, null, 'c0', 4)"
                    );
                    session.execute(&sql).await.unwrap();
                }
            }
            for query in &queries {
                let wanted = rows(session, query, "n").await;
                assert_eq!(rows(session, query, "k").await, wanted, "{query}");
                found += usize::from(!wanted.is_empty());
            }
            session.execute("rollback").await.unwrap();
        }
        assert!(found > 600, "{found} queries find rows");
    });
}
