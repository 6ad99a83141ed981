//! Comments.

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

/// The number of `pg_database`.
const PG_DATABASE: u32 = 1262;
/// The number of `pg_authid`.
const PG_AUTHID: u32 = 1260;

/// A comment, and what it is about.
struct Comment<'s> {
    object: u32,
    /// The relation that has the object.
    class: u32,
    /// The number of the column, if it is about one.
    column: usize,
    text: &'s str,
}

impl Comment<'_> {
    /// Whether it is about something that is of no database.
    fn is_shared(&self) -> bool {
        matches!(self.class, PG_DATABASE | PG_AUTHID)
    }
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
    if let Some(others) = path.schemas().map(|own| &own.comments) {
        let whole = |object, class, text| Comment { object, class, column: 0, text };
        all.extend(others.database.iter().map(|own| whole(oids::DATABASE, PG_DATABASE, own)));
        let is_there = |oid: u32| match system.authority.roles() {
            Some(roles) => roles.of_oid(oid).is_some(),
            None => oid == oids::OWNER,
        };
        let roles = others.roles.iter().filter(|(oid, _)| is_there(**oid));
        all.extend(roles.map(|(oid, own)| whole(*oid, PG_AUTHID, own)));
        for sequence in &system.sequences {
            let comment = others.sequences.get(&sequence.own.name);
            all.extend(comment.map(|own| whole(sequence.oid(), PG_CLASS, own)));
        }
    }
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
    let is_shared = match relation.full_name {
        "pg_catalog.pg_description" => false,
        "pg_catalog.pg_shdescription" => true,
        _ => return None,
    };
    let row = |own: Comment<'_>| {
        let record = Record::new(relation)
            .set("objoid", own.object)
            .set("classoid", own.class)
            .set("description", own.text);
        if is_shared { record.row() } else { record.set("objsubid", own.column).row() }
    };
    let own = comments(system).into_iter().filter(|own| own.is_shared() == is_shared);
    Some(own.map(row).collect())
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
        Some("pg_database") => Some(PG_DATABASE),
        Some("pg_authid") => Some(PG_AUTHID),
        Some(_) => return None,
    };
    let all = comments(system);
    let is_it = |own: &&Comment<'_>| {
        let is_of = class.map_or(!own.is_shared(), |class| own.class == class);
        own.object == object && own.column == column && is_of
    };
    all.iter().find(is_it).map(|own| own.text.to_owned())
}
