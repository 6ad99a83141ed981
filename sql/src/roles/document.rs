//! All roles of a database.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::acl::{Mention, Rights};
use super::verifier::Verifier;
use crate::error::{SqlError, SqlResult, SqlState};

/// The number of the first superuser, who owns what was made before there were roles.
pub(crate) const BOOTSTRAP: u32 = 10;
/// What it is called.
pub(crate) const BOOTSTRAP_NAME: &str = "postgres";
/// The number of the first other role.
const FIRST: u32 = 16_384;

/// The roles of a database, and the rights of what has no note of its own.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Roles {
    /// The number of the next role. None is given twice, so what a role that is gone was granted
    /// is nobody's.
    next: u32,
    /// Whether clients have to be roles. It stays so, whatever becomes of the superusers: else a
    /// mistake would let everyone in.
    enforced: bool,
    /// Makes the verifiers of roles that are not there.
    mock_secret: String,
    roles: BTreeMap<String, Role>,
    /// By their names in the catalogue. Those without an entry are as they are by default.
    #[serde(default)]
    pub(crate) sequences: BTreeMap<String, Rights>,
    /// Of the database: who may create schemas.
    #[serde(default, skip_serializing_if = "Rights::is_default")]
    pub(crate) database: Rights,
    /// Of the schema `public`.
    #[serde(default = "Rights::of_public_schema")]
    pub(crate) public: Rights,
    /// Names by numbers.
    #[serde(skip)]
    names: BTreeMap<u32, String>,
}

/// A role.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Role {
    pub(crate) oid: u32,
    pub(crate) superuser: bool,
    /// Whether it has what those may do that it is a member of, without SET ROLE.
    pub(crate) inherit: bool,
    pub(crate) create_role: bool,
    pub(crate) create_db: bool,
    pub(crate) login: bool,
    /// What is kept of its password.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) verifier: Option<String>,
    /// Until when the password is good, in microseconds since 2000-01-01.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) valid_until: Option<i64>,
    /// The roles that it is a member of, and whether it may grant that.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) member_of: BTreeMap<u32, bool>,
}

impl Role {
    pub(crate) fn new() -> Self {
        Self {
            oid: 0,
            superuser: false,
            inherit: true,
            create_role: false,
            create_db: false,
            login: false,
            verifier: None,
            valid_until: None,
            member_of: BTreeMap::new(),
        }
    }
}

impl Roles {
    /// Those of a database in which none was made.
    pub(crate) fn initial(mock_secret: String) -> Self {
        let first = Role {
            oid: BOOTSTRAP,
            superuser: true,
            create_role: true,
            create_db: true,
            ..Role::new()
        };
        let name = BOOTSTRAP_NAME.to_owned();
        Self {
            next: FIRST,
            enforced: false,
            mock_secret,
            names: BTreeMap::from([(BOOTSTRAP, name.clone())]),
            roles: BTreeMap::from([(name, first)]),
            sequences: BTreeMap::new(),
            database: Rights::default(),
            public: Rights::of_public_schema(),
        }
    }

    pub(crate) fn from_stored(text: &str) -> SqlResult<Self> {
        let damaged = |error| SqlError::internal(format!("the roles are damaged: {error}"));
        let mut own: Self = serde_json::from_str(text).map_err(damaged)?;
        own.names = own.roles.iter().map(|(name, role)| (role.oid, name.clone())).collect();
        Ok(own)
    }

    pub(crate) fn to_stored(&self) -> SqlResult<String> {
        let failed = |error| SqlError::internal(format!("the roles cannot be written: {error}"));
        serde_json::to_string(self).map_err(failed)
    }

    /// Whether clients have to be roles.
    pub(crate) fn is_enforced(&self) -> bool {
        self.enforced
    }

    /// From now on they have to if a superuser can log in.
    pub(crate) fn enforce_if_possible(&mut self) {
        self.enforced |= self.roles.values().any(|own| own.superuser && own.login);
    }

    /// The verifier of a role that is not there.
    pub(crate) fn mock_verifier(&self, name: &str) -> Verifier {
        Verifier::mock(self.mock_secret.as_bytes(), name)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &Role)> {
        self.roles.iter().map(|(name, role)| (&**name, role))
    }

    /// The role of a name.
    pub(crate) fn find(&self, name: &str) -> Option<&Role> {
        self.roles.get(name)
    }

    /// The role of a name.
    ///
    /// # Errors
    /// 42704 if there is none.
    pub(crate) fn named(&self, name: &str) -> SqlResult<&Role> {
        self.find(name).ok_or_else(|| no_role(name))
    }

    pub(crate) fn named_mut(&mut self, name: &str) -> SqlResult<&mut Role> {
        self.roles.get_mut(name).ok_or_else(|| no_role(name))
    }

    /// The role of a number, and its name.
    pub(crate) fn of_oid(&self, oid: u32) -> Option<(&str, &Role)> {
        let (name, role) = self.roles.get_key_value(self.names.get(&oid)?)?;
        Some((name, role))
    }

