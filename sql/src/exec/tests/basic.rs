//! Values, filters, limits, orders, sets and recursions.

use super::*;
use crate::plan::{Reuse, SetOperator, SortKey};

fn limited(limit: Option<Datum>, offset: Option<Datum>) -> Plan {
    let input = column(&(0..600).map(Some).collect::<Vec<_>>());
    let (limit, offset) = (limit.map(Expr::Const), offset.map(Expr::Const));
    Plan::Limit { input: Box::new(input), limit, offset }
}

fn key(at: usize, descending: bool, nulls_first: bool) -> SortKey {
    SortKey { expr: col(at), descending, nulls_first }
}

#[test]
fn limits_count_rows_and_null_is_none() {
    with_transaction(async |txn| {
        let count = async |plan: &Plan, txn: &mut Txn<'_>| {
            let rows = run(plan, txn).await.unwrap();
            (rows.len(), rows.first().map(|row| format!("{row:?}")))
        };
        let none = Some(Datum::Null);
        assert_eq!(count(&limited(None, None), txn).await.0, 600);
        assert_eq!(count(&limited(none.clone(), none), txn).await.0, 600);
        let first = Some("[I32(300)]".to_owned());
        assert_eq!(count(&limited(Some(big(5)), Some(big(300))), txn).await, (5, first));
        assert_eq!(count(&limited(Some(big(0)), None), txn).await, (0, None));
        assert_eq!(count(&limited(None, Some(big(i64::MAX))), txn).await, (0, None));
        let outcome = run(&limited(Some(big(-1)), None), txn).await;
        assert_error(outcome, "2201W", "LIMIT must not be negative");
        let outcome = run(&limited(None, Some(big(-1))), txn).await;
        assert_error(outcome, "2201X", "OFFSET must not be negative");
    });
}

#[test]
fn filters_keep_rows_for_which_the_condition_is_true() {
    with_transaction(async |txn| {
        let input = Box::new(column(&[Some(1), None, Some(3), Some(2)]));
        let plan = Plan::Filter { input, condition: op("<", col(0), lit(3)) };
        check(&plan, txn, &int_rows(&[[Some(1)], [Some(2)]])).await;
        let exprs = vec![op("+", col(0), lit(1)), col(0)];
        let plan = Plan::Project { input: Box::new(plan), exprs: exprs.into() };
        check(&plan, txn, &int_rows(&[[Some(2), Some(1)], [Some(3), Some(2)]])).await;
    });
}

#[test]
fn orders_have_nulls_where_they_are_asked_for_and_are_stable() {
    with_transaction(async |txn| {
        let rows = [(2, 0), (1, 1), (-1, 2), (2, 3), (1, 4), (-1, 5)];
        let rows: Vec<Row> =
            rows.iter().map(|(a, b)| ints(&[Some(*a).filter(|a| *a > 0), Some(*b)])).collect();
        // Which row is where, for an order.
        let cases: [(bool, bool, [i32; 6]); 4] = [
            (false, false, [1, 4, 0, 3, 2, 5]),
            (false, true, [2, 5, 1, 4, 0, 3]),
            (true, false, [0, 3, 1, 4, 2, 5]),
            (true, true, [2, 5, 0, 3, 1, 4]),
        ];
        for (descending, nulls_first, wanted) in cases {
            for first in [None, Some(0), Some(1), Some(3), Some(6), Some(9)] {
                let plan = Plan::Project {
                    input: Box::new(Plan::Sort {
                        input: Box::new(values(rows.clone(), 2)),
                        keys: vec![key(0, descending, nulls_first)],
                        first: first.map(|first| Expr::Const(big(first))),
                    }),
                    exprs: vec![col(1)].into(),
                };
                let wanted = wanted.iter().take(first.map_or(6, |first| first as usize));
                let wanted: Vec<Row> = wanted.map(|at| ints(&[Some(*at)])).collect();
                check(&plan, txn, &wanted).await;
            }
        }
    });
}

/// With room for few rows in memory: some runs, and more than are merged at a time.
#[test]
fn sorts_go_on_in_temporary_files() {
    with_transaction(async |txn| {
        // Keys that repeat in each run, with NULLs.
        let rows: Vec<Row> =
            (0..3000).map(|n| ints(&[Some(n * 7 % 11).filter(|key| *key > 0), Some(n)])).collect();
        let sort = |first| Plan::Sort {
            input: Box::new(values(rows.clone(), 2)),
            keys: vec![key(0, true, true)],
            first,
        };
        let mut wanted = rows.clone();
        wanted.sort_by_key(|row| match row[0] {
            Datum::I32(key) => 100 - key,
            _ => 0,
        });
        for operator_bytes in [2000, 100_000] {
            let limits =
                MemoryLimits { operator_bytes, spill_bytes: 1 << 20, ..MemoryLimits::default() };
            let (found, _) = run_with(&sort(None), txn, &[], limits.clone()).await.unwrap();
            assert_rows(&found, &wanted);
            let first = Some(Expr::Const(big(20_000)));
            let (found, _) = run_with(&sort(first), txn, &[], limits).await.unwrap();
            assert_rows(&found, &wanted);
        }
        let limits =
            MemoryLimits { operator_bytes: 2000, spill_bytes: 10_000, ..MemoryLimits::default() };
        let outcome = run_with(&sort(None), txn, &[], limits).await;
        let message = "temporary files of an operation exceed the limit of 10000 bytes";
        assert_error(outcome, "53400", message);
        let limits =
            MemoryLimits { operator_bytes: 2000, spill_bytes: 0, ..MemoryLimits::default() };
        assert_error(run_with(&sort(None), txn, &[], limits).await, "53200", "out of memory");
    });
}

