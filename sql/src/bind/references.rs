//! FOREIGN KEY constraints of tables that are created or changed.

use std::collections::BTreeSet;

use sqlparser::ast::{self, ConstraintReferenceMatchKind, DeferrableInitial, ReferentialAction};

use super::definition::{NewTable, check_name, free_name};
use super::names::made_name;
use super::{fold, name_parts, no_relation, refuse};
use crate::catalogue::{ForeignKey, ReferenceAction, TableDef, name_of};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::parse_references::MARK;
use crate::types::cast::{CastContext, can_cast};
use crate::types::{Scalar, SqlType};

/// The table that a constraint refers to, as far as that matters.
struct Parent {
    name: String,
    columns: Vec<(String, SqlType)>,
    primary_key: Option<Vec<usize>>,
    /// The columns of unique keys.
    keys: Vec<Vec<usize>>,
}

impl Parent {
    fn of(table: &TableDef) -> Self {
        let has_key = !table.has_hidden_key();
        let columns = table.columns.iter().filter(|own| !own.is_hidden);
        let unique = table.indexes.iter().filter(|own| own.unique);
        Self {
            name: table.name.clone(),
            columns: columns.map(|own| (own.name.clone(), own.ty)).collect(),
            primary_key: has_key.then(|| table.primary_key.clone()),
            keys: unique.map(|own| own.columns.clone()).collect(),
        }
    }

    fn of_new(table: &NewTable<'_>) -> Self {
        let columns = table.columns.iter().filter(|own| !own.hidden);
        let unique = table.indexes.iter().filter(|own| own.unique);
        Self {
            name: table.name.clone(),
            columns: columns.map(|own| (own.name.clone(), own.ty)).collect(),
            primary_key: table.primary_key.clone(),
            keys: unique.map(|own| own.columns.clone()).collect(),
        }
    }

    fn column(&self, name: &str) -> SqlResult<usize> {
        self.columns.iter().position(|own| own.0 == name).ok_or_else(|| no_column(name))
    }

    /// The columns of the primary key.
    fn primary_columns(&self) -> SqlResult<Vec<String>> {
        let Some(key) = &self.primary_key else {
            let message = format!("there is no primary key for referenced table \"{}\"", self.name);
            return Err(SqlError::new(SqlState::UNDEFINED_OBJECT, message));
        };
        Ok(key.iter().filter_map(|at| Some(self.columns.get(*at)?.0.clone())).collect())
    }

    /// An error unless these are the columns of a key.
    fn check_key(&self, columns: &[usize]) -> SqlResult<()> {
        let wanted: BTreeSet<usize> = columns.iter().copied().collect();
        if wanted.len() < columns.len() {
            let message =
                "foreign key referenced-columns list must not contain duplicates".to_owned();
            return Err(SqlError::new(SqlState::INVALID_FOREIGN_KEY, message));
        }
        let mut keys = self.primary_key.iter().chain(&self.keys);
        if keys.any(|own| own.iter().copied().collect::<BTreeSet<usize>>() == wanted) {
            return Ok(());
        }
        let message = format!(
            "there is no unique constraint matching given keys for referenced table \"{}\"",
            self.name
        );
        Err(SqlError::new(SqlState::INVALID_FOREIGN_KEY, message))
    }
}

fn no_column(name: &str) -> SqlError {
    let message = format!("column \"{name}\" referenced in foreign key constraint does not exist");
    SqlError::new(SqlState::UNDEFINED_COLUMN, message)
}

