//! Operators with room for few rows give what they give with room for all.

use selkie_txn::TableSchema;

use super::*;
use crate::functions::resolve_aggregate;
use crate::plan::{
    AggregateCall, Frame, Join, JoinKind, Modify, Reuse, SetOperator, SortKey, WindowCall,
};

/// Room for some hundred rows.
fn little() -> MemoryLimits {
    MemoryLimits { operator_bytes: 16_000, spill_bytes: 16 << 20, ..MemoryLimits::default() }
}

/// Many keys with some rows each, in an order that has nothing to do with them, and NULLs.
fn many() -> Vec<Row> {
    let key = |n: i32| Some(n * 7919 % 1999).filter(|key| *key > 0);
    (0..3000).map(|n| ints(&[key(n), Some(n)])).collect()
}

fn shown(rows: &[Row]) -> Vec<String> {
    rows.iter().map(|row| format!("{row:?}")).collect()
}

/// Checks that a plan gives the same with little memory, in any order or in its own.
async fn agrees(plan: &Plan, keeps_order: bool, txn: &mut Txn<'_>) {
    let mut wanted = shown(&run(plan, txn).await.unwrap());
    let mut found = shown(&run_with(plan, txn, &[], little()).await.unwrap().0);
    if !keeps_order {
        wanted.sort();
        found.sort();
    }
    assert_eq!(found.len(), wanted.len(), "{plan:?}");
    assert!(found == wanted, "{plan:?}");
    assert!(!wanted.is_empty());
    // It does need more than it may have.
    let none = MemoryLimits { spill_bytes: 0, ..little() };
    assert_error(run_with(plan, txn, &[], none).await, "53200", "out of memory");
}

fn ascending(at: usize) -> SortKey {
    SortKey { expr: col(at), descending: false, nulls_first: false }
}

#[test]
fn groups_are_put_aside() {
    let call = |name: &str, types: &[SqlType], arguments| AggregateCall {
        function: resolve_aggregate(name, types).unwrap().unwrap(),
        arguments,
        is_distinct: false,
        filter: None,
        order: Vec::new(),
    };
    // Groups that grow have the half of the memory that new ones do not take.
    let calls = [
        vec![call("count", &[], vec![]), call("sum", &[INT], vec![col(1)])],
        vec![AggregateCall { is_distinct: true, ..call("count", &[INT], vec![col(1)]) }],
        vec![AggregateCall { order: vec![ascending(1)], ..call("min", &[INT], vec![col(1)]) }],
    ];
    with_transaction(async |txn| {
        for calls in calls {
            let (input, keys) = (Box::new(values(many(), 2)), vec![col(0)]);
            agrees(&Plan::Aggregate { input, keys, calls }, false, txn).await;
        }
    });
}

/// Few groups that grow with each row: what is left for them is sorted.
#[test]
fn what_groups_gather_is_put_aside() {
    let call = |name: &str, ty: SqlType, argument: Expr| AggregateCall {
        function: resolve_aggregate(name, &[ty]).unwrap().unwrap(),
        arguments: vec![argument],
        is_distinct: false,
        filter: None,
        order: Vec::new(),
    };
    let all = || call("array_agg", INT, col(1));
    let descending = || SortKey { descending: true, ..ascending(1) };
    let last_digit = || op("%", col(1), lit(7));
    let calls = [
        vec![all(), call("count", INT, col(1))],
        vec![AggregateCall { order: vec![descending()], ..all() }, all()],
        vec![AggregateCall { order: vec![ascending(0), descending()], ..all() }],
        vec![AggregateCall { is_distinct: true, ..call("sum", INT, col(0)) }, all()],
        vec![AggregateCall { is_distinct: true, order: vec![descending()], ..all() }],
        vec![
            AggregateCall { is_distinct: true, ..call("count", INT, last_digit()) },
            AggregateCall { filter: Some(op(">", col(1), lit(50))), ..all() },
        ],
    ];
    with_transaction(async |txn| {
        for calls in calls {
            for keys in [vec![], vec![op("%", col(1), lit(3))], vec![op("%", col(1), lit(100))]] {
                let (input, calls) = (Box::new(values(many(), 2)), calls.clone());
                agrees(&Plan::Aggregate { input, keys, calls }, false, txn).await;
            }
        }
    });
}

