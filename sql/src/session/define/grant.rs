//! GRANT and REVOKE of privileges.

use selkie_txn::{Txn, TxnError};
use sqlparser::ast::{
    Action, Grant, GrantObjects, Grantee, GranteeName, GranteesType, ObjectName, Privileges as Ast,
    Revoke, Statement,
};

use super::super::run::Run;
use super::lookup::{change_note, find};
use super::{role, sequence};
use crate::bind::{PUBLIC, name_parts, refuse, table_key};
use crate::catalogue::{TableDef, load_all};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::exec::from_txn;
use crate::roles::{EVERYONE, Kind, Privileges, Rights, change, no_privilege};

/// What is granted or revoked, of what, and to whom.
struct Wanted<'s> {
    privileges: &'s Ast,
    objects: &'s GrantObjects,
    grantees: &'s [Grantee],
    revokes: bool,
}

/// An object that has rights.
enum Object {
    Table(Box<TableDef>),
    Sequence(String),
    Schema,
}

/// Grants or revokes. What the statement says in the end.
pub(super) async fn run(
    run: &Run,
    txn: &mut Txn<'_>,
    statement: &Statement,
) -> SqlResult<&'static str> {
    let (wanted, tag) = match statement {
        Statement::Grant(own) => {
            let Grant {
                privileges,
                objects,
                grantees,
                with_grant_option,
                as_grantor,
                granted_by,
                current_grants,
            } = own;
            refuse(*with_grant_option, "WITH GRANT OPTION")?;
            refuse(as_grantor.is_some() || granted_by.is_some(), "GRANTED BY")?;
            refuse(current_grants.is_some() || objects.is_none(), "this form of GRANT")?;
            (wanted(privileges, objects.as_ref(), grantees, false)?, "GRANT")
        }
        Statement::Revoke(own) => {
            // There are no grants by others that CASCADE could be about.
            let Revoke { grant_option_for, privileges, objects, grantees, granted_by, cascade: _ } =
                own;
            refuse(*grant_option_for, "GRANT OPTION FOR")?;
            refuse(granted_by.is_some(), "GRANTED BY")?;
            (wanted(privileges, objects.as_ref(), grantees, true)?, "REVOKE")
        }
        other => return Err(SqlError::unsupported(other)),
    };
    let grantees = numbers(run, wanted.grantees)?;
    for object in objects(txn, wanted.objects).await? {
        grant(run, txn, object, &wanted, &grantees).await?;
    }
    Ok(tag)
}

fn wanted<'s>(
    privileges: &'s Ast,
    objects: Option<&'s GrantObjects>,
    grantees: &'s [Grantee],
    revokes: bool,
) -> SqlResult<Wanted<'s>> {
    let objects = objects.ok_or_else(|| SqlError::unsupported("this form of GRANT"))?;
    Ok(Wanted { privileges, objects, grantees, revokes })
}

/// The name of a role behind TO or FROM; `None` for PUBLIC.
pub(super) fn grantee(run: &Run, own: &Grantee) -> SqlResult<Option<String>> {
    let is_plain = matches!(
        own.grantee_type,
        GranteesType::None | GranteesType::Group | GranteesType::Role | GranteesType::User
    );
    match &own.name {
        _ if own.grantee_type == GranteesType::Public => Ok(None),
        Some(GranteeName::ObjectName(name)) if is_plain => match &*name.0 {
            [part] => match part.as_ident() {
                Some(name) => Ok(Some(role::role_named(run, name)?)),
                None => Err(SqlError::unsupported("this form of GRANT")),
            },
            _ => Err(SqlError::unsupported("this form of GRANT")),
        },
        _ => Err(SqlError::unsupported("this form of GRANT")),
    }
}

fn numbers(run: &Run, grantees: &[Grantee]) -> SqlResult<Vec<u32>> {
    let number = |own: &Grantee| {
        let Some(name) = grantee(run, own)? else { return Ok(EVERYONE) };
        let role = run.authority()?.roles().and_then(|roles| roles.find(&name));
        role.map(|role| role.oid).ok_or_else(|| crate::roles::no_role(&name))
    };
    grantees.iter().map(number).collect()
}

fn of_txn(error: TxnError) -> SqlError {
    from_txn(error, None)
}

