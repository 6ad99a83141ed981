//! Statements that are deep or long: they are run or refused, and never the end of the stack.
//! Threads have 2 MiB, as those of programs that embed SQL.

use super::with_session;

/// Does something on a thread with a small stack.
fn on_small_stack(work: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new().stack_size(2 << 20).spawn(work).unwrap();
    thread.join().unwrap();
}

/// A kind of expression that can be within itself.
struct Kind {
    open: &'static str,
    start: &'static str,
    link: &'static str,
    close: &'static str,
}

const KINDS: [Kind; 5] = [
    Kind { open: "(", start: "1", link: " + 1", close: ")" },
    Kind { open: "(", start: "true", link: " and true", close: ")" },
    Kind { open: "(", start: "'x'", link: "::text", close: ")" },
    Kind { open: "(", start: "'x'", link: " || 'x'", close: ")" },
    Kind { open: "case when true then ", start: "1", link: " + 1", close: " end" },
];

/// An expression of so many levels, each of so many links.
fn nested(kind: &Kind, levels: usize, links: usize) -> String {
    let close = format!("{}{}", kind.close, kind.link.repeat(links));
    format!("{}{}{}", kind.open.repeat(levels), kind.start, close.repeat(levels))
}

#[test]
fn chains_within_chains_are_run_or_refused_wherever_they_stand() {
    on_small_stack(|| {
        with_session(async |session| {
            session.execute("create table t (a int)").await.unwrap();
            for (levels, links, fits) in [
                (1, 280, true),
                (15, 17, true),
                (15, 290, false),
                (60, 290, false),
                (100, 20, false),
            ] {
                for kind in &KINDS {
                    let expr = nested(kind, levels, links);
                    for sql in [
                        format!("select {expr}"),
                        format!("select 1; select {expr}"),
                        format!("select a from t where {expr} is not null"),
                        format!("create table d (a text default ({expr})); drop table d"),
                        format!("create table d (a int check ({expr} is null)); drop table d"),
                        format!("create view v as select {expr} as x; drop view v"),
                    ] {
                        let ran = session.execute(&sql).await;
                        let state = ran.as_ref().err().map(|error| error.state().code());
                        let expected = if fits { None } else { Some("54001") };
                        assert_eq!(state, expected, "{levels} x {links}: {}", &sql[..40]);
                    }
                }
            }
        });
    });
}

#[test]
fn an_error_within_a_long_chain_has_its_place() {
    on_small_stack(|| {
        with_session(async |session| {
            let chain = " + 1".repeat(280);
            for (sql, state) in [
                (format!("select nosuch{chain}"), "42703"),
                (format!("select 1{chain} + true"), "42883"),
            ] {
                let error = session.execute(&sql).await.unwrap_err();
                assert_eq!(error.state().code(), state);
                assert!(error.position().is_some());
            }
        });
    });
}

#[test]
fn long_lists_are_run() {
    on_small_stack(|| {
        with_session(async |session| {
            let unions = format!("select 1, 2{}", " union all select 1, 2".repeat(290));
            assert_eq!(session.execute(&unions).await.unwrap()[0].rows.len(), 291);
            let distinct = format!("select 1, 2{}", " union select 1, 2".repeat(140));
            assert_eq!(session.execute(&distinct).await.unwrap()[0].rows.len(), 1);
            let queries = format!("select {} 1", "(select 1), ".repeat(150));
            assert_eq!(session.execute(&queries).await.unwrap()[0].columns.len(), 151);
            session.execute("create table t (a int primary key, b int)").await.unwrap();
            let series = "insert into t select a, a from generate_series(1, 1000) a";
            session.execute(series).await.unwrap();
            let conditions: Vec<_> = (1..=9_000).map(|at| format!("b = {at}")).collect();
            let any = format!("select a from t where {}", conditions.join(" or "));
            assert_eq!(session.execute(&any).await.unwrap()[0].rows.len(), 1_000);
            let all: Vec<_> = (501..=9_500).map(|at| format!("b <> {at}")).collect();
            let all = format!("select a from t where {}", all.join(" and "));
            assert_eq!(session.execute(&all).await.unwrap()[0].rows.len(), 500);
            // As programs change many rows at once.
            let branches: String = (1..=3_000).map(|at| format!(" when {at} then -{at}")).collect();
            let keys: Vec<_> = (1..=3_000).map(|at| at.to_string()).collect();
            let keys = keys.join(", ");
            let update = format!("update t set b = case a{branches} end where a in ({keys})");
            assert_eq!(session.execute(&update).await.unwrap()[0].tag, "UPDATE 1000");
            let negative = session.execute("select a from t where b = -a").await.unwrap();
            assert_eq!(negative[0].rows.len(), 1_000);
            // Kept as text, and read again.
            let check = format!("alter table t add check ({})", conditions[..500].join(" or "));
            let refused = session.execute(&check).await.unwrap_err();
            assert_eq!(refused.state().code(), "23514");
        });
    });
}

/// Each is no deeper than the one before, and all of them are.
#[test]
fn views_of_views_are_refused_when_they_are_too_deep() {
    on_small_stack(|| {
        with_session(async |session| {
            session.execute("create view v0 as select 1 as a").await.unwrap();
            let mut last = 0;
            let refused = loop {
                let next = last + 1;
                let view = format!(
                    "create view v{next} as select distinct a from v{last} order by a limit 10"
                );
                match session.execute(&view).await {
                    Ok(_) => last = next,
                    Err(error) => break error,
                }
                assert!(next < 1_000);
            };
            assert_eq!(refused.state().code(), "54001");
            let found = session.execute(&format!("select a from v{}", last / 4)).await.unwrap();
            assert_eq!(found[0].rows.len(), 1);
        });
    });
}

#[test]
fn a_clause_does_not_call_sequences_without_end() {
    on_small_stack(|| {
        with_session(async |session| {
            session.execute("create sequence s").await.unwrap();
            let calls = |count: usize| format!("select {}", vec!["nextval('s')"; count].join(", "));
            assert_eq!(session.execute(&calls(100)).await.unwrap()[0].columns.len(), 100);
            let refused = session.execute(&calls(1_600)).await.unwrap_err();
            assert_eq!(refused.state().code(), "54001");
            let values = format!("values ({})", vec!["1"; 2_000].join(", "));
            let refused = session.execute(&values).await.unwrap_err();
            assert_eq!(refused.state().code(), "54011");
        });
    });
}
