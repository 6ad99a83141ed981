//! SQL over the tables of a shared pool, as PostgreSQL understands it.
//!
//! A [`Session`] takes statements as text. A statement is parsed, its names are looked up in the
//! catalogue in the state that its transaction sees, and its types are found; what comes out is a
//! plan, which is optimized and run over the tables of [`selkie_txn`].
//!
//! | folder | duty |
//! |---|---|
//! | `types/` | [`SqlType`]s and [`Datum`]s: formats, casts, order |
//! | `functions/` | functions, operators and aggregates |
//! | `roles/` | roles, their memberships and privileges, and who is let in |
//! | `catalogue/` | what SQL knows of tables beside their stored schema |
//! | `schemas/` | schemas, and where names are looked for |
//! | `system/` | the relations of `pg_catalog` and `information_schema` |
//! | `plan/` | plans, and how they are made cheaper |
//! | `bind/` | from syntax trees to plans |
//! | `explain/` | plans as people read them |
//! | `exec/` | running plans |
//! | `session/` | [`Session`]s: transactions, settings, changes of tables |
//!
//! Each folder may use the folders above it.
#![forbid(unsafe_code)]

mod bind;
mod catalogue;
mod client;
mod copy;
mod error;
mod exec;
mod explain;
pub mod functions;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "test code")]
mod fuzz;
mod memory_budget;
mod notice;
mod parse;
mod parse_alter;
mod parse_comment;
mod parse_constraints;
mod parse_copy;
mod parse_cursor;
mod parse_depth;
mod parse_fields;
mod parse_lists;
mod parse_locks;
mod parse_references;
mod parse_roles;
mod parse_schemas;
mod parse_sequences;
mod parse_set_role;
mod parse_show;
mod parse_size;
mod parse_tokens;
mod parse_transaction;
mod parse_vacuum;
mod plan;
mod roles;
mod schemas;
mod session;
mod session_list;
mod statement_list;
mod system;
pub mod types;

pub use bind::{ColumnOrigin, OutputColumn};
pub use client::{Client, Outcome};
pub use error::{ErrorSubject, SqlError, SqlResult, SqlState};
pub use memory_budget::MemoryBudget;
pub use notice::{Notice, NoticeLevel};
pub use roles::{LogIn, ProvenRole, RoleLogIn, Verifier, have_password, log_in};
pub use session::{CancelHandle, Clock, PlanCache, Prepared, Session, TransactionState};
pub use session_list::SessionList;
pub use types::{Array, Datum, Field, Record, Scalar, SqlType};
