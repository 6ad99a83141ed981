//! What names mean at a place of a statement.

use sqlparser::ast::Ident;

use super::row_functions::is_of_select_list;
use crate::error::{SqlError, SqlResult, SqlState};
use crate::plan::{Expr, Typed};
use crate::types::SqlType;

/// A name as PostgreSQL takes it: without quotes in lower case, as far as that is ASCII.
pub(crate) fn fold(name: &Ident) -> String {
    match name.quote_style {
        Some(_) => name.value.clone(),
        None => name.value.to_ascii_lowercase(),
    }
}

/// A table of FROM, as a statement may call it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TableName {
    pub(crate) name: String,
    pub(crate) schema: SchemaName,
}

/// Whether the schema of a table may stand before its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SchemaName {
    /// The name was given by the statement.
    Alias,
    /// There is no other table: any schema that there is.
    Any,
    Of(String),
    /// There is no such table: it stands for a join whose columns USING has made one.
    Join,
}

/// What stands before the name of a column: the schema, and the table.
pub(crate) type Qualifier<'n> = (Option<&'n str>, &'n str);

impl TableName {
    fn is(&self, (schema, name): Qualifier<'_>) -> bool {
        let is_of = |schema| match &self.schema {
            SchemaName::Alias | SchemaName::Join => false,
            SchemaName::Any => true,
            SchemaName::Of(own) => own == schema,
        };
        self.name == name && schema.is_none_or(is_of)
    }

    /// Whether the two cannot stand in one FROM.
    fn clashes(&self, other: &Self) -> bool {
        let is_told_apart = match (&self.schema, &other.schema) {
            (SchemaName::Of(own), SchemaName::Of(other)) => own != other,
            _ => false,
        };
        !self.name.is_empty() && self.name == other.name && !is_told_apart
    }
}

/// A column that can be named.
#[derive(Clone, Debug)]
pub(crate) struct ScopeColumn {
    pub(crate) table: Option<TableName>,
    /// Empty if it has none.
    pub(crate) name: String,
    pub(crate) ty: SqlType,
    /// Where it is in a row.
    pub(crate) at: usize,
    /// Where it is in a row of FROM, also when it is looked up among groups: it tells columns of
    /// one name apart.
    pub(crate) place: usize,
    /// Whether `*` shows it, and it is found without its table.
    pub(crate) is_plain: bool,
    /// Whether `table.*` shows it.
    pub(crate) is_shown: bool,
    /// Whether the name of its table stands for it, and not for a row of it: the table is a
    /// function that gives one value.
    pub(crate) is_row: bool,
    /// Whether an outer join may have filled it up with NULL.
    pub(crate) may_be_filled: bool,
}

impl ScopeColumn {
    /// Whether it is one that USING has made of those of both sides, in a join of that name.
    fn is_of_join(&self, join: &str) -> bool {
        let is_it = |own: &TableName| own.schema == SchemaName::Join && own.name == join;
        self.table.as_ref().is_some_and(is_it)
    }
}

