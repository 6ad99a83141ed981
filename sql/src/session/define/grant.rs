//! GRANT and REVOKE of privileges.

use std::collections::BTreeSet;

use selkie_txn::{Txn, TxnError};
use sqlparser::ast::{
    Action, CascadeOption, Grant, GrantObjects, Grantee, GranteeName, GranteesType, ObjectName,
    Privileges as Ast, Revoke, Statement,
};

use super::super::run::Run;
use super::comment::DATABASE;
use super::lookup::{change_note, find_named, found_named, last_part};
use super::schema::schema_name;
use super::{role, sequence};
use crate::bind::{is_system_schema, name_parts, no_relation, refuse};
use crate::catalogue::{SchemaId, TableDef, load_all, name_of, split_key};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::exec::from_txn;
use crate::notice::Notice;
use crate::roles::{
    EVERYONE, Grant as Granted, Kind, Privileges, Rights, change, denied, no_privilege,
};
use crate::schemas::PUBLIC;

/// What is granted or revoked, of what, and to whom.
struct Wanted<'s> {
    privileges: &'s Ast,
    objects: &'s GrantObjects,
    grantees: &'s [Grantee],
    how: How,
}

/// What is done with privileges.
#[derive(Clone, Copy)]
enum How {
    Grant { with_option: bool },
    Revoke { only_option: bool, cascades: bool },
}

/// An object that has rights.
enum Object {
    Table(Box<TableDef>),
    Sequence(String),
    Schema(String),
    /// The one that there is.
    Database,
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
            refuse(as_grantor.is_some() || granted_by.is_some(), "GRANTED BY")?;
            refuse(current_grants.is_some() || objects.is_none(), "this form of GRANT")?;
            let how = How::Grant { with_option: *with_grant_option };
            (wanted(privileges, objects.as_ref(), grantees, how)?, "GRANT")
        }
        Statement::Revoke(own) => {
            let Revoke { grant_option_for, privileges, objects, grantees, granted_by, cascade } =
                own;
            refuse(granted_by.is_some(), "GRANTED BY")?;
            let cascades = matches!(cascade, Some(CascadeOption::Cascade));
            let how = How::Revoke { only_option: *grant_option_for, cascades };
            (wanted(privileges, objects.as_ref(), grantees, how)?, "REVOKE")
        }
        other => return Err(SqlError::unsupported(other)),
    };
    let grantees = numbers(run, wanted.grantees)?;
    for object in objects(run, txn, wanted.objects).await? {
        grant(run, txn, object, &wanted, &grantees).await?;
    }
    Ok(tag)
}

fn wanted<'s>(
    privileges: &'s Ast,
    objects: Option<&'s GrantObjects>,
    grantees: &'s [Grantee],
    how: How,
) -> SqlResult<Wanted<'s>> {
    let objects = objects.ok_or_else(|| SqlError::unsupported("this form of GRANT"))?;
    Ok(Wanted { privileges, objects, grantees, how })
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

