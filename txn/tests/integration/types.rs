//! Columns of every type, keys in every order, and NULLs in unique indexes: what scans show is what
//! a model shows that is sorted in memory.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code")]

use std::cmp::Ordering;
use std::ops::ControlFlow;

use selkie_txn::{
    ColumnType, Database, DatabaseSchema, Decimal, Direction, IndexSchema, Interval, KeyOrder,
    KeyRange, Protocol, RowMut, RowRef, Source, Table, TableSchema, TxnError, Value, key,
};

use crate::common::{Cluster, check};

const ROWS: i64 = 240;

const ASC: KeyOrder = KeyOrder::ASCENDING;
const DESC: KeyOrder = KeyOrder::DESCENDING;

/// A row of the table with all types.
#[derive(Clone, Debug)]
struct Item {
    /// In thousandths.
    price: i64,
    name: String,
    flag: Option<bool>,
    small: Option<i16>,
    n: i32,
    big: i64,
    single: Option<f32>,
    double: Option<f64>,
    day: Option<i32>,
    time: Option<i64>,
    moment: Option<i64>,
    span: Option<Interval>,
    id: [u8; 16],
    /// In hundredths.
    amount: Option<i64>,
    blob: Option<Vec<u8>>,
    doc: Option<Vec<u8>>,
}

const FLAG: usize = 2;
const SMALL: usize = 3;
const SINGLE: usize = 6;
const DOUBLE: usize = 7;
const DAY: usize = 8;
const TIME: usize = 9;
const MOMENT: usize = 10;
const SPAN: usize = 11;
const ID: usize = 12;
const AMOUNT: usize = 13;
const BLOB: usize = 14;
const DOC: usize = 15;

fn schema() -> TableSchema {
    TableSchema::new("item")
        .column("price", ColumnType::Decimal(30))
        .column("name", ColumnType::Text(12))
        .nullable_column("flag", ColumnType::Bool)
        .nullable_column("small", ColumnType::I16)
        .column("n", ColumnType::I32)
        .column("big", ColumnType::I64)
        .nullable_column("single", ColumnType::F32)
        .nullable_column("double", ColumnType::F64)
        .nullable_column("day", ColumnType::Date)
        .nullable_column("time", ColumnType::Time)
        .nullable_column("moment", ColumnType::Timestamp)
        .nullable_column("span", ColumnType::Interval)
        .column("id", ColumnType::Uuid)
        .nullable_column("amount", ColumnType::Decimal(12))
        .nullable_column("blob", ColumnType::Bytes(6))
        .nullable_column("doc", ColumnType::Json(20))
        .primary_key([0, 1])
        .primary_key_order([DESC, ASC])
        .index("by_span", [SPAN])
        .with_index(IndexSchema::new("by_day", [DAY, 1]).order([DESC.nulls_last(), DESC]))
        .with_index(IndexSchema::new("by_flag", [FLAG, DOUBLE]).order([ASC.nulls_last(), DESC]))
        .with_index(IndexSchema::new("by_amount", [AMOUNT, SINGLE]).order([DESC, ASC]))
        .with_index(IndexSchema::new("by_moment", [MOMENT, TIME]).order([ASC, DESC.nulls_last()]))
        .with_index(IndexSchema::new("by_id", [ID]).order([DESC]).unique())
        .with_index(
            IndexSchema::new("by_small", [SMALL, BLOB])
                .order([DESC, ASC.nulls_last()])
                .unique()
                .nulls_distinct(),
        )
}

/// Thousandths as a decimal with a number of zeroes that varies.
fn decimal(units: i64, of: i64, zeroes: i64) -> Decimal {
    let sign = if units < 0 { "-" } else { "" };
    let (whole, part) = (units.abs() / of, units.abs() % of);
    let width = of.ilog10() as usize;
    let zeroes = "0".repeat(usize::try_from(zeroes).unwrap());
    format!("{sign}{whole}.{part:0width$}{zeroes}").parse().unwrap()
}

