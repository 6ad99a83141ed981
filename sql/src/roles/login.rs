//! Who is let in.

use selkie_txn::{Database, TxnError};

use super::authority::Standing;
use super::document::Roles;
use super::store::load_fresh;
use super::verifier::Verifier;
use crate::error::{SqlError, SqlResult, SqlState};

/// What a user has to do to be let in.
#[derive(Debug)]
pub enum LogIn {
    /// Nothing: no superuser who can log in was ever made.
    Open,
    /// Prove to know the password of a role, or of one that is not there.
    Role(RoleLogIn),
}

/// A role that is to be proven to be. Whether there is one shows only when the proof was given.
#[derive(Debug)]
pub struct RoleLogIn {
    user: String,
    verifier: Verifier,
    /// `None` if no proof is good.
    oid: Option<u32>,
    may_log_in: bool,
    is_superuser: bool,
}

/// A role that a client has proven to be, and may be.
#[derive(Debug)]
pub struct ProvenRole {
    user: String,
    oid: u32,
    is_superuser: bool,
}

impl ProvenRole {
    /// The name of the role.
    #[must_use]
    pub fn user(&self) -> &str {
        &self.user
    }

    pub(crate) fn is_superuser(&self) -> bool {
        self.is_superuser
    }

    /// As what its session runs.
    pub(crate) fn standing(&self) -> Standing {
        Standing::Role(self.oid)
    }
}

impl RoleLogIn {
    /// What a proof is checked with.
    #[must_use]
    pub fn verifier(&self) -> &Verifier {
        &self.verifier
    }

    /// That the proof is wrong, or that there is no such role.
    #[must_use]
    pub fn refused(&self) -> SqlError {
        let message = format!("password authentication failed for user \"{}\"", self.user);
        SqlError::new(SqlState::INVALID_PASSWORD, message)
    }

    /// The role, if a proof is good.
    ///
    /// # Errors
    /// 28P01 if it is not; 28000 if the role may not log in.
    pub fn check(&self, auth_message: &[u8], proof: &[u8]) -> SqlResult<ProvenRole> {
        // Both, so that it takes as long.
        let is_good = self.verifier.accepts(auth_message, proof);
        let Some(oid) = self.oid.filter(|_| is_good) else { return Err(self.refused()) };
        if !self.may_log_in {
            let message = format!("role \"{}\" is not permitted to log in", self.user);
            return Err(SqlError::new(SqlState::INVALID_AUTHORIZATION, message));
        }
        Ok(ProvenRole { user: self.user.clone(), oid, is_superuser: self.is_superuser })
    }

    fn of(roles: &Roles, user: &str, now: i64) -> Self {
        let is_valid = |until: Option<i64>| until.is_none_or(|until| now < until);
        let role = roles.find(user).filter(|role| is_valid(role.valid_until));
        let verifier = role.and_then(|role| Verifier::parse(role.verifier.as_deref()?));
        let oid = role.filter(|_| verifier.is_some()).map(|role| role.oid);
        Self {
            user: user.to_owned(),
            verifier: verifier.unwrap_or_else(|| roles.mock_verifier(user)),
            oid,
            may_log_in: role.is_some_and(|role| role.login),
            is_superuser: role.is_some_and(|role| role.superuser),
        }
    }
}

/// What a user has to do to be let in. `now` is in microseconds since 2000-01-01.
///
/// # Errors
/// Those of reading the roles.
pub async fn log_in(database: &Database, user: &str, now: i64) -> SqlResult<LogIn> {
    Ok(match read(database).await?.filter(Roles::is_enforced) {
        None => LogIn::Open,
        Some(roles) => LogIn::Role(RoleLogIn::of(&roles, user, now)),
    })
}

/// Whether clients have to be roles, and there is one that can log in with a password.
///
/// # Errors
/// Those of reading the roles.
pub async fn have_password(database: &Database) -> SqlResult<bool> {
    let can = |(_, role): (&str, &super::Role)| role.login && role.verifier.is_some();
    Ok(read(database).await?.is_some_and(|roles| roles.is_enforced() && roles.iter().any(can)))
}

async fn read(database: &Database) -> SqlResult<Option<Roles>> {
    let mut session = database.session().map_err(of_txn)?;
    session.begin_to_read().map_err(of_txn)?;
    let read = session.run(|txn| {
        Box::pin(async move {
            txn.begin_statement()?;
            let read = load_fresh(txn).await;
            txn.end_statement();
            read
        })
    });
    let read = read.await;
    match session.rollback().await {
        Ok(()) | Err(TxnError::NoTransaction) => {}
        Err(error) => return Err(of_txn(error)),
    }
    read.map_err(of_txn)?
}

fn of_txn(error: TxnError) -> SqlError {
    SqlError::new(SqlState::CANNOT_CONNECT_NOW, format!("the roles cannot be read: {error}"))
}
