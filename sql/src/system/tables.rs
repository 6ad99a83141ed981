//! Rows of tables and their columns, and of sequences.

use selkie_txn::SequenceSchema;

use super::deparse::default_expression;
use super::oids;
use super::privileges::{acl, public_acl};
use super::record::{Cell, Record};
use super::relation::{Relation, relations};
use super::snapshot::{SystemSequence, SystemSnapshot, SystemTable};
use super::types::{collation, storage};
use crate::bind::bounds_of;
use crate::catalogue::Identity;
use crate::types::{Datum, SqlType};

type Rows = Vec<Vec<Datum>>;

/// The rows of a relation, if it is of this file.
pub(super) fn rows(system: &SystemSnapshot, relation: &'static Relation) -> Option<Rows> {
    Some(match relation.full_name {
        "pg_catalog.pg_class" => classes(system, relation),
        "pg_catalog.pg_attribute" => attributes(system, relation),
        "pg_catalog.pg_attrdef" => defaults(system, relation),
        "pg_catalog.pg_sequence" => sequences(system, relation),
        "pg_catalog.pg_namespace" => namespaces(system, relation),
        _ => return None,
    })
}

fn classes(system: &SystemSnapshot, relation: &'static Relation) -> Rows {
    let mut rows = Vec::new();
    for own in relations() {
        let kind = if own.is_view { "v" } else { "r" };
        let record = class(relation, own.oid, own.name, oids::system_schema(own.schema), kind);
        let record = record.set("relnatts", own.columns.len()).set("relreplident", "n");
        rows.push(record.set("relam", if own.is_view { 0 } else { oids::HEAP }).row());
    }
    for table in &system.tables {
        let schema = table.schema_oid;
        let shown = table.def.columns.iter().filter(|own| !own.is_hidden).count();
        let is_view = table.def.view.is_some();
        let kind = if is_view { "v" } else { "r" };
        let record = class(relation, table.oid, &table.def.name, schema, kind)
            .set("relam", if is_view { 0 } else { oids::HEAP })
            .set("relreplident", if is_view { "n" } else { "d" })
            .set("relnatts", shown)
            .set("relowner", table.def.rights.owner)
            .set("relacl", acl(system, &table.def.rights))
            .set("relchecks", table.def.checks.len())
            .set("relhasindex", table.keys().next().is_some())
            .set("relhastriggers", table.def.has_references());
        rows.push(record.row());
    }
    for key in system.keys() {
        let schema = key.table.schema_oid;
        let record = class(relation, key.oid, &key.name, schema, "i")
            .set("relowner", key.table.def.rights.owner)
            .set("relam", oids::BTREE)
            .set("relreplident", "n")
            // As one without rows.
            .set("reltuples", 0)
            .set("relpages", 1)
            .set("relnatts", key.columns.len());
        rows.push(record.row());
    }
    for sequence in &system.sequences {
        let rights = system.authority.roles().map(|roles| roles.sequence(&sequence.own.name));
        let rights = rights.unwrap_or_default();
        let record = class(relation, sequence.oid(), sequence.name(), sequence.schema_oid, "S")
            .set("relowner", rights.owner)
            .set("relacl", acl(system, &rights))
            .set("reltuples", 1)
            .set("relpages", 1)
            .set("relnatts", 3)
            .set("relreplident", "n");
        rows.push(record.row());
    }
    rows
}

fn sequences(system: &SystemSnapshot, relation: &'static Relation) -> Rows {
    let row = |sequence: &SystemSequence| {
        let own = &sequence.own;
        Record::new(relation)
            .set("seqrelid", sequence.oid())
            .set("seqtypid", type_of(system, sequence).oid())
            .set("seqstart", own.start)
            .set("seqincrement", own.increment)
            .set("seqmax", own.max)
            .set("seqmin", own.min)
            .set("seqcache", cache(own))
            .set("seqcycle", own.cycles)
            .row()
    };
    system.sequences.iter().map(row).collect()
}

/// CACHE of a sequence: nodes take more values at a time than 1, which is the default.
fn cache(own: &SequenceSchema) -> i64 {
    let is_default = own.block == SequenceSchema::new("").block;
    if is_default { 1 } else { i64::from(own.block) }
}