/// The item of that number. Values repeat in most columns.
fn item(number: i64) -> Item {
    // Each column is NULL in its own share of the rows.
    let mix = |by: i64| (number * 7919 + by * 104_729).rem_euclid(10_007);
    let pick = |by: i64, of: i64| (mix(by) % 5 != 0).then(|| mix(by + 50) % of - of / 2);
    let doubles = [-f64::INFINITY, -1.5, -0.0, 0.0, 1e-300, 2.0, f64::INFINITY, f64::NAN];
    let double = |by| pick(by, 8).map(|at| doubles[usize::try_from(at + 4).unwrap()]);
    let id =
        u128::from(number.cast_unsigned()).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    Item {
        price: (mix(1) % 41 - 20) * 125,
        name: number.to_string(),
        flag: pick(2, 2).map(|at| at == 0),
        small: (number % 3 == 0).then(|| i16::try_from(number - ROWS / 2).unwrap()),
        n: i32::try_from(mix(4)).unwrap(),
        big: i64::MIN + mix(5),
        single: double(6).map(|float| float as f32),
        double: double(7),
        day: pick(8, 9).map(|day| i32::try_from(day).unwrap() * 300),
        time: pick(9, 5).map(|at| (at + 2) * 21_600_000_000),
        moment: pick(10, 7).map(|at| if at == 3 { i64::MAX } else { at * 1_000_000_007 }),
        span: pick(11, 12).map(|at| {
            let (months, days) = (i32::try_from(at % 3).unwrap(), i32::try_from(at * 10).unwrap());
            Interval { months, days, microseconds: at % 2 * 86_400_000_000 }
        }),
        id: id.to_be_bytes(),
        amount: pick(13, 60),
        blob: pick(14, 4).map(|at| vec![0; usize::try_from(at + 2).unwrap()]),
        doc: pick(15, 4).map(|at| format!("{{\"a\":{at}}}").into_bytes()),
    }
}

impl Item {
    /// Shows `visit` the value of each column, in order.
    fn values(&self, visit: &mut dyn FnMut(usize, Value<'_>)) {
        fn or_null<'a, T>(value: Option<T>, make: fn(T) -> Value<'a>) -> Value<'a> {
            value.map_or(Value::Null, make)
        }
        let price = decimal(self.price, 1000, self.price.rem_euclid(3));
        let amount = self.amount.map(|amount| decimal(amount, 100, amount.rem_euclid(2)));
        let values = [
            Value::Decimal(price.as_ref()),
            Value::Text(&self.name),
            or_null(self.flag, Value::Bool),
            or_null(self.small, Value::I16),
            Value::I32(self.n),
            Value::I64(self.big),
            or_null(self.single, Value::F32),
            or_null(self.double, Value::F64),
            or_null(self.day, Value::Date),
            or_null(self.time, Value::Time),
            or_null(self.moment, Value::Timestamp),
            or_null(self.span, Value::Interval),
            Value::Uuid(self.id),
            amount.as_ref().map_or(Value::Null, |amount| Value::Decimal(amount.as_ref())),
            or_null(self.blob.as_deref(), Value::Bytes),
            or_null(self.doc.as_deref(), Value::Json),
        ];
        values.into_iter().enumerate().for_each(|(column, value)| visit(column, value));
    }

    /// All values as text; NaN is like itself, and a decimal has its zeroes.
    fn shown(&self) -> Vec<String> {
        let mut shown = Vec::new();
        self.values(&mut |_, value| shown.push(format!("{value:?}")));
        shown
    }

    fn key(&self, db: &Database, table: Table) -> selkie_txn::KeyBuf {
        let price = decimal(self.price, 1000, 0);
        db.key(table, &[Value::Decimal(price.as_ref()), Value::Text(&self.name)]).unwrap()
    }
}

fn shown(row: RowRef<'_>) -> Vec<String> {
    (0..=DOC).map(|column| format!("{:?}", row.value(column).unwrap())).collect()
}

/// The order of two values that may be NULL.
fn ordered<T>(
    order: KeyOrder,
    a: &Option<T>,
    b: &Option<T>,
    compare: impl Fn(&T, &T) -> Ordering,
) -> Ordering {
    match (a, b) {
        (Some(a), Some(b)) if order.descending => compare(b, a),
        (Some(a), Some(b)) => compare(a, b),
        _ if order.nulls_last => a.is_none().cmp(&b.is_none()),
        _ => b.is_none().cmp(&a.is_none()),
    }
}

