//! The definitions of all tables, as a statement sees them.

use std::sync::Arc;

use selkie_txn::{KeyOrder, SequenceSchema, Txn, TxnError};

use super::definitions::{check_definition, index_statement, key_definition, quoted};
use super::relation::relations;
use super::{
    callables, cluster, comments, depends, keys, oids, operators, privileges, references, tables,
    types,
};
use crate::catalogue::{ColumnDef, IndexDef, TableDef, load, name_of, split_key};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::roles::{Authority, KEY_PREFIX};
use crate::schemas::{INFORMATION_SCHEMA, PG_CATALOG, PUBLIC, SearchPath, names_of_text};
use crate::session_list::SessionList;
use crate::statement_list::StatementList;
use crate::types::object_names::ObjectNames;
use crate::types::{Datum, Scalar, SqlType};

/// What the catalogue tells of a session.
#[derive(Clone, Debug)]
pub(crate) struct SessionFacts {
    pub(crate) user: Arc<str>,
    pub(crate) database: &'static str,
    /// Those of its server.
    pub(crate) sessions: Arc<SessionList>,
    /// Those of its server.
    pub(crate) statements: Arc<StatementList>,
    /// Where names are looked for.
    pub(crate) path: Arc<SearchPath>,
    /// Parameters, with their values.
    pub(crate) settings: Vec<(String, String)>,
    pub(crate) prepared: Vec<KeptStatement>,
    pub(crate) cursors: Vec<KeptCursor>,
    /// When its transaction began, in microseconds since 2000-01-01.
    pub(crate) transaction_start: i64,
}

/// A prepared statement of a session.
#[derive(Clone, Debug)]
pub(crate) struct KeptStatement {
    pub(crate) name: String,
    pub(crate) text: Arc<str>,
    pub(crate) prepared_at: i64,
    pub(crate) types: Vec<SqlType>,
    /// Whether by PREPARE.
    pub(crate) is_from_sql: bool,
    /// How often it was run.
    pub(crate) runs: u64,
}

/// A cursor of a session, or a portal.
#[derive(Clone, Debug)]
pub(crate) struct KeptCursor {
    pub(crate) name: String,
    pub(crate) text: Arc<str>,
    pub(crate) is_holdable: bool,
    pub(crate) is_scrollable: bool,
    pub(crate) opened_at: i64,
}

/// The definitions of all tables in the state that a transaction sees.
#[derive(Debug)]
pub(crate) struct SystemSnapshot {
    pub(super) session: SessionFacts,
    /// The role of the statement.
    pub(super) authority: Authority,
    pub(super) tables: Vec<SystemTable>,
    pub(super) sequences: Vec<SystemSequence>,
}

/// A table with the numbers of what belongs to it.
#[derive(Debug)]
pub(super) struct SystemTable {
    pub(super) schema: String,
    pub(super) schema_oid: u32,
    pub(super) oid: u32,
    pub(super) def: TableDef,
    /// Of each index.
    pub(super) index_oids: Vec<u32>,
}

/// A sequence with its schema.
#[derive(Debug)]
pub(super) struct SystemSequence {
    pub(super) schema: String,
    pub(super) schema_oid: u32,
    pub(super) own: SequenceSchema,
}

/// A key of a table: its primary key or an index.
pub(super) struct Key<'s> {
    pub(super) table: &'s SystemTable,
    pub(super) oid: u32,
    pub(super) name: String,
    /// `None` is the primary key.
    pub(super) index: Option<&'s IndexDef>,
    pub(super) columns: &'s [usize],
    pub(super) order: &'s [KeyOrder],
    /// The number of the constraint that it is.
    pub(super) constraint: Option<u32>,
}

