//! The search path of a session, and when it is looked at again.
//!
//! It rests on what the session is set to, on the schemas of the database, and on what the role may
//! use. A plan is made for one path, and has the definition of the schemas among those that it is
//! right for; so a statement looks whether they are what they were, and compares.
//!
//! In a database in which no schema was ever made a plan has nothing to look at, and the path that
//! the session knows is taken to be right. When it is not any more, no plan is used that it would
//! be wrong for: who puts a table into a schema gives that of the same name in `public`, if there
//! is one, another definition ([`define`](super::define)), and what rests on the path itself
//! ([`Planned::uses_path`](super::parsed::Planned::uses_path)) always looks.

use std::sync::Arc;

use parking_lot::Mutex;
use selkie_txn::{Database, DefinitionId, Table, Txn, TxnError};

use super::Settings;
use super::parsed::{PlanCache, Planned};
use super::run::Run;
use crate::catalogue::split_key;
use crate::error::SqlResult;
use crate::roles::{Authority, Roles, Standing};
use crate::schemas::SearchPath;

/// The path that a session has had last.
#[derive(Debug)]
pub(super) struct PathMemory {
    known: Mutex<Option<Known>>,
    /// `public` alone. Each session has its own: all count who has it.
    plain: Arc<SearchPath>,
}

impl Default for PathMemory {
    fn default() -> Self {
        Self { known: Mutex::default(), plain: Arc::new(SearchPath::stored(None)) }
    }
}

impl PathMemory {
    /// The schema and the name of what is in the catalogue, as the session has last known them.
    pub(super) fn named(&self, key: &str) -> (String, String) {
        let (schema, name) = split_key(key);
        let known = self.known.lock();
        let path = known.as_ref().map_or(&self.plain, |known| &known.current.path);
        (path.name(schema).to_owned(), name.to_owned())
    }

    /// `public` alone.
    pub(super) fn plain(&self) -> Arc<SearchPath> {
        Arc::clone(&self.plain)
    }
}

#[derive(Clone, Debug)]
struct Known {
    settings: Arc<Settings>,
    roles: Option<Arc<Roles>>,
    current: CurrentPath,
}

/// A path, and for which schemas it is right.
#[derive(Clone, Debug)]
pub(super) struct CurrentPath {
    pub(super) path: Arc<SearchPath>,
    /// The table of schemas and its definition; `None` if none was ever made.
    pub(super) schemas: Option<(Table, DefinitionId)>,
}

/// Whose path it is.
#[derive(Clone, Copy)]
pub(super) struct PathSource<'s> {
    pub(super) database: &'s Database,
    pub(super) settings: &'s Arc<Settings>,
    pub(super) standing: Standing,
    pub(super) user: &'s str,
    pub(super) plans: &'s PlanCache,
    pub(super) memory: &'s PathMemory,
}

impl PathSource<'_> {
    /// The path that the session has had last, if it is set to what it was.
    pub(super) fn known(&self) -> Option<Arc<SearchPath>> {
        let known = self.memory.known.lock();
        let known = known.as_ref().filter(|own| Arc::ptr_eq(&own.settings, self.settings))?;
        Some(Arc::clone(&known.current.path))
    }

    /// The path in the state that the transaction sees.
    pub(super) async fn current(
        &self,
        txn: &mut Txn<'_>,
    ) -> Result<SqlResult<CurrentPath>, TxnError> {
        let loaded = match crate::schemas::load(txn, &self.plans.schemas).await? {
            Ok(loaded) => loaded,
            Err(error) => return Ok(Err(error)),
        };
        let schemas = loaded.as_ref().map(|own| (own.table, own.definition));
        let role = self.settings.role.as_ref();
        let may_all = self.standing == Standing::Trusted && role.is_none();
        let roles = match schemas {
            Some(_) if !may_all => match crate::roles::load(txn, &self.plans.roles).await? {
                Ok(roles) => roles,
                Err(error) => return Ok(Err(error)),
            },
            _ => None,
        };
        if let Some(known) = &*self.memory.known.lock()
            && known.current.schemas == schemas
            && Arc::ptr_eq(&known.settings, self.settings)
            && known.roles.as_ref().map(Arc::as_ptr) == roles.as_ref().map(Arc::as_ptr)
        {
            return Ok(Ok(known.current.clone()));
        }
        let authority = match &roles {
            None => None,
            Some(roles) => {
                let set = role.map(|own| own.oid);
                match Authority::new(Some(Arc::clone(roles)), self.standing, self.user, set) {
                    Ok(authority) => Some(authority),
                    Err(error) => return Ok(Err(error)),
                }
            }
        };
        let user = role.map_or(self.user, |own| &*own.name);
        let setting = &self.settings.search_path;
        let all = loaded.map(|own| own.schemas);
        let path = SearchPath::new(setting, user, all, authority.as_ref());
        let current = CurrentPath { path: Arc::new(path), schemas };
        let settings = Arc::clone(self.settings);
        *self.memory.known.lock() = Some(Known { settings, roles, current: current.clone() });
        Ok(Ok(current))
    }

    /// Whether a plan whose tables are what they were is right for the path.
    pub(super) async fn fits(
        &self,
        txn: &mut Txn<'_>,
        planned: &Planned,
    ) -> Result<SqlResult<bool>, TxnError> {
        if planned.schemas.is_none()
            && !planned.uses_path
            && let Some(known) = &*self.memory.known.lock()
            && known.current.schemas.is_none()
            && Arc::ptr_eq(&known.settings, self.settings)
        {
            return Ok(Ok(known.current.path.is_same(&planned.path)));
        }
        Ok(self.current(txn).await?.map(|current| {
            current.schemas == planned.schemas && current.path.is_same(&planned.path)
        }))
    }
}

impl Run {
    /// Where names are looked for.
    pub(super) fn path_source(&self) -> PathSource<'_> {
        PathSource {
            database: &self.database,
            settings: &self.settings,
            standing: self.standing,
            user: &self.user,
            plans: &self.plans,
            memory: &self.known_path,
        }
    }

    /// The same with the schemas in which names are looked for.
    pub(super) async fn with_path(&self, txn: &mut Txn<'_>) -> Result<SqlResult<Self>, TxnError> {
        let current = self.path_source().current(txn).await?;
        Ok(current.map(|current| {
            let mut run = self.clone();
            run.path = current.path;
            run
        }))
    }
}
