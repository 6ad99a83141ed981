//! The role of a session.

use std::sync::Arc;

use super::settings::SetRole;
use super::{Session, TransactionState};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::exec::from_txn;
use crate::roles::{Roles, Standing, denied};

impl Session {
    /// Lets the session be another role, or that again as which it began.
    pub(super) async fn set_role(&mut self, name: Option<String>, is_local: bool) -> SqlResult<()> {
        let role = match name {
            None => None,
            Some(name) => Some(self.may_become(&name).await?),
        };
        self.change(is_local, |settings| {
            settings.role.clone_from(&role);
            Ok(())
        })
    }

    async fn may_become(&mut self, name: &str) -> SqlResult<SetRole> {
        let roles = self.roles().await?;
        let missing = || {
            let message = format!("role \"{name}\" does not exist");
            SqlError::new(SqlState::INVALID_PARAMETER, message)
        };
        let roles = roles.ok_or_else(missing)?;
        let wanted = roles.find(name).ok_or_else(missing)?.oid;
        let may = match self.standing {
            Standing::Trusted => true,
            Standing::Role(own) => {
                roles.is_superuser(own) || roles.memberships(own).contains(&wanted)
            }
        };
        if !may {
            return Err(denied(format!("permission denied to set role \"{name}\"")));
        }
        let is_superuser = roles.is_superuser(wanted);
        Ok(SetRole { oid: wanted, name: name.into(), is_superuser })
    }

    /// The roles in the state that the transaction sees, or that is now.
    async fn roles(&mut self) -> SqlResult<Option<Arc<Roles>>> {
        let is_alone = self.state == TransactionState::Idle;
        if is_alone {
            self.begin_to_look()?;
        }
        let plans = Arc::clone(&self.plans);
        let roles = self.txn.run(move |txn| {
            Box::pin(async move {
                txn.begin_statement()?;
                let roles = crate::roles::load(txn, &plans.roles).await;
                txn.end_statement();
                roles
            })
        });
        let roles = roles.await;
        if is_alone {
            self.end_failed().await?;
        }
        roles.map_err(|error| from_txn(error, None))?
    }
}
