//! What errors say: table, column, value and limit; and that the transaction goes on.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code")]

use selkie_txn::{NamedRowError, RowError, TxnError, Value, key};

use crate::common::{
    BALANCE, ID, NOTE, OPENING, OWNER, account, add, balance, check, insert, with_each_protocol,
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
