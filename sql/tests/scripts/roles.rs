//! Sessions of several roles at once.

use std::num::NonZeroU32;
use std::sync::Arc;

use ring::{digest, hmac, pbkdf2};
use selkie_sql::{LogIn, PlanCache, RoleLogIn, Session, SqlError, have_password, log_in};
use selkie_txn::Database;

use super::with_database;

fn operator(database: &Database) -> Session {
    Session::new(database, "tester", || 0).unwrap()
}

async fn role(database: &Database, user: &str) -> RoleLogIn {
    match log_in(database, user, 0).await.unwrap() {
        LogIn::Role(role) => role,
        LogIn::Open => panic!("anyone is let in"),
    }
}

/// The proof of a client, as RFC 5802 §3 has it.
fn proof(role: &RoleLogIn, password: &str, message: &[u8]) -> Vec<u8> {
    let mac = |key: &[u8], message: &[u8]| {
        hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), message).as_ref().to_vec()
    };
    let verifier = role.verifier();
    let (mut salted, iterations) = ([0; 32], NonZeroU32::new(verifier.iterations()).unwrap());
    let algorithm = pbkdf2::PBKDF2_HMAC_SHA256;
    pbkdf2::derive(algorithm, iterations, verifier.salt(), password.as_bytes(), &mut salted);
    let key = mac(&salted, b"Client Key");
    let stored = digest::digest(&digest::SHA256, &key);
    key.iter().zip(mac(stored.as_ref(), message)).map(|(a, b)| a ^ b).collect()
}

async fn session(database: &Database, user: &str, password: &str) -> Result<Session, SqlError> {
    let role = role(database, user).await;
    let proven = role.check(b"message", &proof(&role, password, b"message"))?;
    Session::of_role(database, &proven, || 0)
}

fn state(result: Result<impl Sized, SqlError>) -> String {
    result.err().map_or("none".to_owned(), |error| error.state().to_string())
}

#[test]
fn who_is_let_in() {
    with_database(async |database| {
        let mut admin = operator(database);
        assert!(matches!(log_in(database, "eve", 0).await.unwrap(), LogIn::Open));
        assert!(!have_password(database).await.unwrap());
        admin.execute("create role app login password 'a'").await.unwrap();
        // No superuser can log in yet.
        assert!(matches!(log_in(database, "eve", 0).await.unwrap(), LogIn::Open));
        assert!(!have_password(database).await.unwrap());
        admin.execute("create role boss superuser login password 'b'").await.unwrap();
        assert!(have_password(database).await.unwrap());
        admin.execute("create role nologin password 'n'; create user nopassword").await.unwrap();
        admin.execute("create user late password 'l' valid until '1999-01-01'").await.unwrap();
        for (user, password, expected) in [
            ("app", "a", "none"),
            ("boss", "b", "none"),
            ("app", "b", "28P01"),
            ("app", "", "28P01"),
            ("nobody", "a", "28P01"),
            ("nopassword", "", "28P01"),
            ("late", "l", "28P01"),
            ("nologin", "n", "28000"),
            ("nologin", "wrong", "28P01"),
            ("postgres", "", "28P01"),
        ] {
            assert_eq!(state(session(database, user, password).await), expected, "{user}");
        }
        // Who has no role looks the same each time, as who has one does.
        let salt = async |user| role(database, user).await.verifier().salt().to_vec();
        assert_eq!(salt("nobody").await, salt("nobody").await);
        assert_eq!(salt("nobody").await.len(), salt("app").await.len());
        // It does not open again when the last superuser is gone.
        admin.execute("drop role boss").await.unwrap();
        assert_eq!(state(session(database, "boss", "b").await), "28P01");
        // A verifier is taken as it is.
        let text = "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$\
            WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU=";
        admin.execute(&format!("alter role app password '{text}'")).await.unwrap();
        assert_eq!(state(session(database, "app", "pencil").await), "none");
        let md5 = format!("alter role app password 'md5{}'", "0".repeat(32));
        assert_eq!(state(admin.execute(&md5).await), "0A000");
    });
}

