//! Comments of tables and of what belongs to them.

use super::oids;
use super::record::Record;
use super::relation::Relation;
use super::snapshot::SystemSnapshot;
use crate::types::Datum;

/// The number of `pg_class`.
const PG_CLASS: u32 = 1259;
/// The number of `pg_namespace`.
const PG_NAMESPACE: u32 = 2615;
/// The number of `pg_constraint`.
const PG_CONSTRAINT: u32 = 2606;

/// A comment, and what it is about.
struct Comment<'s> {
    object: u32,
    /// The relation that has the object.
    class: u32,
    /// The number of the column, if it is about one.
    column: usize,
    text: &'s str,
}

fn comments<'s>(system: &'s SystemSnapshot) -> Vec<Comment<'s>> {
    let path = &system.session.path;
    let public = path.schemas().and_then(|own| Some((oids::PUBLIC, own.public_comment.as_ref()?)));
    let schemas =
        path.all().filter_map(|(_, own)| Some((oids::schema(own.id()), own.comment.as_ref()?)));
    let of_schema = |(object, text): (u32, &'s String)| Comment {
        object,
        class: PG_NAMESPACE,
        column: 0,
        text,
    };
    let mut all: Vec<Comment<'s>> = public.into_iter().chain(schemas).map(of_schema).collect();
    for table in &system.tables {
        let own = &table.def.comments;
        if own.is_empty() {
            continue;
        }
        let mut add = |object, class, column, text: Option<&'s String>| {
            all.extend(text.map(|text| Comment { object, class, column, text }));
        };
        add(table.oid, PG_CLASS, 0, own.table.as_ref());
        for (at, column) in table.def.columns.iter().enumerate() {
            let number = table.column_number(at).unwrap_or_default();
            add(table.oid, PG_CLASS, number, own.columns.get(&column.name));
        }
        for key in table.keys() {
            add(key.oid, PG_CLASS, 0, own.indexes.get(&key.name));
            if let Some(oid) = key.constraint {
                add(oid, PG_CONSTRAINT, 0, own.constraints.get(&key.name));
            }
        }
        for (at, (name, _)) in table.def.checks.iter().enumerate() {
            add(oids::check(table.oid, at), PG_CONSTRAINT, 0, own.constraints.get(name));
        }
        for (at, key) in table.def.foreign_keys.iter().enumerate() {
            let oid = oids::foreign_key(table.oid, at);
            add(oid, PG_CONSTRAINT, 0, own.constraints.get(&key.name));
        }
    }
    all
}

/// The rows of a relation, if it is of this file.
pub(super) fn rows(
    system: &SystemSnapshot,
    relation: &'static Relation,
) -> Option<Vec<Vec<Datum>>> {
    if relation.full_name != "pg_catalog.pg_description" {
        return None;
    }
    let row = |own: Comment<'_>| {
        Record::new(relation)
            .set("objoid", own.object)
            .set("classoid", own.class)
            .set("objsubid", own.column)
            .set("description", own.text)
            .row()
    };
    Some(comments(system).into_iter().map(row).collect())
}

/// The comment of an object, or of a column of it; `class` is the name of the relation that has the
/// object.
pub(super) fn comment_of(
    system: &SystemSnapshot,
    object: u32,
    class: Option<&str>,
    column: usize,
) -> Option<String> {
    let class = match class {
        None => None,
        Some("pg_class") => Some(PG_CLASS),
        Some("pg_constraint") => Some(PG_CONSTRAINT),
        Some("pg_namespace") => Some(PG_NAMESPACE),
        Some(_) => return None,
    };
    let all = comments(system);
    let is_it = |own: &&Comment<'_>| {
        own.object == object && own.column == column && class.is_none_or(|class| own.class == class)
    };
    all.iter().find(is_it).map(|own| own.text.to_owned())
}
