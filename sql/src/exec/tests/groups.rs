//! Aggregates, window functions and DISTINCT.

use super::*;
use crate::functions::resolve_aggregate;
use crate::plan::{AggregateCall, Frame, SortKey, WindowCall};

fn call(name: &str, types: &[SqlType], arguments: Vec<Expr>) -> AggregateCall {
    AggregateCall {
        function: resolve_aggregate(name, types).unwrap().unwrap(),
        arguments,
        is_distinct: false,
        filter: None,
        order: Vec::new(),
    }
}

fn ascending(at: usize) -> SortKey {
    SortKey { expr: col(at), descending: false, nulls_first: false }
}

/// A group and a value; NULL of both.
fn sales() -> Vec<Row> {
    int_rows(&[
        [Some(1), Some(10)],
        [None, Some(1)],
        [Some(2), None],
        [Some(1), Some(30)],
        [None, Some(2)],
        [Some(1), None],
        [Some(1), Some(10)],
    ])
}

#[test]
fn groups_have_their_aggregates() {
    let calls = vec![
        call("count", &[], vec![]),
        call("count", &[INT], vec![col(1)]),
        call("sum", &[INT], vec![col(1)]),
        AggregateCall { is_distinct: true, ..call("sum", &[INT], vec![col(1)]) },
        AggregateCall { filter: Some(op(">", col(1), lit(9))), ..call("count", &[], vec![]) },
    ];
    let plan = |input, keys| Plan::Aggregate { input: Box::new(input), keys, calls: calls.clone() };
    let group = |key: Option<i32>, values: [Option<i64>; 5]| -> Row {
        let values = values.map(|value| value.map_or(Datum::Null, big));
        ints(&[key]).into_iter().chain(values).collect()
    };
    with_transaction(async |txn| {
        let wanted = [
            group(Some(1), [Some(4), Some(3), Some(50), Some(40), Some(3)]),
            group(None, [Some(2), Some(2), Some(3), Some(3), Some(0)]),
            group(Some(2), [Some(1), Some(0), None, None, Some(0)]),
        ];
        check(&plan(values(sales(), 2), vec![col(0)]), txn, &wanted).await;
        // Without keys a row for no rows, too; with keys none.
        let none = group(None, [Some(0), Some(0), None, None, Some(0)]);
        let nothing = Plan::Nothing { width: 2 };
        check(&plan(nothing.clone(), vec![]), txn, &[none[1..].to_vec()]).await;
        check(&plan(nothing, vec![col(0)]), txn, &[]).await;
    });
}

/// Rows of a group that come one behind the other give what they give in any order, and need memory
/// for one group.
#[test]
fn groups_are_given_as_they_end() {
    let key = |n: i32| Some(n / 3).filter(|key| *key < 900);
    let rows: Vec<Row> = (0..3000).map(|n| ints(&[key(n), Some(n % 7)])).collect();
    let calls = vec![
        call("count", &[], vec![]),
        AggregateCall { is_distinct: true, ..call("sum", &[INT], vec![col(1)]) },
        AggregateCall { order: vec![ascending(1)], ..call("array_agg", &[INT], vec![col(1)]) },
    ];
    let little = MemoryLimits { operator_bytes: 60_000, spill_bytes: 0, ..MemoryLimits::default() };
    with_transaction(async |txn| {
        let input = || Box::new(values(rows.clone(), 2));
        let (keys, calls) = (vec![col(0)], calls);
        let hashed = Plan::Aggregate { input: input(), keys: keys.clone(), calls: calls.clone() };
        let wanted = run(&hashed, txn).await.unwrap();
        assert_eq!(wanted.len(), 901);
        assert_error(run_with(&hashed, txn, &[], little.clone()).await, "53200", "out of memory");
        let plan = Plan::Grouped { input: input(), keys: keys.clone(), calls: calls.clone() };
        let found = run_with(&plan, txn, &[], little).await.unwrap().0;
        assert_rows(&found, &wanted);
        let nothing = Box::new(Plan::Nothing { width: 2 });
        check(&Plan::Grouped { input: nothing, keys, calls }, txn, &[]).await;
    });
}

#[test]
fn aggregates_add_in_the_order_that_is_asked_for() {
    let rows = [(3, "c"), (1, "a"), (2, "b"), (1, "a")].map(|(n, t)| vec![int(n), text(t)]);
    let comma = Expr::Const(text(","));
    let joined = call("string_agg", &[TEXT, TEXT], vec![col(1), comma]);
    let descending = SortKey { descending: true, ..ascending(0) };
    let cases = [
        (AggregateCall { order: vec![], ..joined.clone() }, "c,a,b,a"),
        (AggregateCall { order: vec![ascending(0)], ..joined.clone() }, "a,a,b,c"),
        (AggregateCall { order: vec![descending], is_distinct: true, ..joined }, "c,b,a"),
    ];
    with_transaction(async |txn| {
        for (call, wanted) in cases {
            let input = Box::new(values(rows.to_vec(), 2));
            let plan = Plan::Aggregate { input, keys: vec![], calls: vec![call] };
            check(&plan, txn, &[vec![text(wanted)]]).await;
        }
    });
}

#[test]
fn distinct_keeps_the_first_row_of_a_key() {
    let plan = Plan::Distinct {
        input: Box::new(values(sales(), 2)),
        keys: vec![col(0)],
        is_sorted: false,
    };
    let wanted = int_rows(&[[Some(1), Some(10)], [None, Some(1)], [Some(2), None]]);
    with_transaction(async |txn| check(&plan, txn, &wanted).await);
}

