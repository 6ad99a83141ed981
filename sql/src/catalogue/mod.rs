//! What SQL knows of tables: types, defaults and constraints beside what is stored.

mod comments;
mod foreign_key;
mod key;
mod load;
mod note;
pub(crate) mod table_def;

pub(crate) use comments::set_comment;
pub(crate) use foreign_key::{ForeignKey, Reference, ReferenceAction};
pub(crate) use key::{SchemaId, aside, name_of, split_key};
pub(crate) use load::{load, load_all};
pub(crate) use note::{ColumnNote, Identity, TableNote, ViewColumn, ViewNote};
pub(crate) use table_def::{ColumnDef, IndexDef, TableDef};
