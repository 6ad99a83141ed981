//! From syntax trees to plans: names are looked up, types are found, and what has no plan is
//! refused with SQLSTATE 0A000. Nothing of a statement is left out silently: syntax trees are taken
//! apart field by field.

mod advisory;
mod aggregate;
mod alter;
mod altered_sequence;
mod children;
mod coerce;
mod column_name;
mod constant;
mod copy;
mod cursor;
mod definition;
mod expr;
mod fields;
mod from;
mod grouping_sets;
mod groups;
mod insert;
mod join;
mod modify;
mod named_arguments;
mod names;
mod new_type;
mod open_type;
mod outer_condition;
mod power;
mod query;
mod references;
mod returning;
mod row_functions;
mod row_query;
mod scope;
mod select;
mod select_list;
mod sequence;
mod special;
mod stage;
mod storage;
mod system;
mod table_function;
mod values;
mod view;
mod window;
mod window_spec;
mod with;

use std::collections::BTreeSet;
use std::sync::Arc;

use sqlparser::tokenizer::Span;

use crate::catalogue::TableDef;
use crate::error::{SqlError, SqlResult};
use crate::plan::Plan;
use crate::roles::Needed;
use crate::schemas::SearchPath;
use crate::types::{FormatSettings, SqlType};

pub(crate) use alter::{
    Added, NewPrimaryKey, bind_added_column, bind_added_constraint, bind_applied_default,
    bind_default, is_constraint,
};
pub(crate) use altered_sequence::altered_sequence;
pub(crate) use children::{ChildChange, change_children};
pub(crate) use coerce::{MOMENT_OF_DEFINITION, is_name};
pub(crate) use copy::BoundCopy;
pub(crate) use cursor::NewCursor;
pub(crate) use definition::{
    HIDDEN_KEY, MAX_NAME_BYTES, bind_create_table, check_name, default_expr, index_column,
};
pub(crate) use from::scan_of;
pub(crate) use names::{Tables, each_name, is_system_schema, made_name, name_parts, no_relation};
pub(crate) use new_type::{NewType, bind_new_type};
pub(crate) use references::{check_comparable, deferral, parents_of};
pub(crate) use scope::{Scope, fold};
pub(crate) use sequence::{NewSequence, bounds_of, identity_of, sequence_schema};
pub(crate) use storage::{
    check_operator_class, is_index_parameter, is_storage_option, is_storage_parameter,
};
pub(crate) use view::{bind_view, relations_of, with_schemas};
pub(crate) use with::changed_by;

/// A column of the rows that a statement gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputColumn {
    /// Its name.
    pub name: String,
    /// Its type.
    pub ty: SqlType,
    /// The column of a table that it is.
    pub origin: Option<ColumnOrigin>,
}

/// A column of a table, by the numbers that the catalogue has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColumnOrigin {
    /// That of the table.
    pub table: u32,
    /// That of the column, from 1.
    pub column: i16,
}

impl OutputColumn {
    /// One that is no column of a table.
    #[must_use]
    pub fn new(name: impl Into<String>, ty: SqlType) -> Self {
        Self { name: name.into(), ty, origin: None }
    }
}

