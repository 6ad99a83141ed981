//! CREATE TABLE.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use selkie_txn::{Column, ColumnType, IndexSchema, KeyOrder, TableSchema};
use sqlparser::ast::{
    self, ColumnOption, CreateTable, Expr as Ast, SetExpr, Statement, TableConstraint,
    visit_expressions_mut,
};

use super::names::{each_name, made_name};
use super::scope::{SchemaName, Scope};
use super::sequence::{NewSequence, identity_of, serial_type};
use super::stage::Stage;
use super::storage::{is_bytewise, is_storage_option};
use super::{Binder, OutputColumn, Tables, fold, refuse};
use crate::catalogue::{ColumnNote, ForeignKey, Identity, TableNote, name_of};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::plan::Plan;
use crate::types::SqlType;
use crate::types::stored::column_type;

/// The column of a key that the table has because its user gave it none.
pub(crate) const HIDDEN_KEY: &str = "selkie_row_id";

/// A table that is to be created, or to be changed.
pub(super) struct NewTable<'t> {
    /// Its name in the catalogue.
    pub(super) key: String,
    pub(super) name: String,
    /// Those that its constraints may refer to.
    pub(super) tables: &'t Tables,
    pub(super) columns: Vec<NewColumn>,
    pub(super) primary_key: Option<Vec<usize>>,
    pub(super) primary_key_name: Option<String>,
    pub(super) primary_order: Vec<KeyOrder>,
    pub(super) indexes: Vec<IndexSchema>,
    /// Names of indexes that are UNIQUE constraints.
    pub(super) unique: BTreeSet<String>,
    pub(super) checks: Vec<(String, String)>,
    pub(super) foreign_keys: Vec<ForeignKey>,
    pub(super) sequences: Vec<NewSequence>,
}

pub(super) struct NewColumn {
    pub(super) name: String,
    pub(super) ty: SqlType,
    pub(super) nullable: bool,
    pub(super) default: Option<String>,
    pub(super) hidden: bool,
    pub(super) identity: Option<Identity>,
}

/// A default or condition that the catalogue has as text.
pub(crate) fn default_expr(text: &str) -> SqlResult<Ast> {
    let damaged =
        || SqlError::internal(format!("the catalogue has an expression that is none: {text}"));
    let mut statements = crate::parse::parse(&format!("select {text}"))?;
    let Some(Statement::Query(query)) = statements.pop() else { return Err(damaged()) };
    let SetExpr::Select(mut select) = *query.body else { return Err(damaged()) };
    match select.projection.pop() {
        Some(ast::SelectItem::UnnamedExpr(expr)) if select.projection.is_empty() => Ok(expr),
        _ => Err(damaged()),
    }
}

/// The schema of a table with what SQL keeps beside it.
pub(crate) fn bind_create_table(
    binder: &mut Binder<'_>,
    create: &CreateTable,
    key: String,
) -> SqlResult<(TableSchema, Vec<NewSequence>)> {
    refuse_odd(create)?;
    let name = name_of(&key).to_owned();
    let mut table = NewTable {
        key,
        name,
        tables: binder.tables,
        columns: Vec::new(),
        primary_key: None,
        primary_key_name: None,
        primary_order: Vec::new(),
        indexes: Vec::new(),
        unique: BTreeSet::new(),
        checks: Vec::new(),
        foreign_keys: Vec::new(),
        sequences: Vec::new(),
    };
    if let Some(query) = &create.query {
        for OutputColumn { name, ty, origin: _ } in binder.changing_statement(query)?.0.columns {
            table.add_queried(name, ty)?;
        }
    }
    for column in &create.columns {
        table.add_column(column)?;
    }
    for column in &create.columns {
        table.add_constraints_of(column)?;
    }
    for constraint in &create.constraints {
        table.add_constraint(constraint)?;
    }
    table.finish(binder)
}

/// Longest name, in bytes, as in PostgreSQL.
pub(crate) const MAX_NAME_BYTES: usize = 63;

