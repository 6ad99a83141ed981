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
}

impl RoleLogIn {
    /// What a proof is checked with.
    #[must_use]
    pub fn verifier(&self) -> &Verifier {
        &self.verifier
    }

    /// The name of the role.
    #[must_use]
    pub fn user(&self) -> &str {
        &self.user
    }

    /// That the proof is wrong, or that there is no such role.
    #[must_use]
    pub fn refused(&self) -> SqlError {
        let message = format!("password authentication failed for user \"{}\"", self.user);
        SqlError::new(SqlState::INVALID_PASSWORD, message)
    }

    /// Whether a proof is good.
    ///
    /// # Errors
    /// 28P01 if it is not; 28000 if the role may not log in.
    pub fn check(&self, auth_message: &[u8], proof: &[u8]) -> SqlResult<()> {
        // Both, so that it takes as long.
        let is_good = self.verifier.accepts(auth_message, proof);
        if !is_good || self.oid.is_none() {
            return Err(self.refused());
        }
        if !self.may_log_in {
            let message = format!("role \"{}\" is not permitted to log in", self.user);
            return Err(SqlError::new(SqlState::INVALID_AUTHORIZATION, message));
        }
        Ok(())
    }

    /// As what the session of one who was let in runs.
    pub(crate) fn standing(&self) -> SqlResult<Standing> {
        self.oid.filter(|_| self.may_log_in).map(Standing::Role).ok_or_else(|| self.refused())
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