/// The origin of a column of a table, by its position.
fn origin_of(table: &TableDef, at: usize) -> Option<ColumnOrigin> {
    let columns = table.columns.get(..=at)?;
    if table.view.is_some() || columns.last()?.is_hidden {
        return None;
    }
    let column = columns.iter().filter(|own| !own.is_hidden).count();
    let table = crate::system::table_oid(table.table.number());
    Some(ColumnOrigin { table, column: i16::try_from(column).ok()? })
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

impl NamedQuery {
    /// Whether it changes rows and returns none.
    fn gives_no_rows(&self) -> bool {
        match &self.plan {
            Plan::Shared { plan, .. } => match &**plan {
                Plan::Insert(insert) => insert.returning.is_none(),
                Plan::Modify(modify) => modify.returning.is_none(),
                _ => false,
            },
            _ => false,
        }
    }
}

/// Binds the expressions and queries of one statement.
pub(crate) struct Binder<'b> {
    /// The text of the statement, for positions.
    sql: &'b str,
    tables: &'b Tables,
    /// Where names are looked for.
    path: Arc<SearchPath>,
    /// The same for texts in the catalogue, once that was needed.
    stored: Option<Arc<SearchPath>>,
    /// Whether such a text is bound.
    is_stored: bool,
    /// What the view uses whose query is bound, by names in the catalogue.
    pub(crate) uses: Option<&'b BTreeSet<String>>,
    /// Where tables were named, and their names in the catalogue, if that is asked for.
    pub(crate) named: Option<Vec<(Span, String)>>,
    settings: &'b FormatSettings,
    /// The types of parameters, as far as they are known.
    pub(crate) parameters: Vec<Option<SqlType>>,
    /// Common table expressions, the innermost last.
    queries: Vec<NamedQuery>,
    /// How many numbers of common table expressions that were given.
    shared: usize,
    /// Whether the next WITH is that of the statement itself, whose common table expressions may
    /// change rows.
    pub(crate) may_change: bool,
    /// Those that do.
    pub(crate) changes: Vec<Plan>,
    /// How many names of joins that were given.
    joins: usize,
    /// The outermost query whose columns were named since this was set, by
    /// [`scope::Scope::depth`].
    reached: usize,
    /// Whether the statement needs the definitions of all tables when it runs.
    pub(crate) uses_catalogue: bool,
    /// Whether a text as `now` is read in it as a date or time.
    pub(crate) uses_now: bool,
    /// Whether what it does rests on the search path, whatever tables it names.
    pub(crate) uses_path: bool,
    /// The privileges that the statement needs.
    pub(crate) needed: Vec<Needed>,
    /// The owner of the view whose query is bound.
    acting: Option<u32>,
    /// How many columns the table has that is changed, while its columns are looked for.
    watched: Option<usize>,
    /// Whether one of them was named.
    names_watched: bool,
    /// Whether it names the row of a table as one value.
    pub(crate) names_rows: bool,
    /// Whether values of sequences are taken that nobody has to be allowed.
    is_identity: bool,
    /// The sequence of the column whose default is bound, by its name in the catalogue.
    own_sequence: Option<String>,
}

/// Most parameters of a statement, as the protocol counts them.
const MAX_PARAMETERS: usize = 65_535;

/// The place of a part of a statement is found with so much of the stack left, or else on another
/// of such a size: each level of the part takes some.
const SPAN_ROOM: usize = 1 << 20;
const SPAN_STACK: usize = 8 << 20;

impl<'b> Binder<'b> {
    pub(crate) fn new(
        sql: &'b str,
        tables: &'b Tables,
        settings: &'b FormatSettings,
        parameters: &[Option<SqlType>],
    ) -> Self {
        let parameters = parameters.to_vec();
        Self {
            sql,
            tables,
            path: Arc::clone(&tables.path),
            stored: None,
            is_stored: false,
            uses: None,
            named: None,
            settings,
            parameters,
            queries: Vec::new(),
            shared: 0,
            may_change: false,
            changes: Vec::new(),
            joins: 0,
            reached: usize::MAX,
            uses_catalogue: false,
            uses_now: false,
            uses_path: false,
            needed: Vec::new(),
            acting: None,
            watched: None,
            names_watched: false,
            names_rows: false,
            is_identity: false,
            own_sequence: None,
        }
    }

    /// The error with the place of a part of the statement.
    fn place(&self, error: SqlError, part: &impl sqlparser::ast::Spanned) -> SqlError {
        if error.position().is_some() {
            return error;
        }
        // It walks all of the part.
        let span = stacker::maybe_grow(SPAN_ROOM, SPAN_STACK, || part.span());
        match crate::parse::position(self.sql, span) {
            Some(position) => error.at(position),
            None => error,
        }
    }
}

/// Refuses what is not supported.
pub(crate) fn refuse(is_there: bool, what: &str) -> SqlResult<()> {
    if is_there { Err(SqlError::unsupported(what)) } else { Ok(()) }
}
