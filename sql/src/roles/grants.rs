//! Privileges that are granted further: who may grant which, and what goes when that is revoked.
//!
//! A grant has a grantor, as in PostgreSQL. Who grants what belongs to others needs the grant
//! option for it; the owner always has it. Whoever loses a grant option loses with it what was
//! granted by it, unless somebody else has given the same option. Options make no circles: a role
//! cannot give one back to who it has it from, so what is revoked does not live on.

use std::collections::BTreeSet;

use super::acl::{EVERYONE, Grant, Kind, Privileges, Rights};
use crate::error::{SqlError, SqlResult, SqlState};

/// The roles whose privileges a role has, itself among them.
pub(crate) type Inherited<'a> = &'a dyn Fn(u32) -> BTreeSet<u32>;

/// The grants of an object, with what is needed to change them.
struct Grants<'a> {
    all: Vec<Grant>,
    owner: u32,
    inherited: Inherited<'a>,
    /// Whether what was granted further goes too: else it is an error.
    cascades: bool,
}

impl Rights {
    /// What a role may grant that has the privileges of these.
    pub(crate) fn options(&self, kind: Kind, has: impl Fn(u32) -> bool) -> Privileges {
        if has(self.owner) {
            return kind.all();
        }
        let own = self.grants().unwrap_or_default().iter();
        let own = own.filter(|own| own.to != EVERYONE && has(own.to));
        own.fold(Privileges::NONE, |all, own| all.with(own.options))
    }

    /// As whom a role grants or revokes privileges, `None` as the owner, and which of them it may:
    /// as the role of its roles that may grant most of them.
    pub(crate) fn grantor(
        &self,
        kind: Kind,
        wanted: Privileges,
        role: u32,
        inherited: &BTreeSet<u32>,
    ) -> (Option<u32>, Privileges) {
        if inherited.contains(&self.owner) {
            return (None, kind.all());
        }
        let may = |role: u32| {
            let own = self.grants().unwrap_or_default().iter().filter(|own| own.to == role);
            own.fold(Privileges::NONE, |all, own| all.with(own.options)).and(wanted)
        };
        let (mut best, mut most) = (role, may(role));
        for other in inherited {
            let own = may(*other);
            if own.names().count() > most.names().count() {
                (best, most) = (*other, own);
            }
        }
        (Some(best), most)
    }

    /// Gives a role privileges, and the right to grant some of them.
    ///
    /// # Errors
    /// 0LP01 if it is who has given that right.
    pub(crate) fn add(
        &mut self,
        kind: Kind,
        new: &Grant,
        inherited: Inherited<'_>,
    ) -> SqlResult<()> {
        let mut grants = self.take_grants(kind, inherited, false);
        let added = grants.add(new);
        self.put_grants(grants.all);
        added
    }

    /// Takes privileges from a role, and the right to grant some of them.
    ///
    /// # Errors
    /// 2BP01 if it has granted them further, and that does not go with it.
    pub(crate) fn take(
        &mut self,
        kind: Kind,
        gone: &Grant,
        cascades: bool,
        inherited: Inherited<'_>,
    ) -> SqlResult<()> {
        let mut grants = self.take_grants(kind, inherited, cascades);
        let taken = grants.take(gone);
        self.put_grants(grants.all);
        taken
    }

    fn take_grants<'a>(
        &mut self,
        kind: Kind,
        inherited: Inherited<'a>,
        cascades: bool,
    ) -> Grants<'a> {
        let owner = self.owner;
        Grants { all: std::mem::take(self.explicit(kind)), owner, inherited, cascades }
    }
}

