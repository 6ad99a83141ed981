//! `pg_catalog` and `information_schema`.
//!
//! A statement that reads a relation of the system, casts to or from `regclass`, or calls a
//! function that needs the catalogue gets a [`SystemSnapshot`] when it starts: the definitions of
//! all tables in the state that its transaction sees. The rows of relations are made from it while
//! the statement runs, so a plan holds nothing of it and may be kept.
//!
//! | file | duty |
//! |---|---|
//! | `relations.txt` | the relations with their columns, as PostgreSQL 15 has them |
//! | `relation.rs` | reading that |
//! | `record.rs` | rows of values by name |
//! | `oids.rs` | numbers of objects |
//! | `snapshot.rs` | definitions of all tables |
//! | `tables.rs`, `keys.rs`, `references.rs` | rows of tables and constraints |
//! | `comments.rs`, `types.rs`, `cluster.rs`, `operators.rs` | other rows |
//! | `callables.rs` | functions and operators, with `io_functions.txt` |
//! | `depends.rs` | what depends on what |
//! | `privileges.rs` | roles, their memberships, and who may do what |
//! | `views.rs` | relations that are queries of others |
//! | `definitions.rs`, `deparse.rs` | statements and expressions as PostgreSQL prints them |
//!
//! Relations of what this engine does not have (triggers, policies, publications) are empty.

mod callables;
mod cluster;
mod comments;
mod definitions;
mod deparse;
mod depends;
mod keys;
mod oids;
mod operators;
mod privileges;
mod record;
mod references;
mod relation;
mod snapshot;
mod tables;
mod types;
mod views;

pub(crate) use callables::{function_arguments, function_result};
pub(crate) use oids::table as table_oid;
pub(crate) use relation::{Relation, SystemColumn, find_relation};
pub(crate) use snapshot::{KeptCursor, KeptStatement, SessionFacts, SystemSnapshot};
pub(crate) use views::view;
