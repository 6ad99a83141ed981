//! ALTER TABLE.
//!
//! The actions of a statement are done one after the other, in the order in which PostgreSQL does
//! them: what is dropped, types, columns that are added, defaults and NULLs, keys, then conditions.

use std::sync::Arc;

use selkie_txn::Txn;
use sqlparser::ast::{self, AlterTableOperation as Action, RenameTableNameKind};

use super::super::run::Run;
use super::alter_type::type_change;
use super::drop::find_to_drop;
use super::lookup::{
    already_exists, bound, change_note, found, found_named, hide, key_in, require_create, schema_of,
};
use super::rebuild::{HIDDEN_DEFAULT, NewForm, record_rows, require_not_null};
use super::{alter_sequence, index, names, new_owner, rebuild, references, skip, view};
use crate::bind::{
    Added, bind_default, check_name, fold, is_constraint, is_storage_option, is_storage_parameter,
    name_parts, refuse, scan_of,
};
use crate::catalogue::{ColumnDef, TableDef, split_key};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::exec::from_txn;
use crate::notice::Notice;
use crate::parse_alter::VIEW;
use crate::parse_sequences::SEQUENCE;
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
        let kind = on_cluster.as_ref().map(|own| &*own.value);
        let is_known = matches!(kind, None | Some(SEQUENCE | VIEW));
        let is_odd = location.is_some() || !is_known || table_type.is_some();
        refuse(is_odd, "this form of ALTER TABLE")?;
        let table = match find_to_drop(run, txn, name, *if_exists).await? {
            Some(table) if kind == Some(SEQUENCE) => {
                return Err(view::not_a(&table, "sequence"));
            }
            Some(table) if kind == Some(VIEW) && table.view.is_none() => {
                return Err(view::not_a(&table, "view"));
            }
            Some(table) => table,
            None => {
                let is_done = kind != Some(VIEW)
                    && alter_sequence::alter_as_table(run, txn, name, operations).await?;
                if is_done {
                    return Ok(());
                }
                if *if_exists {
                    return skip::missing_relation(run, name);
                }
                found_named(run, txn, name).await?
            }
        };
        if let [Action::OwnerTo { new_owner }] = &**operations {
            return new_owner::give_table(run, txn, &table, new_owner).await;
        }
        let key = table.key.clone();
        let is_rename = |own: &Action| matches!(own, Action::RenameTable { .. });
        if table.view.is_some() && !operations.iter().all(is_rename) {
            let message = format!("a change of view \"{}\" by ALTER TABLE", table.name);
            return Err(SqlError::unsupported(message));
        }
        let views = view::views_over(txn, &key).await?;
        let mut alteration = Self { run, txn, key, table };
        let mut actions: Vec<&Action> = operations.iter().collect();
        actions.sort_by_key(|action| pass(action));
        let mut types: Vec<_> = actions.iter().filter_map(|own| type_change(own)).collect();
        for (number, action) in actions.into_iter().enumerate() {
            if number > 0 {
                alteration.table = found(alteration.txn, &alteration.key).await?;
            }
            if type_change(action).is_none() {
                alteration.act(action).await?;
            } else if !types.is_empty() {
                alteration.alter_types(&std::mem::take(&mut types)).await?;
            }
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
                self.add_constraint(constraint, *not_valid).await
            }
            Action::ValidateConstraint { name } => self.validate_constraint(&fold(name)).await,
            Action::DropConstraint { if_exists, name, drop_behavior } => {
                let cascade = is_cascade(drop_behavior.as_ref());
                self.drop_constraint(&fold(name), *if_exists, cascade).await
            }
            Action::OwnerTo { new_owner } => {
                new_owner::give_table(self.run, self.txn, &self.table, new_owner).await
            }
            Action::SetOptionsParens { options } => {
                let what = "a storage parameter other than fillfactor and autovacuum_*";
                refuse(!options.iter().all(is_storage_option), what)
            }
            Action::ResetOptions { options } => {
                let what = "a storage parameter other than fillfactor and autovacuum_*";
                refuse(!options.iter().all(is_storage_parameter), what)
            }
            Action::EnableTrigger { name } => self.triggers(name, true),
            Action::DisableTrigger { name } => self.triggers(name, false),
            // It is said what is so: nothing is replicated by rows.
            Action::ReplicaIdentity { identity: ast::ReplicaIdentity::Default } => Ok(()),
            other => Err(SqlError::unsupported(format!("ALTER TABLE {other}"))),
        }
    }

    /// There are no triggers of users. Those that PostgreSQL has for foreign keys are no triggers
    /// here, and cannot be disabled.
    fn triggers(&self, name: &ast::Ident, enable: bool) -> SqlResult<()> {
        let is_word = name.quote_style.is_none();
        match &*fold(name) {
            "user" if is_word => Ok(()),
            "all" if is_word => {
                let has_some = self.table.has_references();
                refuse(has_some && !enable, "DISABLE TRIGGER ALL of a table with foreign keys")
            }
            name => {
                let table = &self.table.name;
                let message = format!("trigger \"{name}\" for table \"{table}\" does not exist");
                Err(SqlError::new(SqlState::UNDEFINED_OBJECT, message))
            }
        }
    }

    /// Adds keys and conditions, which the rows have to fulfil. Those that are there need not
    /// fulfil conditions and foreign keys unless `is_valid`.
    pub(super) async fn add(&mut self, added: Added, is_valid: bool) -> SqlResult<()> {
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
            self.add_check(name, condition, is_valid).await?;
        }
        self.add_foreign_keys(foreign_keys, is_valid).await
    }

    async fn add_check(
        &mut self,
        name: String,
        condition: String,
        is_valid: bool,
    ) -> SqlResult<()> {
        if is_valid {
            self.verify_check(&name, &condition).await?;
        }
        change_note(self.txn, &self.table, |note| {
            if !is_valid {
                note.not_valid.insert(name.clone());
            }
            note.checks.push((name, condition));
        })
        .await
    }

    /// Looks at all rows, which have to fulfil a condition.
    pub(super) async fn verify_check(&mut self, name: &str, condition: &str) -> SqlResult<()> {
        let mut table = self.table.clone();
        table.checks = vec![(name.to_owned(), condition.to_owned())];
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
                return Err(error.of_table(&table.key).of_constraint(name));
            }
        }
        Ok(())
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
        if self.table.view.is_none() && !self.table.has_hidden_key() {
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
            if note.not_valid.remove(old) {
                note.not_valid.insert(new);
            }
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
                note.not_valid.remove(name);
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

    pub(super) fn no_constraint(&self, name: &str, kind: &str) -> SqlError {
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
    use ast::AlterColumnOperation::{DropDefault, DropNotNull, SetDataType, SetNotNull};
    match action {
        Action::DropColumn { .. } | Action::DropConstraint { .. } => 0,
        Action::AlterColumn { op: DropNotNull | DropDefault, .. } => 0,
        Action::AlterColumn { op: SetDataType { .. }, .. } => 1,
        Action::AddColumn { .. } => 2,
        Action::AlterColumn { op: SetNotNull, .. } => 4,
        Action::AlterColumn { .. } => 3,
        Action::AddConstraint { constraint: ast::TableConstraint::Check(_), .. } => 6,
        Action::AddConstraint { constraint: ast::TableConstraint::ForeignKey(_), .. } => 7,
        Action::AddConstraint { .. } => 5,
        _ => 8,
    }
}