async fn objects(run: &Run, txn: &mut Txn<'_>, objects: &GrantObjects) -> SqlResult<Vec<Object>> {
    let mut found = Vec::new();
    match objects {
        GrantObjects::Tables(names) => {
            for name in names {
                let table = find_named(run, txn, name).await?;
                let table = table.map(|own| Object::Table(Box::new(own)));
                found.push(match table {
                    Some(table) => table,
                    None => match sequence::find_sequence(run, txn, name, false).await? {
                        Some(key) => Object::Sequence(key),
                        None => return Err(no_relation(&name_parts(name)?)),
                    },
                });
            }
        }
        GrantObjects::Sequences(names) => {
            for name in names {
                found.push(match sequence::find_sequence(run, txn, name, false).await? {
                    Some(key) => Object::Sequence(key),
                    None => {
                        let table = found_named(run, txn, name).await?;
                        let message = format!("\"{}\" is not a sequence", table.name);
                        return Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message));
                    }
                });
            }
        }
        GrantObjects::AllTablesInSchema { schemas } => {
            let schemas = ids(run, schemas)?;
            for (key, table) in load_all(txn).await.map_err(of_txn)? {
                if schemas.contains(&split_key(&key).0) {
                    found.push(Object::Table(Box::new(table?)));
                }
            }
        }
        GrantObjects::AllSequencesInSchema { schemas } => {
            let schemas = ids(run, schemas)?;
            for own in txn.sequences().await.map_err(of_txn)? {
                if schemas.contains(&split_key(&own.name).0) {
                    found.push(Object::Sequence(own.name));
                }
            }
        }
        GrantObjects::Schemas(schemas) => {
            ids(run, schemas)?;
            for own in schemas {
                found.push(Object::Schema(schema_name(own)?));
            }
        }
        GrantObjects::Databases(names) => {
            for name in names {
                let name = last_part(name)?;
                if name != DATABASE {
                    let message = format!("database \"{name}\" does not exist");
                    return Err(SqlError::new(SqlState::INVALID_CATALOG_NAME, message));
                }
                found.push(Object::Database);
            }
        }
        other => return Err(SqlError::unsupported(format!("a privilege of {other}"))),
    }
    Ok(found)
}

fn ids(run: &Run, schemas: &[ObjectName]) -> SqlResult<Vec<SchemaId>> {
    let id = |own: &ObjectName| {
        let name = schema_name(own)?;
        refuse(is_system_schema(&name), "a privilege of a schema of the system")?;
        run.path.id(&name)
    };
    schemas.iter().map(id).collect()
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
            let rights = super::owner::rights_of_sequence(run, key)?;
            (Kind::Sequence, name_of(key).to_owned(), rights)
        }
        Object::Schema(name) => {
            let rights = match run.path.schema(name) {
                Some(own) => own.rights.clone(),
                None => authority
                    .roles()
                    .map_or_else(Rights::of_public_schema, |roles| roles.public.clone()),
            };
            (Kind::Schema, name.clone(), rights)
        }
        Object::Database => return grant_database(run, txn, wanted, grantees).await,
    };
    let privileges = privileges_of(kind, wanted.privileges)?;
    // Everyone has to find the tables in it.
    let takes_usage = wanted.how.takes_privileges() && privileges.has_all(Privileges::USAGE);
    let is_public = matches!(&object, Object::Schema(name) if name == PUBLIC);
    refuse(is_public && takes_usage, "REVOKE of USAGE of the schema public")?;
    let (by, available) = authority.grantor(privileges, kind, &rights);
    let held = authority.held(kind, &rights).with(authority.options(kind, &rights));
    if available.is_empty() && held.is_empty() {
        return Err(no_privilege(kind, &name));
    }
    let allowed = privileges.and(available);
    let is_all = !matches!(wanted.privileges, Ast::Actions(_));
    wanted.how.warn(run, &name, allowed.is_empty(), is_all || allowed == privileges);
    let known = authority.roles().cloned();
    let inherited = move |role: u32| match &known {
        Some(roles) => roles.inherited(role),
        None => BTreeSet::from([role]),
    };
    let apply = |rights: &mut Rights| {
        let mut each = grantees.iter();
        each.try_for_each(|to| wanted.how.apply(rights, (kind, *to, by), allowed, &inherited))
    };
    match object {
        Object::Table(table) => {
            let mut changed = rights;
            apply(&mut changed)?;
            change_note(txn, &table, |note| note.rights = changed).await
        }
        Object::Sequence(key) => {
            change(txn, of_txn, |roles| apply(roles.sequences.entry(key).or_default())).await
        }
        Object::Schema(name) if name == PUBLIC => {
            change(txn, of_txn, |roles| apply(&mut roles.public)).await
        }
        Object::Schema(name) => {
            let changed =
                crate::schemas::change(txn, of_txn, |all| apply(&mut all.find_mut(&name)?.rights));
            changed.await
        }
        // That is done above.
        Object::Database => Ok(()),
    }
}