impl SystemSnapshot {
    /// Reads all definitions.
    pub(crate) async fn load(
        txn: &mut Txn<'_>,
        session: SessionFacts,
        authority: Authority,
    ) -> Result<SqlResult<Self>, TxnError> {
        let mut tables = Vec::new();
        for (name, table) in txn.tables().await? {
            if name.starts_with(KEY_PREFIX) {
                continue;
            }
            let def = match load(txn, &name).await? {
                None => continue,
                Some(Ok(def)) => def,
                Some(Err(error)) => return Ok(Err(error)),
            };
            let oid = oids::table(table.number());
            let mut index_oids = Vec::with_capacity(def.indexes.len());
            for index in &def.indexes {
                let number = txn.index(table, &index.name).await?.number();
                index_oids.push(oids::index(oid, number));
            }
            let (id, _) = split_key(&name);
            let Some(schema) = session.path.known_name(id) else { continue };
            let (schema, schema_oid) = (schema.to_owned(), oids::schema(id));
            tables.push(SystemTable { schema, schema_oid, oid, def, index_oids });
        }
        let all = txn.sequences().await?.into_iter();
        let sequences = all.filter_map(|own| {
            let (id, _) = split_key(&own.name);
            let schema = session.path.known_name(id)?.to_owned();
            Some(SystemSequence { schema, schema_oid: oids::schema(id), own })
        });
        let sequences = sequences.collect();
        Ok(Ok(Self { session, authority, tables, sequences }))
    }

    /// All keys of tables of users.
    pub(super) fn keys(&self) -> impl Iterator<Item = Key<'_>> {
        self.tables.iter().flat_map(SystemTable::keys)
    }

    /// All schemas.
    pub(super) fn all_schemas(&self) -> Vec<&str> {
        let own = self.session.path.all().map(|(name, _)| name);
        let public = self.session.path.has_public().then_some(PUBLIC);
        [PG_CATALOG, INFORMATION_SCHEMA].into_iter().chain(public).chain(own).collect()
    }

    /// The number of a schema.
    pub(super) fn number_of_schema(&self, name: &str) -> u32 {
        let own = self.session.path.schema(name);
        own.map_or_else(|| oids::system_schema(name), |own| oids::schema(own.id()))
    }

    /// The schemas in which names are looked for, in their order.
    fn searched(&self) -> impl Iterator<Item = &str> {
        let names = self.session.path.names();
        let is_named = names.iter().any(|own| own == PG_CATALOG);
        let first = (!is_named).then_some(PG_CATALOG);
        first.into_iter().chain(names.iter().map(|own| &**own))
    }

    /// The table that has the column that owns a sequence, and the position of that.
    pub(super) fn owner_of(&self, sequence: &SystemSequence) -> Option<(&SystemTable, usize)> {
        self.tables.iter().find_map(|table| {
            let is_it = |own: &ColumnDef| own.sequence.as_ref() == Some(&sequence.own.name);
            table.def.columns.iter().position(is_it).map(|at| (table, at))
        })
    }

    /// The schema and name of a table, index or view.
    pub(super) fn relation(&self, oid: u32) -> Option<(&str, String)> {
        if let Some(table) = self.tables.iter().find(|own| own.oid == oid) {
            return Some((&table.schema, table.def.name.clone()));
        }
        if let Some(key) = self.keys().find(|own| own.oid == oid) {
            return Some((&key.table.schema, key.name));
        }
        if let Some(sequence) = self.sequences.iter().find(|own| own.oid() == oid) {
            return Some((&sequence.schema, sequence.name().to_owned()));
        }
        let own = relations().iter().find(|own| own.oid == oid)?;
        Some((own.schema, own.name.to_owned()))
    }

    fn oid_in(&self, schema: &str, name: &str) -> Option<u32> {
        let own = relations().iter().find(|own| own.schema == schema && own.name == name);
        let table = || self.tables.iter().find(|own| own.schema == schema && own.def.name == name);
        let key = || self.keys().find(|own| own.table.schema == schema && own.name == name);
        let sequence =
            || self.sequences.iter().find(|own| own.schema == schema && own.name() == name);
        own.map(|own| own.oid)
            .or_else(|| table().map(|own| own.oid))
            .or_else(|| key().map(|own| own.oid))
            .or_else(|| sequence().map(SystemSequence::oid))
    }
}

impl SystemSequence {
    /// Its name in its schema.
    pub(super) fn name(&self) -> &str {
        name_of(&self.own.name)
    }

    pub(super) fn oid(&self) -> u32 {
        oids::sequence(&self.own.name)
    }
}

