//! Conditions that a key is read for find the same rows as those that none is.

use std::fmt::Write;

use selkie_sql::Session;

use super::random::Random;
use super::with_session;

const WHOLE: &[&str] = &[
    "null",
    "-3",
    "0",
    "1::int2",
    "2",
    "3::int8",
    "5::int4",
    "'7'",
    "32767",
    "32768",
    "-32769",
    "2147483648",
    "-2147483649",
    "9223372036854775807",
    "-9223372036854775808",
    "2.0",
    "2.5",
    "-2.5",
    "1e30",
    "-1e30",
    "'NaN'::numeric",
    "3::float8",
    "2.5::float8",
    "-0.5::float4",
    "'NaN'::float8",
    "'-Infinity'::float8",
    "'-0'::float8",
    "(1 + 1)",
];
const FLOATS: &[&str] = &[
    "null",
    "0",
    "1",
    "'-0'",
    "'-0'::float8",
    "0.5::float4",
    "0.1::float8",
    "0.1::float4",
    "0.1::numeric",
    "1e-300::float8",
    "-1e-300::float8",
    "1e300::float8",
    "'NaN'",
    "'NaN'::float4",
    "'Infinity'",
    "'-Infinity'::float8",
    "2::int8",
    "2.5",
];
const TEXTS: &[&str] = &[
    "null",
    "''",
    "'a'",
    "'ab'",
    "'ab '::text",
    "'abc'::varchar",
    "'abc  '::char(5)",
    "'b'",
    "'é'",
    "'a%'",
    "'a text that is longer than any column'",
    "'ab'::name",
    "'B'::varchar(1)",
];
const MOMENTS: &[&str] = &[
    "null",
    "'2024-03-01'::date",
    "'2024-03-02 00:00'::timestamp",
    "'2024-03-02 12:00'::timestamp",
    "'2024-03-02 00:00+00'::timestamptz",
    "'2024-03-02 05:30+05:30'::timestamptz",
    "'2024-03-01 23:59:59.999999'::timestamp",
    "'infinity'::timestamp",
    "'-infinity'::date",
    "'infinity'::timestamptz",
    "'1999-12-31'::date",
    "'2030-01-01 00:00+00'::timestamptz",
];
const INTERVALS: &[&str] =
    &["null", "'1 mon'::interval", "'30 days'::interval", "'720:00:00'::interval", "'0'::interval"];
const BYTES: &[&str] = &["null", "'\\x'::bytea", "'\\x00'::bytea", "'\\x00ff'", "'\\xff'::bytea"];
const ARRAYS: &[&str] = &[
    "null::int[]",
    "'{}'::int[]",
    "'{1}'::int[]",
    "'{1,null}'::int[]",
    "'{1,2}'::int[]",
    "'[0:1]={1,2}'::int[]",
];
const DECIMAL_ARRAYS: &[&str] =
    &["null::numeric[]", "'{1.0}'::numeric[]", "'{1}'::numeric[]", "'{2.50,1}'::numeric[]"];

/// Types of keys, with what rows have and what they are compared with.
const TYPES: &[(&str, &[&str], &[&str])] = &[
    ("smallint", &["-32768", "-3", "0", "1", "2", "3", "7", "32767"], WHOLE),
    ("integer", &["-2147483648", "-3", "0", "1", "2", "3", "7", "2147483647"], WHOLE),
    (
        "bigint",
        &["-9223372036854775808", "-3", "0", "1", "2", "3", "32768", "9223372036854775807"],
        WHOLE,
    ),
    ("numeric", &["-2.5", "-3", "0", "2.00", "2.5", "3", "1e29", "9223372036854775807"], WHOLE),
    ("numeric(8,2)", &["-2.5", "-3", "0", "2.00", "2.5", "3", "7"], WHOLE),
    ("real", &["'NaN'", "'Infinity'", "'-0'", "0", "0.1", "0.5", "1", "2.5"], FLOATS),
    ("double precision", &["'NaN'", "'-Infinity'", "'-0'", "0", "0.1", "0.5", "2", "2.5"], FLOATS),
    ("text", &["''", "'a'", "'ab'", "'ab '", "'abc'", "'b'", "'é'", "'a%'"], TEXTS),
    ("varchar(6)", &["''", "'a'", "'ab'", "'ab '", "'abc'", "'b'", "'é'", "'B'"], TEXTS),
    ("char(5)", &["''", "'a'", "'ab'", "'abc'", "'b'", "'é'", "'a%'"], TEXTS),
    (
        "date",
        &["'-infinity'", "'2024-02-29'", "'2024-03-01'", "'2024-03-02'", "'infinity'"],
        MOMENTS,
    ),
    (
        "timestamp",
        &["'-infinity'", "'2024-03-01'", "'2024-03-02 12:00'", "'2024-03-02'", "'infinity'"],
        MOMENTS,
    ),
    (
        "timestamptz",
        &["'-infinity'", "'2024-03-01'", "'2024-03-02 12:00'", "'2024-03-02 00:00+00'"],
        MOMENTS,
    ),
    ("interval", &["'1 mon'", "'29 days'", "'30 days'", "'0'", "'720:00:00'"], INTERVALS),
    ("bytea", &["'\\x'", "'\\x00'", "'\\x00ff'", "'\\xff'"], BYTES),
    ("integer[]", &["'{}'", "'{1}'", "'{1,null}'", "'{1,2}'", "'[0:1]={1,2}'"], ARRAYS),
    ("numeric[]", &["'{1.0}'", "'{1}'", "'{2.5,1}'"], DECIMAL_ARRAYS),
];