    /// Adds a role. Its number.
    pub(crate) fn add(&mut self, name: &str, role: Role) -> SqlResult<u32> {
        if self.roles.contains_key(name) {
            let message = format!("role \"{name}\" already exists");
            return Err(SqlError::new(SqlState::DUPLICATE_OBJECT, message));
        }
        let oid = self.next;
        self.next = oid.checked_add(1).ok_or_else(|| {
            let message = "there are no numbers left for roles";
            SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message)
        })?;
        self.names.insert(oid, name.to_owned());
        self.roles.insert(name.to_owned(), Role { oid, ..role });
        Ok(oid)
    }

    /// Takes a role out, and its memberships.
    pub(crate) fn remove(&mut self, name: &str) {
        if let Some(role) = self.roles.remove(name) {
            self.names.remove(&role.oid);
            for other in self.roles.values_mut() {
                other.member_of.remove(&role.oid);
            }
        }
    }

    /// Makes a role a member of another.
    pub(crate) fn add_member(&mut self, of: &str, member: &str, admin: bool) -> SqlResult<()> {
        let (group, own) = (self.named(of)?.oid, self.named(member)?.oid);
        if self.reachable(group, |_| true).contains(&own) {
            let message = format!("role \"{of}\" is a member of role \"{member}\"");
            return Err(SqlError::new(SqlState::INVALID_GRANT, message));
        }
        let entry = self.named_mut(member)?.member_of.entry(group).or_default();
        *entry |= admin;
        Ok(())
    }

    /// A role and those that it is a member of, also by others, as far as `passes` lets go on.
    fn reachable(&self, from: u32, passes: impl Fn(&Role) -> bool) -> BTreeSet<u32> {
        let (mut reached, mut open) = (BTreeSet::new(), vec![from]);
        while let Some(oid) = open.pop() {
            if reached.insert(oid)
                && let Some((_, role)) = self.of_oid(oid)
                && passes(role)
            {
                open.extend(role.member_of.keys());
            }
        }
        reached
    }

    /// The roles whose privileges a role has.
    pub(crate) fn inherited(&self, oid: u32) -> BTreeSet<u32> {
        self.reachable(oid, |role| role.inherit)
    }

    /// The roles that a role may become.
    pub(crate) fn memberships(&self, oid: u32) -> BTreeSet<u32> {
        self.reachable(oid, |_| true)
    }

    pub(crate) fn is_superuser(&self, oid: u32) -> bool {
        oid == BOOTSTRAP || self.of_oid(oid).is_some_and(|(_, own)| own.superuser)
    }

    /// Whether a role may grant membership in another.
    pub(crate) fn is_admin(&self, oid: u32, of: u32) -> bool {
        self.is_superuser(oid)
            || self.memberships(oid).into_iter().any(|own| {
                self.of_oid(own).is_some_and(|(_, role)| role.member_of.get(&of) == Some(&true))
            })
    }

    /// The rights of a sequence.
    pub(crate) fn sequence(&self, key: &str) -> Rights {
        self.sequences.get(key).cloned().unwrap_or_default()
    }

    /// What of the document itself names a role.
    pub(crate) fn mentions(
        &self,
        oid: u32,
        shown: impl Fn(&str) -> String,
    ) -> Vec<(String, Mention)> {
        let sequences = self.sequences.iter().filter_map(|(key, rights)| {
            Some((format!("sequence {}", shown(key)), rights.names(oid)?))
        });
        let public = self.public.names(oid).map(|own| ("schema public".to_owned(), own));
        let database = self.database.names(oid);
        let database = database.map(|own| ("database selkie".to_owned(), own));
        sequences.chain(public).chain(database).collect()
    }
}

/// That there is no role of a name.
pub(crate) fn no_role(name: &str) -> SqlError {
    SqlError::new(SqlState::UNDEFINED_OBJECT, format!("role \"{name}\" does not exist"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use super::*;

    fn roles(names: &[&str]) -> Roles {
        let mut roles = Roles::initial("secret".to_owned());
        for name in names {
            roles.add(name, Role::new()).unwrap();
        }
        roles
    }

    #[test]
    fn a_circle_of_members_is_refused() {
        let mut roles = roles(&["a", "b", "c"]);
        roles.add_member("a", "b", false).unwrap();
        roles.add_member("b", "c", false).unwrap();
        for (of, member) in [("c", "a"), ("b", "a"), ("a", "a")] {
            let error = roles.add_member(of, member, false).unwrap_err();
            assert_eq!(error.state(), SqlState::INVALID_GRANT, "{of} {member}");
        }
    }

    #[test]
    fn a_role_that_does_not_inherit_may_become_what_it_is_a_member_of() {
        let mut roles = roles(&["a", "b", "c"]);
        roles.add_member("a", "b", false).unwrap();
        roles.add_member("b", "c", false).unwrap();
        roles.named_mut("b").unwrap().inherit = false;
        let [a, b, c] = ["a", "b", "c"].map(|name| roles.named(name).unwrap().oid);
        assert_eq!(roles.inherited(c), BTreeSet::from([b, c]));
        assert_eq!(roles.memberships(c), BTreeSet::from([a, b, c]));
    }

    #[test]
    fn a_number_is_given_once() {
        let mut roles = roles(&["a"]);
        let first = roles.named("a").unwrap().oid;
        roles.remove("a");
        let mut roles = Roles::from_stored(&roles.to_stored().unwrap()).unwrap();
        assert_ne!(roles.add("a", Role::new()).unwrap(), first);
    }

    #[test]
    fn roles_are_enforced_once_a_superuser_can_log_in_and_for_good() {
        let mut roles = roles(&["a"]);
        roles.enforce_if_possible();
        assert!(!roles.is_enforced());
        let a = roles.named_mut("a").unwrap();
        (a.superuser, a.login) = (true, true);
        roles.enforce_if_possible();
        roles.remove("a");
        roles.enforce_if_possible();
        assert!(Roles::from_stored(&roles.to_stored().unwrap()).unwrap().is_enforced());
    }
}