impl SystemTable {
    /// Its primary key, if its user has given it one, and its indexes.
    pub(super) fn keys(&self) -> impl Iterator<Item = Key<'_>> {
        let hidden = |at: &usize| self.def.columns.get(*at).is_some_and(|own| own.is_hidden);
        let has_primary =
            !self.def.primary_key.is_empty() && !self.def.primary_key.iter().any(hidden);
        let primary = has_primary.then(|| Key {
            table: self,
            oid: oids::primary_index(self.oid),
            name: self.def.primary_key_name(),
            index: None,
            columns: &self.def.primary_key,
            order: &self.def.primary_order,
            constraint: Some(oids::primary_constraint(self.oid)),
        });
        let indexes = self.def.indexes.iter().zip(&self.index_oids).map(|(index, oid)| Key {
            table: self,
            oid: *oid,
            name: index.name.clone(),
            index: Some(index),
            columns: &index.columns,
            order: &index.order,
            constraint: index.is_constraint.then(|| oids::unique_constraint(*oid)),
        });
        primary.into_iter().chain(indexes)
    }

    /// The name of a column.
    pub(super) fn column_name(&self, at: usize) -> &str {
        self.def.columns.get(at).map_or("", |own| &own.name)
    }

    /// The number of a column, from 1: hidden ones have none, and come last.
    pub(super) fn column_number(&self, at: usize) -> Option<usize> {
        let columns = self.def.columns.get(..=at)?;
        let is_hidden = columns.last().is_some_and(|own| own.is_hidden);
        (!is_hidden).then(|| columns.iter().filter(|own| !own.is_hidden).count())
    }
}

impl Key<'_> {
    /// The order of a column. A primary key has no NULLs, which are where they are by default.
    pub(super) fn order_of(&self, at: usize) -> KeyOrder {
        match (self.order.get(at), self.index) {
            (Some(order), Some(_)) => *order,
            (order, _) => {
                let descending = order.is_some_and(|own| own.descending);
                KeyOrder { descending, nulls_last: !descending }
            }
        }
    }

    pub(super) fn is_unique(&self) -> bool {
        self.index.is_none_or(|own| own.unique)
    }
}

impl ObjectNames for SystemSnapshot {
    fn view_definition(&self, oid: u32) -> Option<String> {
        let table = self.tables.iter().find(|own| own.oid == oid)?;
        table.def.view.as_ref().map(|view| format!(" {};", view.query))
    }

    fn relation_name(&self, oid: u32) -> Option<String> {
        let (schema, name) = self.relation(oid)?;
        let is_found = self.relation_oid(&quoted(&name)) == Some(oid);
        let name = quoted(&name);
        Some(if is_found { name } else { format!("{}.{name}", quoted(schema)) })
    }

    fn relation_oid(&self, name: &str) -> Option<u32> {
        match &*names_of_text(name).ok()? {
            [name] => self.searched().find_map(|own| self.oid_in(own, name)),
            [schema, name] => self.oid_in(schema, name),
            _ => None,
        }
    }

    fn schema_name(&self, oid: u32) -> Option<String> {
        let is_it = |name: &&str| self.number_of_schema(name) == oid;
        self.all_schemas().into_iter().find(is_it).map(quoted)
    }

    fn schema_oid(&self, name: &str) -> Option<u32> {
        let [name] = &*names_of_text(name).ok()? else { return None };
        self.all_schemas().contains(&&**name).then(|| self.number_of_schema(name))
    }

    fn function_name(&self, oid: u32, with_types: bool) -> Option<String> {
        callables::function_name(oid, with_types)
    }

    fn operator_name(&self, oid: u32, with_types: bool) -> Option<String> {
        callables::operator_name(oid, with_types)
    }

    fn callable_oid(&self, text: &str, kind: Scalar) -> SqlResult<u32> {
        callables::callable_oid(text, kind)
    }

    fn collation_name(&self, oid: u32) -> Option<String> {
        types::COLLATIONS.iter().find(|own| own.0 == oid).map(|own| quoted(own.1))
    }

    fn collation_oid(&self, name: &str) -> Option<u32> {
        let name = match &*names_of_text(name).ok()? {
            [name] => name.clone(),
            [schema, name] if schema == PG_CATALOG => name.clone(),
            _ => return None,
        };
        types::COLLATIONS.iter().find(|own| own.1 == name).map(|own| own.0)
    }

    fn role_name(&self, oid: u32) -> Option<String> {
        self.user(oid).map(|name| quoted(&name))
    }

