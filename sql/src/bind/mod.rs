//! From syntax trees to plans: names are looked up, types are found, and what has no plan is
//! refused with SQLSTATE 0A000. Nothing of a statement is left out silently: syntax trees are taken
//! apart field by field.

mod aggregate;
mod alter;
mod children;
mod coerce;
mod constant;
mod copy;
mod definition;
mod expr;
mod from;
mod insert;
mod modify;
mod query;
mod references;
mod row_functions;
mod scope;
mod select;
mod select_list;
mod sequence;
mod special;
mod stage;
mod system;
mod view;
mod window;
mod with;

use std::collections::HashMap;
use std::sync::Arc;

use sqlparser::ast::{ObjectName, ObjectNamePart};

use crate::catalogue::TableDef;
use crate::error::{SqlError, SqlResult, SqlState};
use crate::plan::Plan;
use crate::roles::{Needed, Privileges};
use crate::types::{FormatSettings, SqlType};

pub(crate) use alter::{
    Added, bind_added_column, bind_added_constraint, bind_default, is_constraint,
};
pub(crate) use children::{ChildChange, change_children};
pub(crate) use coerce::is_name;
pub(crate) use copy::BoundCopy;
pub(crate) use definition::{
    HIDDEN_KEY, bind_create_table, check_name, default_expr, each_name, free_name, index_column,
};
pub(crate) use from::scan_of;
pub(crate) use references::parents_of;
pub(crate) use scope::fold;
pub(crate) use sequence::{NewSequence, sequence_schema};
pub(crate) use view::{bind_view, relations_of};

/// A column of the rows that a statement gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputColumn {
    /// Its name.
    pub name: String,
    /// Its type.
    pub ty: SqlType,
}

/// A query with its columns.
pub(crate) struct Bound {
    pub(crate) plan: Plan,
    pub(crate) columns: Vec<OutputColumn>,
}

/// A common table expression that can be named.
#[derive(Clone)]
pub(crate) struct NamedQuery {
    name: String,
    columns: Vec<OutputColumn>,
    plan: Plan,
}

/// Binds the expressions and queries of one statement.
pub(crate) struct Binder<'b> {
    /// The text of the statement, for positions.
    sql: &'b str,
    tables: &'b HashMap<String, Arc<TableDef>>,
    settings: &'b FormatSettings,
    /// The types of parameters, as far as they are known.
    pub(crate) parameters: Vec<Option<SqlType>>,
    /// Common table expressions, the innermost last.
    queries: Vec<NamedQuery>,
    /// How many numbers of common table expressions that were given.
    shared: usize,
    /// The outermost query whose columns were named since this was set, by
    /// [`scope::Scope::depth`].
    reached: usize,
    /// Whether the statement needs the definitions of all tables when it runs.
    pub(crate) uses_catalogue: bool,
    /// The privileges that the statement needs.
    pub(crate) needed: Vec<Needed>,
    /// The owner of the view whose query is bound.
    acting: Option<u32>,
    /// How many columns the table has that is changed, while its columns are looked for.
    watched: Option<usize>,
    /// Whether one of them was named.
    names_watched: bool,
    /// Whether values of sequences are taken that nobody has to be allowed.
    is_identity: bool,
}

/// Most parameters of a statement, as the protocol counts them.
const MAX_PARAMETERS: usize = 65_535;

impl<'b> Binder<'b> {
    pub(crate) fn new(
        sql: &'b str,
        tables: &'b HashMap<String, Arc<TableDef>>,
        settings: &'b FormatSettings,
        parameters: &[Option<SqlType>],
    ) -> Self {
        let parameters = parameters.to_vec();
        Self {
            sql,
            tables,
            settings,
            parameters,
            queries: Vec::new(),
            shared: 0,
            reached: usize::MAX,
            uses_catalogue: false,
            needed: Vec::new(),
            acting: None,
            watched: None,
            names_watched: false,
            is_identity: false,
        }
    }

    /// The table of a name.
    pub(crate) fn table(&self, name: &ObjectName) -> SqlResult<Arc<TableDef>> {
        let table = self.relation_named(name)?;
        refuse(table.view.is_some(), "a view in the place of a table")?;
        Ok(Arc::clone(table))
    }

    /// The table or view of a name.
    fn relation_named(&self, name: &ObjectName) -> SqlResult<&'b Arc<TableDef>> {
        let key = table_key(name)?;
        self.tables.get(&key).ok_or_else(|| {
            let message = format!("relation \"{key}\" does not exist");
            self.place(SqlError::new(SqlState::UNDEFINED_TABLE, message), name)
        })
    }

    /// Notes that the statement needs privileges of a table or view.
    fn need(&mut self, table: &TableDef, privileges: Privileges) {
        self.needed.push(Needed {
            kind: table.kind(),
            name: table.name.clone(),
            rights: table.rights.clone(),
            privileges,
            by: self.acting,
        });
    }

    /// The error with the place of a part of the statement.
    fn place(&self, error: SqlError, part: &impl sqlparser::ast::Spanned) -> SqlError {
        match crate::parse::position(self.sql, part.span()) {
            Some(position) => error.at(position),
            None => error,
        }
    }
}

/// The parts of a name.
pub(crate) fn name_parts(name: &ObjectName) -> SqlResult<Vec<String>> {
    let part = |part: &ObjectNamePart| match part {
        ObjectNamePart::Identifier(name) => Ok(fold(name)),
        ObjectNamePart::Function(_) => Err(SqlError::unsupported("a function as a name")),
    };
    name.0.iter().map(part).collect()
}

/// The schema of tables without one.
pub(crate) const PUBLIC: &str = "public";

/// Whether a schema is there in every database.
fn is_schema(name: &str) -> bool {
    matches!(name, PUBLIC | "pg_catalog" | "information_schema")
}

/// What a table is called in the catalogue: its schema is said if it is not `public`.
pub(crate) fn table_key(name: &ObjectName) -> SqlResult<String> {
    let key = match &*name_parts(name)? {
        [name] => name.clone(),
        [schema, name] if schema == PUBLIC => name.clone(),
        [schema, name] => format!("{schema}.{name}"),
        _ => return Err(SqlError::unsupported("a name of more than two parts")),
    };
    refuse_reserved(&key)?;
    Ok(key)
}

/// Refuses the names of tables that only the system may use.
pub(crate) fn refuse_reserved(key: &str) -> SqlResult<()> {
    if key.starts_with(crate::roles::KEY_PREFIX) {
        return Err(crate::roles::denied(format!("permission denied for table {key}")));
    }
    Ok(())
}

/// Refuses what is not supported.
pub(crate) fn refuse(is_there: bool, what: &str) -> SqlResult<()> {
    if is_there { Err(SqlError::unsupported(what)) } else { Ok(()) }
}
