//! Schemas: which there are, who may do what with them, and where names are looked for.
//!
//! All schemas of a database but `public`, which is always there, are one [document](Schemas): the
//! note of a table of the system, as roles are ([`store`]). A schema is a number; what is in it has
//! that number in its name in the catalogue ([`SchemaId`](crate::catalogue::SchemaId)).
//!
//! | file | duty |
//! |---|---|
//! | `document.rs` | the schemas of a database |
//! | `store.rs` | reading and changing the document |
//! | `path.rs` | the schemas in which a statement looks for names |
//! | `text.rs` | names as text, such as `nextval` takes them |

mod document;
mod path;
mod store;
mod text;

pub(crate) use document::{
    INFORMATION_SCHEMA, PG_CATALOG, PUBLIC, SYSTEM, Schema, Schemas, no_schema,
};
pub(crate) use path::{SearchPath, Searched, refuse_reserved};
pub(crate) use store::{SchemasCache, change, hold, load, maybe_changed};
pub(crate) use text::{list_of_names, names_of_text, quoted, text_of_list};