fn floats(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

fn by_primary(a: &Item, b: &Item) -> Ordering {
    b.price.cmp(&a.price).then_with(|| a.name.cmp(&b.name))
}

/// The order of an index, before that of the primary key.
fn by_index(index: &str, a: &Item, b: &Item) -> Ordering {
    let hours = |span: &Interval| {
        24 * (30 * span.months + span.days)
            + i32::try_from(span.microseconds / 3_600_000_000).unwrap()
    };
    match index {
        "by_span" => ordered(ASC, &a.span, &b.span, |a, b| hours(a).cmp(&hours(b))),
        "by_day" => {
            let day = ordered(DESC.nulls_last(), &a.day, &b.day, Ord::cmp);
            day.then_with(|| b.name.cmp(&a.name))
        }
        "by_flag" => ordered(ASC.nulls_last(), &a.flag, &b.flag, Ord::cmp)
            .then_with(|| ordered(DESC, &a.double, &b.double, |&a, &b| floats(a, b))),
        "by_amount" => ordered(DESC, &a.amount, &b.amount, Ord::cmp)
            .then_with(|| ordered(ASC, &a.single, &b.single, |&a, &b| floats(a.into(), b.into()))),
        "by_moment" => ordered(ASC, &a.moment, &b.moment, Ord::cmp)
            .then_with(|| ordered(DESC.nulls_last(), &a.time, &b.time, Ord::cmp)),
        "by_id" => b.id.cmp(&a.id),
        "by_small" => ordered(DESC, &a.small, &b.small, Ord::cmp)
            .then_with(|| ordered(ASC.nulls_last(), &a.blob, &b.blob, Ord::cmp)),
        _ => panic!("no such index: {index}"),
    }
}

async fn scan(db: &Database, source: Source, range: &KeyRange, to: Direction) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    let mut txn = db.begin();
    txn.scan(source, range, to, |row| {
        rows.push(shown(row));
        Ok(ControlFlow::Continue(()))
    })
    .await
    .unwrap();
    txn.commit().await.unwrap();
    rows
}

/// Compares row by row, so that a failure shows one.
fn same_rows(source: &str, rows: &[Vec<String>], expected: &[Vec<String>]) {
    assert_eq!(rows.len(), expected.len(), "rows by {source}");
    for (at, (row, expected)) in rows.iter().zip(expected).enumerate() {
        assert_eq!(row, expected, "row {at} by {source}");
    }
}

/// Compares all scans with the model.
async fn compare(db: &Database, table: Table, model: &[Item]) {
    let mut sorted = model.to_vec();
    sorted.sort_by(by_primary);
    let mut sources = vec![("primary key", Source::from(table), sorted.clone())];
    for index in &db.schema(table).unwrap().indexes {
        let mut rows = sorted.clone();
        // It is stable: where keys agree, the primary key decides.
        rows.sort_by(|a, b| by_index(&index.name, a, b));
        sources.push((&index.name, db.index("item", &index.name).unwrap().into(), rows));
    }
    for (name, source, rows) in sources {
        let mut expected: Vec<_> = rows.iter().map(Item::shown).collect();
        let all = KeyRange::all();
        same_rows(name, &scan(db, source, &all, Direction::Forward).await, &expected);
        expected.reverse();
        same_rows(name, &scan(db, source, &all, Direction::Reverse).await, &expected);
    }
}

async fn insert(db: &Database, table: Table, items: &[Item]) {
    let mut txn = db.begin();
    for item in items {
        let mut row = db.row(table).unwrap();
        item.values(&mut |_, value| _ = row.value(value));
        txn.insert(table, row.finish().unwrap()).await.unwrap();
    }
    txn.commit().await.unwrap();
}

/// Gives every column of a row that may change the value of another item.
async fn update(db: &Database, table: Table, from: &Item, to: &Item) {
    let mut txn = db.begin();
    let change = |row: &mut RowMut<'_>| {
        let mut result = Ok(());
        to.values(&mut |column, value| {
            if column > 1 && result.is_ok() {
                result = row.set(column, value);
            }
        });
        Ok(result?)
    };
    txn.update(table, &from.key(db, table), change).await.unwrap();
    txn.commit().await.unwrap();
}

/// Runs a test on two nodes for each protocol.
fn with_tables(tables: &[TableSchema], test: impl AsyncFn(&[Database])) {
    for protocol in Protocol::ALL {
        println!("{protocol}");
        let cluster = Cluster::start(2, 1024);
        let databases = cluster.create(DatabaseSchema::from(tables.to_vec()).protocol(protocol));
        let with = |db: Database| db.with_protocol(protocol).unwrap();
        let databases: Vec<_> = databases.into_iter().map(with).collect();
        cluster.runtime.block_on(test(&databases));
        drop(databases);
        cluster.close();
    }
}