/// A condition of `column`.
fn condition(column: &str, values: &[&str], is_text: bool, random: &mut Random) -> String {
    let comparisons = ["=", "<", "<=", ">", ">="];
    let mut value = || random.one(values).to_owned();
    let (one, two, three) = (value(), value(), value());
    let op = random.one(&comparisons);
    match random.below(if is_text { 13 } else { 11 }) {
        0..3 => format!("{column} {op} {one}"),
        3 => format!("{one} {op} {column}"),
        4 => format!("{column} between {one} and {two}"),
        5 => format!("{column} in ({one}, {two}, {three})"),
        6 => format!("{column} = any(array[{one}, {two}])"),
        7 => format!("{column} = {one} or {column} in ({two}) or {three} = {column}"),
        8 => format!("({column}, n) {op} ({one}, 2)"),
        9 => format!("{column} >= {one} and {column} < {two}"),
        10 => format!("{column} {op} (select {one})"),
        11 => format!("{column} like {one}"),
        _ => format!("{column} like {one} || '%'"),
    }
}

/// What a statement gives, or the state of its error.
async fn outcome(session: &mut Session, sql: &str) -> String {
    match session.execute(sql).await {
        Ok(outcomes) => {
            let last = outcomes.last().unwrap();
            let mut rows: Vec<String> =
                last.rows.iter().map(|row| format!("{:?}", row[0])).collect();
            rows.sort();
            format!("{} {}", last.tag, rows.join(" "))
        }
        Err(error) => error.state().code().to_owned(),
    }
}

#[test]
fn what_keys_find_is_what_scans_find() {
    with_session(async |session| {
        let mut random = Random(0x5eed_0024);
        let (mut tried, mut found) = (0, 0);
        for (ty, rows, values) in TYPES {
            let order = ["", " desc", " nulls first", " desc nulls last"][random.below(4)];
            let table = format!("create table t (id integer primary key, n integer, k {ty})");
            session.execute(&table).await.unwrap();
            for columns in [format!("k{order}"), format!("n, k{order}"), format!("k{order}, n")] {
                session.execute(&format!("create index on t ({columns})")).await.unwrap();
            }
            let mut sql = String::new();
            for (id, value) in rows.iter().chain(&["null"]).chain(*rows).enumerate() {
                write!(sql, "insert into t values ({id}, {}, {value}); ", id % 3).unwrap();
            }
            session.execute(&sql).await.unwrap();
            let is_text = matches!(*ty, "text" | "varchar(6)" | "char(5)");
            for round in 0..90 {
                if round % 30 == 0 {
                    let zone = ["'UTC'", "'+05:30'", "'-03:00'"][round / 30];
                    session.execute(&format!("set time zone {zone}")).await.unwrap();
                }
                let before = match random.below(3) {
                    0 => "n = 1 and ",
                    1 => "n in (0, 2) and ",
                    _ => "",
                };
                let seed = random.0;
                let keyed = condition("k", values, is_text, &mut random);
                // The same, of a column that has no key.
                let plain = condition("coalesce(k, null)", values, is_text, &mut Random(seed));
                let hidden = before.replacen("n ", "coalesce(n, null) ", 1);
                for form in ["select id from t where", "update t set n = n where"] {
                    let one = format!("{form} {before}({keyed})");
                    let other = format!("{form} {hidden}({plain})");
                    let by_key = outcome(session, &one).await;
                    let by_scan = outcome(session, &other).await;
                    assert_eq!(by_key, by_scan, "{ty}{order}: {one}");
                    tried += 1;
                    let finds = by_key.contains("I32") || by_key.starts_with("UPDATE");
                    found += usize::from(finds && by_key != "UPDATE 0 ");
                }
            }
            session.execute("drop table t").await.unwrap();
        }
        // Most are no errors, and many find rows.
        assert!(found * 8 > tried, "{found} of {tried} find rows");
    });
}