/// PostgreSQL cuts a name that is too long; here it is refused.
pub(crate) fn check_name(name: &str) -> SqlResult<()> {
    if name.contains('\0') {
        let message = "a name may not contain a null character";
        return Err(SqlError::new(SqlState::CHARACTER_NOT_IN_REPERTOIRE, message));
    }
    if name.len() <= MAX_NAME_BYTES && !name.is_empty() {
        return Ok(());
    }
    let message =
        format!("the name \"{name}\" has {} bytes (allowed: 1 to {MAX_NAME_BYTES})", name.len());
    Err(SqlError::new(SqlState::NAME_TOO_LONG, message))
}

fn refuse_odd(create: &CreateTable) -> SqlResult<()> {
    let plain = CreateTable {
        if_not_exists: create.if_not_exists,
        name: create.name.clone(),
        columns: create.columns.clone(),
        constraints: create.constraints.clone(),
        table_options: create.table_options.clone(),
        unlogged: create.unlogged,
        query: create.query.clone(),
        with_data: create.with_data,
        ..ast::helpers::stmt_create_table::CreateTableBuilder::new(create.name.clone()).build()
    };
    refuse(create.temporary, "a temporary table")?;
    refuse(create.unlogged, "an unlogged table")?;
    let names = create.query.is_some() && !create.columns.is_empty();
    refuse(names, "CREATE TABLE AS with names of columns")?;
    refuse(create.like.is_some(), "LIKE another table")?;
    refuse(create.inherits.is_some(), "INHERITS")?;
    refuse(create.partition_by.is_some() || create.partition_of.is_some(), "a partitioned table")?;
    match &create.table_options {
        ast::CreateTableOptions::None => {}
        ast::CreateTableOptions::With(options) => {
            let what = "a storage parameter other than fillfactor and autovacuum_*";
            refuse(!options.iter().all(is_storage_option), what)?;
        }
        _ => return Err(SqlError::unsupported("these options of a table")),
    }
    refuse(plain != *create, "this form of CREATE TABLE")
}

