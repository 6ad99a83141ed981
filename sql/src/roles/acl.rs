//! Privileges, and who has them of an object.

use serde::{Deserialize, Serialize};

use super::document::BOOTSTRAP;

/// A set of privileges. It is stored and shown as PostgreSQL's letters, in its order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", from = "String")]
pub(crate) struct Privileges(u16);

/// Letters and names, in the order of PostgreSQL.
const NAMES: [(char, &str); 9] = [
    ('a', "INSERT"),
    ('r', "SELECT"),
    ('w', "UPDATE"),
    ('d', "DELETE"),
    ('D', "TRUNCATE"),
    ('x', "REFERENCES"),
    ('t', "TRIGGER"),
    ('U', "USAGE"),
    ('C', "CREATE"),
];

impl Privileges {
    pub(crate) const NONE: Self = Self(0);
    /// Of all kinds of objects.
    pub(crate) const ALL: Self = Self((1 << NAMES.len()) - 1);
    pub(crate) const INSERT: Self = Self(1);
    pub(crate) const SELECT: Self = Self(1 << 1);
    pub(crate) const UPDATE: Self = Self(1 << 2);
    pub(crate) const DELETE: Self = Self(1 << 3);
    pub(crate) const TRUNCATE: Self = Self(1 << 4);
    pub(crate) const REFERENCES: Self = Self(1 << 5);
    pub(crate) const USAGE: Self = Self(1 << 7);
    pub(crate) const CREATE: Self = Self(1 << 8);

    /// Those that columns have.
    pub(crate) const OF_COLUMNS: Self = Self(0b10_0111);

    /// The privilege of a name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        let at = NAMES.iter().position(|(_, own)| own.eq_ignore_ascii_case(name))?;
        Some(Self(1 << at))
    }

    /// Both.
    #[must_use]
    pub(crate) const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// What is in both.
    #[must_use]
    pub(crate) const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// What is in this one alone.
    #[must_use]
    pub(crate) const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    pub(crate) const fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) const fn has_all(self, wanted: Self) -> bool {
        self.0 & wanted.0 == wanted.0
    }

    /// As PostgreSQL prints them: behind each of those that may be granted further is a star.
    pub(crate) fn letters(self, options: Self) -> String {
        let mut letters = String::new();
        for (at, (letter, _)) in (0..).zip(NAMES) {
            let bit = 1 << at;
            if self.0 & bit != 0 {
                letters.push(letter);
                letters.extend((options.0 & bit != 0).then_some('*'));
            }
        }
        letters
    }

    /// PostgreSQL's names of them.
    pub(crate) fn names(self) -> impl Iterator<Item = &'static str> {
        (0..).zip(NAMES).filter(move |(at, _)| self.0 & 1 << at != 0).map(|(_, (_, name))| name)
    }
}

impl From<Privileges> for String {
    fn from(own: Privileges) -> Self {
        (0..).zip(NAMES).filter(|(at, _)| own.0 & 1 << at != 0).map(|(_, (c, _))| c).collect()
    }
}

impl From<String> for Privileges {
    fn from(letters: String) -> Self {
        let bit = |c| NAMES.iter().position(|(own, _)| *own == c).map_or(0, |at| 1 << at);
        Self(letters.chars().map(bit).fold(0, |all, bit| all | bit))
    }
}

/// What kind of object has privileges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Table,
    View,
    Sequence,
    Schema,
}

impl Kind {
    /// All privileges of such an object.
    pub(crate) const fn all(self) -> Privileges {
        match self {
            Self::Table | Self::View => Privileges(0b0_0111_1111),
            Self::Sequence => Privileges::SELECT.with(Privileges::UPDATE).with(Privileges::USAGE),
            Self::Schema => Privileges::USAGE.with(Privileges::CREATE),
        }
    }

    /// As messages call it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Table => "table",
            Self::View => "view",
            Self::Sequence => "sequence",
            Self::Schema => "schema",
        }
    }
}

/// Who owns an object, and who may do what with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Rights {
    #[serde(default = "bootstrap")]
    pub(crate) owner: u32,
    /// `None` as long as nothing was granted or revoked: the owner may do all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    grants: Option<Vec<Grant>>,
}

/// What a role has been granted by another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Grant {
    /// The role, [`EVERYONE`] for all of them.
    pub(crate) to: u32,
    /// Who has granted it; `None` is the owner of the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) by: Option<u32>,
    pub(crate) privileges: Privileges,
    /// Those that it may grant further.
    #[serde(default, skip_serializing_if = "is_none")]
    pub(crate) options: Privileges,
}

fn is_none(privileges: &Privileges) -> bool {
    privileges.is_empty()
}

impl Grant {
    /// What the owner grants, which is not granted further.
    fn plain(to: u32, privileges: Privileges) -> Self {
        Self { to, by: None, privileges, options: Privileges::NONE }
    }

    /// Whether it is to the same role, and by the same.
    pub(super) fn is_by_same(&self, other: &Self) -> bool {
        (self.to, self.by) == (other.to, other.by)
    }
}

/// In the place of a role: PUBLIC.
pub(crate) const EVERYONE: u32 = 0;

fn bootstrap() -> u32 {
    BOOTSTRAP
}

impl Default for Rights {
    fn default() -> Self {
        Self { owner: BOOTSTRAP, grants: None }
    }
}

impl Rights {
    /// Those of a new object.
    pub(crate) fn of(owner: u32) -> Self {
        Self { owner, grants: None }
    }