#[test]
fn scans_of_all_types_and_orders_show_what_a_model_shows() {
    with_tables(&[schema()], async |databases| {
        let [db, other] = databases else { panic!("two nodes") };
        let table = db.table("item").unwrap();
        let mut model: Vec<Item> = (0..ROWS).map(|number| item(number * 77 % ROWS)).collect();
        for items in model.chunks(24) {
            insert(db, table, items).await;
        }
        compare(other, table, &model).await;
        // Each row that is changed gets what a row has that was never there, but for its key.
        for at in (0..model.len()).step_by(3) {
            let old = model[at].clone();
            let number: i64 = old.name.parse().unwrap();
            let new = Item { price: old.price, name: old.name.clone(), ..item(number + 3 * ROWS) };
            update(other, table, &old, &new).await;
            model[at] = new;
        }
        let mut txn = db.begin();
        for _ in 0..40 {
            let gone = model.swap_remove(model.len() / 2);
            txn.delete(table, &gone.key(db, table)).await.unwrap();
        }
        txn.commit().await.unwrap();
        compare(db, table, &model).await;
        check(db).await;
        let mut txn = other.begin();
        for item in &model {
            let row = txn.get(table, &item.key(other, table)).await.unwrap().unwrap();
            assert_eq!(shown(row), item.shown());
        }
        txn.commit().await.unwrap();
    });
}

#[test]
fn ranges_over_descending_columns() {
    with_tables(&[schema()], async |databases| {
        let db = &databases[0];
        let table = db.table("item").unwrap();
        let mut model: Vec<Item> = (0..60).map(item).collect();
        insert(db, table, &model).await;
        model.sort_by(by_primary);
        let bound = |price: i64| {
            let price = decimal(price, 1000, 1);
            db.key(table, &[Value::Decimal(price.as_ref())]).unwrap()
        };
        for (greatest, least) in [(1500, -1000), (125, 125), (-3, 3), (99_000, 2000)] {
            let range = KeyRange::between(&bound(greatest), &bound(least));
            let within = model.iter().filter(|item| (least..=greatest).contains(&item.price));
            let within: Vec<_> = within.map(Item::shown).collect();
            same_rows("price", &scan(db, table.into(), &range, Direction::Forward).await, &within);
        }
        assert!(model.iter().any(|item| item.price == 125));
        // By a day (descending, NULLs last), and by its absence.
        let by_day = Source::from(db.index("item", "by_day").unwrap());
        model.sort_by(|a, b| by_index("by_day", a, b));
        for day in [None, model[0].day] {
            let value = day.map_or(Value::Null, Value::Date);
            let range = KeyRange::prefix(&db.key(by_day, &[value]).unwrap());
            let same = model.iter().filter(|item| item.day == day).map(Item::shown);
            let same: Vec<_> = same.collect();
            assert!(same.len() > 1);
            same_rows("day", &scan(db, by_day, &range, Direction::Forward).await, &same);
        }
        let mut txn = db.begin();
        let null_first = KeyRange::prefix(&key![None::<bool>]);
        let by_flag = db.index("item", "by_flag").unwrap();
        let wrong = txn.first(by_flag, &null_first).await.map(drop);
        assert!(matches!(wrong, Err(TxnError::KeyMismatch { .. })), "{wrong:?}");
        txn.commit().await.unwrap();
    });
}

fn nulls(name: &str, index: IndexSchema) -> TableSchema {
    TableSchema::new(name)
        .column("id", ColumnType::I32)
        .nullable_column("a", ColumnType::I16)
        .nullable_column("b", ColumnType::Text(4))
        .primary_key([0])
        .with_index(index)
}

async fn put(
    db: &Database,
    table: Table,
    id: i32,
    a: Option<i16>,
    b: Option<&str>,
) -> Result<(), TxnError> {
    let mut row = db.row(table)?;
    row.i32(id).value(a.map_or(Value::Null, Value::I16)).value(b.map_or(Value::Null, Value::Text));
    let mut txn = db.begin();
    let inserted = txn.insert(table, row.finish()?).await;
    // A duplicate leaves the transaction usable, and nothing behind.
    txn.commit().await?;
    inserted
}

async fn set_b(db: &Database, table: Table, id: i32, b: Option<&str>) -> Result<(), TxnError> {
    let mut txn = db.begin();
    let set = |row: &mut RowMut<'_>| Ok(row.set(2, b.map_or(Value::Null, Value::Text))?);
    let changed = txn.update(table, &key![id], set).await;
    txn.commit().await?;
    changed
}