    fn role_oid(&self, name: &str) -> Option<u32> {
        let [name] = &*names_of_text(name).ok()? else { return None };
        let found = privileges::all_roles(self).into_iter().find(|own| own.1 == name);
        found.map(|(oid, _)| oid)
    }

    fn user_name(&self, oid: u32) -> Option<String> {
        self.user(oid)
    }

    fn has_privilege(
        &self,
        function: &str,
        role: Option<&Datum>,
        object: &Datum,
        wanted: &str,
    ) -> SqlResult<Option<bool>> {
        self.privilege(function, role, object, wanted)
    }

    fn is_visible(&self, oid: u32) -> Option<bool> {
        let (_, name) = self.relation(oid)?;
        Some(self.relation_oid(&quoted(&name)) == Some(oid))
    }

    fn is_table(&self, oid: u32) -> bool {
        self.tables.iter().any(|own| own.oid == oid && own.def.view.is_none())
    }

    fn serial_sequence(&self, table: &str, column: &str) -> SqlResult<Option<String>> {
        let Some(oid) = self.relation_oid(table) else {
            return Err(privileges::no_relation(table));
        };
        let Some(table) = self.tables.iter().find(|own| own.oid == oid) else { return Ok(None) };
        let Some(own) = table.def.column(column).and_then(|at| table.def.columns.get(at)) else {
            let table = &table.def.name;
            let message = format!("column \"{column}\" of relation \"{table}\" does not exist");
            return Err(SqlError::new(SqlState::UNDEFINED_COLUMN, message));
        };
        let is_owned =
            |sequence: &&SystemSequence| own.sequence.as_ref() == Some(&sequence.own.name);
        let found = self.sequences.iter().find(is_owned);
        Ok(found.map(|own| format!("{}.{}", quoted(&own.schema), quoted(own.name()))))
    }

    fn index_definition(&self, oid: u32, column: usize) -> Option<String> {
        let key = self.keys().find(|own| own.oid == oid)?;
        match column.checked_sub(1) {
            None => Some(index_statement(&key)),
            Some(at) => key.columns.get(at).map(|at| quoted(key.table.column_name(*at))),
        }
    }

    fn constraint_definition(&self, oid: u32, is_pretty: bool) -> Option<String> {
        if let Some(key) = self.keys().find(|own| own.constraint == Some(oid)) {
            return Some(key_definition(&key));
        }
        if let Some(definition) = references::definition(self, oid) {
            return Some(definition);
        }
        let is_own = |(at, _): &(usize, _), own: &SystemTable| oids::check(own.oid, *at) == oid;
        let found = self.tables.iter().find_map(|own| {
            let mut checks = own.def.checks.iter().enumerate();
            checks.find(|check| is_own(check, own)).map(|(_, check)| (own, check))
        });
        found.map(|(own, (name, condition))| {
            let definition = check_definition(condition, own, is_pretty);
            let is_valid = !own.def.not_valid.contains(name);
            if is_valid { definition } else { format!("{definition} NOT VALID") }
        })
    }

    fn comment(&self, oid: u32, class: Option<&str>, column: usize) -> Option<String> {
        comments::comment_of(self, oid, class, column)
    }

    fn setting(&self, name: &str) -> SqlResult<String> {
        let found = self.session.settings.iter().find(|(own, _)| own.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.clone()).ok_or_else(|| {
            let message = format!("unrecognized configuration parameter \"{name}\"");
            SqlError::new(SqlState::UNDEFINED_OBJECT, message)
        })
    }

    fn rows(&self, relation: &str) -> SqlResult<Vec<Vec<Datum>>> {
        let found = relations().iter().find(|own| own.full_name == relation);
        let Some(found) = found else {
            return Err(SqlError::internal(format!("no relation {relation} of the system")));
        };
        let all = tables::rows(self, found)
            .or_else(|| keys::rows(self, found))
            .or_else(|| depends::rows(self, found))
            .or_else(|| comments::rows(self, found))
            .or_else(|| types::rows(self, found))
            .or_else(|| cluster::rows(self, found))
            .or_else(|| privileges::rows(self, found))
            .or_else(|| operators::rows(found))
            .or_else(|| callables::rows(found));
        Ok(all.unwrap_or_default())
    }
}
