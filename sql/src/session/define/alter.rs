//! ALTER TABLE.
//!
//! The actions of a statement are done one after the other, in the order in which PostgreSQL does
//! them: what is dropped, columns that are added, defaults and NULLs, keys, then conditions.

use std::sync::Arc;

use selkie_txn::Txn;
use sqlparser::ast::{self, AlterTableOperation as Action, RenameTableNameKind};

use super::super::run::Run;
use super::drop::find_to_drop;
use super::lookup::{
    already_exists, bound, change_note, found, found_named, hide, key_in, require_create, schema_of,
};
use super::rebuild::{HIDDEN_DEFAULT, NewForm, record_rows, require_not_null};
use super::{index, names, new_owner, rebuild, references, skip, view};
use crate::bind::{
    Added, bind_added_constraint, bind_default, check_name, fold, is_constraint, name_parts,
    refuse, scan_of,
};
use crate::catalogue::{ColumnDef, TableDef, split_key};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::exec::from_txn;
use crate::notice::Notice;
use crate::plan::{Expr, Plan};
use crate::types::{Scalar, SqlType};

/// An ALTER TABLE that is being done.
pub(super) struct Alteration<'a, 'db> {
    pub(super) run: &'a Run,
    pub(super) txn: &'a mut Txn<'db>,
    /// The name of the table in the catalogue.
    pub(super) key: String,
    /// As it is before the next action.
    pub(super) table: TableDef,
}

impl<'a, 'db> Alteration<'a, 'db> {
    /// Does all actions of a statement.
    pub(super) async fn run(
        run: &'a Run,
        txn: &'a mut Txn<'db>,
        alter: &ast::AlterTable,
    ) -> SqlResult<()> {
        let ast::AlterTable {
            name,
            if_exists,
            only: _,
            operations,
            location,
            on_cluster,
            table_type,
            end_token: _,
        } = alter;
        let is_odd = location.is_some() || on_cluster.is_some() || table_type.is_some();
        refuse(is_odd, "this form of ALTER TABLE")?;
        let table = match find_to_drop(run, txn, name, *if_exists).await? {
            None if *if_exists => return skip::missing_relation(run, name),
            Some(table) => table,
            None => found_named(run, txn, name).await?,
        };
        if let [Action::OwnerTo { new_owner }] = &**operations {
            return new_owner::give_table(run, txn, &table, new_owner).await;
        }
        let key = table.key.clone();
        if table.view.is_some() {
            let message = format!("a change of view \"{}\" by ALTER TABLE", table.name);
            return Err(SqlError::unsupported(message));
        }
        let views = view::views_over(txn, &key).await?;
        let mut alteration = Self { run, txn, key, table };
        let mut actions: Vec<&Action> = operations.iter().collect();
        actions.sort_by_key(|action| pass(action));
        for (number, action) in actions.into_iter().enumerate() {
            if number > 0 {
                alteration.table = found(alteration.txn, &alteration.key).await?;
            }
            alteration.act(action).await?;
        }
        view::check_views(run, alteration.txn, &views).await
    }

    async fn act(&mut self, action: &Action) -> SqlResult<()> {
        match action {
            Action::AddColumn { column_keyword: _, if_not_exists, column_def, column_position } => {
                refuse(column_position.is_some(), "a place for a column")?;
                self.add_column(column_def, *if_not_exists).await
            }
            Action::DropColumn {
                has_column_keyword: _,
                column_names,
                if_exists,
                drop_behavior,
            } => {
                for name in column_names {
                    let cascade = is_cascade(drop_behavior.as_ref());
                    self.drop_column(&fold(name), *if_exists, cascade).await?;
                }
                Ok(())
            }
            Action::RenameColumn { old_column_name, new_column_name } => {
                self.rename_column(&fold(old_column_name), &fold(new_column_name)).await
            }
            Action::RenameTable { table_name: RenameTableNameKind::To(name) } => {
                let [name] = &*name_parts(name)? else {
                    return Err(SqlError::unsupported("another schema for a table"));
                };
                self.rename_table(name).await
            }
            Action::RenameConstraint { old_name, new_name } => {
                self.rename_constraint(&fold(old_name), fold(new_name)).await
            }
            Action::AlterColumn { column_name, op } => {
                self.alter_column(&fold(column_name), op).await
            }
            Action::AddConstraint { constraint, not_valid } => {
                refuse(*not_valid, "NOT VALID")?;
                let table = self.table.clone();
                let added = bound(self.run, self.txn, |binder| {
                    bind_added_constraint(binder, &table, constraint)
                });
                let mut added = added.await?;
                let said = names::said_by(&[], std::slice::from_ref(constraint));
                names::of_added(self.txn, &self.key, &mut added, &said).await?;
                self.add(added).await
            }
            Action::DropConstraint { if_exists, name, drop_behavior } => {
                let cascade = is_cascade(drop_behavior.as_ref());
                self.drop_constraint(&fold(name), *if_exists, cascade).await
            }
            Action::OwnerTo { new_owner } => {
                new_owner::give_table(self.run, self.txn, &self.table, new_owner).await
            }
            other => Err(SqlError::unsupported(format!("ALTER TABLE {other}"))),
        }
    }

