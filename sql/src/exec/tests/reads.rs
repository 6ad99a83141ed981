//! Reads of tables by every kind of key, against a filter over the whole table.

use std::sync::Arc;

use selkie_txn::IndexSchema;

use super::*;
use crate::functions::resolve_aggregate;
use crate::plan::{
    AggregateCall, Join, JoinKind, KeyBound, KeyItem, LockRows, Locking, SortKey, optimize,
};
use selkie_txn::LockWait;

/// `a` and `b` are the key, `n` may be NULL and has indexes in every order, `u` is unique.
fn spec() -> TableSpec {
    let columns = [
        ("a", INT, false),
        ("b", INT, false),
        ("n", INT, true),
        ("u", INT, true),
        ("t", TEXT, true),
    ];
    let mut spec = TableSpec::new("t", &columns, &[0, 1]);
    let down = KeyOrder::DESCENDING;
    spec.schema = spec.schema.primary_key_order([KeyOrder::ASCENDING, down]);
    let orders = [
        ("up", KeyOrder::ASCENDING),
        ("up_last", KeyOrder::ASCENDING.nulls_last()),
        ("down", down),
        ("down_last", down.nulls_last()),
    ];
    for (name, order) in orders {
        spec.schema.indexes.push(IndexSchema::new(name, [2]).order([order]));
    }
    let unique = IndexSchema::new("unique", [3]).order([KeyOrder::ASCENDING]);
    spec.schema.indexes.push(unique.unique().nulls_distinct());
    spec
}

/// 300 rows; every seventh `n` and every third `u` is NULL.
fn rows() -> Vec<Row> {
    let row = |n: i32| {
        vec![
            int(n / 10),
            int(n % 10),
            Some(n % 13).filter(|_| n % 7 != 0).map_or(Datum::Null, int),
            Some(n).filter(|_| n % 3 != 0).map_or(Datum::Null, int),
            text(&"x".repeat(if n % 50 == 0 { 3000 } else { 3 })),
        ]
    };
    (0..300).map(row).collect()
}