/// The type of a sequence is not kept: it is that of the column that owns it, or the least whose
/// bound it has.
fn type_of(system: &SystemSnapshot, sequence: &SystemSequence) -> SqlType {
    let SystemSequence { own, .. } = sequence;
    let least = [SqlType::INT2, SqlType::INT4].into_iter().find(|ty| {
        let bounds = bounds_of(*ty);
        bounds.is_some_and(|(low, high)| own.max == high || own.min == low)
    });
    let owner = system.owner_of(sequence);
    let column = owner.and_then(|(table, at)| Some(table.def.columns.get(at)?.ty.plain()));
    let fits =
        |ty: &SqlType| bounds_of(*ty).is_some_and(|(low, high)| low <= own.min && own.max <= high);
    column.filter(fits).or(least).unwrap_or(SqlType::INT8)
}

fn class(relation: &'static Relation, oid: u32, name: &str, schema: u32, kind: &str) -> Record {
    Record::new(relation)
        .set("oid", oid)
        .set("relname", name)
        .set("relnamespace", schema)
        .set("relowner", oids::OWNER)
        .set("relfilenode", if kind == "v" { 0 } else { oid })
        .set("relpersistence", "p")
        .set("relkind", kind)
        .set("relispopulated", true)
        // It was never analyzed.
        .set("reltuples", -1)
        .set("relfrozenxid", "0")
        .set("relminmxid", "0")
}

fn attributes(system: &SystemSnapshot, relation: &'static Relation) -> Rows {
    let mut rows = Vec::new();
    for own in relations() {
        for (number, column) in (1_usize..).zip(&own.columns) {
            let record = attribute(relation, own.oid, column.name, number, column.ty);
            rows.push(record.set("attnotnull", column.is_never_null).row());
        }
    }
    for table in &system.tables {
        let shown = table.def.columns.iter().filter(|own| !own.is_hidden);
        for (number, column) in (1_usize..).zip(shown) {
            let record = attribute(relation, table.oid, &column.name, number, column.ty)
                .set("attnotnull", !column.nullable)
                .set("attidentity", column.identity.map_or("", letter))
                .set("atthasdef", column.default.is_some() && column.identity.is_none());
            rows.push(record.row());
        }
    }
    for key in system.keys() {
        for (number, at) in (1_usize..).zip(key.columns) {
            let Some(column) = key.table.def.columns.get(*at) else { continue };
            rows.push(attribute(relation, key.oid, &column.name, number, column.ty).row());
        }
    }
    rows
}

/// `attidentity` of a column that is one.
fn letter(identity: Identity) -> &'static str {
    match identity {
        Identity::Always => "a",
        Identity::ByDefault => "d",
    }
}

fn attribute(
    relation: &'static Relation,
    table: u32,
    name: &str,
    number: usize,
    ty: SqlType,
) -> Record {
    Record::new(relation)
        .set("attrelid", table)
        .set("attname", name)
        .set("atttypid", ty.oid())
        .set("attstattarget", -1)
        .set("attlen", i32::from(ty.bytes_len()))
        .set("attnum", number)
        .set("attndims", usize::from(ty.is_array))
        .set("attcacheoff", -1)
        .set("atttypmod", ty.shown_modifier())
        .set("attbyval", matches!(ty.bytes_len(), 1 | 2 | 4 | 8))
        .set("attalign", super::types::alignment(ty))
        .set("attstorage", storage(ty))
        .set("attislocal", true)
        .set("attcollation", collation(ty))
}

fn defaults(system: &SystemSnapshot, relation: &'static Relation) -> Rows {
    let mut rows = Vec::new();
    for table in &system.tables {
        let own = table.def.columns.iter().enumerate();
        // The values of an identity column are no default.
        for (at, column) in own.filter(|(_, own)| own.identity.is_none()) {
            let (Some(default), Some(number)) = (&column.default, table.column_number(at)) else {
                continue;
            };
            let record = Record::new(relation)
                .set("oid", oids::default(table.oid, at))
                .set("adrelid", table.oid)
                .set("adnum", number)
                .set("adbin", default_expression(default, column.ty));
            rows.push(record.row());
        }
    }
    rows
}

fn namespaces(system: &SystemSnapshot, relation: &'static Relation) -> Rows {
    let record = |name| {
        let own = system.session.path.schema(name);
        let rights = match own {
            None if name == "public" => public_acl(system),
            None => Cell::Null,
            Some(own) => acl(system, &own.rights),
        };
        Record::new(relation)
            .set("oid", system.number_of_schema(name))
            .set("nspname", name)
            .set("nspowner", own.map_or(oids::OWNER, |own| own.rights.owner))
            .set("nspacl", rights)
    };
    system.all_schemas().into_iter().map(|name| record(name).row()).collect()
}

impl SystemTable {
    /// The numbers of columns.
    pub(super) fn column_numbers(&self, columns: &[usize]) -> Vec<usize> {
        columns.iter().map(|at| self.column_number(*at).unwrap_or(0)).collect()
    }
}