impl NewTable<'_> {
    /// Adds a column that a query gives.
    fn add_queried(&mut self, name: String, ty: SqlType) -> SqlResult<()> {
        check_name(&name)?;
        self.check_new(&name)?;
        let ty = if ty == SqlType::UNKNOWN { SqlType::TEXT } else { ty };
        column_type(ty)?;
        let (nullable, default, hidden, identity) = (true, None, false, None);
        self.columns.push(NewColumn { name, ty, nullable, default, hidden, identity });
        Ok(())
    }

    fn check_new(&self, name: &str) -> SqlResult<()> {
        if self.columns.iter().any(|own| own.name == name) {
            let message = format!("column \"{name}\" specified more than once");
            return Err(SqlError::new(SqlState::DUPLICATE_COLUMN, message));
        }
        Ok(())
    }

    pub(super) fn add_column(&mut self, column: &ast::ColumnDef) -> SqlResult<()> {
        let ast::ColumnDef { name, data_type, options } = column;
        let name = fold(name);
        check_name(&name)?;
        self.check_new(&name)?;
        let serial = serial_type(data_type);
        let ty = serial.map_or_else(|| SqlType::parse(data_type), Ok)?;
        column_type(ty)?;
        let (nullable, default, hidden, identity) = (serial.is_none(), None, false, None);
        let mut column = NewColumn { name, ty, nullable, default, hidden, identity };
        if serial.is_some() {
            self.sequences.push(NewSequence::of_column(&column.name, ty, &[])?);
        }
        for ast::ColumnOptionDef { name: _, option } in options {
            match option {
                ColumnOption::Null => {}
                ColumnOption::NotNull => column.nullable = false,
                ColumnOption::Default(expr) => column.default = Some(expr.to_string()),
                ColumnOption::Generated {
                    generated_as,
                    sequence_options,
                    generation_expr: None,
                    generation_expr_mode: None,
                    generated_keyword: _,
                } => {
                    column.identity = Some(identity_of(generated_as, ty)?);
                    column.nullable = false;
                    let options = sequence_options.as_deref().unwrap_or_default();
                    self.sequences.push(NewSequence::of_column(&column.name, ty, options)?);
                }
                ColumnOption::PrimaryKey(_)
                | ColumnOption::Unique(_)
                | ColumnOption::Check(_)
                | ColumnOption::ForeignKey(_) => {}
                ColumnOption::Collation(name) => {
                    refuse(!is_bytewise(name), "a collation other than \"C\"")?;
                }
                other => {
                    return Err(SqlError::unsupported(format!("the column option {other}")));
                }
            }
        }
        let taken = self.sequences.iter().filter(|own| own.column == column.name).count();
        if taken > usize::from(column.default.is_none()) {
            let (name, table) = (&column.name, &self.name);
            let message = match column.identity {
                Some(_) => format!(
                    "both default and identity specified for column \"{name}\" of table \"{table}\""
                ),
                None => format!(
                    "multiple default values specified for column \"{name}\" of table \"{table}\""
                ),
            };
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
        }
        self.columns.push(column);
        Ok(())
    }

    pub(super) fn add_constraints_of(&mut self, column: &ast::ColumnDef) -> SqlResult<()> {
        let own = fold(&column.name);
        for ast::ColumnOptionDef { name, option } in &column.options {
            let named = name.as_ref().map(fold);
            match option {
                ColumnOption::PrimaryKey(constraint) => {
                    refuse(constraint.characteristics.is_some(), "a deferrable constraint")?;
                    let at = self.column(&own)?;
                    self.set_primary_key(vec![at], Vec::new(), named)?;
                }
                ColumnOption::Unique(constraint) => {
                    refuse(constraint.characteristics.is_some(), "a deferrable constraint")?;
                    let distinct =
                        constraint.nulls_distinct != ast::NullsDistinctOption::NotDistinct;
                    let at = self.column(&own)?;
                    self.add_unique(vec![at], distinct, named)?;
                }
                ColumnOption::Check(check) => self.add_check(check, named, Some(&own))?,
                ColumnOption::ForeignKey(key) => self.add_foreign_key(key, named, Some(&own))?,
                _ => {}
            }
        }
        Ok(())
    }

    pub(super) fn add_constraint(&mut self, constraint: &TableConstraint) -> SqlResult<()> {
        match constraint {
            TableConstraint::PrimaryKey(own) => {
                let is_odd = own.index_type.is_some()
                    || !own.include.is_empty()
                    || !own.index_options.is_empty()
                    || own.characteristics.is_some();
                refuse(is_odd, "this form of PRIMARY KEY")?;
                let (columns, order) = self.key_columns(&own.columns)?;
                self.set_primary_key(columns, order, own.name.as_ref().map(fold))
            }
            TableConstraint::Unique(own) => {
                let is_odd = own.index_type.is_some()
                    || !own.include.is_empty()
                    || !own.index_options.is_empty()
                    || own.characteristics.is_some();
                refuse(is_odd, "this form of UNIQUE")?;
                let (columns, _) = self.key_columns(&own.columns)?;
                let distinct = own.nulls_distinct != ast::NullsDistinctOption::NotDistinct;
                self.add_unique(columns, distinct, own.name.as_ref().map(fold))
            }
            TableConstraint::Check(own) => self.add_check(own, own.name.as_ref().map(fold), None),
            TableConstraint::ForeignKey(own) => {
                self.add_foreign_key(own, own.name.as_ref().map(fold), None)
            }
            _ => Err(SqlError::unsupported("this constraint")),
        }
    }

    fn key_columns(&self, columns: &[ast::IndexColumn]) -> SqlResult<(Vec<usize>, Vec<KeyOrder>)> {
        let (mut positions, mut order) = (Vec::new(), Vec::new());
        for own in columns {
            let (name, direction, class) = index_column(own)?;
            refuse(class.is_some(), "an operator class of a key")?;
            positions.push(self.column(&name)?);
            order.push(direction);
        }
        Ok((positions, order))
    }

    fn column(&self, name: &str) -> SqlResult<usize> {
        self.columns.iter().position(|column| column.name == name).ok_or_else(|| {
            let message = format!("column \"{name}\" named in key does not exist");
            SqlError::new(SqlState::UNDEFINED_COLUMN, message)
        })
    }

    fn set_primary_key(
        &mut self,
        columns: Vec<usize>,
        order: Vec<KeyOrder>,
        name: Option<String>,
    ) -> SqlResult<()> {
        if self.primary_key.is_some() {
            let message =
                format!("multiple primary keys for table \"{}\" are not allowed", self.name);
            return Err(SqlError::new(SqlState::INVALID_TABLE_DEFINITION, message));
        }
        for at in &columns {
            if let Some(column) = self.columns.get_mut(*at) {
                column.nullable = false;
            }
        }
        (self.primary_key, self.primary_order, self.primary_key_name) =
            (Some(columns), order, name);
        Ok(())
    }

    fn add_unique(
        &mut self,
        columns: Vec<usize>,
        nulls_distinct: bool,
        name: Option<String>,
    ) -> SqlResult<()> {
        let names: Vec<&str> =
            columns.iter().filter_map(|at| Some(&*self.columns.get(*at)?.name)).collect();
        let taken = |name: &str| self.indexes.iter().any(|own| own.name == name);
        let base = made_name(&self.name, &names.join("_"), "key");
        let name = name.unwrap_or_else(|| free_name(&base, taken));
        check_name(&name)?;
        self.unique.insert(name.clone());
        let order = vec![KeyOrder::ASCENDING.nulls_last(); columns.len()];
        let index = IndexSchema::new(name, columns).order(order).unique();
        self.indexes.push(if nulls_distinct { index.nulls_distinct() } else { index });
        Ok(())
    }

    fn add_check(
        &mut self,
        check: &ast::CheckConstraint,
        name: Option<String>,
        column: Option<&str>,
    ) -> SqlResult<()> {
        refuse(check.no_inherit || check.enforced == Some(false), "this form of CHECK")?;
        let name = name.unwrap_or_else(|| {
            let column = column.map(str::to_owned).or_else(|| self.only_column_of(&check.expr));
            let base = made_name(&self.name, &column.unwrap_or_default(), "check");
            free_name(&base, |name| self.checks.iter().any(|(own, _)| own == name))
        });
        check_name(&name)?;
        self.checks.push((name, self.without_table(&check.expr).to_string()));
        Ok(())
    }

    /// A condition whose columns have nothing before their names: table and schema may be called
    /// otherwise later.
    fn without_table(&self, condition: &Ast) -> Ast {
        let mut condition = condition.clone();
        let _ = visit_expressions_mut(&mut condition, |own: &mut Ast| {
            if let Ast::CompoundIdentifier(names) = own
                && let [.., table, _] = &**names
                && fold(table) == self.name
                && let Some(name) = names.pop()
            {
                *own = Ast::Identifier(name);
            }
            ControlFlow::<()>::Continue(())
        });
        condition
    }

    /// The column that a condition names, if that is one.
    fn only_column_of(&self, condition: &Ast) -> Option<String> {
        let mut named = BTreeSet::new();
        each_name(&mut condition.clone(), &mut |name| {
            let name = fold(name);
            if self.columns.iter().any(|own| own.name == name) {
                named.insert(name);
            }
        });
        if named.len() > 1 { None } else { named.pop_first() }
    }

    fn finish(mut self, binder: &mut Binder<'_>) -> SqlResult<(TableSchema, Vec<NewSequence>)> {
        if self.primary_key.is_none() {
            let name = HIDDEN_KEY.to_owned();
            let default = Some("gen_random_uuid()".to_owned());
            let ty = SqlType::new(crate::types::Scalar::Uuid);
            let (nullable, hidden, identity) = (false, true, None);
            self.columns.push(NewColumn { name, ty, nullable, default, hidden, identity });
            self.primary_key = Some(vec![self.columns.len() - 1]);
        }
        self.resolve_foreign_keys(0)?;
        let mut schema = TableSchema::new(&self.key);
        let mut note = TableNote {
            checks: self.checks.clone(),
            primary_key_name: self.primary_key_name.clone(),
            unique: self.unique.clone(),
            foreign_keys: self.foreign_keys.clone(),
            ..TableNote::default()
        };
        for NewColumn { name, ty, nullable, default, hidden, identity } in &self.columns {
            let stored: ColumnType = column_type(*ty)?;
            let column =
                Column { name: name.clone(), ty: stored, nullable: *nullable, default: None };
            schema = schema.with_column(column);
            let (oid, modifier, default) = (ty.oid(), ty.modifier, default.clone());
            let (hidden, identity, sequence) = (*hidden, *identity, None);
            let own = ColumnNote { oid, modifier, default, hidden, sequence, identity };
            note.columns.insert(name.clone(), own);
        }
        schema = schema
            .primary_key(self.primary_key.unwrap_or_default())
            .primary_key_order(self.primary_order)
            .note(note.to_stored()?);
        for index in self.indexes {
            schema = schema.with_index(index);
        }
        check_expressions(binder, &self.columns, &self.checks, &self.name)?;
        Ok((schema, self.sequences))
    }
}

