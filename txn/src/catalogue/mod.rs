//! What tables a database has: schemas, the stored catalogue, and the tables as operations use
//! them.
//!
//! A caller describes tables by a [`schema`] of columns of a [type](column_type). [`store`] writes
//! schemas and tree roots to the pages of the catalogue when a database is created, and every node
//! that opens the database reads them back. [`table_info`] resolves names to positions once;
//! [`directory`] finds a resolved table by its name or its [handle](handles). Where tables may
//! change, [`definition`] says how they are stored, [`column_history`] what their rows look like,
//! and [`changing`] has those that were read. [`sizes`] says how large rows and keys may be.

pub(crate) mod changing;
pub(crate) mod column_history;
pub(crate) mod column_type;
pub(crate) mod default_value;
pub(crate) mod definition;
pub(crate) mod directory;
pub(crate) mod earlier_layouts;
pub(crate) mod error;
pub(crate) mod handles;
pub(crate) mod known_tree;
pub(crate) mod new_index;
pub(crate) mod schema;
pub(crate) mod schema_error;
pub(crate) mod sizes;
pub(crate) mod store;
pub(crate) mod stored_table;
pub(crate) mod table_errors;
pub(crate) mod table_info;

pub use column_type::{ColumnType, MAX_COLUMN_BYTES, MAX_COLUMNS, MAX_DECIMAL_DIGITS};
pub use default_value::DefaultValue;
pub use error::CatalogueError;
pub use handles::{Index, Source, Table};
pub use new_index::NewIndex;
pub use schema::{Column, DatabaseSchema, IndexSchema, KeyOrder, TableSchema};
pub use schema_error::SchemaError;
