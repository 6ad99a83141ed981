//! What ALTER TABLE adds to a table.

use std::collections::BTreeSet;

use selkie_txn::{IndexSchema, KeyOrder};
use sqlparser::ast::{self, TableConstraint};

use super::definition::{NewColumn, NewTable, check_expressions};
use super::sequence::NewSequence;
use super::stage::PendingApply;
use super::{Binder, Tables, refuse};
use crate::catalogue::{ColumnDef, ForeignKey, TableDef};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::functions::Volatility;
use crate::plan::{Expr, Plan};

/// What is added to a table, with the column that is.
pub(crate) struct Added {
    /// Behind those of the table.
    pub(crate) column: Option<ColumnDef>,
    /// That of the column.
    pub(crate) sequence: Option<NewSequence>,
    pub(crate) checks: Vec<(String, String)>,
    /// Those that are UNIQUE constraints.
    pub(crate) unique: Vec<IndexSchema>,
    pub(crate) primary_key: Option<NewPrimaryKey>,
    pub(crate) foreign_keys: Vec<ForeignKey>,
}

/// A primary key that is added to a table.
pub(crate) struct NewPrimaryKey {
    pub(crate) columns: Vec<usize>,
    pub(crate) order: Vec<KeyOrder>,
    pub(crate) name: Option<String>,
}

/// A column that is added, with its constraints.
pub(crate) fn bind_added_column(
    binder: &mut Binder<'_>,
    table: &TableDef,
    column: &ast::ColumnDef,
) -> SqlResult<Added> {
    let mut new = NewTable::of(table, binder.tables);
    let name = super::fold(&column.name);
    if table.column(&name).is_some() {
        let message = format!("column \"{name}\" of relation \"{}\" already exists", table.name);
        return Err(SqlError::new(SqlState::DUPLICATE_COLUMN, message));
    }
    new.add_column(column)?;
    new.add_constraints_of(column)?;
    new.added_to(binder, table)
}

/// A constraint that is added.
pub(crate) fn bind_added_constraint(
    binder: &mut Binder<'_>,
    table: &TableDef,
    constraint: &TableConstraint,
) -> SqlResult<Added> {
    let mut new = NewTable::of(table, binder.tables);
    new.add_constraint(constraint)?;
    new.added_to(binder, table)
}

/// What a column is by default, and whether that differs from one row to the next.
pub(crate) fn bind_default(
    binder: &mut Binder<'_>,
    table: &TableDef,
    column: ColumnDef,
) -> SqlResult<(Expr, bool)> {
    let at = table.columns.len();
    let mut table = table.clone();
    table.columns.push(column);
    let expr = binder.default_of(&table, at)?;
    let is_volatile = is_volatile(&expr);
    Ok((expr, is_volatile))
}

/// As [`bind_default`] over the rows of the table, with the call of a sequence whose value stands
/// behind their columns.
pub(crate) fn bind_applied_default(
    binder: &mut Binder<'_>,
    table: &TableDef,
    column: ColumnDef,
) -> SqlResult<(Expr, bool, Option<Plan>)> {
    let at = table.columns.len();
    let mut table = table.clone();
    table.columns.push(column);
    let mut applies = Vec::new();
    let expr = binder.default_with(&table, at, at, &mut applies)?;
    let is_call = |own: &PendingApply| matches!(own.query, Plan::Sequence(_));
    refuse(!applies.iter().all(is_call), "a subquery in a default")?;
    refuse(applies.len() > 1, "a default of several values of sequences")?;
    let is_volatile = is_volatile(&expr);
    Ok((expr, is_volatile, applies.pop().map(|own| own.query)))
}

fn is_volatile(expr: &Expr) -> bool {
    let mut is_volatile = false;
    expr.visit(&mut |own| {
        if let Expr::Call { function, .. } = own {
            is_volatile |= function.volatility == Volatility::Volatile;
        }
    });
    is_volatile
}

