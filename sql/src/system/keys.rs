//! Rows of indexes and constraints.

use super::oids;
use super::record::{Cell, Record, vector};
use super::relation::Relation;
use super::snapshot::{Key, SystemSnapshot, SystemTable};
use super::types::collation;
use crate::types::{Datum, SqlType};

type Rows = Vec<Vec<Datum>>;

/// `indoption`: the greatest value is first.
const DESCENDING: i32 = 1;
/// `indoption`: NULL is first.
const NULLS_FIRST: i32 = 2;

/// The rows of a relation, if it is of this file.
pub(super) fn rows(system: &SystemSnapshot, relation: &'static Relation) -> Option<Rows> {
    Some(match relation.full_name {
        "pg_catalog.pg_index" => system.keys().map(|key| index(relation, &key)).collect(),
        "pg_catalog.pg_constraint" => constraints(system, relation),
        _ => return None,
    })
}

fn types<'k>(key: &'k Key<'_>) -> impl Iterator<Item = SqlType> + 'k {
    let columns = &key.table.def.columns;
    key.columns.iter().filter_map(|at| columns.get(*at)).map(|own| own.ty)
}

fn index(relation: &'static Relation, key: &Key<'_>) -> Vec<Datum> {
    let option = (0..key.columns.len()).map(|at| key.order_of(at)).map(|own| {
        let descending = if own.descending { DESCENDING } else { 0 };
        descending | if own.nulls_last { 0 } else { NULLS_FIRST }
    });
    Record::new(relation)
        .set("indexrelid", key.oid)
        .set("indrelid", key.table.oid)
        .set("indnatts", key.columns.len())
        .set("indnkeyatts", key.columns.len())
        .set("indisunique", key.is_unique())
        .set("indisprimary", key.index.is_none())
        .set("indimmediate", true)
        .set("indisvalid", true)
        .set("indisready", true)
        .set("indislive", true)
        .set("indkey", vector(key.table.column_numbers(key.columns)))
        .set("indcollation", vector(types(key).map(collation)))
        .set("indclass", vector(types(key).map(super::operators::class_of)))
        .set("indoption", vector(option))
        .row()
}

fn constraints(system: &SystemSnapshot, relation: &'static Relation) -> Rows {
    let mut rows = Vec::new();
    for table in &system.tables {
        for key in table.keys() {
            let Some(oid) = key.constraint else { continue };
            let kind = if key.index.is_none() { "p" } else { "u" };
            let record = constraint(relation, table, oid, &key.name, kind)
                .set("conindid", key.oid)
                .set("connoinherit", true)
                .set("conkey", table.column_numbers(key.columns));
            rows.push(record.row());
        }
        for (at, (name, condition)) in table.def.checks.iter().enumerate() {
            let used = super::deparse::columns_of(condition, table);
            let numbers = table.column_numbers(&used);
            let cell = if numbers.is_empty() { Cell::Null } else { numbers.into() };
            let record = constraint(relation, table, oids::check(table.oid, at), name, "c")
                .set("conkey", cell)
                .set("conbin", super::deparse::expression(condition, table, false));
            rows.push(record.row());
        }
    }
    rows.extend(super::references::rows(system, relation));
    rows
}

pub(super) fn constraint(
    relation: &'static Relation,
    table: &SystemTable,
    oid: u32,
    name: &str,
    kind: &str,
) -> Record {
    Record::new(relation)
        .set("oid", oid)
        .set("conname", name)
        .set("connamespace", table.schema_oid)
        .set("contype", kind)
        .set("convalidated", !table.def.not_valid.contains(name))
        .set("conrelid", table.oid)
        .set("confupdtype", " ")
        .set("confdeltype", " ")
        .set("confmatchtype", " ")
        .set("conislocal", true)
}