/// The columns that can be named at a place, and those of the queries around it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scope<'s> {
    pub(crate) columns: Vec<ScopeColumn>,
    /// Tables of FROM, in order.
    pub(crate) tables: Vec<TableName>,
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
        name: &str,
        schema: SchemaName,
        columns: impl IntoIterator<Item = (String, SqlType, bool)>,
    ) -> SqlResult<()> {
        let table = TableName { name: name.to_owned(), schema };
        self.push_table(table.clone())?;
        let can_be_named = !is_of_select_list(name);
        for (name, ty, is_hidden) in columns {
            let at = self.width;
            self.columns.push(ScopeColumn {
                table: Some(table.clone()),
                name,
                ty,
                at,
                place: at,
                is_plain: !is_hidden && can_be_named,
                is_shown: !is_hidden,
                is_row: false,
                may_be_filled: false,
            });
            self.width += 1;
        }
        Ok(())
    }

    /// Adds a table of FROM.
    pub(crate) fn push_table(&mut self, table: TableName) -> SqlResult<()> {
        if self.tables.iter().any(|own| own.clashes(&table)) {
            let message = format!("table name \"{}\" specified more than once", table.name);
            return Err(SqlError::new(SqlState::DUPLICATE_ALIAS, message));
        }
        self.tables.push(table);
        Ok(())
    }

    /// The table that is called like this here.
    pub(crate) fn table(&self, called: Qualifier<'_>) -> SqlResult<Option<&TableName>> {
        let mut found = self.tables.iter().filter(|own| own.is(called));
        let (first, second) = (found.next(), found.next());
        if second.is_some() {
            let message = format!("table reference \"{}\" is ambiguous", called.1);
            return Err(SqlError::new(SqlState::AMBIGUOUS_ALIAS, message));
        }
        Ok(first)
    }

    /// The column of that name, here or further out. Behind a NUL, which no text of a client has,
    /// stands which of the columns of that name it is.
    pub(crate) fn find(&self, table: Option<Qualifier<'_>>, name: &str) -> SqlResult<Found> {
        let (name, place) = match name.split_once('\0') {
            Some((name, place)) => (name, place.parse::<usize>().ok()),
            None => (name, None),
        };
        let mut level = 0;
        let mut scope = Some(self);
        while let Some(own) = scope {
            let called = table.map(|table| own.table(table)).transpose()?;
            let fits = |column: &&ScopeColumn| {
                column.name == name
                    && place.is_none_or(|place| place == column.place)
                    && match (table, called.flatten()) {
                        (None, _) => column.is_plain,
                        (_, Some(called)) => column.table.as_ref() == Some(called),
                        (Some((_, join)), None) => column.is_of_join(join),
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
            if called.flatten().is_some() {
                break;
            }
            scope = own.outer;
            level += 1;
        }
        match table {
            Some(called) if !self.knows(called) => Err(self.no_table(called)),
            Some((_, table)) => {
                let message = format!("column {table}.{name} does not exist");
                Err(SqlError::new(SqlState::UNDEFINED_COLUMN, message))
            }
            None => {
                let message = format!("column \"{name}\" does not exist");
                Err(SqlError::new(SqlState::UNDEFINED_COLUMN, message))
            }
        }
    }

    /// That no table of FROM is called like this.
    pub(crate) fn no_table(&self, (schema, table): Qualifier<'_>) -> SqlError {
        let message = match schema.is_some() && self.knows((None, table)) {
            true => format!("invalid reference to FROM-clause entry for table \"{table}\""),
            false => format!("missing FROM-clause entry for table \"{table}\""),
        };
        SqlError::new(SqlState::UNDEFINED_TABLE, message)
    }

    /// The name of a column with that of its table, by where it is in a row.
    pub(crate) fn full_name(&self, at: usize) -> Option<String> {
        // The column of a table is behind the one that a join has made of it.
        let column = self.columns.iter().rev().find(|own| own.at == at)?;
        Some(match &column.table {
            Some(table) if table.schema != SchemaName::Join && !table.name.is_empty() => {
                format!("{}.{}", table.name, column.name)
            }
            _ => column.name.clone(),
        })
    }

    /// The columns of a table that is called like this here, or further out, under names that tell
    /// them apart.
    pub(crate) fn columns_of(&self, name: &str) -> Option<Vec<ScopeColumn>> {
        let mut scope = self;
        let table = loop {
            match scope.table((None, name)) {
                Ok(Some(table)) => break table,
                Err(_) => return None,
                Ok(None) => scope = scope.outer?,
            }
        };
        let own = scope.columns.iter().filter(|own| own.table.as_ref() == Some(table));
        let named = own.cloned().map(|own| {
            let name = format!("{}\0{}", own.name, own.place);
            ScopeColumn { name, ..own }
        });
        Some(named.collect())
    }

    fn knows(&self, called: Qualifier<'_>) -> bool {
        self.tables.iter().any(|own| own.is(called))
            || self.outer.is_some_and(|outer| outer.knows(called))
    }
}
