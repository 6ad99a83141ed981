//! What the role of a session may do.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::acl::{EVERYONE, Kind, Privileges, Rights};
use super::document::{BOOTSTRAP, Roles};
use crate::error::{SqlError, SqlResult, SqlState};

/// As whom a session was let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Without a question: who opens the pool, or a client before there were roles.
    Trusted,
    /// As a role of this number.
    Role(u32),
}

/// What a statement may do: the role that it runs as, in the state that its transaction sees.
#[derive(Clone, Debug)]
pub(crate) struct Authority {
    /// `None` if none was ever made: nothing is forbidden then.
    roles: Option<Arc<Roles>>,
    /// The role; the first superuser for one that is trusted.
    oid: u32,
    /// That of the session, whatever SET ROLE said.
    session: u32,
    is_superuser: bool,
    inherited: BTreeSet<u32>,
}

impl Authority {
    /// Of a role, or of one that is trusted, with a role that was SET.
    ///
    /// # Errors
    /// 28000 if the role is gone.
    pub(crate) fn new(
        roles: Option<Arc<Roles>>,
        standing: Standing,
        user: &str,
        set: Option<u32>,
    ) -> SqlResult<Self> {
        let session = match standing {
            Standing::Role(oid) => oid,
            // What it makes is its own if there is a role of its name.
            Standing::Trusted => {
                let own = roles.as_ref().and_then(|roles| roles.find(user));
                own.map_or(BOOTSTRAP, |own| own.oid)
            }
        };
        let Some(known) = &roles else {
            let is_superuser = true;
            let inherited = BTreeSet::new();
            return Ok(Self { roles, oid: session, session, is_superuser, inherited });
        };
        let oid = set.unwrap_or(session);
        let is_trusted = standing == Standing::Trusted && set.is_none();
        if !is_trusted && known.of_oid(oid).is_none() {
            let message = "the role of the session was dropped";
            return Err(SqlError::new(SqlState::INVALID_AUTHORIZATION, message));
        }
        let is_superuser = is_trusted || known.is_superuser(oid);
        let inherited = known.inherited(oid);
        Ok(Self { roles, oid, session, is_superuser, inherited })
    }

    /// What everyone may do.
    pub(crate) fn of_everyone(roles: Option<Arc<Roles>>) -> Self {
        let (oid, is_superuser) = (EVERYONE, roles.is_none());
        Self { roles, oid, session: oid, is_superuser, inherited: BTreeSet::new() }
    }

    /// The number of the role.
    pub(crate) fn oid(&self) -> u32 {
        self.oid
    }

    /// That of the session.
    pub(crate) fn session(&self) -> u32 {
        self.session
    }

    pub(crate) fn is_superuser(&self) -> bool {
        self.is_superuser
    }

    /// The roles, if any was ever made.
    pub(crate) fn roles(&self) -> Option<&Arc<Roles>> {
        self.roles.as_ref()
    }

    /// Whether it may create roles.
    pub(crate) fn creates_roles(&self) -> bool {
        let own = self.roles.as_ref().and_then(|roles| roles.of_oid(self.oid));
        self.is_superuser || own.is_some_and(|(_, own)| own.create_role)
    }

    /// What it may do with an object.
    pub(crate) fn held(&self, kind: Kind, rights: &Rights) -> Privileges {
        if self.is_superuser {
            return kind.all();
        }
        rights.held(kind, |role| self.inherited.contains(&role))
    }

    /// What it may grant of an object.
    pub(crate) fn options(&self, kind: Kind, rights: &Rights) -> Privileges {
        if self.is_superuser {
            return kind.all();
        }
        rights.options(kind, |role| self.inherited.contains(&role))
    }

    /// As whom it grants privileges of an object, `None` as the owner, and which of them it may.
    pub(crate) fn grantor(
        &self,
        wanted: Privileges,
        kind: Kind,
        rights: &Rights,
    ) -> (Option<u32>, Privileges) {
        if self.is_superuser {
            return (None, kind.all());
        }
        rights.grantor(kind, wanted, self.oid, &self.inherited)
    }

    /// What a role may do with an object, such as the owner of a view.
    pub(crate) fn held_by(&self, role: u32, kind: Kind, rights: &Rights) -> Privileges {
        let Some(roles) = &self.roles else { return kind.all() };
        if roles.is_superuser(role) {
            return kind.all();
        }
        let inherited = roles.inherited(role);
        rights.held(kind, |own| inherited.contains(&own))
    }

    /// Whether it may create schemas in the database.
    pub(crate) fn may_create_schemas(&self) -> bool {
        let granted = |roles: &Arc<Roles>| {
            self.held(Kind::Schema, &roles.database).has_all(Privileges::CREATE)
        };
        self.is_superuser() || self.roles().is_some_and(granted)
    }

    /// Whether it is the owner of an object, or has the rights of that.
    pub(crate) fn owns(&self, rights: &Rights) -> bool {
        self.is_superuser || self.inherited.contains(&rights.owner)
    }

    /// Refuses what only an owner may do.
    ///
    /// # Errors
    /// 42501.
    pub(crate) fn require_owner(&self, kind: Kind, name: &str, rights: &Rights) -> SqlResult<()> {
        if self.owns(rights) {
            return Ok(());
        }
        Err(denied(format!("must be owner of {} {name}", kind.name())))
    }

    /// Refuses what a role has no privilege for.
    ///
    /// # Errors
    /// 42501.
    pub(crate) fn require(
        &self,
        wanted: Privileges,
        kind: Kind,
        name: &str,
        rights: &Rights,
    ) -> SqlResult<()> {
        if self.held(kind, rights).has_all(wanted) { Ok(()) } else { Err(no_privilege(kind, name)) }
    }

    /// Refuses to create something in the schema `public` for those who may not.
    ///
    /// # Errors
    /// 42501.
    pub(crate) fn require_create(&self) -> SqlResult<()> {
        let Some(roles) = &self.roles else { return Ok(()) };
        self.require(Privileges::CREATE, Kind::Schema, "public", &roles.public)
    }
}

/// That a role may not do something.
pub(crate) fn denied(message: impl Into<String>) -> SqlError {
    SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, message)
}

/// That a role lacks a privilege of an object.
pub(crate) fn no_privilege(kind: Kind, name: &str) -> SqlError {
    denied(format!("permission denied for {} {name}", kind.name()))
}
