//! ALTER COLUMN with TYPE: the rows are written anew, with the values that they get.
//!
//! What rests on a column that gets another type is looked at again: conditions, and foreign keys
//! of the table and to it. Views that name it are in the way, as in PostgreSQL.

use sqlparser::ast::{self, AlterColumnOperation, AlterTableOperation as Action, DataType};
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::tokenizer::{Token, Tokenizer};

use super::alter::Alteration;
use super::alter_column::mentions;
use super::lookup::{bound, found, schema_of};
use super::rebuild::{NewForm, rebuild, record_rows};
use super::{references, view};
use crate::bind::{NewType, bind_new_type, bounds_of, check_comparable, fold};
use crate::catalogue::{ColumnNote, TableDef};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::exec::from_txn;
use crate::types::stored::column_type;

/// The type that an action gives a column, and its values.
pub(super) type TypeChange<'s> = (String, &'s DataType, Option<&'s ast::Expr>);

/// The type that an action gives a column, if it gives one.
pub(super) fn type_change(action: &Action) -> Option<TypeChange<'_>> {
    match action {
        Action::AlterColumn {
            column_name,
            op: AlterColumnOperation::SetDataType { data_type, using, had_set: _ },
        } => Some((fold(column_name), data_type, using.as_ref())),
        _ => None,
    }
}

impl Alteration<'_, '_> {
    /// Gives columns other types, all at once: the values of each are made of the rows as they
    /// were.
    pub(super) async fn alter_types(&mut self, changes: &[TypeChange<'_>]) -> SqlResult<()> {
        let mut all: Vec<NewType> = Vec::new();
        for (name, data_type, using) in changes {
            let Some(at) = self.shown_column(name) else { return Err(self.no_column(name)) };
            if all.iter().any(|own| own.at == at) {
                let message = format!("cannot alter type of column \"{name}\" twice");
                return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message));
            }
            self.refuse_views(name).await?;
            let table = self.table.clone();
            let new = bound(self.run, self.txn, |binder| {
                bind_new_type(binder, &table, at, data_type, *using)
            });
            all.push(new.await?);
        }
        let before = self.table.clone();
        self.check_after(&before, &all).await?;
        let (schema, note) = schema_of(self.txn, &before).await?;
        let mut form = NewForm::of(schema, note);
        for NewType { at, ty, value, default } in &all {
            let Some(column) = form.schema.columns.get_mut(*at) else { continue };
            column.ty = column_type(*ty)?;
            // That of rows from before the column was added: all are written anew.
            column.default = None;
            let own = form.note.columns.entry(column.name.clone()).or_insert_with(|| ColumnNote {
                oid: ty.oid(),
                modifier: ty.modifier,
                ..ColumnNote::default()
            });
            (own.oid, own.modifier, own.default) = (ty.oid(), ty.modifier, default.clone());
            if let Some(own) = form.values.get_mut(*at) {
                own.clone_from(value);
            }
        }
        for new in &all {
            self.widen_identity(&before, new).await?;
        }
        rebuild(self.run, self.txn, &before, &self.key, form).await?;
        self.table = found(self.txn, &self.key).await?;
        let changed: Vec<&str> =
            all.iter().filter_map(|new| Some(&*before.columns.get(new.at)?.name)).collect();
        for (name, condition) in self.table.checks.clone() {
            let mut is_changed = false;
            for column in &changed {
                is_changed |= mentions(&condition, column)?;
            }
            if is_changed && !self.table.not_valid.contains(&name) {
                self.verify_check(&name, &condition).await?;
            }
        }
        self.recheck_references(&changed).await
    }

    /// Refuses what is named by a view.
    async fn refuse_views(&mut self, column: &str) -> SqlResult<()> {
        for (key, table) in view::views_over(self.txn, &self.key).await? {
            let Some(own) = table.view.filter(|own| own.uses.contains(&self.key)) else {
                continue;
            };
            let is_shown = own.columns.iter().any(|own| own.source == column);
            if is_shown || names(&own.query, column) {
                let message = "cannot alter type of a column used by a view or rule";
                let view = self.run.path.shown(&key);
                let detail = format!("rule _RETURN on view {view} depends on column \"{column}\"");
                let error = SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message);
                return Err(error.detail(detail));
            }
        }
        Ok(())
    }

    /// Binds what rests on the columns as they will be.
    async fn check_after(&mut self, before: &TableDef, all: &[NewType]) -> SqlResult<()> {
        let mut after = before.clone();
        for new in all {
            if let Some(column) = after.columns.get_mut(new.at) {
                column.ty = new.ty;
            }
        }
        bound(self.run, self.txn, |binder| binder.checks(&after)).await?;
        for own in &after.foreign_keys {
            if own.parent == self.key {
                check_comparable(own, &after, &after)?;
            } else {
                let parent = found(self.txn, &own.parent).await?;
                check_comparable(own, &after, &parent)?;
            }
        }
        for (child, name) in references::children_of(&after) {
            if child == self.key {
                continue;
            }
            let child = found(self.txn, &child).await?;
            if let Some(own) = child.foreign_keys.iter().find(|own| own.name == name) {
                check_comparable(own, &child, &after)?;
            }
        }
        Ok(())
    }

    /// The sequence of an identity column has the bounds of its type.
    async fn widen_identity(&mut self, before: &TableDef, new: &NewType) -> SqlResult<()> {
        let Some(column) = before.columns.get(new.at) else { return Ok(()) };
        let (Some(_), Some(sequence)) = (column.identity, &column.sequence) else {
            return Ok(());
        };
        let (Some(old), Some(new)) = (bounds_of(column.ty), bounds_of(new.ty)) else {
            return Ok(());
        };
        let change = |own: &mut selkie_txn::SequenceSchema| {
            if own.max == old.1 || own.max > new.1 {
                own.max = new.1;
            }
            if own.min == old.0 || own.min < new.0 {
                own.min = new.0;
            }
        };
        let altered = self.txn.alter_sequence(sequence, change, None).await;
        altered.map_err(|error| from_txn(error, None))
    }

    /// Looks at all rows again of constraints that columns are in.
    async fn recheck_references(&mut self, columns: &[&str]) -> SqlResult<()> {
        let has = |own: &[String]| own.iter().any(|own| columns.contains(&&**own));
        let table = self.table.clone();
        for (at, own) in table.foreign_keys.iter().enumerate() {
            let is_in = has(&own.columns) || own.parent == self.key && has(&own.parent_columns);
            if is_in && !table.not_valid.contains(&own.name) {
                self.run.check_references(self.txn, &table, at).await?;
            }
        }
        for (child, name) in references::children_of(&table) {
            if child == self.key {
                continue;
            }
            let child = found(self.txn, &child).await?;
            let is_it = |own: &crate::catalogue::ForeignKey| own.name == name;
            let Some(at) = child.foreign_keys.iter().position(is_it) else { continue };
            let is_valid = !child.not_valid.contains(&name);
            let is_in = child.foreign_keys.get(at).is_some_and(|own| has(&own.parent_columns));
            if is_in && is_valid {
                record_rows(self.txn, &child).await?;
                self.run.check_references(self.txn, &child, at).await?;
            }
        }
        Ok(())
    }
}

/// Whether a word of a query may be the name of a column.
fn names(query: &str, column: &str) -> bool {
    let tokens = Tokenizer::new(&PostgreSqlDialect {}, query).tokenize().unwrap_or_default();
    tokens.iter().any(|token| match token {
        Token::Word(word) if word.quote_style.is_some() => word.value == column,
        Token::Word(word) => word.value.to_lowercase() == column,
        _ => false,
    })
}
