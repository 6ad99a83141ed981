//! Changes of what tables there are and what they look like, while others work with them.
//!
//! They are changes of the catalogue's tables, so they are part of a transaction like any other:
//! all nodes see them once it has committed, and a rollback takes them back. A transaction that has
//! used the definition that was before cannot commit afterwards
//! ([`table_use`](crate::access::table_use)). Only building an index takes several transactions
//! ([`index`]). Adding and dropping [`columns`] rewrites no row. [`sequences`] are rows, too. Pages
//! of dropped trees are given back once no snapshot needs them ([`reclaim`]).
//!
//! They go with [`Protocol::Snapshot`](crate::Protocol::Snapshot): the tables of a database for the
//! other protocols never change.

mod alter;
mod columns;
pub(crate) mod create;
mod drop;
pub(crate) mod index;
mod look_up;
pub(crate) mod reclaim;
mod sequences;

pub use look_up::DefinitionId;
