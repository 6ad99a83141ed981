//! Joins against nested loops, over random rows with NULLs.

use proptest::prelude::*;
use proptest::strategy::ValueTree;

use super::*;
use crate::plan::{Join, JoinKind};

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
