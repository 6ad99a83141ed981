//! The schemas in which a statement looks for names.

use std::sync::{Arc, LazyLock};

use super::document::{INFORMATION_SCHEMA, PG_CATALOG, PUBLIC, SYSTEM, Schema, Schemas, no_schema};
use super::text::quoted;
use crate::catalogue::{SchemaId, split_key};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::roles::{Authority, KEY_PREFIX, Kind, Privileges, Rights, denied};

/// A schema in which names are looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Searched {
    User(SchemaId),
    /// One of the system.
    System(&'static str),
}

/// The schemas in which a statement looks for names, in their order. Those that are not there, or
/// that its role may not use, are left out.
#[derive(Debug)]
pub(crate) struct SearchPath {
    /// All of the database; `None` if none was ever made.
    schemas: Option<Arc<Schemas>>,
    searched: Vec<Searched>,
    /// Their names.
    names: Vec<String>,
}

/// In a database in which no schema was ever made.
static PLAIN: LazyLock<Arc<SearchPath>> = LazyLock::new(|| Arc::new(SearchPath::stored(None)));

impl SearchPath {
    /// `public` alone, in a database without other schemas.
    pub(crate) fn plain() -> Arc<Self> {
        Arc::clone(&PLAIN)
    }

    /// `public` alone: where the names of definitions are that stand in the catalogue as text.
    pub(crate) fn stored(schemas: Option<Arc<Schemas>>) -> Self {
        let searched = vec![Searched::User(SchemaId::PUBLIC)];
        Self { schemas, searched, names: vec![PUBLIC.to_owned()] }
    }

    /// The schemas of `search_path` for a user, whose role may do what `authority` says; `None` may
    /// do everything.
    pub(crate) fn new(
        setting: &[String],
        user: &str,
        schemas: Option<Arc<Schemas>>,
        authority: Option<&Authority>,
    ) -> Self {
        let (mut searched, mut names) = (Vec::new(), Vec::new());
        for name in setting {
            let name = if name == "$user" { user } else { name };
            let found = match name {
                PUBLIC => schemas
                    .as_ref()
                    .is_none_or(|all| all.has_public())
                    .then_some(Searched::User(SchemaId::PUBLIC)),
                PG_CATALOG => Some(Searched::System(PG_CATALOG)),
                INFORMATION_SCHEMA => Some(Searched::System(INFORMATION_SCHEMA)),
                name => schemas
                    .as_ref()
                    .and_then(|all| all.find(name))
                    .filter(|own| may_use(authority, &own.rights))
                    .map(|own| Searched::User(own.id())),
            };
            if let Some(found) = found.filter(|found| !searched.contains(found)) {
                searched.push(found);
                names.push(name.to_owned());
            }
        }
        Self { schemas, searched, names }
    }

    /// Whether names are looked for in the same schemas.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        std::ptr::eq(self, other) || self.searched == other.searched
    }

    /// Whether it is `public` alone.
    pub(crate) fn is_public(&self) -> bool {
        self.searched == [Searched::User(SchemaId::PUBLIC)]
    }

    pub(crate) fn searched(&self) -> &[Searched] {
        &self.searched
    }

    /// The names of the schemas.
    pub(crate) fn names(&self) -> &[String] {
        &self.names
    }

    /// All schemas of the database but `public`.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&str, &Schema)> {
        self.schemas.iter().flat_map(|all| all.iter())
    }

    /// As the document has them.
    pub(crate) fn schemas(&self) -> Option<&Arc<Schemas>> {
        self.schemas.as_ref()
    }

    /// Whether there is the schema `public`.
    pub(crate) fn has_public(&self) -> bool {
        self.schemas.as_ref().is_none_or(|all| all.has_public())
    }

    /// The schema of a name, if it is not `public`.
    pub(crate) fn schema(&self, name: &str) -> Option<&Schema> {
        self.schemas.as_ref()?.find(name)
    }

    /// The number of a schema of a user.
    ///
    /// # Errors
    /// 3F000 if there is none of that name; 42501 if only the system may use it.
    pub(crate) fn id(&self, name: &str) -> SqlResult<SchemaId> {
        match self.schema(name) {
            _ if name == PUBLIC && self.has_public() => Ok(SchemaId::PUBLIC),
            _ if name == SYSTEM => Err(denied(format!("permission denied for schema {name}"))),
            Some(own) => Ok(own.id()),
            None => Err(no_schema(name)),
        }
    }

    /// The keys that a name of one part may stand for, those first that are found first.
    pub(crate) fn keys(&self, name: &str) -> Vec<String> {
        let user = self.searched.iter().filter_map(|own| match own {
            Searched::User(id) => Some(id.key(name)),
            Searched::System(_) => None,
        });
        user.collect()
    }

    /// The keys that a name may stand for, those first that are found first.
    ///
    /// # Errors
    /// 0A000 if it has more than two parts; 42501 if only the system may use it.
    pub(crate) fn keys_of(&self, parts: &[String]) -> SqlResult<Vec<String>> {
        let keys: Vec<String> = match parts {
            [name] => self.keys(name),
            [schema, name] => match self.id(schema) {
                Ok(id) => vec![id.key(name)],
                Err(error) if error.state() == SqlState::INVALID_SCHEMA_NAME => Vec::new(),
                Err(error) => return Err(error),
            },
            _ => return Err(SqlError::unsupported("a name of more than two parts")),
        };
        keys.iter().try_for_each(|key| refuse_reserved(key))?;
        Ok(keys)
    }

    /// The name of a schema, if it is there.
    pub(crate) fn known_name(&self, id: SchemaId) -> Option<&str> {
        match id {
            SchemaId::PUBLIC => Some(PUBLIC),
            id => self.schemas.as_ref()?.name(id),
        }
    }

    /// The name of a schema.
    pub(crate) fn name(&self, id: SchemaId) -> &str {
        self.known_name(id).unwrap_or("?")
    }

    /// What is in the catalogue as messages call it: the schema is said if names are not looked for
    /// there.
    pub(crate) fn shown(&self, key: &str) -> String {
        let (schema, name) = split_key(key);
        match self.searched.contains(&Searched::User(schema)) {
            true => quoted(name),
            false => format!("{}.{}", quoted(self.name(schema)), quoted(name)),
        }
    }

    /// What is in the catalogue as texts in the catalogue call it: the schema is said if it is not
    /// `public`.
    pub(crate) fn written(&self, key: &str) -> String {
        let (schema, name) = split_key(key);
        match schema {
            SchemaId::PUBLIC => quoted(name),
            id => format!("{}.{}", quoted(self.name(id)), quoted(name)),
        }
    }
}