#[test]
fn what_is_revoked_is_refused_at_the_next_statement() {
    with_database(async |database| {
        let mut admin = operator(database);
        let plans: Arc<PlanCache> = Arc::default();
        let setup = "create role boss superuser login password 'b'; \
            create role one login password '1'; create role two login password '2'; \
            create table t (a int primary key); insert into t values (1)";
        admin.execute(setup).await.unwrap();
        let mut admin = admin.with_plans(&plans);
        let mut one = session(database, "one", "1").await.unwrap().with_plans(&plans);
        let mut two = session(database, "two", "2").await.unwrap().with_plans(&plans);
        let sql = "select a from t where a = 1";
        assert_eq!(state(admin.execute(sql).await), "none");
        // The plan is there, and not for those who may not read the table.
        assert_eq!(state(one.execute(sql).await), "42501");
        admin.execute("grant select on t to one").await.unwrap();
        assert_eq!(state(one.execute(sql).await), "none");
        assert_eq!(state(two.execute(sql).await), "42501");
        let prepared = one.prepare(sql, &[]).await.unwrap();
        assert_eq!(state(one.run_prepared(&prepared, Vec::new()).await), "none");
        admin.execute("revoke select on t from one").await.unwrap();
        assert_eq!(state(one.run_prepared(&prepared, Vec::new()).await), "42501");
        assert_eq!(state(one.execute(sql).await), "42501");
        // By a role that it is a member of.
        admin.execute("create role readers; grant select on t to readers").await.unwrap();
        admin.execute("grant readers to two").await.unwrap();
        assert_eq!(state(two.execute(sql).await), "none");
        admin.execute("revoke readers from two").await.unwrap();
        assert_eq!(state(two.execute(sql).await), "42501");
        // Superusers.
        admin.execute("alter role two superuser").await.unwrap();
        assert_eq!(state(two.execute(sql).await), "none");
        admin.execute("alter role two nosuperuser").await.unwrap();
        assert_eq!(state(two.execute(sql).await), "42501");
        admin.execute("drop role two").await.unwrap();
        assert_eq!(state(two.execute("select 1").await), "28000");
        // Another one of that name is another role.
        admin.execute("create role two superuser").await.unwrap();
        assert_eq!(state(two.execute("select 1").await), "28000");
    });
}

#[test]
fn the_table_of_roles_cannot_be_named() {
    with_database(async |database| {
        let mut admin = operator(database);
        admin.execute("create role one; create table t (a int)").await.unwrap();
        for sql in [
            "select * from selkie_system.roles",
            "select * from \"selkie_system.roles\"",
            "drop table selkie_system.roles",
            "alter table selkie_system.roles add column a int",
            "create table selkie_system.other (a int)",
            "create index on selkie_system.roles (none)",
            "alter table t rename to \"selkie_system.other\"",
            "truncate \"selkie_system.roles\"",
            "copy selkie_system.roles to stdout",
            "insert into selkie_system.roles values (true)",
            "create view selkie_system.v as select 1",
            "grant select on selkie_system.roles to one",
        ] {
            assert_eq!(state(admin.execute(sql).await), "42501", "{sql}");
        }
        let sql = "select count(*) from pg_class where relname like '%roles%' and relkind = 'r'";
        let found = admin.execute(sql).await.unwrap();
        assert_eq!(format!("{:?}", found[0].rows), "[[I64(0)]]");
    });
}

#[test]
fn no_change_of_roles_is_lost() {
    with_database(async |database| {
        let env = database.engine().env().clone();
        let work = |worker: usize| {
            let database = database.clone();
            env.spawn("maker", async move {
                let mut session = operator(&database);
                for number in 0..10 {
                    let sql = format!("create role r_{worker}_{number}");
                    session.execute(&sql).await.unwrap();
                    let sql = format!("drop role r_{worker}_{number}");
                    if number % 2 == 0 {
                        session.execute(&sql).await.unwrap();
                    }
                }
            })
        };
        let workers: Vec<_> = (0..4).map(work).collect();
        for worker in workers {
            worker.join().await.unwrap();
        }
        let sql = "select count(*), count(distinct oid) from pg_roles where rolname like 'r\\_%'";
        let found = operator(database).execute(sql).await.unwrap();
        assert_eq!(format!("{:?}", found[0].rows), "[[I64(20), I64(20)]]");
    });
}

#[test]
fn there_may_be_many_roles() {
    with_database(async |database| {
        let mut admin = operator(database);
        let mut sql = String::new();
        for number in 0..300 {
            sql.push_str(&format!("create role a_rather_long_name_of_a_role_{number} login;"));
        }
        admin.execute("begin").await.unwrap();
        admin.execute(&sql).await.unwrap();
        admin.execute("commit").await.unwrap();
        let found = admin.execute("select count(*) from pg_roles").await.unwrap();
        assert_eq!(format!("{:?}", found[0].rows), "[[I64(301)]]");
    });
}
