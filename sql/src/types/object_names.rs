//! What values and functions ask of the catalogue.
//!
//! A `regclass` is a number that is read and printed as a name, so reading and printing need the
//! catalogue. Types stand below it: it comes in by [`ObjectNames`], with the settings of formats.

use std::fmt;
use std::sync::Arc;

use super::datum::Datum;
use super::sql_type::Scalar;
use crate::error::SqlResult;

/// The objects of the catalogue, in the state that a statement sees.
pub trait ObjectNames: Send + Sync {
    /// The name of a table, index or view as a statement has to write it: its schema is said if it
    /// is not found without.
    fn relation_name(&self, oid: u32) -> Option<String>;
    /// The number of a table, index or view by its name.
    fn relation_oid(&self, name: &str) -> Option<u32>;
    /// The name of a schema.
    fn schema_name(&self, oid: u32) -> Option<String>;
    /// The number of a schema.
    fn schema_oid(&self, name: &str) -> Option<u32>;
    /// The name of a function; with the types of its parameters, or without these where it is the
    /// only one of its name.
    fn function_name(&self, oid: u32, with_types: bool) -> Option<String>;
    /// The name of an operator; with the types of its operands, or without.
    fn operator_name(&self, oid: u32, with_types: bool) -> Option<String>;
    /// The number of a function or operator by its name, or its name and types, as `regproc`,
    /// `regprocedure`, `regoper` and `regoperator` read them.
    ///
    /// # Errors
    /// There is none, or several.
    fn callable_oid(&self, text: &str, kind: Scalar) -> SqlResult<u32>;
    /// The name of a collation.
    fn collation_name(&self, oid: u32) -> Option<String>;
    /// The number of a collation.
    fn collation_oid(&self, name: &str) -> Option<u32>;
    /// The name of a role.
    fn role_name(&self, oid: u32) -> Option<String>;
    /// The number of a role.
    fn role_oid(&self, name: &str) -> Option<u32>;
    /// The name of a role, without quotes.
    fn user_name(&self, oid: u32) -> Option<String>;
    /// What `has_table_privilege` and its like say of a role, that of the statement if none is
    /// given, and of an object, each by a name or a number. `None` if there is no such object.
    ///
    /// # Errors
    /// There is nothing of a name, or no such privilege.
    fn has_privilege(
        &self,
        function: &str,
        role: Option<&Datum>,
        object: &Datum,
        wanted: &str,
    ) -> SqlResult<Option<bool>>;
    /// Whether a table, index or view is found without its schema; `None` if there is none.
    fn is_visible(&self, oid: u32) -> Option<bool>;
    /// Whether it is a table of a user.
    fn is_table(&self, oid: u32) -> bool;
    /// The sequence that a column of a table owns, with its schema; `None` if it owns none.
    ///
    /// # Errors
    /// There is no such table or column.
    fn serial_sequence(&self, table: &str, column: &str) -> SqlResult<Option<String>>;
    /// The query of a view, with a semicolon.
    fn view_definition(&self, oid: u32) -> Option<String>;
    /// The statement that makes an index, or what its column of a number from 1 is of.
    fn index_definition(&self, oid: u32, column: usize) -> Option<String>;
    /// A constraint as a statement writes it; `is_pretty` leaves out what need not be there.
    fn constraint_definition(&self, oid: u32, is_pretty: bool) -> Option<String>;
    /// The comment of an object, which is in the relation `class` of the system, or of its column
    /// of a number from 1; 0 is the object.
    fn comment(&self, oid: u32, class: Option<&str>, column: usize) -> Option<String>;
    /// A parameter of the session.
    fn setting(&self, name: &str) -> SqlResult<String>;
    /// The rows of a relation of the system.
    ///
    /// # Errors
    /// There is no such relation.
    fn rows(&self, relation: &str) -> SqlResult<Vec<Vec<Datum>>>;
}

/// The catalogue, where there is one at hand. It is no setting: two that differ in it are equal.
#[derive(Clone, Default)]
pub struct Names(Option<Arc<dyn ObjectNames>>);

impl Names {
    /// These objects.
    #[must_use]
    pub fn new(objects: Arc<dyn ObjectNames>) -> Self {
        Self(Some(objects))
    }

    /// The objects.
    #[must_use]
    pub fn get(&self) -> Option<&dyn ObjectNames> {
        self.0.as_deref()
    }
}

impl PartialEq for Names {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Names {}

impl fmt::Debug for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Names").field(&self.0.is_some()).finish()
    }
}
