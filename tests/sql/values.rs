//! Values of all types there and back, and columns that are not what was asked for.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use selkie::block_on;
use selkie::sql::{
    BigDecimal, ColumnError, Connection, Date, Datum, FromSql, Interval, QueryError, Scalar,
    SqlState, SqlType, Time, Timestamp, ToSql, Uuid,
};

use crate::open;

/// A value goes in as a parameter of a type, and comes out as it was.
async fn comes_back<T>(conn: &mut Connection, ty: &str, value: T, text: &str)
where
    T: FromSql + ToSql + Sync + PartialEq + std::fmt::Debug,
{
    let sql = format!("select $1::{ty} as value");
    let row = conn.query_one::<selkie::sql::Row>(&sql, &[&value]).await.unwrap();
    assert_eq!(row.get::<T>("value").unwrap(), value, "{ty}");
    assert_eq!(row.get::<Option<T>>(0).unwrap(), Some(value), "{ty}");
    assert_eq!(row.text("value").unwrap().as_deref(), Some(text), "{ty}");
    let row = conn.query_one::<selkie::sql::Row>(&sql, &[&None::<T>]).await.unwrap();
    assert_eq!(row.get::<Option<T>>("value").unwrap(), None, "{ty}");
    assert!(matches!(row.get::<T>("value"), Err(ColumnError::Null { .. })), "{ty}");
    assert_eq!(row.text("value").unwrap(), None, "{ty}");
    // As text, a value of any type goes in.
    let row = conn.query_one::<selkie::sql::Row>(&sql, &[&text]).await.unwrap();
    assert_eq!(row.text("value").unwrap().as_deref(), Some(text), "{ty}");
}

#[test]
fn values_of_all_types_come_back() {
    block_on(async {
        let db = open().await;
        let conn = &mut db.connect().unwrap();
        comes_back(conn, "bool", true, "t").await;
        comes_back(conn, "smallint", -7_i16, "-7").await;
        comes_back(conn, "int", i32::MIN, "-2147483648").await;
        comes_back(conn, "bigint", i64::MAX, "9223372036854775807").await;
        comes_back(conn, "real", 1.5_f32, "1.5").await;
        comes_back(conn, "double precision", -0.1_f64, "-0.1").await;
        let number: BigDecimal = "-12345678901234567890.0012".parse().unwrap();
        comes_back(conn, "numeric", number, "-12345678901234567890.0012").await;
        comes_back(conn, "text", "a\n\u{e4}".to_owned(), "a\n\u{e4}").await;
        comes_back(conn, "varchar(3)", Arc::<str>::from("abc"), "abc").await;
        comes_back(conn, "bytea", vec![0_u8, 255], "\\x00ff").await;
        comes_back(conn, "date", Date::new(2024, 2, 29).unwrap(), "2024-02-29").await;
        comes_back(conn, "date", Date::INFINITY, "infinity").await;
        comes_back(conn, "time", Time::of_microseconds(1).unwrap(), "00:00:00.000001").await;
        let moment = Timestamp::of_microseconds(-1);
        comes_back(conn, "timestamp", moment, "1999-12-31 23:59:59.999999").await;
        let moment = UNIX_EPOCH + Duration::from_secs(86_400);
        comes_back(conn, "timestamptz", moment, "1970-01-02 00:00:00+00").await;
        let interval = Interval { months: 1, days: 2, microseconds: 3_000_000 };
        comes_back(conn, "interval", interval, "1 mon 2 days 00:00:03").await;
        let id: Uuid = "00112233-4455-6677-8899-aabbccddeeff".parse().unwrap();
        comes_back(conn, "uuid", id, "00112233-4455-6677-8899-aabbccddeeff").await;
        comes_back(conn, "jsonb", "{\"a\": 1}".to_owned(), "{\"a\": 1}").await;
        comes_back(conn, "int[]", vec![1, 2], "{1,2}").await;
        comes_back(conn, "int[]", Vec::<i32>::new(), "{}").await;
        comes_back(conn, "text[]", vec![Some("a".to_owned()), None], "{a,NULL}").await;
    });
}

