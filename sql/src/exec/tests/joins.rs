//! Joins against nested loops, over random rows with NULLs.

use proptest::prelude::*;
use proptest::strategy::ValueTree;

use super::*;
use crate::exec::row_key::compare_with_nulls;
use crate::plan::{Join, JoinKind, Merge, MergeKey};

const KINDS: [JoinKind; 6] = [
    JoinKind::Inner,
    JoinKind::Left,
    JoinKind::Right,
    JoinKind::Full,
    JoinKind::Semi,
    JoinKind::Anti,
];

/// What a join gives, by its definition.
fn nested_loop(
    left: &[Row],
    right: &[Row],
    kind: JoinKind,
    is_pair: impl Fn(&Row, &Row) -> bool,
) -> Vec<Row> {
    let mut rows = Vec::new();
    let none = || ints(&[None, None]);
    for l in left {
        let partners: Vec<&Row> = right.iter().filter(|r| is_pair(l, r)).collect();
        let both = partners.iter().map(|r| [l.as_slice(), r.as_slice()].concat());
        match kind {
            JoinKind::Semi => rows.extend((!partners.is_empty()).then(|| l.clone())),
            JoinKind::Anti => rows.extend(partners.is_empty().then(|| l.clone())),
            _ => rows.extend(both),
        }
        if partners.is_empty() && matches!(kind, JoinKind::Left | JoinKind::Full) {
            rows.push([l.clone(), none()].concat());
        }
    }
    if matches!(kind, JoinKind::Right | JoinKind::Full) {
        let single = right.iter().filter(|r| !left.iter().any(|l| is_pair(l, r)));
        rows.extend(single.map(|r| [none(), r.clone()].concat()));
    }
    rows
}

fn number(row: &Row, at: usize) -> Option<i32> {
    match row[at] {
        Datum::I32(value) => Some(value),
        _ => None,
    }
}

fn sorted(rows: &[Row]) -> Vec<String> {
    let mut rows: Vec<String> = rows.iter().map(|row| format!("{row:?}")).collect();
    rows.sort();
    rows
}

/// Rows of a key and a number.
fn side() -> impl Strategy<Value = Vec<Row>> {
    let value = prop_oneof![1 => Just(None), 4 => (0..4).prop_map(Some)];
    let row = (value.clone(), value).prop_map(|(a, b)| ints(&[a, b]));
    proptest::collection::vec(row, 0..40)
}

fn join(left: Vec<Row>, right: Vec<Row>, kind: JoinKind) -> Join {
    Join {
        left: values(left, 2),
        right: values(right, 2),
        left_width: 2,
        right_width: 2,
        kind,
        equal: Vec::new(),
        condition: None,
        is_lateral: false,
        keeps_order: false,
    }
}

#[test]
fn joins_give_what_nested_loops_do() {
    with_transaction(async |txn| {
        let mut runner = proptest::test_runner::TestRunner::deterministic();
        for _ in 0..60 {
            let sides = (side(), side()).new_tree(&mut runner).unwrap().current();
            for kind in KINDS {
                check_join(&sides.0, &sides.1, kind, txn).await;
            }
        }
    });
}

/// One join, with and without values that have to be equal and another condition.
async fn check_join(left: &[Row], right: &[Row], kind: JoinKind, txn: &mut Txn<'_>) {
    for (has_equal, has_condition) in [(true, true), (true, false), (false, true), (false, false)] {
        let mut plan = join(left.to_vec(), right.to_vec(), kind);
        plan.equal.extend(has_equal.then(|| (col(0), col(0))));
        plan.condition = has_condition.then(|| op("<", col(1), col(3)));
        let is_equal = |a: Option<i32>, b: Option<i32>| a.is_some() && a == b;
        let is_less = |a: Option<i32>, b: Option<i32>| a.zip(b).is_some_and(|(a, b)| a < b);
        let wanted = nested_loop(left, right, kind, |l, r| {
            (!has_equal || is_equal(number(l, 0), number(r, 0)))
                && (!has_condition || is_less(number(l, 1), number(r, 1)))
        });
        let rows = run(&Plan::Join(Box::new(plan)), txn).await.unwrap();
        let what = format!("{kind:?} {has_equal} {has_condition}\n{left:?}\n{right:?}");
        assert_eq!(sorted(&rows), sorted(&wanted), "{what}");
    }
}

/// Batches end in the middle of the partners of a row.
#[test]
fn a_row_may_have_more_partners_than_a_batch_has_rows() {
    let left = vec![ints(&[Some(1), Some(0)]); 3];
    let right: Vec<Row> = (0..700).map(|n| ints(&[Some(1), Some(n)])).collect();
    with_transaction(async |txn| {
        for has_equal in [false, true] {
            let mut plan = join(left.clone(), right.clone(), JoinKind::Full);
            plan.equal.extend(has_equal.then(|| (col(0), col(0))));
            let rows = run(&Plan::Join(Box::new(plan)), txn).await.unwrap();
            assert_eq!(rows.len(), 2100);
        }
    });
}

#[test]
fn a_side_without_rows() {
    with_transaction(async |txn| {
        for kind in KINDS {
            check_join(&[], &[], kind, txn).await;
            check_join(&[ints(&[Some(1), None])], &[], kind, txn).await;
            check_join(&[], &[ints(&[Some(1), None])], kind, txn).await;
        }
    });
}

