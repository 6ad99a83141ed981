//! FOREIGN KEY constraints with several sessions, and what their errors say.

use std::sync::Arc;

use parking_lot::Mutex;
use selkie_fabric::BoxFuture;
use selkie_sql::types::FormatSettings;
use selkie_sql::{Client, Datum, OutputColumn, Session, SqlError, SqlResult};
use selkie_txn::Database;

use super::{with_database, with_nodes, with_session};

fn session(database: &Database) -> Session {
    Session::new(database, "tester", || 0).unwrap()
}

async fn run(session: &mut Session, sql: &str) -> SqlResult<()> {
    session.execute(sql).await.map(drop)
}

async fn count(session: &mut Session, sql: &str) -> i64 {
    let found = session.execute(sql).await.unwrap();
    let Datum::I64(count) = found[0].rows[0][0] else { panic!("no count: {sql}") };
    count
}

/// Tables of a race: what the child refers to, and whether it has an index.
const TABLES: [(&str, &str); 3] =
    [("p", "create index on c (pid)"), ("p", "select 1"), ("p (u)", "create index on c (pid, n)")];

/// What takes the parent away, with what is done with its children.
const PARENTS: [(&str, &str); 5] = [
    ("delete from p where id = 1", ""),
    ("update p set id = 9, u = 9 where id = 1", "on update restrict"),
    ("delete from p where id = 1", "on delete cascade"),
    ("delete from p where id = 1", "on delete set null"),
    ("update p set id = 9, u = 9 where id = 1", "on update cascade"),
];

/// What brings a child, and which row is there before.
const CHILDREN: [(&str, &str); 2] =
    [("insert into c values (1, 1, 0)", ""), ("update c set pid = 1", "1, 2, 0")];

const ISOLATIONS: [&str; 3] = ["read committed", "repeatable read", "serializable"];

/// Of two transactions of which one brings a child and the other takes its parent away only one
/// commits, whichever of the two begins, or ends, first.
async fn race(databases: &[Database], isolation: &str) {
    let mut first = session(&databases[0]);
    let mut second = session(databases.last().unwrap());
    for ((target, index), (take, action)) in
        TABLES.iter().flat_map(|own| PARENTS.iter().map(move |other| (own, other)))
    {
        for ((bring, there), order) in
            CHILDREN.iter().flat_map(|own| (0..4).map(move |order| (own, order)))
        {
            let sql = format!(
                "create table p (id integer primary key, u integer unique, x integer); \
                 create table c (id integer primary key, \
                 pid integer references {target} {action}, n integer)"
            );
            run(&mut first, &sql).await.unwrap();
            run(&mut first, index).await.unwrap();
            run(&mut first, "insert into p values (1, 1, 0), (2, 2, 0)").await.unwrap();
            if !there.is_empty() {
                run(&mut first, &format!("insert into c values ({there})")).await.unwrap();
            }
            let begin = format!("begin isolation level {isolation}");
            let (one, other) = if order % 2 == 0 { (bring, take) } else { (take, bring) };
            run(&mut first, &begin).await.unwrap();
            run(&mut first, one).await.unwrap();
            run(&mut second, &begin).await.unwrap();
            run(&mut second, other).await.unwrap();
            let (early, late) =
                if order < 2 { (&mut first, &mut second) } else { (&mut second, &mut first) };
            run(early, "commit").await.unwrap();
            let name = format!("{isolation}: {one}; {other}; {target}, {index}, {action}, {order}");
            let ended = run(late, "commit").await.map_err(|error| error.state().code());
            assert_eq!(ended, Err("40001"), "{name}");
            let orphans = "select count(*) from c where pid not in (select id from p)";
            assert_eq!(count(&mut first, orphans).await, 0, "{name}");
            run(&mut first, "drop table c, p").await.unwrap();
        }
    }
}

#[test]
fn of_a_child_and_the_end_of_its_parent_one_is_committed() {
    with_database(async |database| {
        for isolation in ISOLATIONS {
            race(std::slice::from_ref(database), isolation).await;
        }
    });
}

