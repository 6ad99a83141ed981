//! ALTER TABLE: columns.

use selkie_txn::{Column, DefaultValue, SchemaError, TxnError};
use sqlparser::ast::{self, AlterColumnOperation};

use super::alter::Alteration;
use super::lookup::{bound, change_note, found, schema_of};
use super::rebuild::{NewForm, has_nulls, require_not_null};
use super::sequence::{create_for_column, drop_of_columns};
use super::{names, rebuild, skip, texts};
use crate::bind::{
    Added, MOMENT_OF_DEFINITION, NewSequence, bind_added_column, bind_applied_default, check_name,
    default_expr, each_name, fold, refuse,
};
use crate::catalogue::{ColumnDef, ColumnNote, name_of};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::exec::from_txn;
use crate::notice::Notice;
use crate::plan::{Expr, Plan, SequenceCall, SequenceFunction};
use crate::types::cast::CastContext;
use crate::types::{Datum, SqlType, stored};

impl Alteration<'_, '_> {
    pub(super) async fn add_column(
        &mut self,
        column: &ast::ColumnDef,
        if_not_exists: bool,
    ) -> SqlResult<()> {
        let name = fold(&column.name);
        if if_not_exists && self.table.column(&name).is_some() {
            let table = &self.table.name;
            let message = format!("column \"{name}\" of relation \"{table}\" already exists");
            skip::skipped(self.run, &SqlError::new(SqlState::DUPLICATE_COLUMN, message));
            return Ok(());
        }
        let table = self.table.clone();
        let mut added =
            bound(self.run, self.txn, |binder| bind_added_column(binder, &table, column)).await?;
        let Some(mut new) = added.column.take() else {
            return Err(SqlError::internal("no column was added"));
        };
        let said = names::said_by(std::slice::from_ref(column), &[]);
        names::of_added(self.txn, &self.key, &mut added, &said).await?;
        if let Some(sequence) = added.sequence.take() {
            self.add_counted(new, sequence).await?;
            self.table = found(self.txn, &self.key).await?;
            return self.add(added, true).await;
        }
        new.default = self.pinned(new.default.take()).await?;
        let with_default = new.clone();
        let value =
            bound(self.run, self.txn, |binder| bind_applied_default(binder, &table, with_default));
        let (value, is_volatile, applied) = value.await?;
        let (oid, modifier, default) = (new.ty.oid(), new.ty.modifier, new.default.clone());
        let note = ColumnNote { oid, modifier, default, ..ColumnNote::default() };
        if is_volatile || applied.is_some() {
            let (schema, own) = schema_of(self.txn, &table).await?;
            let mut form = NewForm::of(schema, own);
            form.applied = applied;
            form.add_column((&new.name, new.ty), new.nullable, note, value)?;
            rebuild::rebuild(self.run, self.txn, &table, &self.key, form).await?;
        } else {
            let values = Plan::Values { rows: vec![vec![value]], width: 1 };
            let value = self.run.first_row(self.txn, &values).await?;
            let value = value.and_then(|row| row.into_iter().next()).unwrap_or(Datum::Null);
            self.add_plain(&new, &value).await?;
            change_note(self.txn, &table, |own| drop(own.columns.insert(new.name, note))).await?;
        }
        self.table = found(self.txn, &self.key).await?;
        self.add(Added { column: None, ..added }, true).await
    }

    /// Adds a column that has the values of a sequence of its own.
    async fn add_counted(&mut self, new: ColumnDef, sequence: NewSequence) -> SqlResult<()> {
        let (name, default) = create_for_column(self.run, self.txn, &self.key, sequence).await?;
        let (schema, note) = schema_of(self.txn, &self.table).await?;
        let mut form = NewForm::of(schema, note);
        let argument = Expr::Const(Datum::text(name_of(&name)));
        let (function, arguments) = (SequenceFunction::Next, vec![argument]);
        let (keys, is_identity) = (Some(vec![name.clone()]), true);
        let call = SequenceCall { function, keys, arguments, when: None, is_identity };
        form.applied = Some(Plan::Sequence(Box::new(call)));
        let from = SqlType::INT8;
        let (to, context) = (new.ty, CastContext::Assignment);
        let operand = Box::new(Expr::Column(self.table.columns.len()));
        let value = if to == from { *operand } else { Expr::Cast { operand, from, to, context } };
        let own = ColumnNote {
            oid: new.ty.oid(),
            modifier: new.ty.modifier,
            default: Some(default),
            hidden: false,
            sequence: Some(name),
            identity: new.identity,
        };
        form.add_column((&new.name, new.ty), new.nullable, own, value)?;
        rebuild::rebuild(self.run, self.txn, &self.table, &self.key, form).await
    }