/// Refuses the names of tables that only the system may use.
pub(crate) fn refuse_reserved(key: &str) -> SqlResult<()> {
    if key.starts_with(KEY_PREFIX) {
        return Err(denied(format!("permission denied for table {key}")));
    }
    Ok(())
}

fn may_use(authority: Option<&Authority>, rights: &Rights) -> bool {
    let held = authority.map(|own| own.held(Kind::Schema, rights));
    held.is_none_or(|held| held.has_all(Privileges::USAGE))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use super::*;

    fn path(setting: &[&str]) -> SearchPath {
        let mut schemas = Schemas::initial();
        for name in ["a", "ann"] {
            schemas.add(name, Rights::default()).unwrap();
        }
        let setting: Vec<String> = setting.iter().map(|own| (*own).to_owned()).collect();
        SearchPath::new(&setting, "ann", Some(Arc::new(schemas)), None)
    }

    #[test]
    fn schemas_that_are_not_there_or_come_again_are_left_out() {
        let found = path(&["$user", "gone", "a", "ann", "public", "a"]);
        assert_eq!(found.names(), ["ann", "a", "public"]);
        assert_eq!(found.keys("t"), ["\u{0}2.t", "\u{0}1.t", "t"]);
        assert!(path(&["gone", "public"]).is_public() && !path(&["a", "public"]).is_public());
    }

    #[test]
    fn public_is_not_found_once_it_is_dropped() {
        let mut schemas = Schemas::initial();
        schemas.remove_public();
        let setting = ["public".to_owned(), "a".to_owned()];
        let found = |schemas: &Schemas| {
            SearchPath::new(&setting, "ann", Some(Arc::new(schemas.clone())), None)
        };
        assert!(found(&schemas).searched().is_empty());
        assert_eq!(found(&schemas).keys_of(&setting).unwrap(), Vec::<String>::new());
        schemas.add_public().unwrap();
        assert!(found(&schemas).is_public());
        assert!(schemas.add_public().is_err());
    }

    #[test]
    fn a_name_with_its_schema_stands_for_one_table() {
        let found = path(&["a", "public"]);
        let keys = |parts: &[&str]| {
            let parts: Vec<String> = parts.iter().map(|own| (*own).to_owned()).collect();
            found.keys_of(&parts).unwrap()
        };
        assert_eq!(keys(&["ann", "t"]), ["\u{0}2.t"]);
        assert_eq!(keys(&["public", "t"]), ["t"]);
        assert_eq!(keys(&["gone", "t"]), Vec::<String>::new());
        assert_eq!(keys(&["a.t"]), ["\u{0}1.a.t", "a.t"]);
        assert_eq!(found.shown("\u{0}2.t"), "ann.t");
        assert_eq!(found.shown("\u{0}1.t"), "t");
        assert_eq!(found.written("\u{0}1.T"), "a.\"T\"");
    }
}