#[test]
fn numbers_are_read_without_loss_and_given_in_range() {
    block_on(async {
        let db = open().await;
        let mut conn = db.connect().unwrap();
        let wide = "select 1::smallint, 2::int, 1.5::real, 7::oid";
        let row = conn.query_one::<(i64, i64, f64, i64)>(wide, &[]).await.unwrap();
        assert_eq!(row, (1, 2, 1.5, 7));
        let narrow = conn.query_one::<(i32,)>("select 1::bigint as big", &[]).await.unwrap_err();
        let shown = "column \"big\" is of type bigint, which cannot be read as i32";
        assert_eq!(narrow.to_string(), shown);
        assert_eq!(narrow.state(), SqlState::DATATYPE_MISMATCH);
        for (sql, value) in [
            ("select $1::smallint", &40_000_i32 as &(dyn ToSql + Sync)),
            ("select $1::int", &i64::MAX),
            ("select $1::real", &1e300_f64),
            ("select $1::real", &-1e-300_f64),
            ("select $1::numeric", &"1e200000".parse::<BigDecimal>().unwrap()),
        ] {
            let error = conn.query(sql, &[value]).await.unwrap_err();
            assert_eq!(error.state(), SqlState::NUMERIC_OUT_OF_RANGE, "{sql}: {error}");
        }
        let late = SystemTime::UNIX_EPOCH + Duration::from_secs(1 << 62);
        let error = conn.query("select $1::timestamptz", &[&late]).await.unwrap_err();
        assert_eq!(error.state(), SqlState::DATETIME_OVERFLOW);
        for (sql, value) in [
            ("select $1::date", &Date::of_days(-2_451_546) as &(dyn ToSql + Sync)),
            ("select $1::date", &Date::of_days(2_145_031_949)),
            ("select $1::timestamp", &Timestamp::of_microseconds(i64::MIN + 1)),
            ("select $1::timestamptz", &Timestamp::of_microseconds(i64::MAX - 1)),
        ] {
            let error = conn.query(sql, &[value]).await.unwrap_err();
            assert_eq!(error.state(), SqlState::DATETIME_OVERFLOW, "{sql}: {error}");
        }
    });
}

#[test]
fn a_datum_fits_its_own_type_alone() {
    block_on(async {
        let db = open().await;
        let mut conn = db.connect().unwrap();
        let sql = "select 1::int, 2::bigint, 'a'::varchar, '[]'::jsonb, '{1,null}'::int[],
            '{}'::text[], null::int, 7::oid, 'infinity'::timestamptz";
        let row = conn.query_one::<selkie::sql::Row>(sql, &[]).await.unwrap();
        let types = "int bigint varchar jsonb int[] text[] int oid timestamptz";
        for (at, ty) in types.split(' ').enumerate() {
            let value = row.get::<Datum>(at).unwrap();
            let back = format!("select $1::{ty}");
            let back = conn.query_one::<selkie::sql::Row>(&back, &[&value]).await.unwrap();
            assert_eq!(back.text(0).unwrap(), row.text(at).unwrap(), "{ty}");
        }
        for (at, ty) in [(0, "bigint"), (1, "int"), (2, "jsonb"), (4, "bigint[]"), (5, "text")] {
            let value = row.get::<Datum>(at).unwrap();
            let error = conn.query(&format!("select $1::{ty}"), &[&value]).await.unwrap_err();
            assert_eq!(error.state(), SqlState::DATATYPE_MISMATCH, "{ty}: {error}");
        }
    });
}

#[test]
fn columns_that_are_not_as_asked_for_are_typed_errors() {
    block_on(async {
        let db = open().await;
        let mut conn = db.connect().unwrap();
        let sql = "select 1 as a, 'NaN'::numeric as n, 2 as twice, 3 as twice, '{{1}}'::int[] as m,
            'infinity'::timestamptz as t";
        let rows = conn.query(sql, &[]).await.unwrap();
        let row = &rows[0];
        assert_eq!(row.get::<i32>("a").unwrap(), 1);
        assert!(
            matches!(row.get::<i32>("b"), Err(ColumnError::NoName { name, .. }) if name == "b")
        );
        let outside = row.get::<i32>(6);
        assert!(matches!(outside, Err(ColumnError::NoIndex { index: 6, count: 6 })));
        assert!(matches!(row.get::<i32>("twice"), Err(ColumnError::Ambiguous { .. })));
        assert_eq!(row.get::<i32>(3).unwrap(), 3);
        let nan = row.get::<BigDecimal>("n").unwrap_err();
        assert!(matches!(&nan, ColumnError::Value { value, .. } if value == "NaN"), "{nan}");
        assert!(matches!(row.get::<Vec<i32>>("m"), Err(ColumnError::Value { .. })));
        assert!(matches!(row.get::<SystemTime>("t"), Err(ColumnError::Value { .. })));
        assert!(matches!(row.get::<Datum>("m").unwrap(), Datum::Array(_)));
        let bytes = row.get::<Vec<u8>>("a").unwrap_err();
        let expected = SqlType::new(Scalar::Int4);
        assert!(matches!(bytes, ColumnError::Type { found, .. } if found == expected), "{bytes}");
        let pair = conn.query_one::<(i32, i32)>("select 1", &[]).await.unwrap_err();
        let count = ColumnError::Count { found: 1, wanted: 2 };
        assert_eq!(pair.to_string(), QueryError::from(count).to_string());
        let error = conn.query("select $1::text", &[&"a\0"]).await.unwrap_err();
        assert_eq!(error.state(), SqlState::CHARACTER_NOT_IN_REPERTOIRE);
        let error = conn.query("select $1::text", &[&1]).await.unwrap_err();
        assert_eq!(error.state(), SqlState::DATATYPE_MISMATCH);
    });
}