/// The rows in an order of their first column.
fn in_order(rows: &[Row], order: MergeKey) -> Vec<Row> {
    let mut rows = rows.to_vec();
    rows.sort_by(|a, b| compare_with_nulls(&a[0], &b[0], order.descending, order.nulls_first));
    rows
}

fn orders() -> [MergeKey; 4] {
    let order = |descending, nulls_first| MergeKey { descending, nulls_first };
    [order(false, false), order(false, true), order(true, false), order(true, true)]
}

fn merge(left: Vec<Row>, right: Vec<Row>, kind: JoinKind, order: MergeKey) -> Merge {
    let mut join = join(left, right, kind);
    join.equal.push((col(0), col(0)));
    Merge { join, keys: vec![order] }
}

/// Sides in each order, with NULLs at either end, and the rows of the left stay in it.
#[test]
fn merge_joins_give_what_nested_loops_do() {
    with_transaction(async |txn| {
        let mut runner = proptest::test_runner::TestRunner::deterministic();
        for _ in 0..30 {
            let (left, right) = (side(), side()).new_tree(&mut runner).unwrap().current();
            for (kind, order) in KINDS.iter().flat_map(|kind| orders().map(|order| (*kind, order)))
            {
                check_merge(&left, &right, (kind, order), txn).await;
            }
        }
        for (kind, order) in KINDS.iter().flat_map(|kind| orders().map(|order| (*kind, order))) {
            let one = [ints(&[Some(1), None])];
            check_merge(&[], &[], (kind, order), txn).await;
            check_merge(&one, &[], (kind, order), txn).await;
            check_merge(&[], &one, (kind, order), txn).await;
        }
    });
}

async fn check_merge(
    left: &[Row],
    right: &[Row],
    (kind, order): (JoinKind, MergeKey),
    txn: &mut Txn<'_>,
) {
    let (left, right) = (in_order(left, order), in_order(right, order));
    for has_condition in [false, true] {
        let mut plan = merge(left.clone(), right.clone(), kind, order);
        plan.join.condition = has_condition.then(|| op("<", col(1), col(3)));
        let is_less = |a: Option<i32>, b: Option<i32>| a.zip(b).is_some_and(|(a, b)| a < b);
        let wanted = nested_loop(&left, &right, kind, |l, r| {
            number(l, 0).is_some()
                && number(l, 0) == number(r, 0)
                && (!has_condition || is_less(number(l, 1), number(r, 1)))
        });
        let rows = run(&Plan::Merge(Box::new(plan)), txn).await.unwrap();
        let what = format!("{kind:?} {order:?} {has_condition}\n{left:?}\n{right:?}");
        match kind {
            JoinKind::Right | JoinKind::Full => {
                assert_eq!(sorted(&rows), sorted(&wanted), "{what}")
            }
            _ => assert_rows(&rows, &wanted),
        }
    }
}

/// Batches end in the middle of the partners of a row, and of rows without partners.
#[test]
fn groups_of_a_merge_join_may_be_longer_than_a_batch() {
    let left = vec![ints(&[Some(1), Some(0)]); 3];
    let rows_of = |key: i32| (0..700).map(move |n| ints(&[Some(key), Some(n)]));
    let right: Vec<Row> = rows_of(0).chain(rows_of(1)).chain(rows_of(2)).collect();
    with_transaction(async |txn| {
        for (kind, wanted) in [
            (JoinKind::Inner, 2100),
            (JoinKind::Left, 2100),
            (JoinKind::Right, 3500),
            (JoinKind::Full, 3500),
            (JoinKind::Semi, 3),
            (JoinKind::Anti, 0),
        ] {
            let plan = merge(left.clone(), right.clone(), kind, orders()[0]);
            let rows = run(&Plan::Merge(Box::new(plan)), txn).await.unwrap();
            assert_eq!(rows.len(), wanted, "{kind:?}");
        }
    });
}

/// Of two columns in orders of their own.
#[test]
fn a_merge_join_of_several_pairs() {
    let rows =
        |keys: &[(i32, i32)]| keys.iter().map(|(a, b)| ints(&[Some(*a), Some(*b)])).collect();
    let left = rows(&[(1, 9), (1, 7), (2, 9), (3, 1)]);
    let right = rows(&[(1, 8), (1, 7), (1, 7), (3, 2), (3, 1)]);
    let mut join = join(left, right, JoinKind::Inner);
    join.equal.extend([(col(0), col(0)), (col(1), col(1))]);
    let up = MergeKey { descending: false, nulls_first: false };
    let keys = vec![up, MergeKey { descending: true, nulls_first: true }];
    let wanted = int_rows(&[
        [Some(1), Some(7), Some(1), Some(7)],
        [Some(1), Some(7), Some(1), Some(7)],
        [Some(3), Some(1), Some(3), Some(1)],
    ]);
    with_transaction(async |txn| {
        check(&Plan::Merge(Box::new(Merge { join, keys })), txn, &wanted).await;
    });
}

#[test]
fn sides_that_are_not_in_order_are_an_error() {
    let rows = || vec![ints(&[Some(1), None]), ints(&[Some(3), None]), ints(&[Some(2), None])];
    with_transaction(async |txn| {
        let plan = merge(rows(), rows(), JoinKind::Full, orders()[0]);
        let outcome = run(&Plan::Merge(Box::new(plan)), txn).await;
        assert_error(outcome, "XX000", "a side of a merge join is not in order");
    });
}
