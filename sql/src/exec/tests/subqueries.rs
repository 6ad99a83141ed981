//! Subqueries and lateral joins.

use super::*;
use crate::functions::resolve_rows;
use crate::plan::{ApplyKind, Join, JoinKind, Reuse};

fn outer(level: usize, column: usize) -> Expr {
    Expr::Outer { level, column }
}

/// The numbers of two expressions and those between.
fn series(from: Expr, to: Expr) -> Plan {
    let function = resolve_rows("generate_series", &[INT, INT]).unwrap().unwrap();
    Plan::Rows { function: Arc::new(function), arguments: vec![from, to], ordinality: false }
}

fn apply(input: Plan, query: Plan, kind: ApplyKind, is_correlated: bool) -> Plan {
    Plan::Apply { input: Box::new(input), query: Box::new(query), kind, is_correlated }
}

fn filter(input: Plan, condition: Expr) -> Plan {
    Plan::Filter { input: Box::new(input), condition }
}

#[test]
fn rows_of_functions_are_numbered_on_request() {
    let function = resolve_rows("generate_series", &[INT, INT]).unwrap().unwrap();
    let plan = Plan::Rows {
        function: Arc::new(function),
        arguments: vec![lit(11), lit(410)],
        ordinality: true,
    };
    let wanted: Vec<Row> = (1..401).map(|n| vec![int(n + 10), big(n.into())]).collect();
    with_transaction(async |txn| {
        check(&plan, txn, &wanted).await;
        check(&series(lit(1), Expr::Const(Datum::Null)), txn, &[]).await;
    });
}

#[test]
fn a_scalar_is_the_only_value() {
    let input = || column(&[Some(1), Some(2), Some(3)]);
    // The numbers from the row's to 2: two, one and none.
    let query = series(outer(0, 0), lit(2));
    with_transaction(async |txn| {
        let from_two = || filter(input(), op(">", col(0), lit(1)));
        let plan = apply(from_two(), query.clone(), ApplyKind::Scalar, true);
        check(&plan, txn, &int_rows(&[[Some(2), Some(2)], [Some(3), None]])).await;
        let plan = apply(input(), query.clone(), ApplyKind::Scalar, true);
        let message = "more than one row returned by a subquery used as an expression";
        assert_error(run(&plan, txn).await, "21000", message);
        let plan = apply(input(), query, ApplyKind::Exists, true);
        let wanted = [(1, true), (2, true), (3, false)];
        let wanted = wanted.map(|(n, exists)| vec![int(n), Datum::Bool(exists)]);
        check(&plan, txn, &wanted).await;
    });
}

#[test]
fn what_does_not_depend_on_the_row_is_run_once_and_only_if_there_is_a_row() {
    let fails =
        Plan::Project { input: Box::new(Plan::One), exprs: vec![op("/", lit(1), lit(0))].into() };
    with_transaction(async |txn| {
        let plan = apply(Plan::Nothing { width: 1 }, fails, ApplyKind::Scalar, false);
        check(&plan, txn, &[]).await;
        // Levels are as if it did.
        let inner = apply(column(&[Some(8)]), column(&[Some(9)]), ApplyKind::Scalar, false);
        let query = Plan::Project {
            input: Box::new(apply(inner, one(outer(1, 0)), ApplyKind::Scalar, false)),
            exprs: vec![col(2)].into(),
        };
        let plan = apply(column(&[Some(1), Some(2)]), query, ApplyKind::Scalar, true);
        check(&plan, txn, &int_rows(&[[Some(1), Some(1)], [Some(2), Some(2)]])).await;
    });
}

/// One row of one expression.
fn one(expr: Expr) -> Plan {
    Plan::Project { input: Box::new(Plan::One), exprs: vec![expr].into() }
}