impl NewTable<'_> {
    /// Adds a constraint; its parent is looked at when all of the table is known.
    pub(super) fn add_foreign_key(
        &mut self,
        constraint: &ast::ForeignKeyConstraint,
        name: Option<String>,
        column: Option<&str>,
    ) -> SqlResult<()> {
        let ast::ForeignKeyConstraint {
            name: _,
            index_name,
            columns,
            foreign_table,
            referred_columns,
            on_delete,
            on_update,
            match_kind,
            characteristics,
        } = constraint;
        refuse(index_name.is_some(), "a name of an index of a foreign key")?;
        let is_partial = *match_kind == Some(ConstraintReferenceMatchKind::Partial);
        refuse(is_partial, "MATCH PARTIAL")?;
        let (is_deferrable, is_deferred) = deferral(characteristics.as_ref())?;
        let columns: Vec<String> = match column {
            Some(column) => vec![column.to_owned()],
            None => columns.iter().map(fold).collect(),
        };
        // Those that are set stand behind those that are referred to.
        let mark = referred_columns.iter().position(|own| own.value == MARK);
        let (referred_columns, set) =
            referred_columns.split_at(mark.unwrap_or(referred_columns.len()));
        let set_columns: Vec<String> = set.iter().skip(1).map(fold).collect();
        if let Some(name) = set_columns.iter().find(|own| !columns.contains(own)) {
            let message = format!(
                "column \"{name}\" referenced in ON DELETE SET action must be part of foreign key"
            );
            return Err(SqlError::new(SqlState::INVALID_COLUMN_REFERENCE, message));
        }
        let base = made_name(&self.name, &columns.join("_"), "fkey");
        let name = name.unwrap_or_else(|| {
            free_name(&base, |name| self.foreign_keys.iter().any(|own| own.name == name))
        });
        check_name(&name)?;
        self.foreign_keys.push(ForeignKey {
            name,
            columns,
            parent: self.parent_key(foreign_table)?,
            parent_columns: referred_columns.iter().map(fold).collect(),
            is_full: *match_kind == Some(ConstraintReferenceMatchKind::Full),
            on_delete: action_of(on_delete.as_ref()),
            set_columns,
            on_update: action_of(on_update.as_ref()),
            is_deferrable,
            is_deferred,
        });
        Ok(())
    }

    /// The name in the catalogue of the table that a constraint refers to, which may be this one.
    fn parent_key(&self, name: &ast::ObjectName) -> SqlResult<String> {
        let parts = name_parts(name)?;
        let mut keys = self.tables.path.keys_of(&parts)?.into_iter();
        let is_there = |key: &String| *key == self.key || self.tables.defs.contains_key(key);
        keys.find(is_there).ok_or_else(|| no_relation(&parts))
    }

    /// Looks up the parents of constraints from a position on, and says which columns they refer
    /// to.
    pub(super) fn resolve_foreign_keys(&mut self, from: usize) -> SqlResult<()> {
        let mut all = std::mem::take(&mut self.foreign_keys);
        for at in from..all.len() {
            let Some(own) = all.get(at) else { continue };
            if all.iter().take(at).any(|other| other.name == own.name) || self.has_named(&own.name)
            {
                let (name, table) = (&own.name, &self.name);
                let message =
                    format!("constraint \"{name}\" for relation \"{table}\" already exists");
                return Err(SqlError::new(SqlState::DUPLICATE_OBJECT, message));
            }
            let parent = match self.tables.defs.get(&own.parent) {
                _ if own.parent == self.key => Parent::of_new(self),
                Some(table) if table.view.is_some() => {
                    let message = format!("referenced relation \"{}\" is not a table", table.name);
                    return Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message));
                }
                Some(table) => Parent::of(table),
                None => return Err(no_relation(&[name_of(&own.parent).to_owned()])),
            };
            let parent_columns = self.resolve(own, &parent)?;
            if let Some(own) = all.get_mut(at) {
                own.parent_columns = parent_columns;
            }
        }
        self.foreign_keys = all;
        Ok(())
    }

    fn has_named(&self, name: &str) -> bool {
        let key = self.primary_key_name.as_deref() == Some(name)
            || self.primary_key.is_some() && format!("{}_pkey", self.name) == name;
        key || self.unique.contains(name) || self.checks.iter().any(|(own, _)| own == name)
    }

    /// The columns that a constraint refers to.
    fn resolve(&self, own: &ForeignKey, parent: &Parent) -> SqlResult<Vec<String>> {
        let mut types = Vec::new();
        for name in &own.columns {
            let column = self.columns.iter().find(|column| column.name == *name && !column.hidden);
            types.push(column.ok_or_else(|| no_column(name))?.ty);
        }
        let names = match own.parent_columns.is_empty() {
            true => parent.primary_columns()?,
            false => own.parent_columns.clone(),
        };
        let mut columns = Vec::new();
        for name in &names {
            columns.push(parent.column(name)?);
        }
        if columns.len() != types.len() {
            let message = "number of referencing and referenced columns for foreign key disagree";
            return Err(SqlError::new(SqlState::INVALID_FOREIGN_KEY, message));
        }
        parent.check_key(&columns)?;
        for ((at, ty), name) in columns.iter().zip(&types).zip(&own.columns) {
            let Some((parent_name, parent_ty)) = parent.columns.get(*at) else { continue };
            require_comparable(own, (name, *ty), (parent_name, *parent_ty))?;
        }
        Ok(names)
    }
}