impl How {
    /// Whether it takes privileges, and not only the right to grant them.
    fn takes_privileges(self) -> bool {
        matches!(self, Self::Revoke { only_option: false, .. })
    }

    /// Says that not all is done that was wanted, for want of grant options.
    fn warn(self, run: &Run, name: &str, does_nothing: bool, does_all: bool) {
        let (state, message) = match (self, does_nothing) {
            _ if does_all && !does_nothing => return,
            (Self::Grant { .. }, true) => {
                (SqlState::PRIVILEGE_NOT_GRANTED, "no privileges were granted")
            }
            (Self::Grant { .. }, false) => {
                (SqlState::PRIVILEGE_NOT_GRANTED, "not all privileges were granted")
            }
            (Self::Revoke { .. }, true) => {
                (SqlState::PRIVILEGE_NOT_REVOKED, "no privileges could be revoked")
            }
            (Self::Revoke { .. }, false) => {
                (SqlState::PRIVILEGE_NOT_REVOKED, "not all privileges could be revoked")
            }
        };
        let message = format!("{message} for \"{name}\"");
        super::skip::tell(run, &Notice::warning(state, message));
    }

    /// Grants privileges to a role, or revokes them from it, as the owner or as another.
    fn apply(
        self,
        rights: &mut Rights,
        (kind, to, by): (Kind, u32, Option<u32>),
        privileges: Privileges,
        inherited: &dyn Fn(u32) -> BTreeSet<u32>,
    ) -> SqlResult<()> {
        match self {
            Self::Grant { with_option } => {
                if with_option && to == EVERYONE {
                    let message = "grant options can only be granted to roles";
                    return Err(SqlError::new(SqlState::INVALID_GRANT, message));
                }
                let options = if with_option { privileges } else { Privileges::NONE };
                rights.add(kind, &Granted { to, by, privileges, options }, inherited)
            }
            Self::Revoke { only_option, cascades } => {
                let (options, none) = (privileges, Privileges::NONE);
                let privileges = if only_option { none } else { privileges };
                rights.take(kind, &Granted { to, by, privileges, options }, cascades, inherited)
            }
        }
    }
}

/// Everyone may connect to the database, and there is nothing temporary: only CREATE, of schemas,
/// is for those who have it.
async fn grant_database(
    run: &Run,
    txn: &mut Txn<'_>,
    wanted: &Wanted<'_>,
    grantees: &[u32],
) -> SqlResult<()> {
    let (mut creates, mut others) = (true, true);
    if let Ast::Actions(actions) = wanted.privileges {
        (creates, others) = (false, false);
        for action in actions {
            match &*action.to_string().to_uppercase() {
                "CREATE" => creates = true,
                "CONNECT" | "TEMPORARY" | "TEMP" => others = true,
                name => {
                    let message = format!("invalid privilege type {name} for database");
                    return Err(SqlError::new(SqlState::INVALID_GRANT, message));
                }
            }
        }
    }
    if !run.authority()?.is_superuser() {
        return Err(denied(format!("permission denied for database {DATABASE}")));
    }
    let is_of_all = grantees.contains(&EVERYONE);
    let what = "REVOKE of CONNECT or TEMPORARY from PUBLIC";
    let has_option = matches!(
        wanted.how,
        How::Grant { with_option: true } | How::Revoke { only_option: true, .. }
    );
    refuse(has_option, "a grant option for a database")?;
    let revokes = wanted.how.takes_privileges();
    refuse(revokes && others && is_of_all, what)?;
    if !creates {
        return Ok(());
    }
    change(txn, of_txn, |roles| {
        for to in grantees {
            match revokes {
                true => roles.database.revoke(Kind::Schema, *to, Privileges::CREATE),
                false => roles.database.grant(Kind::Schema, *to, Privileges::CREATE),
            }
        }
        Ok(())
    })
    .await
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