/// Few groups, each with a value that is long.
#[test]
fn long_values_of_groups_are_put_aside() {
    let row = |n: i32| vec![int(n % 20), text(&format!("{}{}", n * 7 % 60, "x".repeat(1000)))];
    let call = |name: &str| AggregateCall {
        function: resolve_aggregate(name, &[SqlType::TEXT]).unwrap().unwrap(),
        arguments: vec![col(1)],
        is_distinct: false,
        filter: None,
        order: Vec::new(),
    };
    with_transaction(async |txn| {
        let (input, keys) = (Box::new(values((0..60).map(row).collect(), 2)), vec![col(0)]);
        let calls = vec![call("min"), call("max")];
        agrees(&Plan::Aggregate { input, keys, calls }, false, txn).await;
    });
}

#[test]
fn both_sides_of_intersect_and_except_are_put_aside() {
    let side = |from: i32, to: i32| {
        let row = |n: i32| ints(&[Some(n % 1500), (n % 7 > 0).then_some(n % 3)]);
        Box::new(values((from..to).map(row).collect(), 2))
    };
    with_transaction(async |txn| {
        for operator in [SetOperator::Intersect, SetOperator::Except] {
            for all in [false, true] {
                let (left, right) = (side(0, 3000), side(700, 2900));
                agrees(&Plan::Set { operator, all, left, right }, false, txn).await;
            }
        }
    });
}

#[test]
fn rows_of_common_table_expressions_are_put_aside() {
    let shared = |plan: Plan| {
        let plan = Arc::new(plan);
        let one = || {
            Box::new(Plan::Shared { number: 1, plan: Arc::clone(&plan), reuse: Reuse::IfShared })
        };
        // Two that read it, one behind the other.
        let (operator, all) = (SetOperator::Union, true);
        Plan::Set { operator, all, left: one(), right: one() }
    };
    with_transaction(async |txn| {
        agrees(&shared(values(many(), 2)), true, txn).await;
    });
}

/// A budget that others have used up does not end what can go on in temporary files.
#[test]
fn operators_go_on_without_a_budget() {
    let budget = Arc::new(crate::memory_budget::MemoryBudget::new(1 << 20));
    budget.take(1 << 20).unwrap();
    let none = MemoryLimits { budget: Arc::clone(&budget), ..MemoryLimits::default() };
    let row = |n: i32| vec![int(n % 1999), text(&"x".repeat(200)), int(n)];
    let rows = || values((0..6000).map(row).collect(), 3);
    with_transaction(async |txn| {
        let sort = Plan::Sort {
            input: Box::new(rows()),
            keys: vec![ascending(0), ascending(2)],
            first: None,
        };
        let (keys, is_sorted) = (vec![col(2)], false);
        let distinct = Plan::Distinct { input: Box::new(rows()), keys, is_sorted };
        // A group of many calls takes much at once.
        let sum = || AggregateCall {
            function: resolve_aggregate("sum", &[INT]).unwrap().unwrap(),
            arguments: vec![col(0)],
            is_distinct: false,
            filter: None,
            order: Vec::new(),
        };
        let sums = [20, 40, 60].map(|count| Plan::Aggregate {
            input: Box::new(rows()),
            keys: vec![col(2)],
            calls: (0..count).map(|_| sum()).collect(),
        });
        for plan in [sort, distinct].into_iter().chain(sums) {
            let mut wanted = shown(&run(&plan, txn).await.unwrap());
            let mut found = shown(&run_with(&plan, txn, &[], none.clone()).await.unwrap().0);
            wanted.sort();
            found.sort();
            assert!(found == wanted, "{plan:?}");
        }
        let memory_only = MemoryLimits { spill_bytes: 0, ..none.clone() };
        let plan = Plan::Sort { input: Box::new(rows()), keys: vec![ascending(2)], first: None };
        let outcome = run_with(&plan, txn, &[], memory_only).await;
        let error = assert_error(outcome, "53200", "out of memory");
        assert!(error.detail_text().unwrap().starts_with("All clients together"));
    });
    assert_eq!(budget.used(), 1 << 20);
}