    /// Adds a column that is the same in all rows that are there.
    async fn add_plain(&mut self, new: &ColumnDef, value: &Datum) -> SqlResult<()> {
        let default = match value.is_null() {
            true => None,
            false => stored::with_value(value, new.ty, DefaultValue::of)?,
        };
        let has_default = default.is_some();
        let (name, ty) = (new.name.clone(), stored::column_type(new.ty)?);
        let column = Column { name, ty, nullable: new.nullable, default };
        let table = self.table.table;
        self.txn.add_column(table, column).await.map_err(|error| match error {
            TxnError::Schema(SchemaError::NullsInRows { .. }) => has_nulls(&self.table, &new.name),
            error => from_txn(error, Some(&self.table)),
        })?;
        if has_default {
            // That of new rows is said by the statement that inserts them.
            let dropped = self.txn.drop_default(table, &new.name).await;
            dropped.map_err(|error| from_txn(error, Some(&self.table)))?;
        }
        Ok(())
    }

    pub(super) async fn drop_column(
        &mut self,
        name: &str,
        if_exists: bool,
        cascade: bool,
    ) -> SqlResult<()> {
        let Some(at) = self.shown_column(name) else {
            if !if_exists {
                return Err(self.no_column(name));
            }
            let what = format!("column \"{name}\" of relation \"{}\"", self.table.name);
            skip::tell(self.run, &Notice::missing(what));
            return Ok(());
        };
        self.leave_column(name, cascade).await?;
        let sequence = self.table.columns.get(at).and_then(|own| own.sequence.clone());
        // With it go the keys and the conditions that it is in.
        let indexes = self.table.indexes.iter().filter(|own| own.columns.contains(&at));
        let indexes: Vec<String> = indexes.map(|own| own.name.clone()).collect();
        for index in indexes {
            self.drop_index(&index).await?;
        }
        let mut checks = Vec::new();
        for (own, condition) in &self.table.checks {
            if !mentions(condition, name)? {
                checks.push((own.clone(), condition.clone()));
            }
        }
        change_note(self.txn, &self.table, |note| {
            note.checks = checks;
            note.comments.drop_column(name);
            let (checks, keys) = (&note.checks, &note.foreign_keys);
            note.not_valid.retain(|own| {
                checks.iter().any(|(name, _)| name == own)
                    || keys.iter().any(|key| key.name == *own)
            });
        })
        .await?;
        if self.table.primary_key.contains(&at) {
            let (schema, note) = schema_of(self.txn, &self.table).await?;
            let mut form = NewForm::of(schema, note);
            form.note.comments.drop_constraint(&self.table.primary_key_name());
            self.take_key(&mut form).await?;
            form.remove_column(at);
            rebuild::rebuild(self.run, self.txn, &self.table, &self.key, form).await?;
        } else {
            let dropped = self.txn.drop_column(self.table.table, name).await;
            dropped.map_err(|error| from_txn(error, Some(&self.table)))?;
            change_note(self.txn, &self.table, |note| drop(note.columns.remove(name))).await?;
        }
        drop_of_columns(self.txn, sequence).await?;
        self.table = found(self.txn, &self.key).await?;
        Ok(())
    }

    pub(super) async fn rename_column(&mut self, old: &str, new: &str) -> SqlResult<()> {
        check_name(new)?;
        if self.shown_column(old).is_none() {
            let message = format!("column \"{old}\" does not exist");
            return Err(SqlError::new(SqlState::UNDEFINED_COLUMN, message));
        }
        if self.table.column(new).is_some() {
            let message =
                format!("column \"{new}\" of relation \"{}\" already exists", self.table.name);
            return Err(SqlError::new(SqlState::DUPLICATE_COLUMN, message));
        }
        let mut checks = Vec::new();
        for (name, condition) in &self.table.checks {
            checks.push((name.clone(), renamed(condition, old, new)?));
        }
        let done = self.txn.rename_column(self.table.table, old, new).await;
        done.map_err(|error| from_txn(error, Some(&self.table)))?;
        change_note(self.txn, &self.table, |note| {
            note.checks = checks;
            note.comments.rename_column(old, new);
            if let Some(own) = note.columns.remove(old) {
                note.columns.insert(new.to_owned(), own);
            }
        })
        .await?;
        self.rename_in_references(old, new).await
    }