fn with_table(test: impl AsyncFnOnce(&Arc<TableDef>, &mut Txn<'_>)) {
    let spec = spec();
    with_database(vec![spec.schema.clone()], async |db| {
        let table = spec.def(db);
        let mut txn = db.begin();
        fill(&table, rows(), &mut txn).await;
        txn.commit().await.unwrap();
        let mut txn = db.begin();
        test(&table, &mut txn).await;
        txn.rollback().await;
    });
}

fn number(row: &Row, at: usize) -> Option<i32> {
    match row[at] {
        Datum::I32(value) => Some(value),
        _ => None,
    }
}

fn sorted(rows: &[Row]) -> Vec<Vec<Option<i32>>> {
    let mut rows: Vec<_> =
        rows.iter().map(|row| (0..4).map(|at| number(row, at)).collect()).collect();
    rows.sort();
    rows
}

/// Compares what an access finds with the rows that are to be found; and that it comes in order.
async fn check_access(
    table: &Arc<TableDef>,
    access: Access,
    is_found: impl Fn(&Row) -> bool,
    txn: &mut Txn<'_>,
) {
    let wanted: Vec<Row> = rows().into_iter().filter(|row| is_found(row)).collect();
    for for_update in [false, true] {
        let mut plan = scan(table, access.clone());
        if let Plan::Scan(scan) = &mut plan {
            let scan = Arc::make_mut(scan);
            scan.for_update = for_update;
        }
        let found = run(&plan, txn).await.unwrap();
        assert_eq!(sorted(&found), sorted(&wanted), "{access:?}");
    }
}

fn range(index: Option<usize>, prefix: Vec<Expr>, bounds: [Option<(i32, bool)>; 2]) -> Access {
    let [low, high] =
        bounds.map(|bound| bound.map(|(value, inclusive)| KeyBound::new(lit(value), inclusive)));
    Access::Range { index, prefix, low, high, descending: false }
}

#[test]
fn the_whole_table_in_both_directions_with_long_values() {
    with_table(async |table, txn| {
        let mut found = run(&scan(table, WHOLE), txn).await.unwrap();
        let mut wanted = rows();
        wanted.sort_by_key(|row| (number(row, 0), number(row, 1).map(|b| -b)));
        assert_rows(&found, &wanted);
        let down =
            Access::Range { index: None, prefix: vec![], low: None, high: None, descending: true };
        found = run(&scan(table, down), txn).await.unwrap();
        wanted.reverse();
        assert_rows(&found, &wanted);
    });
}

#[test]
fn bounds_in_every_order_leave_out_nulls() {
    let ends = [None, Some((4, true)), Some((4, false))];
    let other_ends = [None, Some((9, true)), Some((9, false))];
    with_table(async |table, txn| {
        for (low, high) in
            ends.iter().flat_map(|low| other_ends.iter().map(move |high| (*low, *high)))
        {
            let within = |value: Option<i32>| {
                let above = low.is_none_or(|(low, inclusive)| {
                    value.is_some_and(|own| own > low || inclusive && own == low)
                });
                let below = high.is_none_or(|(high, inclusive)| {
                    value.is_some_and(|own| own < high || inclusive && own == high)
                });
                above && below
            };
            for index in 0..4 {
                let access = range(Some(index), vec![], [low, high]);
                check_access(table, access, |row| within(number(row, 2)), txn).await;
            }
            let access = range(None, vec![], [low, high]);
            check_access(table, access, |row| within(number(row, 0)), txn).await;
            let access = range(None, vec![lit(5)], [low, high]);
            let is_five = |row: &Row| number(row, 0) == Some(5);
            check_access(table, access, |row| is_five(row) && within(number(row, 1)), txn).await;
        }
    });
}

#[test]
fn whole_keys_and_lists_of_keys() {
    with_table(async |table, txn| {
        let at = async |access, txn: &mut Txn<'_>| check_access_of(table, access, txn).await;
        let point = |a, b| range(None, vec![lit(a), lit(b)], [None, None]);
        assert_eq!(at(point(5, 3), txn).await, [(5, 3)]);
        // A row whose text is stored apart.
        assert_eq!(at(point(5, 0), txn).await, [(5, 0)]);
        assert_eq!(at(point(99, 0), txn).await, []);
        assert_eq!(at(range(Some(4), vec![lit(50)], [None, None]), txn).await, [(5, 0)]);
        assert_eq!(at(range(Some(4), vec![lit(51)], [None, None]), txn).await, []);
        let null = Expr::Const(Datum::Null);
        assert_eq!(at(range(None, vec![lit(5), null.clone()], [None, None]), txn).await, []);
        let high = KeyBound::new(null.clone(), true);
        let of_null = Access::Range {
            index: Some(0),
            prefix: vec![],
            low: None,
            high: Some(high),
            descending: false,
        };
        assert_eq!(at(of_null, txn).await, []);
        let each = |index, values: &[i32]| Access::Each {
            index,
            prefix: Vec::new(),
            values: values
                .iter()
                .map(|value| lit(*value))
                .chain([null.clone()])
                .map(KeyItem::One)
                .collect(),
            suffix: Vec::new(),
        };
        let found = at(each(Some(4), &[52, 50, 52, 51, 5000]), txn).await;
        assert_eq!(found, [(5, 0), (5, 2)]);
        let found = at(each(None, &[7, 7, 29, 30]), txn).await;
        let wanted: Vec<(i32, i32)> =
            [7, 29].iter().flat_map(|a| (0..10).map(|b| (*a, b))).collect();
        assert_eq!(found, wanted);
    });
}

/// The keys of the rows that an access finds, in order; read for update, they are the same.
async fn check_access_of(
    table: &Arc<TableDef>,
    access: Access,
    txn: &mut Txn<'_>,
) -> Vec<(i32, i32)> {
    let mut found = Vec::new();
    for for_update in [false, true] {
        let mut plan = scan(table, access.clone());
        if let Plan::Scan(scan) = &mut plan {
            let scan = Arc::make_mut(scan);
            scan.for_update = for_update;
        }
        let rows = run(&plan, txn).await.unwrap();
        let all = self::rows();
        for row in &rows {
            let wanted = all.iter().find(|own| {
                sorted(std::slice::from_ref(*own)) == sorted(std::slice::from_ref(row))
            });
            assert_rows(std::slice::from_ref(row), std::slice::from_ref(wanted.unwrap()));
        }
        let mut keys: Vec<_> =
            rows.iter().map(|row| (number(row, 0).unwrap(), number(row, 1).unwrap())).collect();
        keys.sort_unstable();
        assert!(!for_update || keys == found, "{access:?}");
        found = keys;
    }
    found
}

#[test]
fn only_needed_columns_are_read_and_filters_apply() {
    with_table(async |table, txn| {
        let mut plan = scan(table, range(None, vec![lit(5)], [None, None]));
        if let Plan::Scan(scan) = &mut plan {
            let scan = Arc::make_mut(scan);
            scan.needed = vec![false, true, false, true, false];
            scan.filter = Some(op("<", col(1), lit(2)));
        }
        let wanted = [
            ints(&[None, Some(1), None, None, None]),
            ints(&[None, Some(0), None, Some(50), None]),
        ];
        check(&plan, txn, &wanted).await;
    });
}

/// The entries of an index tell its columns and those of the primary key, by every access.
#[test]
fn entries_give_what_rows_give() {
    let call = || AggregateCall {
        function: resolve_aggregate("count", &[]).unwrap().unwrap(),
        arguments: Vec::new(),
        is_distinct: false,
        filter: None,
        order: Vec::new(),
    };
    with_table(async |table, txn| {
        let values = [4, 52, 50, 4].iter().map(|value| KeyItem::One(lit(*value))).collect();
        let each = Access::Each { index: None, prefix: vec![], values, suffix: vec![] };
        let mut accesses = vec![each];
        for descending in [false, true] {
            for (prefix, bounds) in [
                (vec![], [None, None]),
                (vec![], [Some((4, false)), None]),
                (vec![], [None, Some((50, true))]),
                (vec![lit(7)], [None, None]),
                (vec![lit(50)], [None, None]),
            ] {
                let mut access = range(None, prefix, bounds);
                if let Access::Range { descending: own, .. } = &mut access {
                    *own = descending;
                }
                accesses.push(access);
            }
        }
        for (access, number) in accesses.iter().flat_map(|own| (0..5).map(move |at| (own, at))) {
            let mut access = access.clone();
            let (Access::Range { index, .. } | Access::Each { index, .. }) = &mut access;
            *index = Some(number);
            let plan = |index_only, filter| {
                let mut plan = scan(table, access.clone());
                if let Plan::Scan(scan) = &mut plan {
                    let scan = Arc::make_mut(scan);
                    scan.needed = vec![true, true, number < 4, number == 4, false];
                    (scan.index_only, scan.filter) = (index_only, filter);
                }
                plan
            };
            let odd = || Some(op("=", op("%", col(1), lit(2)), lit(1)));
            for filter in [None, odd()] {
                let wanted = run(&plan(false, filter.clone()), txn).await.unwrap();
                check(&plan(true, filter.clone()), txn, &wanted).await;
                let (input, count) = (Box::new(plan(true, filter)), wanted.len());
                let plan = Plan::Aggregate { input, keys: Vec::new(), calls: vec![call(); 2] };
                check(&plan, txn, &[vec![big(i64::try_from(count).unwrap()); 2]]).await;
            }
        }
    });
}

/// The columns that the reads of a plan need, in the order of the tables.
fn needed(plan: &Plan, into: &mut Vec<Vec<usize>>) {
    match plan {
        Plan::Scan(scan) => {
            let needed = scan.needed.iter().enumerate();
            into.push(needed.filter(|(_, own)| **own).map(|(at, _)| at).collect());
        }
        Plan::Project { input, .. } | Plan::Sort { input, .. } | Plan::Filter { input, .. } => {
            needed(input, into);
        }
        Plan::Aggregate { input, .. } | Plan::Grouped { input, .. } => needed(input, into),
        Plan::Join(join) => {
            needed(&join.left, into);
            needed(&join.right, into);
        }
        other => unreachable!("{other:?}"),
    }
}

#[test]
fn a_plan_asks_for_the_columns_that_it_uses() {
    with_table(async |table, _| {
        let whole = || Box::new(scan(table, WHOLE));
        let project = |input, exprs: Vec<Expr>| Plan::Project { input, exprs: exprs.into() };
        let joined = |is_lateral, kind, equal| {
            let (left, right) = (
                *whole(),
                scan(table, range(None, vec![Expr::Outer { level: 0, column: 3 }], [None, None])),
            );
            let right = if is_lateral { right } else { *whole() };
            let condition = Some(op("<", col(2), col(5 + 3)));
            let (left_width, right_width) = (5, 5);
            let join = Join {
                left,
                right,
                left_width,
                right_width,
                kind,
                equal,
                condition,
                is_lateral,
                keeps_order: false,
            };
            Box::new(Plan::Join(Box::new(join)))
        };
        let filtered = Plan::Filter { input: whole(), condition: op("<", col(1), lit(3)) };
        let key = SortKey { expr: col(2), descending: false, nulls_first: false };
        let sorted = Plan::Sort { input: Box::new(filtered), keys: vec![key], first: None };
        let equal = || vec![(col(1), col(2))];
        let cases = [
            (*whole(), vec![vec![0, 1, 2, 3, 4]]),
            (project(whole(), vec![lit(1)]), vec![vec![]]),
            (project(Box::new(sorted), vec![op("+", col(0), lit(1))]), vec![vec![0, 1, 2]]),
            (
                Plan::Aggregate { input: whole(), keys: vec![col(3)], calls: Vec::new() },
                vec![vec![3]],
            ),
            (
                project(joined(false, JoinKind::Left, equal()), vec![col(0), col(5)]),
                vec![vec![0, 1, 2], vec![0, 2, 3]],
            ),
            (
                project(joined(true, JoinKind::Left, Vec::new()), vec![col(6)]),
                vec![vec![2, 3], vec![1, 3]],
            ),
            (*joined(false, JoinKind::Semi, equal()), vec![vec![0, 1, 2, 3, 4], vec![2, 3]]),
        ];
        for (plan, wanted) in cases {
            let (plan, mut found) = (optimize(plan), Vec::new());
            needed(&plan, &mut found);
            assert_eq!(found, wanted, "{plan:?}");
        }
    });
}

#[test]
fn values_that_no_row_can_have_bound_a_range_all_the_same() {
    let short = SqlType { modifier: 7, ..SqlType::new(crate::types::Scalar::Varchar) };
    let spec = TableSpec::new("s", &[("s", short, false)], &[0]);
    with_database(vec![spec.schema.clone()], async |db| {
        let table = spec.def(db);
        let mut txn = db.begin();
        let all: Vec<Row> = ["a", "bbb", "c"].iter().map(|own| vec![text(own)]).collect();
        fill(&table, all.clone(), &mut txn).await;
        let long = || Expr::Const(text(&format!("bbb{}", "b".repeat(5000))));
        let bound = || Some(KeyBound::new(long(), true));
        let access =
            |prefix, low, high| Access::Range { index: None, prefix, low, high, descending: false };
        let cases = [
            (access(vec![long()], None, None), &all[..0]),
            (access(vec![], bound(), None), &all[2..]),
            (access(vec![], None, bound()), &all[..2]),
        ];
        for (access, wanted) in cases {
            let mut plan = scan(&table, access);
            check(&plan, &mut txn, wanted).await;
            if let Plan::Scan(scan) = &mut plan {
                let scan = Arc::make_mut(scan);
                scan.needed = vec![false];
            }
            assert_eq!(run(&plan, &mut txn).await.unwrap().len(), wanted.len());
        }
        txn.rollback().await;
    });
}

#[test]
fn locks_give_the_newest_rows_and_leave_out_what_is_gone() {
    let spec = spec();
    with_database(vec![spec.schema.clone()], async |db| {
        let table = spec.def(db);
        let mut txn = db.begin();
        fill(&table, rows()[..60].to_vec(), &mut txn).await;
        txn.commit().await.unwrap();
        let lock_with = |rows: Vec<Row>, wait, condition, is_strict| {
            let locks = vec![Locking { table: Arc::clone(&table), first_column: 1, wait }];
            let input = values(rows, 6);
            Plan::Lock(Box::new(LockRows {
                input,
                locks,
                condition,
                is_strict,
                is_for_change: false,
                is_one_by_one: false,
            }))
        };
        let lock = |rows, wait| lock_with(rows, wait, None, false);
        let row = |a, b| [ints(&[Some(7), a, b]), vec![Datum::Null; 3]].concat();
        let input = vec![row(Some(5), Some(0)), row(Some(99), Some(0)), row(None, None)];
        let mut first = db.begin();
        let found = run(&lock(input, LockWait::Wait), &mut first).await.unwrap();
        let newest = [vec![int(7)], rows()[50].clone()].concat();
        assert_rows(&found, &[newest, row(None, None)]);
        // What has changed since it was found has to pass again, or is an error.
        let changed = || vec![row(Some(5), Some(0))];
        let no = Some(Expr::Const(Datum::Bool(false)));
        let found =
            run(&lock_with(changed(), LockWait::Wait, no, false), &mut first).await.unwrap();
        assert_rows(&found, &[]);
        let outcome = run(&lock_with(changed(), LockWait::Wait, None, true), &mut first).await;
        assert_error(outcome, "40001", "could not serialize access due to concurrent update");
        let mut second = db.begin();
        let input = vec![row(Some(5), Some(0)), row(Some(5), Some(1))];
        let outcome = run(&lock(input.clone(), LockWait::NoWait), &mut second).await;
        assert_error(outcome, "55P03", "could not obtain lock on row in relation \"t\"");
        let found = run(&lock(input, LockWait::SkipLocked), &mut second).await.unwrap();
        assert_eq!(sorted_keys(&found), [(5, 1)]);
        first.rollback().await;
        second.rollback().await;
    });
}

fn sorted_keys(rows: &[Row]) -> Vec<(i32, i32)> {
    rows.iter().map(|row| (number(row, 1).unwrap(), number(row, 2).unwrap())).collect()
}
