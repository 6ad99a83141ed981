//! What names mean at a place of a statement.

use sqlparser::ast::Ident;

use crate::error::{SqlError, SqlResult, SqlState};
use crate::plan::{Expr, Typed};
use crate::types::SqlType;

/// A name as PostgreSQL takes it: without quotes in lower case.
pub(crate) fn fold(name: &Ident) -> String {
    match name.quote_style {
        Some(_) => name.value.clone(),
        None => name.value.to_lowercase(),
    }
}

/// A column that can be named.
#[derive(Clone, Debug)]
pub(crate) struct ScopeColumn {
    /// The table, by the name that it has in FROM.
    pub(crate) table: Option<String>,
    /// Empty if it has none.
    pub(crate) name: String,
    pub(crate) ty: SqlType,
    /// Where it is in a row.
    pub(crate) at: usize,
    /// Whether `*` shows it, and it is found without its table.
    pub(crate) is_plain: bool,
    /// Whether `table.*` shows it.
    pub(crate) is_shown: bool,
}

/// The columns that can be named at a place, and those of the queries around it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scope<'s> {
    pub(crate) columns: Vec<ScopeColumn>,
    /// Tables of FROM, in order; a name may stand once.
    pub(crate) tables: Vec<String>,
    /// The schemas of those that have no other name in FROM.
    pub(crate) schemas: Vec<(String, String)>,
    pub(crate) outer: Option<&'s Scope<'s>>,
    /// How many there are around it.
    pub(crate) depth: usize,
    /// Columns that can be named in the rows of the input, and others behind them.
    pub(crate) width: usize,
}

/// A column that was found.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    /// How many queries further out.
    pub(crate) level: usize,
    pub(crate) at: usize,
    pub(crate) ty: SqlType,
}

impl Found {
    pub(crate) fn typed(&self) -> Typed {
        let expr = match self.level.checked_sub(1) {
            None => Expr::Column(self.at),
            Some(level) => Expr::Outer { level, column: self.at },
        };
        Typed::new(expr, self.ty)
    }
}

impl<'s> Scope<'s> {
    /// A scope without columns inside of another.
    pub(crate) fn inside(outer: Option<&'s Scope<'s>>) -> Self {
        Self { outer, depth: outer.map_or(0, |outer| outer.depth + 1), ..Self::default() }
    }

    /// Adds the columns of a table of FROM.
    pub(crate) fn add_table(
        &mut self,
        table: &str,
        columns: impl IntoIterator<Item = (String, SqlType, bool)>,
    ) -> SqlResult<()> {
        if !table.is_empty() && self.tables.iter().any(|own| own == table) {
            let message = format!("table name \"{table}\" specified more than once");
            return Err(SqlError::new(SqlState::DUPLICATE_ALIAS, message));
        }
        self.tables.push(table.to_owned());
        for (name, ty, is_hidden) in columns {
            let (table, at) = (Some(table.to_owned()), self.width);
            let (is_plain, is_shown) = (!is_hidden, !is_hidden);
            self.columns.push(ScopeColumn { table, name, ty, at, is_plain, is_shown });
            self.width += 1;
        }
        Ok(())
    }

    /// The column of that name, here or further out.
    pub(crate) fn find(&self, table: Option<&str>, name: &str) -> SqlResult<Found> {
        let mut level = 0;
        let mut scope = Some(self);
        while let Some(own) = scope {
            let fits = |column: &&ScopeColumn| {
                column.name == name
                    && match table {
                        Some(table) => column.table.as_deref() == Some(table),
                        None => column.is_plain,
                    }
            };
            let mut found = own.columns.iter().filter(fits);
            if let Some(ScopeColumn { at, ty, .. }) = found.next() {
                if found.next().is_some() {
                    let message = format!("column reference \"{name}\" is ambiguous");
                    return Err(SqlError::new(SqlState::AMBIGUOUS_COLUMN, message));
                }
                return Ok(Found { level, at: *at, ty: *ty });
            }
            if let Some(table) = table
                && own.tables.iter().any(|own| own == table)
            {
                break;
            }
            scope = own.outer;
            level += 1;
        }
        match table {
            Some(table) if !self.knows(table) => {
                let message = format!("missing FROM-clause entry for table \"{table}\"");
                Err(SqlError::new(SqlState::UNDEFINED_TABLE, message))
            }
            Some(table) => {
                let message = format!("column {table}.{name} does not exist");
                Err(SqlError::new(SqlState::UNDEFINED_COLUMN, message))
            }
            None => {
                let message = format!("column \"{name}\" does not exist");
                Err(SqlError::new(SqlState::UNDEFINED_COLUMN, message))
            }
        }
    }

    /// Refuses a schema that a table of FROM is not of.
    pub(crate) fn check_schema(&self, schema: &str, table: &str) -> SqlResult<()> {
        let mut scope = Some(self);
        while let Some(own) = scope {
            let known = own.schemas.iter().find(|(name, _)| name == table);
            if known.is_some_and(|(_, known)| known != schema) {
                let message =
                    format!("invalid reference to FROM-clause entry for table \"{table}\"");
                return Err(SqlError::new(SqlState::UNDEFINED_TABLE, message));
            }
            if own.tables.iter().any(|own| own == table) {
                break;
            }
            scope = own.outer;
        }
        Ok(())
    }

    fn knows(&self, table: &str) -> bool {
        self.tables.iter().any(|own| own == table)
            || self.outer.is_some_and(|outer| outer.knows(table))
    }
}
