//! The tables that columns of a statement are of.

use selkie_sql::{ColumnOrigin, Datum};

use super::with_session;

#[test]
fn columns_tell_of_which_table_they_are() {
    with_session(async |session| {
        let tables = "create table t (a int, b text); create table u (c int primary key, a int)";
        session.execute(tables).await.unwrap();
        let found = session.execute("select 't'::regclass::oid, 'u'::regclass::oid").await.unwrap();
        let [Datum::I64(t), Datum::I64(u)] = found[0].rows[0][..] else { panic!("no numbers") };
        let of = |table: i64, column| {
            Some(ColumnOrigin { table: u32::try_from(table).unwrap(), column })
        };
        for (sql, expected) in [
            ("select b, a, a + 1 from t", vec![of(t, 2), of(t, 1), None]),
            ("select * from t", vec![of(t, 1), of(t, 2)]),
            ("select u.a, t.b as x from t join u on u.c = t.a", vec![of(u, 2), of(t, 2)]),
            ("select u.a from t, u order by t.b limit 1", vec![of(u, 2)]),
            ("select distinct a from t", vec![of(t, 1)]),
            ("with s as (select 1) select a from t", vec![of(t, 1)]),
            ("select b from t union select b from t", vec![None]),
            ("select a, count(*) from t group by a", vec![None, None]),
            ("select a from (select a from t) s", vec![None]),
        ] {
            let prepared = session.prepare(sql, &[]).await.unwrap();
            let origins: Vec<_> = prepared.columns().iter().map(|own| own.origin).collect();
            assert_eq!(origins, expected, "{sql}");
        }
    });
}

#[test]
fn a_statement_goes_on_with_a_table_of_the_same_columns() {
    with_session(async |session| {
        session.execute("create table t (a int)").await.unwrap();
        let prepared = session.prepare("select a from t", &[]).await.unwrap();
        let again = "drop table t; create table t (b text, a int); insert into t values ('x', 7)";
        session.execute(again).await.unwrap();
        let outcome = session.run_prepared(&prepared, Vec::new()).await.unwrap().unwrap();
        assert!(matches!(outcome.rows[0][..], [Datum::I32(7)]));
    });
}