async fn objects(txn: &mut Txn<'_>, objects: &GrantObjects) -> SqlResult<Vec<Object>> {
    let mut found = Vec::new();
    match objects {
        GrantObjects::Tables(names) => {
            for name in names {
                let key = table_key(name)?;
                found.push(match find(txn, &key).await? {
                    Some(table) => Object::Table(Box::new(table)),
                    None if sequence::is_sequence(txn, &key).await? => Object::Sequence(key),
                    None => return Err(missing(&key)),
                });
            }
        }
        GrantObjects::Sequences(names) => {
            for name in names {
                let key = table_key(name)?;
                if !sequence::is_sequence(txn, &key).await? {
                    return Err(match find(txn, &key).await? {
                        Some(_) => {
                            let message = format!("\"{key}\" is not a sequence");
                            SqlError::new(SqlState::WRONG_OBJECT_TYPE, message)
                        }
                        None => missing(&key),
                    });
                }
                found.push(Object::Sequence(key));
            }
        }
        GrantObjects::AllTablesInSchema { schemas } => {
            only_public(schemas)?;
            for (key, table) in load_all(txn).await.map_err(of_txn)? {
                if !key.contains('.') {
                    found.push(Object::Table(Box::new(table?)));
                }
            }
        }
        GrantObjects::AllSequencesInSchema { schemas } => {
            only_public(schemas)?;
            for own in txn.sequences().await.map_err(of_txn)? {
                if !own.name.contains('.') {
                    found.push(Object::Sequence(own.name));
                }
            }
        }
        GrantObjects::Schemas(schemas) => {
            only_public(schemas)?;
            found.push(Object::Schema);
        }
        other => return Err(SqlError::unsupported(format!("a privilege of {other}"))),
    }
    Ok(found)
}

fn only_public(schemas: &[ObjectName]) -> SqlResult<()> {
    for schema in schemas {
        let name = name_parts(schema)?.join(".");
        refuse(name != PUBLIC, "a schema other than public")?;
    }
    Ok(())
}

fn missing(key: &str) -> SqlError {
    let message = format!("relation \"{key}\" does not exist");
    SqlError::new(SqlState::UNDEFINED_TABLE, message)
}

async fn grant(
    run: &Run,
    txn: &mut Txn<'_>,
    object: Object,
    wanted: &Wanted<'_>,
    grantees: &[u32],
) -> SqlResult<()> {
    let authority = run.authority()?;
    let (kind, name, rights) = match &object {
        Object::Table(table) => (table.kind(), table.name.clone(), table.rights.clone()),
        Object::Sequence(key) => {
            (Kind::Sequence, key.clone(), super::owner::rights_of_sequence(run, key)?)
        }
        Object::Schema => {
            let rights = authority.roles().map(|roles| roles.public.clone());
            (Kind::Schema, PUBLIC.to_owned(), rights.unwrap_or_else(Rights::of_public_schema))
        }
    };
    let privileges = privileges_of(kind, wanted.privileges)?;
    // Everyone has to find the tables in it.
    let takes_usage = wanted.revokes && privileges.has_all(Privileges::USAGE);
    refuse(kind == Kind::Schema && takes_usage, "REVOKE of USAGE of a schema")?;
    if !authority.owns(&rights) {
        return Err(no_privilege(kind, &name));
    }
    let apply = |rights: &mut Rights| {
        for to in grantees {
            match wanted.revokes {
                true => rights.revoke(kind, *to, privileges),
                false => rights.grant(kind, *to, privileges),
            }
        }
    };
    match object {
        Object::Table(table) => change_note(txn, &table, |note| apply(&mut note.rights)).await,
        Object::Sequence(key) => {
            change(txn, of_txn, |roles| {
                apply(roles.sequences.entry(key).or_default());
                Ok(())
            })
            .await
        }
        Object::Schema => {
            change(txn, of_txn, |roles| {
                apply(&mut roles.public);
                Ok(())
            })
            .await
        }
    }
}

/// The privileges that a statement names, all of which the kind of object has.
fn privileges_of(kind: Kind, wanted: &Ast) -> SqlResult<Privileges> {
    let Ast::Actions(actions) = wanted else { return Ok(kind.all()) };
    let mut all = Privileges::NONE;
    for action in actions {
        let has_columns = matches!(
            action,
            Action::Select { columns: Some(_) }
                | Action::Insert { columns: Some(_) }
                | Action::Update { columns: Some(_) }
                | Action::References { columns: Some(_) }
        );
        refuse(has_columns, "a privilege of columns")?;
        let name = action.to_string();
        let own = Privileges::named(&name).filter(|own| kind.all().has_all(*own));
        let own = own.ok_or_else(|| {
            let (name, kind) = (name.to_uppercase(), kind.name());
            let kind = if kind == "view" { "table" } else { kind };
            let message = format!("invalid privilege type {name} for {kind}");
            SqlError::new(SqlState::INVALID_GRANT, message)
        })?;
        all = all.with(own);
    }
    Ok(all)
}