#[test]
fn more_memory_than_allowed_is_an_error() {
    with_transaction(async |txn| {
        let aggregate = |input: Plan| Plan::Distinct {
            input: Box::new(input),
            keys: vec![col(0)],
            is_sorted: false,
        };
        let plan = aggregate(column(&(0..1000).map(Some).collect::<Vec<_>>()));
        let limits =
            MemoryLimits { operator_bytes: 4096, spill_bytes: 0, ..MemoryLimits::default() };
        let outcome = run_with(&plan, txn, &[], limits.clone()).await;
        let error = assert_error(outcome, "53200", "out of memory");
        assert!(error.detail_text().unwrap().contains("4096"));
        let plan = aggregate(column(&[Some(1); 1000]));
        assert_eq!(run_with(&plan, txn, &[], limits).await.unwrap().0.len(), 1);
    });
}

#[test]
fn sets_count_rows() {
    let set = |operator, all| Plan::Set {
        operator,
        all,
        left: Box::new(column(&[Some(1), Some(2), Some(2), Some(2), None, None])),
        right: Box::new(column(&[Some(2), Some(2), Some(3), None])),
    };
    let cases: [(SetOperator, bool, &[Option<i32>]); 6] = [
        (SetOperator::Union, false, &[Some(1), Some(2), None, Some(3)]),
        (
            SetOperator::Union,
            true,
            &[Some(1), Some(2), Some(2), Some(2), None, None, Some(2), Some(2), Some(3), None],
        ),
        (SetOperator::Intersect, false, &[Some(2), None]),
        (SetOperator::Intersect, true, &[Some(2), Some(2), None]),
        (SetOperator::Except, false, &[Some(1)]),
        (SetOperator::Except, true, &[Some(1), Some(2), None]),
    ];
    with_transaction(async |txn| {
        for (operator, all, wanted) in cases {
            let wanted: Vec<Row> = wanted.iter().map(|value| ints(&[*value])).collect();
            let rows = run(&set(operator, all), txn).await.unwrap();
            // Which of the equal rows of the left stay is not said.
            let sorted = |rows: &[Row]| {
                let mut rows: Vec<_> = rows.iter().map(|row| format!("{row:?}")).collect();
                rows.sort();
                rows
            };
            assert_eq!(sorted(&rows), sorted(&wanted), "{operator:?} {all}");
        }
    });
}

#[test]
fn a_recursion_ends_with_a_round_without_new_rows() {
    // WITH RECURSIVE n AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 5).
    let up_to_five = Plan::Project {
        input: Box::new(Plan::Filter {
            input: Box::new(Plan::Working { number: 7, width: 1 }),
            condition: op("<", col(0), lit(5)),
        }),
        exprs: vec![op("+", col(0), lit(1))].into(),
    };
    let recursive = |next: Plan, all| Plan::Recursive {
        number: 7,
        first: Box::new(column(&[Some(1), Some(1)])),
        next: Box::new(next),
        all,
    };
    with_transaction(async |txn| {
        let doubled: Vec<Row> =
            [1, 1, 2, 2, 3, 3, 4, 4, 5, 5].iter().map(|n| ints(&[Some(*n)])).collect();
        check(&recursive(up_to_five.clone(), true), txn, &doubled).await;
        let once: Vec<Row> = (1..6).map(|n| ints(&[Some(n)])).collect();
        check(&recursive(up_to_five, false), txn, &once).await;
        // Rows that come again end it without ALL; with ALL only a LIMIT does.
        check(&recursive(Plan::Working { number: 7, width: 1 }, false), txn, &ones(1)).await;
        let endless = Plan::Limit {
            input: Box::new(recursive(Plan::Working { number: 7, width: 1 }, true)),
            limit: Some(Expr::Const(big(7))),
            offset: None,
        };
        check(&endless, txn, &ones(7)).await;
    });
}

fn ones(count: usize) -> Vec<Row> {
    vec![ints(&[Some(1)]); count]
}

#[test]
fn shared_rows_are_made_once() {
    with_transaction(async |txn| {
        let plan = Arc::new(Plan::Project {
            input: Box::new(Plan::Working { number: 1, width: 1 }),
            exprs: vec![col(0)].into(),
        });
        // Both readers see the rows of the first run.
        let shared =
            |number| Plan::Shared { number, plan: Arc::clone(&plan), reuse: Reuse::IfShared };
        let both = Plan::Set {
            operator: SetOperator::Union,
            all: true,
            left: Box::new(shared(2)),
            right: Box::new(shared(2)),
        };
        let recursion = Plan::Recursive {
            number: 1,
            first: Box::new(column(&[Some(1)])),
            next: Box::new(both),
            all: true,
        };
        let input = Box::new(recursion);
        let plan = Plan::Limit { input, limit: Some(Expr::Const(big(7))), offset: None };
        check(&plan, txn, &ones(7)).await;
    });
}