/// The values of a window function over rows of a partition and a place.
async fn window(name: &str, arguments: Vec<Expr>, txn: &mut Txn<'_>) -> SqlResult<Vec<Datum>> {
    // Partition 1 has the places 1, 2, 2, 4, and partition 2 the places NULL and 5.
    let rows = [(2, Some(5)), (1, Some(2)), (1, Some(4)), (2, None), (1, Some(1)), (1, Some(2))];
    let rows = rows.map(|(partition, place)| ints(&[Some(partition), place]));
    let aggregate = match name {
        "count" | "sum" => resolve_aggregate(name, &vec![INT; arguments.len()]).unwrap(),
        _ => None,
    };
    let call = WindowCall {
        aggregate,
        name: name.to_owned(),
        arguments,
        filter: None,
        partition: vec![col(0)],
        order: vec![ascending(1)],
        frame: Frame::default(),
    };
    let input = Box::new(values(rows.to_vec(), 2));
    let rows = run(&Plan::Window { input, calls: vec![call] }, txn).await?;
    let places: Vec<Row> = rows.iter().map(|row| row[..2].to_vec()).collect();
    let wanted = [[1, 1], [1, 2], [1, 2], [1, 4], [2, 5]].map(|row| ints(&row.map(Some)));
    assert_rows(&places[..5], &wanted);
    assert_rows(&places[5..], &[ints(&[Some(2), None])]);
    Ok(rows.into_iter().map(|mut row| row.remove(2)).collect())
}

#[test]
fn window_functions_over_the_default_frame() {
    let bigs = |values: [i64; 6]| values.map(big);
    let some = |values: [Option<i32>; 6]| values.map(|value| value.map_or(Datum::Null, int));
    let own = || vec![col(1)];
    let cases: Vec<(&str, Vec<Expr>, [Datum; 6])> = vec![
        ("row_number", vec![], bigs([1, 2, 3, 4, 1, 2])),
        ("rank", vec![], bigs([1, 2, 2, 4, 1, 2])),
        ("dense_rank", vec![], bigs([1, 2, 2, 3, 1, 2])),
        ("percent_rank", vec![], [0.0, 1.0 / 3.0, 1.0 / 3.0, 1.0, 0.0, 1.0].map(Datum::F64)),
        ("cume_dist", vec![], [0.25, 0.75, 0.75, 1.0, 0.5, 1.0].map(Datum::F64)),
        ("ntile", vec![lit(3)], [1, 1, 2, 3, 1, 2].map(int)),
        ("ntile", vec![lit(9)], [1, 2, 3, 4, 1, 2].map(int)),
        ("lag", own(), some([None, Some(1), Some(2), Some(2), None, Some(5)])),
        ("lead", own(), some([Some(2), Some(2), Some(4), None, None, None])),
        (
            "lag",
            vec![col(1), lit(2), lit(-7)],
            some([Some(-7), Some(-7), Some(1), Some(2), Some(-7), Some(-7)]),
        ),
        ("lead", vec![col(1), lit(0)], some([Some(1), Some(2), Some(2), Some(4), Some(5), None])),
        ("first_value", own(), some([Some(1), Some(1), Some(1), Some(1), Some(5), Some(5)])),
        ("last_value", own(), some([Some(1), Some(2), Some(2), Some(4), Some(5), None])),
        ("nth_value", vec![col(1), lit(2)], some([None, Some(2), Some(2), Some(2), None, None])),
        ("count", vec![], bigs([1, 3, 3, 4, 1, 2])),
        ("count", own(), bigs([1, 3, 3, 4, 1, 1])),
        ("sum", own(), bigs([1, 5, 5, 9, 5, 5])),
    ];
    with_transaction(async |txn| {
        for (name, arguments, wanted) in cases {
            let found = window(name, arguments, txn).await.unwrap();
            let found: Vec<String> = found.iter().map(|value| format!("{value:?}")).collect();
            assert_eq!(found, wanted.map(|value| format!("{value:?}")), "{name}");
        }
        let outcome = window("ntile", vec![lit(0)], txn).await;
        assert_error(outcome, "22014", "argument of ntile must be greater than zero");
        let outcome = window("nth_value", vec![col(1), lit(0)], txn).await;
        assert_error(outcome, "22016", "argument of nth_value must be greater than zero");
    });
}

#[test]
fn windows_without_an_order_are_over_the_whole_partition() {
    let call = |name: &str, partition| WindowCall {
        aggregate: resolve_aggregate(name, &[INT]).unwrap(),
        name: name.to_owned(),
        arguments: vec![col(0)],
        filter: None,
        partition,
        order: vec![],
        frame: Frame::default(),
    };
    let input = Box::new(column(&[Some(4), None, Some(5), Some(4)]));
    let calls = vec![call("sum", vec![]), call("sum", vec![col(0)])];
    let row = |own: Option<i32>, of_own: Option<i64>| -> Row {
        vec![own.map_or(Datum::Null, int), big(13), of_own.map_or(Datum::Null, big)]
    };
    let wanted =
        [row(Some(4), Some(8)), row(Some(4), Some(8)), row(Some(5), Some(5)), row(None, None)];
    with_transaction(async |txn| check(&Plan::Window { input, calls }, txn, &wanted).await);
}