/// The name, or the first of those with a number behind it that is not taken.
pub(crate) fn free_name(base: &str, taken: impl Fn(&str) -> bool) -> String {
    let numbered = (1_u64..).map(|number| format!("{base}{number}"));
    let mut names = std::iter::once(base.to_owned()).chain(numbered);
    names.find(|name| !taken(name)).unwrap_or_default()
}

/// Defaults and conditions are bound once, so that an error is found here.
pub(super) fn check_expressions(
    binder: &mut Binder<'_>,
    columns: &[NewColumn],
    checks: &[(String, String)],
    table: &str,
) -> SqlResult<()> {
    for column in columns {
        let Some(default) = &column.default else { continue };
        let scope = Scope::inside(None);
        let mut stage = Stage::new(&scope, "DEFAULT expressions");
        let bound = binder.expr(&default_expr(default)?, &mut stage)?;
        let is_call = |own: &super::stage::PendingApply| matches!(own.query, Plan::Sequence(_));
        refuse(!stage.applies.iter().all(is_call), "a subquery in a default")?;
        let context = crate::types::cast::CastContext::Assignment;
        binder.coerce(bound, column.ty, context).map_err(|error| {
            let message = format!("the default of column \"{}\": {}", column.name, error.message());
            SqlError::new(error.state(), message)
        })?;
    }
    for (_, condition) in checks {
        let mut scope = Scope::inside(None);
        let columns = columns.iter().map(|own| (own.name.clone(), own.ty, own.hidden));
        scope.add_table(table, SchemaName::Any, columns)?;
        let mut stage = Stage::new(&scope, "check constraints");
        let bound = binder.expr(&default_expr(condition)?, &mut stage)?;
        refuse(!stage.applies.is_empty(), "a subquery in a check constraint")?;
        // The text would name the table after it is called otherwise.
        refuse(std::mem::take(&mut binder.names_rows), "a whole row in a check constraint")?;
        binder.condition(bound, "CHECK")?;
    }
    refuse(binder.uses_now, super::MOMENT_OF_DEFINITION)
}

/// A column of a key, and its order: NULLs are last unless it descends, as in PostgreSQL.
/// With the operator class that is said.
pub(crate) fn index_column(
    column: &ast::IndexColumn,
) -> SqlResult<(String, KeyOrder, Option<&ast::ObjectName>)> {
    let ast::IndexColumn { column: ast::OrderByExpr { expr, options, with_fill }, operator_class } =
        column;
    refuse(with_fill.is_some(), "this form of an index")?;
    let expr = match expr {
        Ast::Collate { expr, collation } if is_bytewise(collation) => expr,
        expr => expr,
    };
    let Ast::Identifier(name) = expr else {
        return Err(SqlError::unsupported("an index over an expression"));
    };
    let descending = match &options.sort {
        None | Some(ast::OrderBySort::Asc) => false,
        Some(ast::OrderBySort::Desc) => true,
        Some(ast::OrderBySort::Using(_)) => return Err(SqlError::unsupported("USING in a key")),
    };
    let nulls_last = !options.nulls_first.unwrap_or(descending);
    Ok((fold(name), KeyOrder { descending, nulls_last }, operator_class.as_ref()))
}
