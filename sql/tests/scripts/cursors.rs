//! What cursors take of the memory that sessions have together.

use std::sync::Arc;

use selkie_sql::{Datum, MemoryBudget, Session};

use super::with_database;

/// Declares a cursor of so many rows of a kilobyte.
async fn declare(session: &mut Session, name: &str, rows: u32) {
    let sql = format!(
        "declare {name} scroll cursor with hold for \
         select n, repeat('x', 1000) from generate_series(1, {rows}) n"
    );
    session.execute(&sql).await.unwrap();
}

/// The number in the row that FETCH gives.
async fn fetched(session: &mut Session, what: &str) -> i32 {
    let outcomes = session.execute(&format!("fetch {what}")).await.unwrap();
    let Datum::I32(number) = outcomes[0].rows[0][0] else { panic!("{outcomes:?}") };
    number
}

#[test]
fn cursors_draw_on_the_budget_of_their_session_while_they_are_open() {
    with_database(async |database| {
        let budget = Arc::new(MemoryBudget::new(8 << 20));
        let session = Session::new(database, "tester", || 0).unwrap();
        let mut session = session.with_memory(&budget);
        declare(&mut session, "few", 4_000).await;
        let few = budget.used();
        assert!(few > 3 << 20, "{few}");
        // More than there is goes on in a file.
        declare(&mut session, "many", 20_000).await;
        assert!((few..=8 << 20).contains(&budget.used()), "{}", budget.used());
        for (what, number) in [("last many", 20_000), ("first many", 1), ("last few", 4_000)] {
            assert_eq!(fetched(&mut session, what).await, number, "{what}");
        }
        session.execute("close many").await.unwrap();
        assert!((3 << 20..=few).contains(&budget.used()), "{}", budget.used());
        session.execute("close few").await.unwrap();
        assert_eq!(budget.used(), 0);
        declare(&mut session, "few", 4_000).await;
        drop(session);
        assert_eq!(budget.used(), 0);
    });
}