/// Sides of joins that are of types of their own.
#[test]
fn joins_of_other_types_find_what_all_pairs_find() {
    with_session(async |session| {
        let numbers = ["smallint", "integer", "bigint", "numeric", "real", "double precision"];
        for (at, ty) in numbers.iter().enumerate() {
            for sql in [
                format!("create table t{at} (id integer primary key, k {ty})"),
                format!("create index on t{at} (k)"),
                format!("insert into t{at} select i, i % 7 - 3 from generate_series(1, 20) i"),
                format!("insert into t{at} values (21, null), (22, 32767), (23, {at} + 0.1)"),
            ] {
                session.execute(&sql).await.unwrap();
            }
        }
        for (left, right) in (0..6).flat_map(|left| (0..6).map(move |right| (left, right))) {
            // Of what is neither a column nor an equation no key and no hash table is made.
            let pair = "coalesce(a.k, null) >= coalesce(b.k, null) and \
                        coalesce(a.k, null) <= coalesce(b.k, null)";
            for (keyed, scanned) in [
                ("a join t2 b on a.k = b.k".to_owned(), format!("a join t2 b on {pair}")),
                (
                    "a join t2 b on a.k = b.k and a.id = 5".to_owned(),
                    format!("a join t2 b on {pair} and a.id = 5"),
                ),
                (
                    "a, lateral (select b.id from t2 b where b.k = a.k) b".to_owned(),
                    format!("a, lateral (select b.id from t2 b where {pair}) b"),
                ),
            ] {
                let query = |joined: &str| {
                    let joined = joined.replace("t2", &format!("t{right}"));
                    format!("select a.id * 100 + b.id from t{left} {joined}")
                };
                let found = outcome(session, &query(&keyed)).await;
                assert_eq!(found, outcome(session, &query(&scanned)).await, "{}", query(&keyed));
            }
            let within = |operand: &str| {
                format!("select id from t{left} where {operand} in (select k from t{right})")
            };
            let found = outcome(session, &within("k")).await;
            let any = format!(
                "select id from t{left} where coalesce(k, null) = any(array(select k from t{right}))"
            );
            assert_eq!(found, outcome(session, &any).await, "{}", within("k"));
        }
    });
}

/// A parameter is what else it is used for, and its width is not that of the column.
#[test]
fn parameters_of_any_width_find_keys() {
    use selkie_sql::Datum;
    with_session(async |session| {
        for sql in [
            "create table p (id bigint primary key, n smallint, v varchar(9))",
            "create index on p (n)",
            "create index on p (v)",
            "insert into p select i, i, 'v' || i from generate_series(1, 30) i",
        ] {
            session.execute(sql).await.unwrap();
        }
        let ten = || [Datum::I16(10), Datum::I32(10), Datum::I64(10)];
        let widths = ["int2", "int4", "int8"];
        for (column, value, width) in ["id", "n"]
            .iter()
            .flat_map(|column| ten().into_iter().zip(widths).map(move |(v, w)| (column, v, w)))
        {
            let plan = format!("explain select id from p where {column} = $1::{width}");
            let lines = session.query(&plan, vec![value.clone()]).await.unwrap().rows;
            assert!(format!("{lines:?}").contains("Index Cond"), "{lines:?}");
            let query = format!("select id from p where {column} = $1::{width}");
            let rows = session.query(&query, vec![value]).await.unwrap().rows;
            assert_eq!(format!("{rows:?}"), "[[I64(10)]]", "{query}");
        }
        for (pattern, wanted) in [("v2%", 11), ("%2", 3), ("v7", 1), ("", 0)] {
            let query = "select id from p where v like $1";
            let found = session.query(query, vec![Datum::text(pattern)]).await.unwrap();
            assert_eq!(found.rows.len(), wanted, "{pattern}");
        }
        for (filter, value, wanted) in [
            ("$1 is null or id = $1", Datum::I64(7), 1),
            ("$1 is null or id = $1", Datum::Null, 30),
            ("n = $1 or $1 is null", Datum::I16(7), 1),
            ("n = $1 or $1 is null", Datum::Null, 30),
            ("$1 is not null and v = $1", Datum::text("v7"), 1),
            ("id = coalesce($1, 5)", Datum::Null, 1),
            ("case when $1 is null then true else n = $1 end", Datum::Null, 30),
            ("nullif($1, 4) = id", Datum::I32(5), 1),
        ] {
            let query = format!("select id from p where {filter}");
            let found = session.query(&query, vec![value]).await.unwrap();
            assert_eq!(found.rows.len(), wanted, "{query}");
        }
        // Nothing tells its type.
        let error = session.prepare("select $1 is null", &[]).await.err().unwrap();
        assert_eq!(error.state().code(), "42P18");
    });
}
