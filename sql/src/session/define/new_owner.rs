//! ALTER TABLE, VIEW and SCHEMA with OWNER TO.

use selkie_txn::Txn;
use sqlparser::ast::{Ident, Owner};

use super::super::run::Run;
use super::lookup::change_note;
use super::schema::owner_of;
use super::sequence;
use crate::catalogue::{SchemaId, TableDef, split_key};
use crate::error::SqlResult;
use crate::exec::from_txn;
use crate::roles::{Kind, Privileges, Rights, denied, maybe_changed};

/// The number of the role that is to own something.
///
/// # Errors
/// 42704 if there is none; 42501 if the role of the statement may not become it.
pub(super) fn new_owner(run: &Run, owner: &Owner) -> SqlResult<u32> {
    let name = match owner {
        Owner::Ident(name) => name.clone(),
        Owner::CurrentRole | Owner::CurrentUser => Ident::new("current_user"),
        Owner::SessionUser => Ident::new("session_user"),
    };
    let (oid, authority) = (owner_of(run, &name)?, run.authority()?);
    let may_become =
        |roles: &crate::roles::Roles| roles.memberships(authority.oid()).contains(&oid);
    if authority.is_superuser() || authority.roles().is_none_or(|roles| may_become(roles)) {
        return Ok(oid);
    }
    Err(denied(format!("must be member of role \"{}\"", super::role::role_named(run, &name)?)))
}

/// Refuses a new owner who may not create anything in a schema.
pub(super) fn require_create_of(run: &Run, owner: u32, schema: SchemaId) -> SqlResult<()> {
    let authority = run.authority()?;
    let name = run.path.name(schema);
    let public = || authority.roles().map(|roles| roles.public.clone());
    let rights = run.path.schema(name).map(|own| own.rights.clone()).or_else(public);
    let rights = rights.unwrap_or_else(Rights::of_public_schema);
    let held = authority.held_by(owner, Kind::Schema, &rights);
    if !authority.is_superuser() && !held.has_all(Privileges::CREATE) {
        return Err(denied(format!("permission denied for schema {name}")));
    }
    Ok(())
}

/// Gives a table or view, of which the role of the statement is the owner, another owner. The
/// sequences of its columns go with it.
pub(super) async fn give_table(
    run: &Run,
    txn: &mut Txn<'_>,
    table: &TableDef,
    owner: &Owner,
) -> SqlResult<()> {
    let owner = new_owner(run, owner)?;
    if table.rights.owner == owner {
        return Ok(());
    }
    require_create_of(run, owner, split_key(&table.key).0)?;
    change_note(txn, table, |note| note.rights.give_to(owner)).await?;
    let sequences = sequence::sequences_of(table);
    maybe_changed(
        txn,
        |error| from_txn(error, None),
        |_| !sequences.is_empty(),
        |roles| {
            for key in sequences.clone() {
                roles.sequences.entry(key).or_default().give_to(owner);
            }
        },
    )
    .await
}
