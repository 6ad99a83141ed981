//! All schemas of a database.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::catalogue::SchemaId;
use crate::error::{SqlError, SqlResult, SqlState};
use crate::roles::{Mention, Rights};

/// The schema that is always there.
pub(crate) const PUBLIC: &str = "public";
/// The schema of most relations of the system.
pub(crate) const PG_CATALOG: &str = "pg_catalog";
/// The schema of the others.
pub(crate) const INFORMATION_SCHEMA: &str = "information_schema";

/// A schema that no statement can use: tables of the system have its name before theirs.
pub(crate) const SYSTEM: &str = "selkie_system";

/// The schemas of a database, but for `public` and those of the system.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Schemas {
    /// The number of the next schema. None is given twice.
    next: u32,
    schemas: BTreeMap<String, Schema>,
    /// That `public` was dropped, and not created again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    no_public: bool,
    /// The comment on `public`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) public_comment: Option<String>,
    #[serde(default, skip_serializing_if = "OtherComments::is_empty")]
    pub(crate) comments: OtherComments,
    /// Names by numbers.
    #[serde(skip)]
    names: BTreeMap<u32, String>,
}

/// The comments on what has no note of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OtherComments {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) database: Option<String>,
    /// By their names in the catalogue.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) sequences: BTreeMap<String, String>,
    /// By their numbers, of which none is given twice: that of a role that is gone is no other's.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) roles: BTreeMap<u32, String>,
}

impl OtherComments {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A schema.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Schema {
    number: u32,
    #[serde(default, skip_serializing_if = "Rights::is_default")]
    pub(crate) rights: Rights,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) comment: Option<String>,
}

impl Schema {
    pub(crate) fn id(&self) -> SchemaId {
        SchemaId::of_number(self.number)
    }
}

impl Schemas {
    /// Those of a database in which none was made.
    pub(crate) fn initial() -> Self {
        let (schemas, names) = (BTreeMap::new(), BTreeMap::new());
        let comments = OtherComments::default();
        Self { next: 1, schemas, no_public: false, public_comment: None, comments, names }
    }

    pub(crate) fn from_stored(text: &str) -> SqlResult<Self> {
        let damaged = |error| SqlError::internal(format!("the schemas are damaged: {error}"));
        let mut own: Self = serde_json::from_str(text).map_err(damaged)?;
        own.names = own.schemas.iter().map(|(name, own)| (own.number, name.clone())).collect();
        Ok(own)
    }

    pub(crate) fn to_stored(&self) -> SqlResult<String> {
        let failed = |error| SqlError::internal(format!("the schemas cannot be written: {error}"));
        serde_json::to_string(self).map_err(failed)
    }

    /// All of them, with their names, in the order of these.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &Schema)> {
        self.schemas.iter().map(|(name, own)| (&**name, own))
    }

    /// The schema of a name, which is not `public`.
    pub(crate) fn find(&self, name: &str) -> Option<&Schema> {
        self.schemas.get(name)
    }

    pub(crate) fn find_mut(&mut self, name: &str) -> SqlResult<&mut Schema> {
        self.schemas.get_mut(name).ok_or_else(|| no_schema(name))
    }

    /// The name of a schema.
    pub(crate) fn name(&self, id: SchemaId) -> Option<&str> {
        self.names.get(&id.number()).map(|name| &**name)
    }

    /// Whether there is the schema `public`. What is in it has its own name in the catalogue, so it
    /// can go and come, and not be called otherwise.
    pub(crate) fn has_public(&self) -> bool {
        !self.no_public
    }

    /// Creates `public` again.
    pub(crate) fn add_public(&mut self) -> SqlResult<()> {
        if self.has_public() {
            return self.check_free(PUBLIC);
        }
        self.no_public = false;
        Ok(())
    }

    /// Takes `public` out, in which there is nothing any more.
    pub(crate) fn remove_public(&mut self) {
        (self.no_public, self.public_comment) = (true, None);
    }

    /// Adds a schema.
    pub(crate) fn add(&mut self, name: &str, rights: Rights) -> SqlResult<()> {
        self.check_free(name)?;
        let number = self.next;
        self.next = number.checked_add(1).ok_or_else(|| {
            let message = "there are no numbers left for schemas";
            SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message)
        })?;
        self.names.insert(number, name.to_owned());
        self.schemas.insert(name.to_owned(), Schema { number, rights, comment: None });
        Ok(())
    }

    /// Takes a schema out.
    pub(crate) fn remove(&mut self, name: &str) {
        if let Some(own) = self.schemas.remove(name) {
            self.names.remove(&own.number);
        }
    }

    /// Gives a schema another name.
    pub(crate) fn rename(&mut self, old: &str, new: &str) -> SqlResult<()> {
        self.check_free(new)?;
        let own = self.schemas.remove(old).ok_or_else(|| no_schema(old))?;
        self.names.insert(own.number, new.to_owned());
        self.schemas.insert(new.to_owned(), own);
        Ok(())
    }

    fn check_free(&self, name: &str) -> SqlResult<()> {
        if !self.schemas.contains_key(name) && !matches!(name, PUBLIC | INFORMATION_SCHEMA) {
            return Ok(());
        }
        let message = format!("schema \"{name}\" already exists");
        Err(SqlError::new(SqlState::DUPLICATE_SCHEMA, message))
    }

    /// The schemas that name a role.
    pub(crate) fn mentions(&self, role: u32) -> Vec<(String, Mention)> {
        let own = |(name, own): (&String, &Schema)| {
            Some((format!("schema {name}"), own.rights.names(role)?))
        };
        self.schemas.iter().filter_map(own).collect()
    }
}

/// That there is no schema of a name.
pub(crate) fn no_schema(name: &str) -> SqlError {
    SqlError::new(SqlState::INVALID_SCHEMA_NAME, format!("schema \"{name}\" does not exist"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_given_once_and_kept_by_a_rename() {
        let mut schemas = Schemas::initial();
        schemas.add("a", Rights::default()).unwrap();
        let first = schemas.find("a").unwrap().id();
        schemas.rename("a", "b").unwrap();
        assert_eq!(schemas.find("b").unwrap().id(), first);
        assert_eq!(schemas.name(first), Some("b"));
        schemas.remove("b");
        let mut schemas = Schemas::from_stored(&schemas.to_stored().unwrap()).unwrap();
        schemas.add("a", Rights::default()).unwrap();
        assert_ne!(schemas.find("a").unwrap().id(), first);
        assert_eq!(schemas.name(first), None);
    }

    #[test]
    fn a_name_is_taken_once() {
        let mut schemas = Schemas::initial();
        schemas.add("a", Rights::default()).unwrap();
        schemas.add("b", Rights::default()).unwrap();
        let twice = schemas.add("a", Rights::default()).unwrap_err();
        let renamed = schemas.rename("b", "a").unwrap_err();
        let public = schemas.add(PUBLIC, Rights::default()).unwrap_err();
        for error in [twice, renamed, public] {
            assert_eq!(error.state(), SqlState::DUPLICATE_SCHEMA);
        }
    }
}