impl<'t> NewTable<'t> {
    /// A table as it is.
    fn of(table: &TableDef, tables: &'t Tables) -> Self {
        let has_key = !table.has_hidden_key();
        let columns = table.columns.iter().map(|own| NewColumn {
            name: own.name.clone(),
            ty: own.ty,
            nullable: own.nullable,
            default: own.default.clone(),
            hidden: own.is_hidden,
            identity: own.identity,
        });
        let indexes = table.indexes.iter().map(|own| {
            let index = IndexSchema::new(&own.name, own.columns.clone());
            if own.unique { index.unique() } else { index }
        });
        Self {
            key: table.key.clone(),
            name: table.name.clone(),
            tables,
            columns: columns.collect(),
            primary_key: has_key.then(|| table.primary_key.clone()),
            primary_key_name: table.primary_key_name.clone(),
            primary_order: table.primary_order.clone(),
            indexes: indexes.collect(),
            unique: BTreeSet::new(),
            checks: table.checks.clone(),
            foreign_keys: table.foreign_keys.clone(),
            sequences: Vec::new(),
        }
    }

    /// What it has that the table has not.
    fn added_to(mut self, binder: &mut Binder<'_>, table: &TableDef) -> SqlResult<Added> {
        let checks = self.checks.split_off(table.checks.len());
        let unique = self.indexes.split_off(table.indexes.len());
        for (at, (name, _)) in checks.iter().enumerate() {
            let is_twice = checks.iter().skip(at + 1).any(|(own, _)| own == name);
            if is_twice || is_constraint(table, name) {
                return Err(duplicate_constraint(table, name));
            }
        }
        for (at, index) in unique.iter().enumerate() {
            let is_twice = unique.iter().skip(at + 1).any(|own| own.name == index.name);
            if is_twice || table.indexes.iter().any(|own| own.name == index.name) {
                let message = format!("relation \"{}\" already exists", index.name);
                return Err(SqlError::new(SqlState::DUPLICATE_TABLE, message));
            }
            if is_constraint(table, &index.name) {
                return Err(duplicate_constraint(table, &index.name));
            }
        }
        self.resolve_foreign_keys(table.foreign_keys.len())?;
        let foreign_keys = self.foreign_keys.split_off(table.foreign_keys.len());
        check_expressions(binder, &self.columns, &checks, &table.name)?;
        let has_key = !table.has_hidden_key();
        let (columns, order) = (self.primary_key.take(), std::mem::take(&mut self.primary_order));
        let name = self.primary_key_name.take();
        let primary_key = columns.filter(|_| !has_key);
        let primary_key = primary_key.map(|columns| NewPrimaryKey { columns, order, name });
        if let Some(name) = primary_key.as_ref().and_then(|key| key.name.as_ref())
            && is_constraint(table, name)
        {
            return Err(duplicate_constraint(table, name));
        }
        let column = self.columns.into_iter().nth(table.columns.len()).map(|own| ColumnDef {
            name: own.name,
            ty: own.ty,
            nullable: own.nullable,
            default: own.default,
            is_hidden: own.hidden,
            sequence: None,
            identity: own.identity,
        });
        let sequence = self.sequences.pop();
        Ok(Added { column, sequence, checks, unique, primary_key, foreign_keys })
    }
}

/// Whether a table has a constraint of that name.
pub(crate) fn is_constraint(table: &TableDef, name: &str) -> bool {
    table.checks.iter().any(|(own, _)| own == name)
        || table.foreign_keys.iter().any(|own| own.name == name)
        || table.indexes.iter().any(|own| own.is_constraint && own.name == name)
        || (!table.has_hidden_key() && table.primary_key_name() == name)
}

fn duplicate_constraint(table: &TableDef, name: &str) -> SqlError {
    let message = format!("constraint \"{name}\" for relation \"{}\" already exists", table.name);
    SqlError::new(SqlState::DUPLICATE_OBJECT, message)
}
