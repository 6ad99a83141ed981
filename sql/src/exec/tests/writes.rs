//! INSERT, UPDATE and DELETE, with their constraints.

use std::sync::Arc;

use selkie_txn::IndexSchema;

use super::*;
use crate::plan::{ConflictAction, Insert, Modify};

/// A key, a number that may be NULL and is unique, a number that may not.
fn with_table(test: impl AsyncFnOnce(&Arc<TableDef>, &mut Txn<'_>)) {
    let columns = [("id", INT, false), ("u", INT, true), ("n", INT, false)];
    let mut spec = TableSpec::new("t", &columns, &[0]);
    let unique = IndexSchema::new("t_u_key", [1]).order([KeyOrder::ASCENDING.nulls_last()]);
    spec.schema.indexes.push(unique.unique().nulls_distinct());
    with_database(vec![spec.schema.clone()], async |db| {
        let table = spec.def(db);
        let mut txn = db.begin();
        fill(&table, int_rows(&[[1, 10, 100], [2, 20, 200], [3, 30, 300]].map(some)), &mut txn)
            .await;
        txn.commit().await.unwrap();
        let mut txn = db.begin();
        test(&table, &mut txn).await;
        txn.rollback().await;
    });
}

fn some(row: [i32; 3]) -> [Option<i32>; 3] {
    row.map(Some)
}

async fn check_table(table: &Arc<TableDef>, txn: &mut Txn<'_>, wanted: &[[Option<i32>; 3]]) {
    check(&scan(table, WHOLE), txn, &int_rows(wanted)).await;
}

/// What a change returns and how many rows it has changed.
async fn change(plan: Plan, txn: &mut Txn<'_>) -> SqlResult<(Vec<Row>, u64)> {
    run_with(&plan, txn, &[], MemoryLimits::default()).await
}

fn inserting(insert: Insert) -> Plan {
    Plan::Insert(Box::new(insert))
}

fn all() -> Option<Vec<Expr>> {
    Some(vec![col(0), col(1), col(2)])
}

#[test]
fn insertions_keep_the_constraints() {
    with_table(async |table, txn| {
        let insert_rows = |rows: &[[Option<i32>; 3]]| Insert {
            checks: vec![("positive".to_owned(), op(">", col(1), lit(0)))],
            returning: all(),
            ..insert(table, int_rows(rows))
        };
        // NULL passes a check, and does not repeat in a unique index.
        let rows = [[Some(4), None, Some(1)], [Some(5), None, Some(1)]];
        let (returned, affected) = change(inserting(insert_rows(&rows)), txn).await.unwrap();
        assert_rows(&returned, &int_rows(&rows));
        assert_eq!(affected, 2);
        let cases: [([Option<i32>; 3], &str, &str, &str); 4] = [
            (
                [Some(9), Some(1), None],
                "23502",
                "null value in column \"n\" of relation \"t\" violates not-null constraint",
                "Failing row contains (9, 1, null).",
            ),
            (
                [Some(9), Some(-1), Some(3)],
                "23514",
                "new row for relation \"t\" violates check constraint \"positive\"",
                "Failing row contains (9, -1, 3).",
            ),
            (
                [Some(1), Some(1), Some(3)],
                "23505",
                "duplicate key value violates unique constraint \"t_pkey\"",
                "Key (id)=(1) already exists.",
            ),
            (
                [Some(9), Some(20), Some(3)],
                "23505",
                "duplicate key value violates unique constraint \"t_u_key\"",
                "Key (u)=(20) already exists.",
            ),
        ];
        for (row, code, message, detail) in cases {
            let outcome = change(inserting(insert_rows(&[row])), txn).await;
            assert_eq!(assert_error(outcome, code, message).detail_text(), Some(detail));
        }
        let old = [[1, 10, 100], [2, 20, 200], [3, 30, 300]].map(some);
        check_table(table, txn, &[&old[..], &rows].concat()).await;
    });
}

#[test]
fn an_insertion_does_not_see_its_own_rows() {
    with_table(async |table, txn| {
        let source = Plan::Project {
            input: Box::new(scan(table, WHOLE)),
            exprs: vec![op("+", col(0), lit(100)), Expr::Const(Datum::Null), col(2)].into(),
        };
        let plan = Insert { source, ..insert(table, vec![]) };
        let (returned, affected) = change(inserting(plan), txn).await.unwrap();
        assert_eq!((returned.len(), affected), (0, 3));
        assert_eq!(run(&scan(table, WHOLE), txn).await.unwrap().len(), 6);
    });
}

/// Assignments and a condition.
type OnUpdate = (Vec<(usize, Expr)>, Option<Expr>);

/// ON CONFLICT, with what it does to the old row.
fn on_conflict(target: Option<Option<usize>>, update: Option<OnUpdate>) -> Option<ConflictAction> {
    Some(ConflictAction { target, update })
}

#[test]
fn conflicts_leave_out_rows() {
    with_table(async |table, txn| {
        let rows = int_rows(&[[1, 99, 0], [8, 20, 0], [7, 70, 0], [7, 71, 0]].map(some));
        // Any key; the primary key, where the other index still counts.
        let plan = |target, rows: &[Row]| Insert {
            on_conflict: on_conflict(target, None),
            returning: all(),
            ..insert(table, rows.to_vec())
        };
        let (returned, affected) = change(inserting(plan(None, &rows)), txn).await.unwrap();
        assert_rows(&returned, &int_rows(&[some([7, 70, 0])]));
        assert_eq!(affected, 1);
        let (_, affected) = change(inserting(plan(Some(None), &rows[..1])), txn).await.unwrap();
        assert_eq!(affected, 0);
        let (_, affected) = change(inserting(plan(Some(Some(0)), &rows[1..2])), txn).await.unwrap();
        assert_eq!(affected, 0);
        for (target, row) in [(Some(None), 1), (Some(Some(0)), 0)] {
            let outcome = change(inserting(plan(target, &rows[row..=row])), txn).await;
            // The row with u = 99 is in conflict by its id only.
            assert_eq!(outcome.unwrap_err().state().code(), "23505");
        }
    });
}

#[test]
fn conflicts_update_the_old_row() {
    with_table(async |table, txn| {
        // SET n = t.n + excluded.n WHERE t.id < 3.
        let set = vec![(2, op("+", col(2), col(5)))];
        let plan = |target, rows: &[[i32; 3]]| Insert {
            on_conflict: on_conflict(target, Some((set.clone(), Some(op("<", col(0), lit(3)))))),
            returning: all(),
            ..insert(table, int_rows(&rows.iter().map(|row| some(*row)).collect::<Vec<_>>()))
        };
        let rows = [[1, 5, 1], [3, 6, 1], [4, 40, 1]];
        let (returned, affected) = change(inserting(plan(Some(None), &rows)), txn).await.unwrap();
        assert_rows(&returned, &int_rows(&[[1, 10, 101], [4, 40, 1]].map(some)));
        assert_eq!(affected, 2);
        let by_u = plan(Some(Some(0)), &[[9, 20, 7]]);
        let (returned, _) = change(inserting(by_u), txn).await.unwrap();
        assert_rows(&returned, &int_rows(&[some([2, 20, 207])]));
        let wanted = [[1, 10, 101], [2, 20, 207], [3, 30, 300], [4, 40, 1]];
        check_table(table, txn, &wanted.map(some)).await;
        for twice in [[[1, 0, 1], [1, 0, 1]], [[0, 77, 1], [0, 78, 1]]] {
            let outcome = change(inserting(plan(Some(None), &twice)), txn).await;
            let message = "ON CONFLICT DO UPDATE command cannot affect row a second time";
            assert_error(outcome, "21000", message);
        }
    });
}

fn modify(table: &Arc<TableDef>, source: Plan, assignments: Option<Vec<(usize, Expr)>>) -> Modify {
    Modify {
        table: Arc::clone(table),
        source,
        assignments,
        checks: vec![("positive".to_owned(), op(">", col(2), lit(0)))],
        returning: all(),
    }
}

fn modifying(table: &Arc<TableDef>, source: Plan, assignments: Option<Vec<(usize, Expr)>>) -> Plan {
    Plan::Modify(Box::new(modify(table, source, assignments)))
}

#[test]
fn updates_change_each_row_once() {
    with_table(async |table, txn| {
        // UPDATE t SET n = t.n + o.c FROM (VALUES (1), (2)) o (c), which finds each row twice.
        let source = Plan::Join(Box::new(crate::plan::Join {
            left: scan(table, WHOLE),
            right: column(&[Some(1), Some(2)]),
            left_width: 3,
            right_width: 1,
            kind: crate::plan::JoinKind::Inner,
            equal: vec![],
            condition: None,
            is_lateral: false,
            keeps_order: false,
        }));
        let assignments = Some(vec![(2, op("+", col(2), col(3)))]);
        let returning = Some(vec![col(0), col(2), col(3)]);
        let plan = Modify { returning, ..modify(table, source, assignments) };
        let (returned, affected) = change(Plan::Modify(Box::new(plan)), txn).await.unwrap();
        assert_rows(&returned, &int_rows(&[[1, 101, 1], [2, 201, 1], [3, 301, 1]].map(some)));
        assert_eq!(affected, 3);
        check_table(table, txn, &[[1, 10, 101], [2, 20, 201], [3, 30, 301]].map(some)).await;
    });
}

#[test]
fn updates_keep_the_constraints() {
    with_table(async |table, txn| {
        let cases: [((usize, Expr), &str); 5] = [
            ((2, Expr::Const(Datum::Null)), "23502"),
            ((0, Expr::Const(Datum::Null)), "23502"),
            ((2, op("-", col(2), lit(100))), "23514"),
            ((1, lit(7)), "23505"),
            ((0, lit(7)), "23505"),
        ];
        for (assignment, code) in cases {
            let savepoint = txn.savepoint().unwrap();
            let plan = modifying(table, scan(table, WHOLE), Some(vec![assignment]));
            let error = change(plan, txn).await.unwrap_err();
            assert_eq!(error.state().code(), code);
            txn.rollback_to(savepoint).unwrap();
        }
        check_table(table, txn, &[[1, 10, 100], [2, 20, 200], [3, 30, 300]].map(some)).await;
    });
}

#[test]
fn keys_may_be_exchanged_by_an_update() {
    with_table(async |table, txn| {
        // Columns that are not needed are kept, though the scan does not read them.
        let mut source = scan(table, WHOLE);
        if let Plan::Scan(scan) = &mut source {
            let scan = Arc::make_mut(scan);
            scan.needed = vec![true, false, true];
            scan.for_update = true;
        }
        let assignments = vec![(0, op("-", lit(4), col(0))), (2, op("+", col(2), lit(1)))];
        let plan = modifying(table, source, Some(assignments));
        assert_eq!(change(plan, txn).await.unwrap().1, 3);
        check_table(table, txn, &[[1, 30, 301], [2, 20, 201], [3, 10, 101]].map(some)).await;
    });
}

#[test]
fn deletions_return_what_was_there() {
    with_table(async |table, txn| {
        let source = Plan::Filter {
            input: Box::new(scan(table, WHOLE)),
            condition: op(">", col(0), lit(1)),
        };
        let (returned, affected) = change(modifying(table, source, None), txn).await.unwrap();
        assert_rows(&returned, &int_rows(&[[2, 20, 200], [3, 30, 300]].map(some)));
        assert_eq!(affected, 2);
        check_table(table, txn, &[some([1, 10, 100])]).await;
    });
}