#[test]
fn of_a_child_and_the_end_of_its_parent_on_another_node_one_is_committed() {
    with_nodes(2, async |databases| {
        for isolation in ISOLATIONS {
            race(databases, isolation).await;
        }
    });
}

/// A statement alone sees what has been committed, and says what is wrong.
#[test]
fn a_statement_alone_finds_what_others_have_committed() {
    with_nodes(2, async |databases| {
        let (mut one, mut other) = (session(&databases[0]), session(&databases[1]));
        let tables = "create table p (id integer primary key); insert into p values (1), (2); \
                      create table c (pid integer references p)";
        run(&mut one, tables).await.unwrap();
        run(&mut one, "begin").await.unwrap();
        run(&mut one, "select count(*) from p").await.unwrap();
        run(&mut other, "insert into c values (1)").await.unwrap();
        run(&mut other, "insert into p values (3)").await.unwrap();
        let error = run(&mut one, "delete from p where id = 1").await.unwrap_err();
        assert_eq!(error.state().code(), "23503");
        run(&mut one, "rollback; begin; select count(*) from p").await.unwrap();
        run(&mut other, "delete from p where id = 2").await.unwrap();
        run(&mut one, "insert into c values (3)").await.unwrap();
        let error = run(&mut one, "insert into c values (2)").await.unwrap_err();
        assert_eq!(error.state().code(), "23503");
    });
}

/// Children of one parent do not stand in each other's way, nor does a change of the parent that
/// is none of its key.
#[test]
fn children_of_a_parent_are_inserted_at_the_same_time() {
    with_nodes(2, async |databases| {
        for isolation in ISOLATIONS {
            let begin = format!("begin isolation level {isolation}");
            let mut sessions: Vec<Session> =
                databases.iter().chain(databases).map(session).collect();
            let tables = "create table p (id integer primary key, u integer unique, n integer); \
                 insert into p values (1, 1, 0); \
                 create table c (id integer primary key, pid integer references p, \
                 u integer references p (u))";
            run(&mut sessions[0], tables).await.unwrap();
            for session in &mut sessions {
                run(session, &begin).await.unwrap();
            }
            for (at, session) in sessions.iter_mut().enumerate() {
                let sql = match at {
                    0 => "update p set n = n + 1 where id = 1".to_owned(),
                    at => format!("insert into c values ({at}, 1, 1)"),
                };
                run(session, &sql).await.unwrap();
            }
            for session in &mut sessions {
                run(session, "commit").await.unwrap();
            }
            assert_eq!(count(&mut sessions[0], "select count(*) from c").await, 3, "{isolation}");
            run(&mut sessions[0], "drop table c, p").await.unwrap();
        }
    });
}

/// A constraint that is added, and rows that come or go meanwhile.
#[test]
fn a_constraint_is_added_to_what_is_there() {
    with_database(async |database| {
        let (mut one, mut other) = (session(database), session(database));
        let add = "alter table c add foreign key (pid) references p";
        for change in ["insert into c values (2)", "delete from p where id = 1"] {
            for is_first in [true, false] {
                let tables = "create table p (id integer primary key); insert into p values (1); \
                              create table c (pid integer); insert into c values (1)";
                run(&mut one, tables).await.unwrap();
                let (early, late) = if is_first { (change, add) } else { (add, change) };
                run(&mut one, "begin").await.unwrap();
                run(&mut one, early).await.unwrap();
                run(&mut other, late).await.unwrap();
                let error = run(&mut one, "commit").await.unwrap_err();
                assert_eq!(error.state().code(), "40001", "{early}; {late}");
                run(&mut one, "drop table c, p").await.unwrap();
            }
        }
    });
}