fn require_comparable(
    own: &ForeignKey,
    (name, ty): (&str, SqlType),
    (parent_name, parent_ty): (&str, SqlType),
) -> SqlResult<()> {
    if is_comparable(ty, parent_ty) {
        return Ok(());
    }
    let message = format!("foreign key constraint \"{}\" cannot be implemented", own.name);
    let detail = format!(
        "Key columns \"{name}\" and \"{parent_name}\" are of incompatible types: {} and {}.",
        ty.plain().name(),
        parent_ty.plain().name()
    );
    Err(SqlError::new(SqlState::DATATYPE_MISMATCH, message).detail(detail))
}

/// An error unless the columns of a constraint are of types that can be compared with those that
/// they refer to.
pub(crate) fn check_comparable(
    own: &ForeignKey,
    child: &TableDef,
    parent: &TableDef,
) -> SqlResult<()> {
    for (name, parent_name) in own.columns.iter().zip(&own.parent_columns) {
        let ty = |table: &TableDef, name: &str| {
            table.column(name).and_then(|at| Some(table.columns.get(at)?.ty))
        };
        if let (Some(ty), Some(parent_ty)) = (ty(child, name), ty(parent, parent_name)) {
            require_comparable(own, (name, ty), (parent_name, parent_ty))?;
        }
    }
    Ok(())
}

/// Whether a column of one type can refer to one of another: both are of one family of operators,
/// or the first is taken for the other without being asked to.
fn is_comparable(child: SqlType, parent: SqlType) -> bool {
    if child.is_array || parent.is_array {
        return child.plain() == parent.plain();
    }
    let within =
        |family: &[Scalar]| family.contains(&child.scalar) && family.contains(&parent.scalar);
    within(&[Scalar::Int2, Scalar::Int4, Scalar::Int8])
        || within(&[Scalar::Float4, Scalar::Float8])
        || within(&[Scalar::Date, Scalar::Timestamp, Scalar::TimestampTz])
        || can_cast(child, parent, CastContext::Implicit)
}

fn action_of(action: Option<&ReferentialAction>) -> ReferenceAction {
    match action {
        None | Some(ReferentialAction::NoAction) => ReferenceAction::NoAction,
        Some(ReferentialAction::Restrict) => ReferenceAction::Restrict,
        Some(ReferentialAction::Cascade) => ReferenceAction::Cascade,
        Some(ReferentialAction::SetNull) => ReferenceAction::SetNull,
        Some(ReferentialAction::SetDefault) => ReferenceAction::SetDefault,
    }
}

/// Whether a constraint can be deferred, and whether it is.
pub(crate) fn deferral(
    characteristics: Option<&ast::ConstraintCharacteristics>,
) -> SqlResult<(bool, bool)> {
    let Some(own) = characteristics else { return Ok((false, false)) };
    let ast::ConstraintCharacteristics { deferrable, initially, enforced } = own;
    refuse(*enforced == Some(false), "a constraint that is not enforced")?;
    let is_deferred = *initially == Some(DeferrableInitial::Deferred);
    if is_deferred && *deferrable == Some(false) {
        let message = "constraint declared INITIALLY DEFERRED must be DEFERRABLE";
        return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
    }
    Ok((deferrable.unwrap_or(is_deferred), is_deferred))
}

/// The names of the tables that the constraints of a statement refer to.
pub(crate) fn parents_of(statement: &ast::Statement) -> Vec<ast::ObjectName> {
    let mut found = Vec::new();
    let of_column = |column: &ast::ColumnDef, found: &mut Vec<ast::ObjectName>| {
        for own in &column.options {
            if let ast::ColumnOption::ForeignKey(own) = &own.option {
                found.push(own.foreign_table.clone());
            }
        }
    };
    let of_table = |constraint: &ast::TableConstraint, found: &mut Vec<ast::ObjectName>| {
        if let ast::TableConstraint::ForeignKey(own) = constraint {
            found.push(own.foreign_table.clone());
        }
    };
    match statement {
        ast::Statement::CreateTable(create) => {
            create.columns.iter().for_each(|column| of_column(column, &mut found));
            create.constraints.iter().for_each(|constraint| of_table(constraint, &mut found));
        }
        ast::Statement::AlterTable(alter) => {
            for operation in &alter.operations {
                match operation {
                    ast::AlterTableOperation::AddColumn { column_def, .. } => {
                        of_column(column_def, &mut found);
                    }
                    ast::AlterTableOperation::AddConstraint { constraint, .. } => {
                        of_table(constraint, &mut found);
                    }
                    _ => {}
                }
            }
        }
        _ => {}
    }
    found
}
