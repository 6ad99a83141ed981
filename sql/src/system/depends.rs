//! What depends on what: `pg_depend`, and what views read. The first has what clients look for:
//! sequences of columns, defaults, indexes and constraints.

use super::oids;
use super::record::Record;
use super::references;
use super::relation::Relation;
use super::snapshot::{SystemSnapshot, SystemTable};
use crate::types::Datum;

/// The numbers of the relations of the system that have the objects.
const PG_CLASS: u32 = 1259;
const PG_ATTRDEF: u32 = 2604;
const PG_CONSTRAINT: u32 = 2606;
const PG_NAMESPACE: u32 = 2615;

/// An object: the relation that has it, its number, and that of a column of it.
type Object = (u32, u32, usize);

/// How an object depends: it goes with the other, is part of it, or holds it.
const AUTO: &str = "a";
const INTERNAL: &str = "i";
const NORMAL: &str = "n";

/// The rows of a relation, if it is of this file.
pub(super) fn rows(
    system: &SystemSnapshot,
    relation: &'static Relation,
) -> Option<Vec<Vec<Datum>>> {
    match relation.full_name {
        "pg_catalog.pg_depend" => {}
        "information_schema.view_table_usage" => return Some(uses_of_views(system, relation)),
        _ => return None,
    }
    let mut all = Vec::new();
    for table in &system.tables {
        of_table(table, &mut all);
    }
    for sequence in &system.sequences {
        let object = (PG_CLASS, sequence.oid(), 0);
        all.push((object, (PG_NAMESPACE, sequence.schema_oid, 0), NORMAL));
        let Some((table, at)) = system.owner_of(sequence) else { continue };
        let is_identity = table.def.columns.get(at).is_some_and(|own| own.identity.is_some());
        let column = (PG_CLASS, table.oid, table.column_number(at).unwrap_or(0));
        all.push((object, column, if is_identity { INTERNAL } else { AUTO }));
    }
    references::depends(system, &mut all);
    let row = |((class, object, column), (on_class, on_object, on_column), kind)| {
        Record::new(relation)
            .set("classid", class)
            .set("objid", object)
            .set("objsubid", column)
            .set("refclassid", on_class)
            .set("refobjid", on_object)
            .set("refobjsubid", on_column)
            .set("deptype", kind)
            .row()
    };
    Some(all.into_iter().map(row).collect())
}

/// One object that depends on another, and how.
pub(super) type Dependence = (Object, Object, &'static str);

/// A FOREIGN KEY constraint goes with the columns that it is of, and holds those that it names and
/// the index by which these are found.
pub(super) fn of_reference(
    constraint: u32,
    child: (u32, &[usize]),
    parent: (u32, &[usize]),
    index: Option<u32>,
) -> Vec<Dependence> {
    let object = (PG_CONSTRAINT, constraint, 0);
    let column = |(table, columns): (u32, &[usize]), kind| {
        let row = |number: &usize| (object, (PG_CLASS, table, *number), kind);
        columns.iter().map(row).collect::<Vec<_>>()
    };
    let index = index.map(|oid| (object, (PG_CLASS, oid, 0), NORMAL));
    column(child, AUTO).into_iter().chain(column(parent, NORMAL)).chain(index).collect()
}

fn of_table(table: &SystemTable, all: &mut Vec<Dependence>) {
    let own = (PG_CLASS, table.oid, 0);
    all.push((own, (PG_NAMESPACE, table.schema_oid, 0), NORMAL));
    let column = |at: usize| (PG_CLASS, table.oid, table.column_number(at).unwrap_or(0));
    for (at, default) in table.def.columns.iter().enumerate() {
        let Some(text) = default.default.as_ref().filter(|_| default.identity.is_none()) else {
            continue;
        };
        let object = (PG_ATTRDEF, oids::default(table.oid, at), 0);
        all.push((object, column(at), AUTO));
        if let Some(sequence) = &default.sequence
            && text.contains("nextval")
        {
            all.push((object, (PG_CLASS, oids::sequence(sequence), 0), NORMAL));
        }
    }
    for key in table.keys() {
        let index = (PG_CLASS, key.oid, 0);
        let object = match key.constraint {
            Some(constraint) => {
                let constraint = (PG_CONSTRAINT, constraint, 0);
                all.push((index, constraint, INTERNAL));
                constraint
            }
            None => index,
        };
        all.extend(key.columns.iter().map(|at| (object, column(*at), AUTO)));
    }
    for (at, (_, condition)) in table.def.checks.iter().enumerate() {
        let object = (PG_CONSTRAINT, oids::check(table.oid, at), 0);
        let used = super::deparse::columns_of(condition, table);
        all.extend(used.into_iter().map(|at| (object, column(at), AUTO)));
    }
}

/// The tables and views that each view names.
fn uses_of_views(system: &SystemSnapshot, relation: &'static Relation) -> Vec<Vec<Datum>> {
    let mut rows = Vec::new();
    for table in &system.tables {
        let uses = table.def.view.iter().flat_map(|view| &view.uses);
        for used in uses.filter_map(|key| system.tables.iter().find(|own| own.def.key == *key)) {
            let record = Record::new(relation)
                .set("view_catalog", system.session.database)
                .set("view_schema", &*table.schema)
                .set("view_name", &*table.def.name)
                .set("table_catalog", system.session.database)
                .set("table_schema", &*used.schema)
                .set("table_name", &*used.def.name);
            rows.push(record.row());
        }
    }
    rows
}