/// Sessions on two nodes that bring children and take parents away leave no orphan.
#[test]
fn there_are_no_orphans_after_a_storm() {
    with_nodes(2, async |databases| {
        let mut first = session(&databases[0]);
        let tables = "create table p (id integer primary key); \
                      create table c (id integer, pid integer references p on delete cascade); \
                      create table d (id integer, pid integer references p)";
        run(&mut first, tables).await.unwrap();
        run(&mut first, "create index on c (pid)").await.unwrap();
        run(&mut first, "create index on d (pid)").await.unwrap();
        let env = databases[0].engine().env().clone();
        let work = |number: u64| {
            let mut session = session(&databases[usize::from(number.is_multiple_of(2))]);
            env.spawn("client", async move {
                let mut state = number;
                for _ in 0..150 {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let key = (state >> 33) % 3;
                    let sql = match (state >> 40) % 4 {
                        0 => format!("insert into p values ({key}) on conflict do nothing"),
                        1 => format!("delete from p where id = {key}"),
                        2 => format!("insert into c values ({number}, {key})"),
                        _ => format!(
                            "begin; insert into d values ({number}, {key}); \
                             delete from d where pid = {key} and id <> {number}; commit"
                        ),
                    };
                    if let Err(error) = session.execute(&sql).await {
                        let code = error.state().code();
                        assert!(["23503", "40001", "40P01"].contains(&code), "{sql}: {error}");
                        if session.state() != selkie_sql::TransactionState::Idle {
                            session.execute("rollback").await.unwrap();
                        }
                    }
                }
            })
        };
        let workers: Vec<_> = (1..=4).map(work).collect();
        for worker in workers {
            worker.join().await.unwrap();
        }
        for child in ["c", "d"] {
            let sql = format!("select count(*) from {child} where pid not in (select id from p)");
            assert_eq!(count(&mut first, &sql).await, 0, "{child}");
        }
    });
}

/// PostgreSQL 15's texts.
#[test]
fn errors_say_which_key_is_meant() {
    with_session(async |session| {
        let tables = "create table p (id integer primary key, a text, b integer, unique (a, b)); \
            insert into p values (1, 'x', 2); \
            create table c (pid integer references p, a text, b integer, \
            constraint both_of foreign key (b, a) references p (b, a) match full)";
        run(session, tables).await.unwrap();
        run(session, "insert into c values (1, 'x', 2)").await.unwrap();
        let insert = |name: &str| {
            format!("insert or update on table \"c\" violates foreign key constraint \"{name}\"")
        };
        let remove = |name: &str| {
            format!(
                "update or delete on table \"p\" violates foreign key constraint \"{name}\" on \
                 table \"c\""
            )
        };
        for (sql, message, detail) in [
            (
                "insert into c (pid) values (7)",
                insert("c_pid_fkey"),
                "Key (pid)=(7) is not present in table \"p\".",
            ),
            (
                "update c set b = 5",
                insert("both_of"),
                "Key (b, a)=(5, x) is not present in table \"p\".",
            ),
            (
                "update c set b = null",
                insert("both_of"),
                "MATCH FULL does not allow mixing of null and nonnull key values.",
            ),
            (
                "delete from p",
                remove("c_pid_fkey"),
                "Key (id)=(1) is still referenced from table \"c\".",
            ),
            (
                "update p set a = 'y'",
                remove("both_of"),
                "Key (b, a)=(2, x) is still referenced from table \"c\".",
            ),
            (
                "drop table p",
                "cannot drop table p because other objects depend on it".to_owned(),
                "constraint c_pid_fkey on table c depends on table p\n\
                 constraint both_of on table c depends on table p",
            ),
            (
                "alter table p drop column id",
                "cannot drop column id of table p because other objects depend on it".to_owned(),
                "constraint c_pid_fkey on table c depends on column id of table p",
            ),
            (
                "alter table p drop constraint p_pkey",
                "cannot drop constraint p_pkey on table p because other objects depend on it"
                    .to_owned(),
                "constraint c_pid_fkey on table c depends on index p_pkey",
            ),
            (
                "truncate p",
                "cannot truncate a table referenced in a foreign key constraint".to_owned(),
                "Table \"c\" references \"p\".",
            ),
        ] {
            let error = run(session, sql).await.unwrap_err();
            assert_eq!(error.message(), message, "{sql}");
            assert_eq!(error.detail_text(), Some(detail), "{sql}");
        }
    });
}