    /// Those of the schema `public`, which all may use.
    pub(crate) fn of_public_schema() -> Self {
        let mut own = Self::default();
        own.grant(Kind::Schema, EVERYONE, Privileges::USAGE);
        own
    }

    /// Whether they are those that nothing was said about.
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// What was granted; `None` as long as nothing was granted or revoked.
    pub(crate) fn grants(&self) -> Option<&[Grant]> {
        self.grants.as_deref()
    }

    /// What a role may do that `has` the privileges of others.
    pub(crate) fn held(&self, kind: Kind, has: impl Fn(u32) -> bool) -> Privileges {
        let Some(grants) = &self.grants else {
            return if has(self.owner) { kind.all() } else { Privileges::NONE };
        };
        let own = grants.iter().filter(|own| own.to == EVERYONE || has(own.to));
        own.fold(Privileges::NONE, |all, own| all.with(own.privileges))
    }

    pub(super) fn explicit(&mut self, kind: Kind) -> &mut Vec<Grant> {
        let owner = Grant::plain(self.owner, kind.all());
        self.grants.get_or_insert_with(|| vec![owner])
    }

    pub(super) fn put_grants(&mut self, grants: Vec<Grant>) {
        self.grants = Some(grants);
    }

    /// Makes another role the owner, with what the last one could do as that.
    pub(crate) fn give_to(&mut self, owner: u32) {
        let last = std::mem::replace(&mut self.owner, owner);
        let Some(grants) = &mut self.grants else { return };
        let mut merged: Vec<Grant> = Vec::with_capacity(grants.len());
        for mut own in grants.drain(..) {
            if own.to == last {
                own.to = owner;
            }
            own.by = own.by.filter(|by| *by != owner);
            match merged.iter_mut().find(|other| other.is_by_same(&own)) {
                Some(other) => {
                    other.privileges = other.privileges.with(own.privileges);
                    other.options = other.options.with(own.options);
                }
                None => merged.push(own),
            }
        }
        *grants = merged;
    }

    /// Gives a role privileges, as the owner does, which it may not grant further.
    pub(crate) fn grant(&mut self, kind: Kind, to: u32, privileges: Privileges) {
        let new = Grant::plain(to, privileges);
        let grants = self.explicit(kind);
        match grants.iter_mut().find(|own| own.is_by_same(&new)) {
            Some(own) => own.privileges = own.privileges.with(privileges),
            None => grants.push(new),
        }
    }

    /// Takes privileges from a role that nobody has granted further.
    pub(crate) fn revoke(&mut self, kind: Kind, from: u32, privileges: Privileges) {
        let grants = self.explicit(kind);
        for own in grants.iter_mut().filter(|own| own.to == from) {
            own.privileges = own.privileges.without(privileges);
        }
        grants.retain(|own| !own.privileges.is_empty());
    }

    /// Whether a role owns it, or was granted something of it or has granted that.
    pub(crate) fn names(&self, role: u32) -> Option<Mention> {
        if self.owner == role {
            return Some(Mention::Owner);
        }
        let mut grants = self.grants.iter().flatten();
        grants.any(|own| own.to == role || own.by == Some(role)).then_some(Mention::Grantee)
    }
}

/// How an object names a role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mention {
    Owner,
    Grantee,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_owner_may_do_all_until_something_is_revoked() {
        let mut rights = Rights::of(7);
        assert_eq!(rights.held(Kind::Table, |role| role == 7), Kind::Table.all());
        assert_eq!(rights.held(Kind::Table, |role| role == 8), Privileges::NONE);
        rights.grant(Kind::Table, 8, Privileges::SELECT);
        assert_eq!(rights.held(Kind::Table, |role| role == 8), Privileges::SELECT);
        assert_eq!(rights.held(Kind::Table, |role| role == 7), Kind::Table.all());
        rights.revoke(Kind::Table, 7, Privileges::DELETE);
        assert!(!rights.held(Kind::Table, |role| role == 7).has_all(Privileges::DELETE));
        rights.revoke(Kind::Table, 8, Kind::Table.all());
        assert_eq!(rights.names(8), None);
    }

    #[test]
    fn another_owner_may_do_what_the_last_one_could() {
        let mut rights = Rights::of(7);
        rights.grant(Kind::Table, 8, Privileges::SELECT);
        rights.revoke(Kind::Table, 7, Privileges::DELETE);
        rights.give_to(8);
        assert_eq!((rights.names(7), rights.names(8)), (None, Some(Mention::Owner)));
        let held = rights.held(Kind::Table, |role| role == 8);
        assert!(held.has_all(Privileges::SELECT.with(Privileges::UPDATE)));
        assert!(!held.has_all(Privileges::DELETE));
        let mut rights = Rights::of(7);
        rights.give_to(8);
        assert_eq!(rights, Rights::of(8));
    }

    #[test]
    fn what_everyone_was_granted_everyone_has() {
        let mut rights = Rights::of(7);
        rights.grant(Kind::Table, EVERYONE, Privileges::INSERT);
        assert_eq!(rights.held(Kind::Table, |role| role == 9), Privileges::INSERT);
    }

    #[test]
    fn letters_are_those_of_postgresql_in_its_order() {
        // As its chapter "Privileges" has them.
        assert_eq!(String::from(Kind::Table.all()), "arwdDxt");
        assert_eq!(String::from(Kind::Sequence.all()), "rwU");
        assert_eq!(String::from(Kind::Schema.all()), "UC");
        assert_eq!(Privileges::from("rwU".to_owned()), Kind::Sequence.all());
    }
}
