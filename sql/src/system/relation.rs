//! The relations of the system, with their columns.

use std::sync::LazyLock;

use crate::types::SqlType;

/// The schema of most of them.
pub(crate) const PG_CATALOG: &str = "pg_catalog";

/// Each relation begins a line: its name, number and kind. Its columns follow, indented: their
/// names, types and a `!` if they are never NULL. Types that this engine does not have are `text`.
const TEXT: &str = include_str!("relations.txt");

/// A relation of the system.
#[derive(Debug)]
pub(crate) struct Relation {
    /// With its schema.
    pub(crate) full_name: &'static str,
    pub(crate) schema: &'static str,
    pub(crate) name: &'static str,
    pub(crate) oid: u32,
    pub(crate) is_view: bool,
    pub(crate) columns: Vec<SystemColumn>,
}

/// A column of it.
#[derive(Debug)]
pub(crate) struct SystemColumn {
    pub(crate) name: &'static str,
    pub(crate) ty: SqlType,
    pub(crate) is_never_null: bool,
}

static RELATIONS: LazyLock<Vec<Relation>> = LazyLock::new(|| {
    let mut all: Vec<Relation> = Vec::new();
    for line in TEXT.lines() {
        if line.starts_with(' ') {
            if let Some(last) = all.last_mut() {
                last.columns.extend(line.split_ascii_whitespace().filter_map(column));
            }
        } else {
            all.extend(relation(line));
        }
    }
    all
});

fn relation(line: &'static str) -> Option<Relation> {
    let mut words = line.split_ascii_whitespace();
    let full_name = words.next()?;
    let (schema, name) = full_name.split_once('.')?;
    let oid = words.next()?.parse().ok()?;
    let is_view = words.next()? == "v";
    Some(Relation { full_name, schema, name, oid, is_view, columns: Vec::new() })
}

fn column(word: &'static str) -> Option<SystemColumn> {
    let (name, ty) = word.split_once(':')?;
    let is_never_null = ty.ends_with('!');
    let ty = match ty.trim_end_matches('!') {
        "char" => SqlType::new(crate::types::Scalar::SingleChar),
        "_char" => SqlType::array(crate::types::Scalar::SingleChar),
        ty => SqlType::by_name(ty)?,
    };
    Some(SystemColumn { name, ty, is_never_null })
}

/// All relations.
pub(super) fn relations() -> &'static [Relation] {
    &RELATIONS
}

/// The relation of a name, whose schema has to be said if it is not `pg_catalog`.
pub(crate) fn find_relation(parts: &[String]) -> Option<&'static Relation> {
    let (schema, name) = match parts {
        [name] => (PG_CATALOG, name),
        [schema, name] => (&**schema, name),
        _ => return None,
    };
    RELATIONS.iter().find(|own| own.schema == schema && own.name == *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_can_be_read() {
        let words = TEXT.lines().filter(|line| line.starts_with(' '));
        let words: usize = words.map(|line| line.split_ascii_whitespace().count()).sum();
        let lines = TEXT.lines().filter(|line| !line.starts_with(' ')).count();
        assert_eq!(relations().len(), lines);
        assert_eq!(relations().iter().map(|own| own.columns.len()).sum::<usize>(), words);
    }

    #[test]
    fn columns_are_those_of_postgresql() {
        let of = |name: &str| find_relation(&[name.to_owned()]);
        // As its chapter "System Catalogs" has them.
        let index = of("pg_index").map(|own| &*own.columns).unwrap_or_default();
        assert_eq!(index.len(), 21);
        assert_eq!(index.first().map(|own| own.name), Some("indexrelid"));
        assert_eq!(of("pg_class").map(|own| own.oid), Some(1259));
        assert_eq!(of("pg_attribute").map(|own| own.columns.len()), Some(26));
        assert!(of("tables").is_none());
        let tables = find_relation(&["information_schema".to_owned(), "tables".to_owned()]);
        assert_eq!(tables.map(|own| own.columns.len()), Some(12));
    }
}