/// Keys that move by one, or are exchanged: each child follows its own parent.
#[test]
fn children_follow_parents_that_get_each_others_keys() {
    with_session(async |session| {
        for index in ["select 1", "create index on c (pid)"] {
            let tables = "create table p (id integer primary key); \
                insert into p values (1), (2), (3); \
                create table c (n integer, pid integer references p on update cascade); \
                insert into c values (1, 1), (2, 2), (3, 3)";
            run(session, tables).await.unwrap();
            run(session, index).await.unwrap();
            for (sql, wanted) in [
                ("update p set id = id + 1", "[2, 3, 4]"),
                ("update p set id = 6 - id where id <> 3", "[4, 3, 2]"),
            ] {
                run(session, sql).await.unwrap();
                let found = session.execute("select pid from c order by n").await.unwrap();
                let keys: Vec<String> = found[0].rows.iter().map(|row| text(&row[0])).collect();
                assert_eq!(format!("[{}]", keys.join(", ")), wanted, "{sql}, {index}");
            }
            run(session, "drop table c, p").await.unwrap();
        }
    });
}

fn text(value: &Datum) -> String {
    let Datum::I32(value) = value else { panic!("{value:?}") };
    value.to_string()
}

/// Gives the data of COPY.
#[derive(Default)]
struct Copier(Mutex<Vec<Vec<u8>>>);

impl Client for Copier {
    fn begin(&self, _: &Arc<[OutputColumn]>, _: &FormatSettings) {}

    fn rows(&self, _: Vec<Vec<Datum>>) -> BoxFuture<'_, SqlResult<()>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn is_final(&self) -> bool {
        true
    }

    fn copy_in(&self, _: usize, _: bool) -> SqlResult<()> {
        Ok(())
    }

    fn copy_data(&self) -> BoxFuture<'_, SqlResult<Option<Vec<u8>>>> {
        Box::pin(std::future::ready(Ok(self.0.lock().pop())))
    }

    fn end(&self, _: &str) {}
}

/// More rows than keys are kept at once, with few and with many parents.
#[test]
fn copy_looks_for_parents() {
    const ROWS: usize = 20_000;
    with_session(async |session| {
        let tables = "create table p (id integer primary key); \
                      insert into p select i from generate_series(0, 3999) i; \
                      create table c (id integer primary key, pid integer references p); \
                      create table t (id integer primary key, up integer references t)";
        run(session, tables).await.unwrap();
        let copy = async |session: &mut Session, table: &str, data: String| {
            let client: Arc<dyn Client> = Arc::new(Copier(Mutex::new(vec![data.into_bytes()])));
            session.execute_into(&format!("copy {table} from stdin"), &client).await
        };
        let lines = |pid: &dyn Fn(usize) -> String| -> String {
            (0..ROWS).map(|id| format!("{id}\t{}\n", pid(id))).collect()
        };
        let code = |ran: Result<bool, SqlError>| ran.unwrap_err().state().code();
        for bad in [0, ROWS / 2, ROWS - 1] {
            let pid = |id| if id == bad { 4_000 } else { id % 4_000 }.to_string();
            assert_eq!(code(copy(session, "c", lines(&pid)).await), "23503", "{bad}");
            assert_eq!(count(session, "select count(*) from c").await, 0);
        }
        copy(session, "c", lines(&|id| (id % 4_000).to_string())).await.unwrap();
        assert_eq!(count(session, "select count(*) from c").await, 20_000);
        // A parent may come with a later row.
        copy(session, "t", lines(&|id| ((id + 1) % ROWS).to_string())).await.unwrap();
        assert_eq!(count(session, "select count(*) from t").await, 20_000);
        let error = copy(session, "t", format!("{ROWS}\t{}\n", ROWS + 1)).await;
        assert_eq!(code(error), "23503");
    });
}