#[test]
fn comparisons_with_subqueries_are_three_valued() {
    let (yes, no) = (Datum::Bool(true), Datum::Bool(false));
    // The values of the subquery, `= ANY` and `<> ALL` of 1, and of NULL.
    type Case = (&'static [Option<i32>], [Datum; 2], [Datum; 2]);
    let cases: [Case; 4] = [
        (&[Some(2), None, Some(1)], [yes.clone(), no.clone()], [Datum::Null, Datum::Null]),
        (&[Some(2), None], [Datum::Null, Datum::Null], [Datum::Null, Datum::Null]),
        (&[Some(2)], [no.clone(), yes.clone()], [Datum::Null, Datum::Null]),
        (&[], [no.clone(), yes.clone()], [no, yes]),
    ];
    with_transaction(async |txn| {
        for (query, of_one, of_null) in cases {
            for (number, (name, all)) in [("=", false), ("<>", true)].into_iter().enumerate() {
                for is_correlated in [false, true] {
                    let comparison = op(name, col(0), col(1));
                    let kind = ApplyKind::Compare { comparison, all };
                    let input = column(&[Some(1), None]);
                    let plan = apply(input, column(query), kind, is_correlated);
                    let wanted = [
                        vec![int(1), of_one[number].clone()],
                        vec![Datum::Null, of_null[number].clone()],
                    ];
                    check(&plan, txn, &wanted).await;
                }
            }
        }
    });
}

#[test]
fn arrays_of_subqueries() {
    let kind = ApplyKind::Array { element: INT };
    let plan = apply(column(&[Some(1), Some(3)]), series(outer(0, 0), lit(2)), kind, true);
    with_transaction(async |txn| {
        let rows = run(&plan, txn).await.unwrap();
        let array = |row: &Row| match &row[1] {
            Datum::Array(array) => (array.dimensions.clone(), format!("{:?}", array.elements)),
            other => panic!("{other:?}"),
        };
        assert_eq!(array(&rows[0]), (vec![(2, 1)], "[I32(1), I32(2)]".to_owned()));
        assert_eq!(array(&rows[1]), (vec![], "[]".to_owned()));
    });
}

#[test]
fn lateral_joins_run_the_right_side_for_each_row() {
    let lateral = |kind, equal, condition| {
        Plan::Join(Box::new(Join {
            left: column(&[Some(3), Some(1), Some(0), None]),
            right: series(lit(1), outer(0, 0)),
            left_width: 1,
            right_width: 1,
            kind,
            equal,
            condition,
            is_lateral: true,
            keeps_order: false,
        }))
    };
    let three = [[Some(3), Some(1)], [Some(3), Some(2)], [Some(3), Some(3)]];
    with_transaction(async |txn| {
        let plan = filter(lateral(JoinKind::Inner, vec![], None), op(">", col(0), lit(0)));
        check(&plan, txn, &int_rows(&[&three[..], &[[Some(1), Some(1)]]].concat())).await;
        let equal = vec![(col(0), op("+", col(0), lit(1)))];
        let plan = filter(lateral(JoinKind::Left, equal, None), op(">", col(0), lit(-1)));
        let wanted = [[Some(3), Some(2)], [Some(1), None], [Some(0), None]];
        check(&plan, txn, &int_rows(&wanted)).await;
        let condition = Some(op(">", col(1), lit(2)));
        let plan = filter(lateral(JoinKind::Semi, vec![], condition), op(">", col(0), lit(0)));
        check(&plan, txn, &int_rows(&[[Some(3)]])).await;
    });
}

#[test]
fn common_table_expressions_of_a_subquery_are_of_its_row() {
    let shared =
        Plan::Shared { number: 1, plan: Arc::new(one(outer(0, 0))), reuse: Reuse::IfShared };
    let constant = Plan::Shared { number: 2, plan: Arc::new(one(lit(7))), reuse: Reuse::IfShared };
    with_transaction(async |txn| {
        let input = || column(&[Some(1), Some(2)]);
        let plan = apply(input(), shared, ApplyKind::Scalar, true);
        check(&plan, txn, &int_rows(&[[Some(1), Some(1)], [Some(2), Some(2)]])).await;
        let plan = apply(input(), constant, ApplyKind::Scalar, true);
        check(&plan, txn, &int_rows(&[[Some(1), Some(7)], [Some(2), Some(7)]])).await;
    });
}
