//! psql on `selkie server`.

use std::process::Command;

use crate::harness::{Process, output, text};
use crate::items::{ITEM, TABLES};

/// A server, and the port that it listens at.
pub(crate) fn start() -> (Process, String) {
    let server = Process::start(&["server", "--listen", "127.0.0.1:0"]);
    let line = server.finds("serving ");
    let port = line.rsplit_once(':').unwrap().1.to_owned();
    (server, port)
}

/// Runs a program against the server at a port; what it prints. It must end well.
#[track_caller]
pub(crate) fn runs(program: &str, port: &str, arguments: &[&str]) -> String {
    let mut command = Command::new(program);
    command.args(["-h", "127.0.0.1", "-p", port, "-U", "me"]).args(arguments);
    let output = output(command.env("PGDATABASE", "selkie"));
    let (said, error) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{program} {arguments:?}: {said}{error}");
    assert!(!error.contains("ERROR"), "{program} {arguments:?}: {error}");
    format!("{said}{error}")
}

#[test]
fn psql_describes_what_there_is() {
    let (_server, port) = start();
    let psql = |sql: &str| runs("psql", &port, &["-X", "-v", "ON_ERROR_STOP=1", "-c", sql]);
    TABLES.split_inclusive(';').for_each(|sql| drop(psql(sql)));
    for command in [
        "\\d",
        "\\dt",
        "\\dt+",
        "\\di",
        "\\dv",
        "\\ds",
        "\\dn",
        "\\du",
        "\\l",
        "\\df",
        "\\dT",
        "\\dp",
        "\\db",
        "\\dx",
        "\\dE",
        "\\dm",
        "\\dc",
        "\\dD",
        "\\do",
        "\\dO",
        "\\z",
        "\\d+ item",
        "\\d cheap",
        "\\d item_price",
    ] {
        psql(command);
    }
    assert_eq!(psql("\\d item"), ITEM);
}

/// As PostgreSQL 15 shows them, but for the owner of `public`.
#[test]
fn psql_describes_schemas_and_what_is_in_them() {
    let (_server, port) = start();
    let psql = |sql: &str| runs("psql", &port, &["-X", "-v", "ON_ERROR_STOP=1", "-c", sql]);
    psql("create schema shop; create schema \"Other\"; comment on schema shop is 'all of it'");
    psql("create table shop.item (id int primary key, name text not null)");
    psql("create table \"Other\".item (of int references shop.item)");
    psql("create view shop.names as select name from shop.item");
    let item = r#"                 Table "shop.item"
 Column |  Type   | Collation | Nullable | Default 
--------+---------+-----------+----------+---------
 id     | integer |           | not null | 
 name   | text    |           | not null | 
Indexes:
    "item_pkey" PRIMARY KEY, btree (id)
Referenced by:
    TABLE ""Other".item" CONSTRAINT "item_of_fkey" FOREIGN KEY (of) REFERENCES shop.item(id)

"#;
    let schemas = "  List of schemas
  Name  |  Owner   
--------+----------
 Other  | postgres
 public | postgres
 shop   | postgres
(3 rows)

";
    let with_comment = "                  List of schemas
 Name |  Owner   | Access privileges | Description 
------+----------+-------------------+-------------
 shop | postgres |                   | all of it
(1 row)

";
    let tables = "        List of relations
 Schema | Name | Type  |  Owner   
--------+------+-------+----------
 shop   | item | table | postgres
(1 row)

";
    for (command, expected) in [
        ("\\dn", schemas),
        ("\\dn+ shop", with_comment),
        ("\\dt shop.*", tables),
        ("\\d shop.item", item),
    ] {
        assert_eq!(psql(command), expected, "{command}");
    }
    // Nothing of it is found without its schema, unless the connection says so.
    let path = ["-X", "-v", "ON_ERROR_STOP=1", "-c", "\\dt"];
    assert!(!runs("psql", &port, &path).contains("item"));
    let options = format!("port={port} options='-c search_path=shop'");
    let found = runs("psql", &port, &["-X", "-c", "\\dt", "-d", &options]);
    assert_eq!(found, tables);
}

#[test]
fn psql_copies_files_in_and_out() {
    let (_server, port) = start();
    let place = tempfile::tempdir().unwrap();
    let (from, to) = (place.path().join("in.csv"), place.path().join("out.csv"));
    let lines: String = (0..5_000).map(|n| format!("{n},\"row, {n}\"\n")).collect();
    std::fs::write(&from, &lines).unwrap();
    let copy = |command: &str| runs("psql", &port, &["-X", "-v", "ON_ERROR_STOP=1", "-c", command]);
    copy("create table t (a int primary key, b text)");
    let said = copy(&format!("\\copy t from '{}' with (format csv)", from.display()));
    assert_eq!(said, "COPY 5000\n");
    let query = "(select * from t order by a)";
    copy(&format!("\\copy {query} to '{}' with (format csv)", to.display()));
    assert_eq!(std::fs::read_to_string(&to).unwrap(), lines);
}