/// The ids of the rows of an index that begin with these values, and whether the entries have the
/// same primary keys.
async fn ids(db: &Database, table: &str, values: &[Value<'_>]) -> Vec<i32> {
    let index = db.index(table, "unique").unwrap();
    let range = KeyRange::prefix(&db.key(index, values).unwrap());
    let (mut ids, mut keys) = (Vec::new(), Vec::new());
    let mut txn = db.begin();
    txn.scan(index, &range, Direction::Forward, |row| {
        ids.push(row.i32(0)?);
        Ok(ControlFlow::Continue(()))
    })
    .await
    .unwrap();
    txn.scan_keys(index, &range, Direction::Forward, |key| {
        keys.push(key.to_vec());
        Ok(ControlFlow::Continue(()))
    })
    .await
    .unwrap();
    let first = txn.first(index, &range).await.unwrap().map(|row| row.i32(0).unwrap());
    assert_eq!(first, ids.first().copied());
    txn.commit().await.unwrap();
    let of_ids: Vec<_> = ids.iter().map(|id| key![*id].to_vec()).collect();
    assert_eq!(keys, of_ids);
    ids
}

fn is_duplicate(result: Result<(), TxnError>) -> bool {
    matches!(result, Err(TxnError::Duplicate { index, .. }) if index == "unique")
}

#[test]
fn nulls_in_unique_indexes_are_distinct_or_equal() {
    let index = || IndexSchema::new("unique", [1, 2]).order([DESC, ASC.nulls_last()]).unique();
    let tables = [nulls("distinct", index().nulls_distinct()), nulls("equal", index())];
    with_tables(&tables, async |databases| {
        let [db, other] = databases else { panic!("two nodes") };
        let (distinct, equal) = (db.table("distinct").unwrap(), db.table("equal").unwrap());
        let five = Value::I16(5);

        put(db, distinct, 1, Some(5), None).await.unwrap();
        put(other, distinct, 2, Some(5), None).await.unwrap();
        put(db, distinct, 3, Some(5), Some("x")).await.unwrap();
        put(db, distinct, 6, None, Some("x")).await.unwrap();
        put(db, distinct, 7, None, Some("x")).await.unwrap();
        assert!(is_duplicate(put(other, distinct, 4, Some(5), Some("x")).await));
        assert_eq!(ids(db, "distinct", &[five]).await, [3, 1, 2]);
        assert_eq!(ids(db, "distinct", &[five, Value::Null]).await, [1, 2]);
        assert_eq!(ids(other, "distinct", &[Value::Null]).await, [6, 7]);
        assert!(is_duplicate(set_b(db, distinct, 1, Some("x")).await));
        // From NULL to a value, and back.
        set_b(other, distinct, 1, Some("y")).await.unwrap();
        assert!(is_duplicate(set_b(db, distinct, 2, Some("y")).await));
        assert_eq!(ids(db, "distinct", &[five, Value::Text("y")]).await, [1]);
        set_b(db, distinct, 3, None).await.unwrap();
        assert_eq!(ids(other, "distinct", &[five]).await, [1, 2, 3]);
        set_b(other, distinct, 1, None).await.unwrap();
        assert_eq!(ids(db, "distinct", &[five, Value::Null]).await, [1, 2, 3]);
        check(db).await;
        let mut txn = other.begin();
        txn.delete(distinct, &key![2]).await.unwrap();
        txn.delete(distinct, &key![6]).await.unwrap();
        txn.commit().await.unwrap();
        assert_eq!(ids(db, "distinct", &[]).await, [7, 1, 3]);
        put(db, distinct, 2, Some(5), Some("x")).await.unwrap();

        put(db, equal, 1, Some(5), None).await.unwrap();
        assert!(is_duplicate(put(other, equal, 2, Some(5), None).await));
        put(other, equal, 2, Some(5), Some("x")).await.unwrap();
        assert!(is_duplicate(set_b(db, equal, 2, None).await));
        put(db, equal, 3, None, None).await.unwrap();
        assert!(is_duplicate(put(db, equal, 4, None, None).await));
        assert_eq!(ids(other, "equal", &[]).await, [3, 2, 1]);
        set_b(db, equal, 1, Some("y")).await.unwrap();
        set_b(other, equal, 2, None).await.unwrap();
        assert_eq!(ids(db, "equal", &[five]).await, [1, 2]);
        check(other).await;
        let mut txn = db.begin();
        txn.delete(equal, &key![2]).await.unwrap();
        txn.commit().await.unwrap();
        put(other, equal, 4, Some(5), None).await.unwrap();
        assert_eq!(ids(db, "equal", &[five]).await, [1, 4]);
        check(db).await;
    });
}