    pub(super) async fn alter_column(
        &mut self,
        name: &str,
        operation: &AlterColumnOperation,
    ) -> SqlResult<()> {
        let Some(at) = self.shown_column(name) else { return Err(self.no_column(name)) };
        match operation {
            AlterColumnOperation::SetDefault { value } => {
                self.set_default(at, Some(value.to_string())).await
            }
            AlterColumnOperation::DropDefault => self.set_default(at, None).await,
            AlterColumnOperation::SetNotNull => require_not_null(self.txn, &self.table, name).await,
            AlterColumnOperation::DropNotNull => self.drop_not_null(at, name).await,
            AlterColumnOperation::AddGenerated { generated_as, sequence_options } => {
                let options = sequence_options.as_deref().unwrap_or_default();
                self.alter_identity(at, generated_as.as_ref(), options).await
            }
            // How many values are looked at, and where long ones are stored: there is no choice.
            AlterColumnOperation::GenericOptions { options } if options.is_empty() => Ok(()),
            other => Err(SqlError::unsupported(format!("ALTER COLUMN {other}"))),
        }
    }

    async fn set_default(&mut self, at: usize, default: Option<String>) -> SqlResult<()> {
        let Some(column) = self.table.columns.get(at).cloned() else { return Ok(()) };
        if column.identity.is_some() {
            let (column, table) = (&column.name, &self.table.name);
            let message =
                format!("column \"{column}\" of relation \"{table}\" is an identity column");
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
        }
        let default = self.pinned(default).await?;
        let column = ColumnDef { default: default.clone(), ..column };
        let (table, name, ty) = (self.table.clone(), column.name.clone(), column.ty);
        let checked = bound(self.run, self.txn, |binder| {
            bind_applied_default(binder, &table, column)?;
            refuse(binder.uses_now, MOMENT_OF_DEFINITION)
        });
        checked.await?;
        change_note(self.txn, &self.table, |note| {
            let own = note.columns.entry(name).or_insert_with(|| ColumnNote {
                oid: ty.oid(),
                modifier: ty.modifier,
                ..ColumnNote::default()
            });
            own.default = default;
        })
        .await
    }

    /// A default as the catalogue has it.
    async fn pinned(&mut self, default: Option<String>) -> SqlResult<Option<String>> {
        match default {
            None => Ok(None),
            Some(text) => texts::pinned_default(self.run, self.txn, text).await.map(Some),
        }
    }

    async fn drop_not_null(&mut self, at: usize, name: &str) -> SqlResult<()> {
        if self.table.primary_key.contains(&at) {
            let message = format!("column \"{name}\" is in a primary key");
            return Err(SqlError::new(SqlState::INVALID_TABLE_DEFINITION, message));
        }
        if self.table.columns.get(at).is_some_and(|own| own.identity.is_some()) {
            let table = &self.table.name;
            let message =
                format!("column \"{name}\" of relation \"{table}\" is an identity column");
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
        }
        let error = match self.txn.drop_not_null(self.table.table, name).await {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        if !matches!(error, TxnError::Schema(SchemaError::ColumnInUse { .. })) {
            return Err(from_txn(error, Some(&self.table)));
        }
        // An index has no room for NULL: it is made anew.
        let (schema, note) = schema_of(self.txn, &self.table).await?;
        let mut form = NewForm::of(schema, note);
        form.schema.columns.iter_mut().filter(|own| own.name == name).for_each(|own| {
            own.nullable = true;
        });
        rebuild::rebuild(self.run, self.txn, &self.table, &self.key, form).await
    }

    /// The position of a column that the user knows.
    pub(super) fn shown_column(&self, name: &str) -> Option<usize> {
        let at = self.table.column(name)?;
        self.table.columns.get(at).is_some_and(|column| !column.is_hidden).then_some(at)
    }

    pub(super) fn no_column(&self, name: &str) -> SqlError {
        let message =
            format!("column \"{name}\" of relation \"{}\" does not exist", self.table.name);
        SqlError::new(SqlState::UNDEFINED_COLUMN, message)
    }
}

/// Whether a condition of the catalogue names a column.
pub(super) fn mentions(condition: &str, column: &str) -> SqlResult<bool> {
    let mut found = false;
    each_name(&mut default_expr(condition)?, &mut |name| found |= fold(name) == column);
    Ok(found)
}

/// A condition of the catalogue with another name for a column.
fn renamed(condition: &str, old: &str, new: &str) -> SqlResult<String> {
    let mut expr = default_expr(condition)?;
    each_name(&mut expr, &mut |name| {
        if fold(name) == old {
            *name = ast::Ident::with_quote('"', new);
        }
    });
    Ok(expr.to_string())
}