impl Grants<'_> {
    fn add(&mut self, new: &Grant) -> SqlResult<()> {
        if new.privileges.is_empty() {
            // A grant of nothing would keep its role from being dropped.
            return Ok(());
        }
        if !new.options.is_empty() {
            self.check_circle(new)?;
        }
        match self.all.iter_mut().find(|own| own.is_by_same(new)) {
            Some(own) => {
                own.privileges = own.privileges.with(new.privileges);
                own.options = own.options.with(new.options);
            }
            None => self.all.push(new.clone()),
        }
        Ok(())
    }

    fn take(&mut self, gone: &Grant) -> SqlResult<()> {
        let Some(own) = self.all.iter_mut().find(|own| own.is_by_same(gone)) else {
            return Ok(());
        };
        let lost = own.options.and(gone.options);
        own.privileges = own.privileges.without(gone.privileges);
        own.options = own.options.without(gone.options);
        self.all.retain(|own| !own.privileges.is_empty() || !own.options.is_empty());
        if lost.is_empty() || gone.to == EVERYONE {
            return Ok(());
        }
        self.take_what_was_granted(gone.to, lost)
    }

    /// Takes what a role has granted by options that it has no more.
    fn take_what_was_granted(&mut self, role: u32, lost: Privileges) -> SqlResult<()> {
        if role == self.owner {
            return Ok(());
        }
        // It may have them from another.
        let lost = lost.without(self.options(role));
        while let Some(next) =
            self.all.iter().find(|own| own.by == Some(role) && !own.privileges.and(lost).is_empty())
        {
            if !self.cascades {
                let message = "dependent privileges exist";
                return Err(SqlError::new(SqlState::DEPENDENT_OBJECTS, message)
                    .hint("Use CASCADE to revoke them too."));
            }
            let gone = Grant { privileges: lost, options: lost, ..next.clone() };
            self.take(&gone)?;
        }
        Ok(())
    }

    /// What a role may grant.
    fn options(&self, role: u32) -> Privileges {
        let has = (self.inherited)(role);
        if has.contains(&self.owner) {
            return Privileges::ALL;
        }
        let own = self.all.iter().filter(|own| own.to != EVERYONE && has.contains(&own.to));
        own.fold(Privileges::NONE, |all, own| all.with(own.options))
    }

    /// Refuses options for a role without which the grantor would not have them.
    fn check_circle(&self, new: &Grant) -> SqlResult<()> {
        let Some(by) = new.by else { return Ok(()) };
        let (all, owner, inherited) = (self.all.clone(), self.owner, self.inherited);
        let mut without = Grants { all, owner, inherited, cascades: true };
        while let Some(own) =
            without.all.iter().find(|own| own.to == new.to && !own.options.is_empty())
        {
            let gone = Grant { privileges: Privileges::NONE, ..own.clone() };
            without.take(&gone)?;
        }
        if without.options(by).has_all(new.options) {
            return Ok(());
        }
        let message = "grant options cannot be granted back to your own grantor";
        Err(SqlError::new(SqlState::INVALID_GRANT, message))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use super::*;

    const OWNER: u32 = 1;
    const READ: Privileges = Privileges::SELECT;

    /// Nobody is a member of another.
    fn alone(role: u32) -> BTreeSet<u32> {
        BTreeSet::from([role])
    }

    fn granted(to: u32, by: Option<u32>, options: Privileges) -> Grant {
        Grant { to, by, privileges: READ, options }
    }

    /// `chain` is granted from each to the next, with the option, the first of it by the owner.
    fn chain(roles: &[u32]) -> Rights {
        let mut rights = Rights::of(OWNER);
        let mut by = None;
        for to in roles {
            rights.add(Kind::Table, &granted(*to, by, READ), &alone).unwrap();
            by = Some(*to);
        }
        rights
    }

    fn readers(rights: &Rights) -> Vec<u32> {
        (2..9).filter(|role| rights.held(Kind::Table, |own| own == *role).has_all(READ)).collect()
    }

    #[test]
    fn what_was_granted_goes_with_the_option_by_which_it_was() {
        let mut rights = chain(&[2, 3, 4]);
        assert_eq!(readers(&rights), [2, 3, 4]);
        let gone = granted(2, None, READ);
        let refused = rights.take(Kind::Table, &gone, false, &alone).unwrap_err();
        assert_eq!(refused.state().code(), "2BP01");
        let mut rights = chain(&[2, 3, 4]);
        rights.take(Kind::Table, &gone, true, &alone).unwrap();
        assert_eq!(readers(&rights), [0; 0]);
        // Only the option of 3 goes: it still reads.
        let mut rights = chain(&[2, 3, 4]);
        let option = Grant { privileges: Privileges::NONE, ..granted(3, Some(2), READ) };
        rights.take(Kind::Table, &option, true, &alone).unwrap();
        assert_eq!(readers(&rights), [2, 3]);
        assert!(rights.options(Kind::Table, |own| own == 3).is_empty());
    }

    #[test]
    fn a_grant_of_nothing_mentions_nobody() {
        let mut rights = chain(&[2]);
        let nothing = Grant { privileges: Privileges::NONE, ..granted(3, Some(2), READ) };
        let nothing = Grant { options: Privileges::NONE, ..nothing };
        rights.add(Kind::Table, &nothing, &alone).unwrap();
        assert!(rights.names(3).is_none() && rights.names(2).is_some());
    }

    #[test]
    fn an_option_that_another_has_given_too_stays() {
        let mut rights = chain(&[2, 3]);
        rights.add(Kind::Table, &granted(4, None, READ), &alone).unwrap();
        rights.add(Kind::Table, &granted(3, Some(4), READ), &alone).unwrap();
        rights.add(Kind::Table, &granted(5, Some(3), Privileges::NONE), &alone).unwrap();
        rights.take(Kind::Table, &granted(3, Some(2), READ), false, &alone).unwrap();
        assert_eq!(readers(&rights), [2, 3, 4, 5]);
        rights.take(Kind::Table, &granted(3, Some(4), READ), true, &alone).unwrap();
        assert_eq!(readers(&rights), [2, 4]);
    }

    #[test]
    fn an_option_is_not_given_back_to_who_it_is_from() {
        for (to, by) in [(2, 3), (2, 4), (3, 4)] {
            let mut rights = chain(&[2, 3, 4]);
            let circle = rights.add(Kind::Table, &granted(to, Some(by), READ), &alone);
            assert_eq!(circle.unwrap_err().state().code(), "0LP01", "{to} {by}");
            // The privilege alone is no circle.
            let plain = granted(to, Some(by), Privileges::NONE);
            rights.add(Kind::Table, &plain, &alone).unwrap();
        }
    }

    #[test]
    fn who_grants_does_so_as_the_role_that_may_most() {
        let mut rights = chain(&[2]);
        let both = READ.with(Privileges::INSERT);
        let more = Grant { to: 3, by: None, privileges: both, options: both };
        rights.add(Kind::Table, &more, &alone).unwrap();
        let as_whom = |roles: &[u32], wanted| {
            let role = *roles.first().unwrap();
            rights.grantor(Kind::Table, wanted, role, &roles.iter().copied().collect())
        };
        assert_eq!(as_whom(&[5, 2, 3], both), (Some(3), both));
        assert_eq!(as_whom(&[2, 3], READ), (Some(2), READ));
        assert_eq!(as_whom(&[5], READ), (Some(5), Privileges::NONE));
        assert_eq!(as_whom(&[5, OWNER], READ), (None, Kind::Table.all()));
    }
}