/// The first rows alone, of keys that repeat: those that came first of them.
#[test]
fn first_rows_are_put_aside() {
    let digit = SortKey { expr: op("%", col(1), lit(10)), descending: true, nulls_first: false };
    with_transaction(async |txn| {
        for (keys, first) in [(vec![digit], 1000), (vec![ascending(0)], 2900)] {
            let (input, first) = (Box::new(values(many(), 2)), Some(Expr::Const(big(first))));
            agrees(&Plan::Sort { input, keys, first }, true, txn).await;
        }
    });
}

#[test]
fn distinct_rows_are_put_aside() {
    let distinct =
        |input: Plan, keys, is_sorted| Plan::Distinct { input: Box::new(input), keys, is_sorted };
    let sorted = Plan::Sort {
        input: Box::new(values(many(), 2)),
        keys: vec![ascending(0), ascending(1)],
        first: None,
    };
    with_transaction(async |txn| {
        // Of rows that agree the first stays, whether or not they were put aside.
        agrees(&distinct(values(many(), 2), vec![col(0)], false), false, txn).await;
        agrees(&distinct(sorted, vec![col(0)], true), true, txn).await;
        let union = Plan::Set {
            operator: SetOperator::Union,
            all: false,
            left: Box::new(values(many(), 2)),
            right: Box::new(values(many().split_off(1500), 2)),
        };
        agrees(&union, false, txn).await;
    });
}

fn join(kind: JoinKind, keeps_order: bool) -> Plan {
    let right = many().into_iter().filter(|row| !matches!(row[0], Datum::I32(100..200)));
    Plan::Join(Box::new(Join {
        left: values(many().into_iter().step_by(2).collect(), 2),
        right: values(right.collect(), 2),
        left_width: 2,
        right_width: 2,
        kind,
        equal: vec![(col(0), col(0))],
        condition: Some(op("<", col(1), col(3))),
        is_lateral: false,
        keeps_order,
    }))
}

#[test]
fn both_sides_of_a_join_are_put_aside() {
    use JoinKind::{Anti, Full, Inner, Left, Right, Semi};
    with_transaction(async |txn| {
        for kind in [Inner, Left, Right, Full, Semi, Anti] {
            agrees(&join(kind, false), false, txn).await;
        }
    });
}

/// Rows whose key is NULL are many, and keys are longer than rows.
#[test]
fn a_join_divides_neither_nulls_nor_too_late() {
    let nulls = |n: i32| ints(&[(n % 10 == 0).then_some(n), Some(n)]);
    let rows = || values((0..3000).map(nulls).collect(), 2);
    let long = || Expr::Const(text(&"x".repeat(300)));
    with_transaction(async |txn| {
        for kind in [JoinKind::Inner, JoinKind::Left, JoinKind::Semi, JoinKind::Anti] {
            let Plan::Join(mut plan) = join(kind, false) else { unreachable!() };
            (plan.left, plan.right) = (rows(), rows());
            plan.condition = None;
            plan.equal.push((long(), long()));
            agrees(&Plan::Join(plan), false, txn).await;
        }
    });
}

/// What is above may count on the order of the left.
#[test]
fn a_join_that_puts_rows_aside_keeps_the_order_of_the_left() {
    with_transaction(async |txn| {
        for kind in [JoinKind::Inner, JoinKind::Left, JoinKind::Semi, JoinKind::Anti] {
            agrees(&join(kind, true), true, txn).await;
        }
    });
}