    /// Adds keys and conditions, which the rows have to fulfil.
    pub(super) async fn add(&mut self, added: Added) -> SqlResult<()> {
        let Added { column: _, sequence: _, checks, unique, primary_key, foreign_keys } = added;
        if primary_key.is_some() || !unique.is_empty() {
            let (schema, note) = schema_of(self.txn, &self.table).await?;
            let mut form = NewForm::of(schema, note);
            for index in unique {
                form.note.unique.insert(index.name.clone());
                form.schema.indexes.push(index);
            }
            if let Some(key) = primary_key {
                let columns: Vec<&ColumnDef> =
                    key.columns.iter().filter_map(|at| self.table.columns.get(*at)).collect();
                for column in columns.into_iter().filter(|column| column.nullable) {
                    require_not_null(self.txn, &self.table, &column.name).await?;
                }
                let hidden = self.table.primary_key.clone();
                form.set_primary_key(&key.columns, &key.order);
                form.note.primary_key_name = key.name;
                for at in hidden {
                    form.remove_column(at);
                }
            }
            rebuild::rebuild(self.run, self.txn, &self.table, &self.key, form).await?;
            self.table = found(self.txn, &self.key).await?;
        }
        for (name, condition) in checks {
            self.add_check(name, condition).await?;
        }
        self.add_foreign_keys(foreign_keys).await
    }

    async fn add_check(&mut self, name: String, condition: String) -> SqlResult<()> {
        let mut table = self.table.clone();
        table.checks = vec![(name.clone(), condition.clone())];
        let mut conditions = bound(self.run, self.txn, |binder| binder.checks(&table)).await?;
        record_rows(self.txn, &table).await?;
        if let Some((_, condition)) = conditions.pop() {
            let (operand, value, negated) = (Box::new(condition), false, false);
            let condition = Expr::IsBool { operand, value, negated };
            let input = Box::new(scan_of(Arc::new(table.clone()), false));
            let violated = Plan::Filter { input, condition };
            if self.run.first_row(self.txn, &violated).await?.is_some() {
                let message = format!(
                    "check constraint \"{name}\" of relation \"{}\" is violated by some row",
                    table.name
                );
                let error = SqlError::new(SqlState::CHECK_VIOLATION, message);
                return Err(error.of_table(&table.key).of_constraint(&name));
            }
        }
        change_note(self.txn, &self.table, |note| note.checks.push((name, condition))).await
    }

    async fn rename_table(&mut self, name: &str) -> SqlResult<()> {
        let (schema, _) = split_key(&self.key);
        require_create(self.run, schema)?;
        self.take_name(key_in(schema, name)?).await
    }

    /// Gives the table another name in the catalogue.
    pub(super) async fn take_name(&mut self, key: String) -> SqlResult<()> {
        if names::is_relation(self.txn, &key).await? {
            return Err(already_exists(&key));
        }
        // What has its name from that of the table keeps it.
        let constraint = self.table.primary_key_name();
        if !self.table.has_hidden_key() {
            let set = |note: &mut crate::catalogue::TableNote| {
                note.primary_key_name = Some(constraint);
            };
            change_note(self.txn, &self.table, set).await?;
        }
        let table = self.table.table;
        hide(self.txn, &key).await?;
        self.rename_table_in_references(&key).await?;
        let renamed = self.txn.rename_table(table, &key).await;
        renamed.map_err(|error| from_txn(error, Some(&self.table)))?;
        self.key = key;
        Ok(())
    }

