//! ALTER TABLE: constraints that are added as they are, changed and looked at later.

use sqlparser::ast::{ConstraintUsingIndex, ForeignKeyConstraint, TableConstraint};

use super::alter::Alteration;
use super::lookup::{bound, change_note, found};
use super::rebuild::record_rows;
use super::{index, names};
use crate::bind::{
    Added, NewPrimaryKey, bind_added_constraint, deferral, fold, is_constraint, refuse,
};
use crate::catalogue::IndexDef;
use crate::error::{SqlError, SqlResult, SqlState};
use crate::parse_alter::CHANGED;

impl Alteration<'_, '_> {
    /// Adds a constraint, or does what stands as one that is added
    /// ([`parse_alter`](crate::parse_alter)).
    pub(super) async fn add_constraint(
        &mut self,
        constraint: &TableConstraint,
        not_valid: bool,
    ) -> SqlResult<()> {
        match constraint {
            TableConstraint::ForeignKey(own) if is_changed(own) => {
                return self.change_constraint(own).await;
            }
            TableConstraint::UniqueUsingIndex(own) => return self.use_index(own, false).await,
            TableConstraint::PrimaryKeyUsingIndex(own) => return self.use_index(own, true).await,
            TableConstraint::Check(_) | TableConstraint::ForeignKey(_) => {}
            _ => refuse(not_valid, "a key that is NOT VALID")?,
        }
        let table = self.table.clone();
        let added =
            bound(self.run, self.txn, |binder| bind_added_constraint(binder, &table, constraint));
        let mut added = added.await?;
        let said = names::said_by(&[], std::slice::from_ref(constraint));
        names::of_added(self.txn, &self.key, &mut added, &said).await?;
        self.add(added, !not_valid).await
    }

    /// ALTER CONSTRAINT: whether a foreign key can be deferred, and is.
    async fn change_constraint(&mut self, changed: &ForeignKeyConstraint) -> SqlResult<()> {
        let name = changed.name.as_ref().map(fold).unwrap_or_default();
        if !self.table.foreign_keys.iter().any(|own| own.name == name) {
            if !is_constraint(&self.table, &name) {
                return Err(self.no_constraint(&name, "relation"));
            }
            let message = format!(
                "constraint \"{name}\" of relation \"{}\" is not a foreign key constraint",
                self.table.name
            );
            return Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message));
        }
        let (is_deferrable, is_deferred) = deferral(changed.characteristics.as_ref())?;
        change_note(self.txn, &self.table, |note| {
            for own in note.foreign_keys.iter_mut().filter(|own| own.name == name) {
                (own.is_deferrable, own.is_deferred) = (is_deferrable, is_deferred);
            }
        })
        .await
    }

    /// VALIDATE CONSTRAINT: the rows have to fulfil a constraint from now on that they needed not.
    pub(super) async fn validate_constraint(&mut self, name: &str) -> SqlResult<()> {
        let is_pending = self.table.not_valid.contains(name);
        let reference = self.table.foreign_keys.iter().position(|own| own.name == name);
        let check = self.table.checks.iter().find(|(own, _)| own == name).cloned();
        match (reference, check) {
            (Some(at), _) if is_pending => {
                record_rows(self.txn, &self.table).await?;
                self.run.check_references(self.txn, &self.table, at).await?;
            }
            (_, Some((name, condition))) if is_pending => {
                self.verify_check(&name, &condition).await?;
            }
            (None, None) => {
                if !is_constraint(&self.table, name) {
                    return Err(self.no_constraint(name, "relation"));
                }
                let message = format!(
                    "constraint \"{name}\" of relation \"{}\" is not a foreign key or check constraint",
                    self.table.name
                );
                return Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message));
            }
            _ => return Ok(()),
        }
        change_note(self.txn, &self.table, |note| {
            note.not_valid.remove(name);
        })
        .await
    }

    /// Makes an index a constraint.
    async fn use_index(&mut self, used: &ConstraintUsingIndex, is_key: bool) -> SqlResult<()> {
        let ConstraintUsingIndex { name, index_name, characteristics } = used;
        refuse(characteristics.is_some(), "a deferrable constraint")?;
        let index = fold(index_name);
        let name = name.as_ref().map_or_else(|| index.clone(), fold);
        if is_constraint(&self.table, &name) {
            if self.table.indexes.iter().any(|own| own.name == index && own.is_constraint) {
                let message = format!("index \"{index}\" is already associated with a constraint");
                return Err(SqlError::new(SqlState::OBJECT_NOT_READY, message));
            }
            let table = &self.table.name;
            let message = format!("constraint \"{name}\" for relation \"{table}\" already exists");
            return Err(SqlError::new(SqlState::DUPLICATE_OBJECT, message));
        }
        let Some(own) = self.table.indexes.iter().find(|own| own.name == index).cloned() else {
            let message = format!("index \"{index}\" does not exist");
            return Err(SqlError::new(SqlState::UNDEFINED_OBJECT, message));
        };
        check_usable(&own)?;
        if is_key && !self.table.has_hidden_key() {
            let message =
                format!("multiple primary keys for table \"{}\" are not allowed", self.table.name);
            return Err(SqlError::new(SqlState::INVALID_TABLE_DEFINITION, message));
        }
        if index != name {
            index::rename_in(self.txn, &self.table, &index, name.clone()).await?;
        }
        if !is_key {
            return change_note(self.txn, &self.table, |note| {
                note.unique.insert(name);
            })
            .await;
        }
        // The rows are stored by their primary key.
        self.drop_index(&name).await?;
        self.table = found(self.txn, &self.key).await?;
        let key = NewPrimaryKey { columns: own.columns, order: own.order, name: Some(name) };
        let added = Added {
            column: None,
            sequence: None,
            checks: Vec::new(),
            unique: Vec::new(),
            primary_key: Some(key),
            foreign_keys: Vec::new(),
        };
        self.add(added, true).await
    }
}

fn is_changed(constraint: &ForeignKeyConstraint) -> bool {
    let mut parts = constraint.foreign_table.0.iter().filter_map(|part| part.as_ident());
    parts.any(|part| part.value == CHANGED)
}

/// Refuses an index that cannot be a constraint.
fn check_usable(index: &IndexDef) -> SqlResult<()> {
    let name = &index.name;
    let wrong = |message: String| {
        let detail = "Cannot create a primary key or unique constraint using such an index.";
        SqlError::new(SqlState::WRONG_OBJECT_TYPE, message).detail(detail.to_owned())
    };
    if index.is_constraint {
        let message = format!("index \"{name}\" is already associated with a constraint");
        return Err(SqlError::new(SqlState::OBJECT_NOT_READY, message));
    }
    if !index.unique {
        return Err(wrong(format!("\"{name}\" is not a unique index")));
    }
    let is_odd = |own: &selkie_txn::KeyOrder| own.descending || !own.nulls_last;
    match index.order.iter().position(is_odd) {
        None => Ok(()),
        Some(at) => Err(wrong(format!(
            "index \"{name}\" column number {} does not have default sorting behavior",
            at + 1
        ))),
    }
}