/// No hash tells them apart.
#[test]
fn rows_of_one_key_that_memory_does_not_take_are_an_error() {
    let rows = || values((0..600).map(|n| ints(&[Some(1), Some(n)])).collect(), 2);
    let Plan::Join(mut join) = join(JoinKind::Inner, false) else { unreachable!() };
    (join.left, join.right) = (rows(), rows());
    with_transaction(async |txn| {
        let outcome = run_with(&Plan::Join(join), txn, &[], little()).await;
        assert_error(outcome, "53200", "out of memory");
    });
}

#[test]
fn rows_of_windows_are_put_aside() {
    let call = |name: &str, order| WindowCall {
        aggregate: (name == "sum").then(|| resolve_aggregate(name, &[INT]).unwrap().unwrap()),
        name: name.to_owned(),
        arguments: if name == "sum" { vec![col(1)] } else { vec![] },
        filter: None,
        partition: vec![col(0)],
        order: vec![order],
        frame: Frame::default(),
    };
    let last = SortKey { descending: true, ..ascending(1) };
    let calls = vec![call("row_number", ascending(1)), call("sum", last)];
    let plan = Plan::Window { input: Box::new(values(many(), 2)), calls };
    with_transaction(async |txn| agrees(&plan, true, txn).await);
}

/// Few rows of a partition may have values that are long: each one longer than that before.
#[test]
fn values_of_windows_are_counted() {
    let array_agg = |order| WindowCall {
        aggregate: Some(resolve_aggregate("array_agg", &[INT]).unwrap().unwrap()),
        name: "array_agg".to_owned(),
        arguments: vec![col(1)],
        filter: None,
        partition: Vec::new(),
        order,
        frame: Frame::default(),
    };
    let plan = |order| {
        let rows = (0..80).map(|n| ints(&[Some(1), Some(n)])).collect();
        Plan::Window { input: Box::new(values(rows, 2)), calls: vec![array_agg(order)] }
    };
    with_transaction(async |txn| {
        let shared = run_with(&plan(Vec::new()), txn, &[], little()).await.unwrap().0;
        assert_eq!(shared.len(), 80);
        let outcome = run_with(&plan(vec![ascending(1)]), txn, &[], little()).await;
        assert_error(outcome, "53200", "out of memory");
    });
}

/// UPDATE and DELETE of a whole table with RETURNING, also of the primary key.
#[test]
fn changes_of_many_rows_are_put_aside() {
    let spec = TableSpec::new("t", &[("id", INT, false), ("n", INT, false)], &[0]);
    let tables: Vec<TableSchema> = vec![spec.schema.clone()];
    with_database(tables, async |db| {
        let table = spec.def(db);
        let mut txn = db.begin();
        fill(&table, (0..2000).map(|n| ints(&[Some(n), Some(n)])).collect(), &mut txn).await;
        txn.commit().await.unwrap();
        let change = |assignments| {
            Plan::Modify(Box::new(Modify {
                table: Arc::clone(&table),
                source: scan(&table, WHOLE),
                assignments,
                checks: Vec::new(),
                returning: Some(vec![col(0), col(1)]),
            }))
        };
        for assignment in [(1, op("+", col(1), lit(1))), (0, op("-", lit(5000), col(0)))] {
            let mut txn = db.begin();
            let plan = change(Some(vec![assignment]));
            let none = MemoryLimits { spill_bytes: 0, ..little() };
            assert_error(run_with(&plan, &mut txn, &[], none).await, "53200", "out of memory");
            let (returned, affected) = run_with(&plan, &mut txn, &[], little()).await.unwrap();
            assert_eq!((returned.len(), affected), (2000, 2000));
            let mut rows = run(&scan(&table, WHOLE), &mut txn).await.unwrap();
            let key = |row: &Row| format!("{row:?}");
            let mut returned = returned;
            returned.sort_by_key(key);
            rows.sort_by_key(key);
            assert_rows(&rows, &returned);
            txn.rollback().await;
        }
        let mut txn = db.begin();
        let (returned, affected) = run_with(&change(None), &mut txn, &[], little()).await.unwrap();
        assert_eq!((returned.len(), affected), (2000, 2000));
        assert!(run(&scan(&table, WHOLE), &mut txn).await.unwrap().is_empty());
        txn.rollback().await;
    });
}
