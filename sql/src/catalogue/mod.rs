//! What SQL knows of tables: types, defaults and constraints beside what is stored.

mod load;
mod note;
pub(crate) mod table_def;

pub(crate) use load::load;
pub(crate) use note::{ColumnNote, TableNote};
pub(crate) use table_def::{ColumnDef, IndexDef, TableDef};
