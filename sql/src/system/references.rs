//! FOREIGN KEY constraints: their rows, and how PostgreSQL prints them.

use super::definitions::quoted;
use super::depends::{Dependence, of_reference};
use super::keys::constraint;
use super::oids;
use super::operators::equality;
use super::record::Cell;
use super::relation::Relation;
use super::snapshot::{Key, SystemSnapshot, SystemTable};
use crate::catalogue::{ForeignKey, ReferenceAction};
use crate::types::{Datum, SqlType};

/// A constraint with its tables.
struct Reference<'s> {
    own: &'s ForeignKey,
    child: &'s SystemTable,
    parent: &'s SystemTable,
    oid: u32,
    /// Of the child.
    columns: Vec<usize>,
    /// Of the parent.
    parent_columns: Vec<usize>,
}

fn references(system: &SystemSnapshot) -> impl Iterator<Item = Reference<'_>> {
    let of_table = |child: &'_ SystemTable| child.def.foreign_keys.len();
    let all =
        system.tables.iter().flat_map(move |child| (0..of_table(child)).map(move |at| (child, at)));
    all.filter_map(|(child, at)| {
        let own = child.def.foreign_keys.get(at)?;
        let parent = system.tables.iter().find(|table| table.def.key == own.parent)?;
        let columns = child.def.positions(&own.columns)?;
        let parent_columns = parent.def.positions(&own.parent_columns)?;
        let oid = oids::foreign_key(child.oid, at);
        Some(Reference { own, child, parent, oid, columns, parent_columns })
    })
}

/// The rows of `pg_constraint`.
pub(super) fn rows(system: &SystemSnapshot, relation: &'static Relation) -> Vec<Vec<Datum>> {
    let row = |reference: Reference<'_>| {
        let Reference { own, child, parent, oid, columns, parent_columns } = reference;
        let key = key_of(parent, &parent_columns);
        let operators = |pair: fn((SqlType, SqlType)) -> (SqlType, SqlType)| {
            let ty = |table: &SystemTable, at: &usize| table.def.columns.get(*at).map(|own| own.ty);
            let pairs = parent_columns.iter().zip(&columns);
            let types = pairs.filter_map(|(to, at)| Some((ty(parent, to)?, ty(child, at)?)));
            types.map(|own| equality(pair(own))).collect::<Vec<u32>>()
        };
        constraint(relation, child, oid, &own.name, "f")
            .set("condeferrable", own.is_deferrable)
            .set("condeferred", own.is_deferred)
            .set("conindid", key.map_or(0, |key| key.oid))
            .set("confrelid", parent.oid)
            .set("confupdtype", own.on_update.letter())
            .set("confdeltype", own.on_delete.letter())
            .set("confmatchtype", if own.is_full { "f" } else { "s" })
            .set("connoinherit", true)
            .set("conkey", child.column_numbers(&columns))
            .set("confkey", parent.column_numbers(&parent_columns))
            .set("confdelsetcols", set_columns(own, child))
            .set("conpfeqop", operators(|(to, own)| (to, own)))
            .set("conppeqop", operators(|(to, _)| (to, to)))
            .set("conffeqop", operators(|(_, own)| (own, own)))
            .row()
    };
    references(system).map(row).collect()
}

/// What the constraints depend on.
pub(super) fn depends(system: &SystemSnapshot, all: &mut Vec<Dependence>) {
    for Reference { child, parent, oid, columns, parent_columns, .. } in references(system) {
        let index = key_of(parent, &parent_columns).map(|key| key.oid);
        let child = (child.oid, &*child.column_numbers(&columns));
        let parent = (parent.oid, &*parent.column_numbers(&parent_columns));
        all.extend(of_reference(oid, child, parent, index));
    }
}

/// The key of a table that a constraint refers to.
fn key_of<'s>(parent: &'s SystemTable, columns: &[usize]) -> Option<Key<'s>> {
    // The first of the keys is the primary key, if there is one.
    let first = usize::from(!parent.def.has_hidden_key());
    let index = parent.def.unique_key(columns)?;
    parent.keys().nth(index.map_or(0, |at| first + at))
}

/// The columns that are set when a parent is deleted, if not all are.
fn set_columns(own: &ForeignKey, child: &SystemTable) -> Cell {
    match child.def.positions(&own.set_columns) {
        Some(columns) if !columns.is_empty() => child.column_numbers(&columns).into(),
        _ => Cell::Null,
    }
}

/// A constraint as a statement writes it.
pub(super) fn definition(system: &SystemSnapshot, oid: u32) -> Option<String> {
    let Reference { own, child, parent, .. } = references(system).find(|own| own.oid == oid)?;
    let list = |names: &[String]| {
        names.iter().map(|name| quoted(name)).collect::<Vec<String>>().join(", ")
    };
    let name = crate::types::object_names::ObjectNames::relation_name(system, parent.oid)?;
    let (columns, parents) = (list(&own.columns), list(&own.parent_columns));
    let mut text = format!("FOREIGN KEY ({columns}) REFERENCES {name}({parents})");
    if own.is_full {
        text.push_str(" MATCH FULL");
    }
    for (event, action) in [("UPDATE", own.on_update), ("DELETE", own.on_delete)] {
        if action != ReferenceAction::NoAction {
            text.push_str(&format!(" ON {event} {}", action.words()));
        }
        if event == "DELETE" && !own.set_columns.is_empty() {
            text.push_str(&format!(" ({})", list(&own.set_columns)));
        }
    }
    if own.is_deferrable {
        text.push_str(" DEFERRABLE");
    }
    if own.is_deferred {
        text.push_str(" INITIALLY DEFERRED");
    }
    if child.def.not_valid.contains(&own.name) {
        text.push_str(" NOT VALID");
    }
    Some(text)
}
