//! What SQL knows of tables: types, defaults and constraints beside what is stored.

mod load;
mod note;
pub(crate) mod table_def;

pub(crate) use load::{load, load_all};
pub(crate) use note::{ColumnNote, Identity, TableNote, ViewColumn, ViewNote};
pub(crate) use table_def::{ColumnDef, IndexDef, TableDef};