    async fn rename_constraint(&mut self, old: &str, new: String) -> SqlResult<()> {
        check_name(&new)?;
        if !is_constraint(&self.table, old) {
            return Err(self.no_constraint(old, "table"));
        }
        if is_constraint(&self.table, &new) {
            let message =
                format!("constraint \"{new}\" for relation \"{}\" already exists", self.table.name);
            return Err(SqlError::new(SqlState::DUPLICATE_OBJECT, message));
        }
        if self.table.foreign_keys.iter().any(|own| own.name == old) {
            return self.rename_foreign_key(old, &new).await;
        }
        if !self.table.checks.iter().any(|(name, _)| name == old) {
            return index::rename_in(self.txn, &self.table, old, new).await;
        }
        change_note(self.txn, &self.table, |note| {
            for (name, _) in note.checks.iter_mut().filter(|(name, _)| name == old) {
                name.clone_from(&new);
            }
            note.comments.rename_constraint(old, &new);
        })
        .await
    }

    async fn drop_constraint(
        &mut self,
        name: &str,
        if_exists: bool,
        cascade: bool,
    ) -> SqlResult<()> {
        if !is_constraint(&self.table, name) {
            if !if_exists {
                return Err(self.no_constraint(name, "relation"));
            }
            let what = format!("constraint \"{name}\" of relation \"{}\"", self.table.name);
            skip::tell(self.run, &Notice::missing(what));
            return Ok(());
        }
        if self.table.foreign_keys.iter().any(|own| own.name == name) {
            return references::drop_constraints(self.txn, &self.key, &[name.to_owned()]).await;
        }
        if self.table.checks.iter().any(|(own, _)| own == name) {
            return change_note(self.txn, &self.table, |note| {
                note.comments.drop_constraint(name);
                note.checks.retain(|(own, _)| own != name);
            })
            .await;
        }
        let index = self.table.indexes.iter().position(|own| own.name == name);
        let what = format!("constraint {name} on table {}", self.run.path.shown(&self.key));
        references::leave_key(self.run, self.txn, &self.table, index, &what, cascade).await?;
        if index.is_some() {
            return self.drop_index(name).await;
        }
        let (schema, note) = schema_of(self.txn, &self.table).await?;
        let mut form = NewForm::of(schema, note);
        form.note.comments.drop_constraint(name);
        self.take_key(&mut form).await?;
        rebuild::rebuild(self.run, self.txn, &self.table, &self.key, form).await
    }

    /// Drops an index of the table.
    pub(super) async fn drop_index(&mut self, name: &str) -> SqlResult<()> {
        let dropped = self.txn.drop_index(self.table.table, name).await;
        dropped.map_err(|error| from_txn(error, Some(&self.table)))?;
        change_note(self.txn, &self.table, |note| {
            note.unique.retain(|own| own != name);
            note.comments.drop_constraint(name);
        })
        .await
    }

    /// Gives the table a key that its user does not see in place of the one that it has.
    pub(super) async fn take_key(&mut self, form: &mut NewForm) -> SqlResult<()> {
        let (name, ty) = (String::new(), SqlType::new(Scalar::Uuid));
        let default = Some(HIDDEN_DEFAULT.to_owned());
        let column = ColumnDef {
            name,
            ty,
            nullable: false,
            default,
            is_hidden: true,
            sequence: None,
            identity: None,
        };
        let table = self.table.clone();
        let (value, _) =
            bound(self.run, self.txn, |binder| bind_default(binder, &table, column)).await?;
        form.set_hidden_key(value)
    }

    fn no_constraint(&self, name: &str, kind: &str) -> SqlError {
        let message = match kind {
            "table" => {
                format!("constraint \"{name}\" for table \"{}\" does not exist", self.table.name)
            }
            _ => {
                format!("constraint \"{name}\" of relation \"{}\" does not exist", self.table.name)
            }
        };
        SqlError::new(SqlState::UNDEFINED_OBJECT, message)
    }
}

fn is_cascade(behavior: Option<&ast::DropBehavior>) -> bool {
    matches!(behavior, Some(ast::DropBehavior::Cascade))
}

/// When an action is done.
fn pass(action: &Action) -> u8 {
    use ast::AlterColumnOperation::{DropNotNull, SetNotNull};
    match action {
        Action::DropColumn { .. } | Action::DropConstraint { .. } => 0,
        Action::AlterColumn { op: DropNotNull, .. } => 0,
        Action::AddColumn { .. } => 1,
        Action::AlterColumn { op: SetNotNull, .. } => 3,
        Action::AlterColumn { .. } => 2,
        Action::AddConstraint { constraint: ast::TableConstraint::Check(_), .. } => 5,
        Action::AddConstraint { constraint: ast::TableConstraint::ForeignKey(_), .. } => 6,
        Action::AddConstraint { .. } => 4,
        _ => 7,
    }
}
