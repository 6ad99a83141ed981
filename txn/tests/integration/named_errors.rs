//! What errors say: table, column, value and limit; and that the transaction goes on.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code")]

use std::time::Duration;

use selkie_txn::{
    AbortCause, LockOutcome, LockWait, NamedRowError, Protocol, RowError, TxnError, Value, key,
};

use crate::common::{
    BALANCE, ID, NOTE, OPENING, OWNER, account, add, balance, bank, check, insert,
    with_each_protocol,
};

/// Table, column and value that an error of a row names.
fn names(error: &NamedRowError) -> (Option<&str>, Option<&str>, Option<&str>) {
    (error.table(), error.column(), error.value())
}

/// The error of a row that this one is, which has undone its operation alone.
#[track_caller]
fn of_row(error: TxnError) -> NamedRowError {
    assert!(error.abort_cause().is_none(), "{error}");
    match error {
        TxnError::Row(error) => error,
        other => panic!("{other}"),
    }
}

#[test]
fn errors_of_rows_name_table_column_and_value() {
    with_each_protocol(1, async |protocol, databases, table| {
        let db = &databases[0];
        let mut txn = db.begin();
        insert(db, &mut txn, table, 1, &account(1)).await.unwrap();
        let mut row = db.row(table).unwrap();
        let refused = row.i32(2).i32(2).text("seven b").finish().unwrap_err();
        assert_eq!(refused.error, RowError::TooLong { column: OWNER, bytes: 7, max: 6 });
        let given = Some("Text \"seven b\"");
        assert_eq!(names(&refused), (Some("account"), Some("owner"), given), "{protocol}");
        let refused = txn.update(table, &key![1], |row| Ok(row.set_i32(BALANCE, 3)?)).await;
        let refused = of_row(refused.unwrap_err());
        assert!(matches!(refused.error, RowError::WrongType { column: BALANCE, .. }), "{refused}");
        assert_eq!(names(&refused), (Some("account"), Some("balance"), Some("I32 3")));
        let long = "x".repeat(70);
        let refused = txn.update(table, &key![1], |row| Ok(row.set_text(NOTE, &long)?)).await;
        let text = of_row(refused.unwrap_err()).to_string();
        let expected = format!(
            "table account, column note: column 4: 70 bytes (allowed: 60); the value is Text \
             \"{}\"... (70 bytes)",
            &long[..64]
        );
        assert_eq!(text, expected);
        let refused = txn.update(table, &key![1], |row| Ok(row.set_i32(ID, 9)?)).await;
        let refused = of_row(refused.unwrap_err());
        assert_eq!(names(&refused), (Some("account"), Some("id"), Some("I32 9")));
        let refused = txn.update(table, &key![1], |row| Ok(row.set_null(OWNER)?)).await;
        let refused = of_row(refused.unwrap_err());
        assert_eq!(names(&refused), (Some("account"), Some("owner"), None));
        let refused = of_row(db.key(table, &[Value::Text("x")]).unwrap_err());
        assert_eq!(names(&refused), (Some("account"), Some("id"), Some("Text \"x\"")));
        let row = txn.get(table, &key![1]).await.unwrap().unwrap();
        let refused = row.i32(OWNER).unwrap_err();
        assert_eq!(names(&refused), (Some("account"), Some("owner"), None));
        let refused = txn.get_columns(table, &key![1], &[5]).await.map(drop).unwrap_err();
        let refused = of_row(refused);
        assert_eq!(names(&refused), (Some("account"), None, None));
        // All of these have left the transaction as it was.
        txn.update(table, &key![1], add(5)).await.unwrap();
        txn.commit().await.unwrap();
        let mut txn = db.begin();
        assert_eq!(balance(&mut txn, table, 1).await.unwrap(), OPENING + 5);
        txn.commit().await.unwrap();
        check(db).await;
    });
}

#[test]
fn errors_show_the_keys_that_they_are_about() {
    with_each_protocol(1, async |protocol, databases, table| {
        let db = &databases[0];
        let by_tag = db.index("account", "by_tag").unwrap();
        let mut txn = db.begin();
        for id in [1, 2] {
            insert(db, &mut txn, table, id, &account(id)).await.unwrap();
        }
        let says = |error: TxnError, expected: &str| {
            assert!(error.abort_cause().is_none(), "{protocol}: {error}");
            assert_eq!(error.to_string(), format!("table account{expected}"), "{protocol}");
        };
        let same = insert(db, &mut txn, table, 1, &account(3)).await.unwrap_err();
        says(same, ", primary key: duplicate key (id = I32 1)");
        let same_tag = insert(db, &mut txn, table, 3, &account(2)).await.unwrap_err();
        says(same_tag, ", by_tag: duplicate key (tag = I32 2)");
        let missing = txn.update(table, &key![9], add(1)).await.unwrap_err();
        says(missing, ": no row with this key (id = I32 9)");
        let missing = txn.delete(table, &key![-9]).await.unwrap_err();
        says(missing, ": no row with this key (id = I32 -9)");
        let other = txn.get(table, &key!["x"]).await.map(drop).unwrap_err();
        let shape = ", primary key: the key given has another shape: ";
        says(other, &format!("{shape}0x780000 is not of (id I32)"));
        let many = db.key(by_tag, &[Value::I32(1), Value::I32(2)]).unwrap_err();
        says(many, ", by_tag: the key given has another shape: 2 values is not of (tag I32)");
        txn.update(table, &key![2], add(5)).await.unwrap();
        txn.commit().await.unwrap();
        let mut txn = db.begin();
        assert_eq!(balance(&mut txn, table, 2).await.unwrap(), OPENING + 5);
        txn.commit().await.unwrap();
        check(db).await;
    });
}

/// Also where it is met by a commit, which has not looked at the row before.
#[test]
fn a_wait_for_a_lock_says_of_which_row() {
    let (cluster, databases, table) = bank(Protocol::Snapshot);
    cluster.runtime.block_on(async {
        let mut holder = databases[0].begin();
        let held = holder.lock_row(table, &key![7], LockWait::Wait).await.unwrap();
        assert_eq!(held, LockOutcome::Held);
        for commits in [false, true] {
            let mut txn = databases[1].begin();
            txn.set_lock_timeout(Duration::ZERO);
            let ended = match commits {
                false => txn.lock_row(table, &key![7], LockWait::Wait).await.map(drop),
                true => {
                    txn.update(table, &key![7], add(1)).await.unwrap();
                    txn.commit().await
                }
            };
            let error = ended.unwrap_err();
            assert_eq!(error.abort_cause(), Some(AbortCause::LockTimeout), "{error}");
            let TxnError::LockTimeout { table, key, .. } = error else { panic!("{error}") };
            assert_eq!((&*table, &*key), ("account", "id = I32 7"));
        }
        holder.rollback().await;
    });
    drop(databases);
    cluster.close();
}
