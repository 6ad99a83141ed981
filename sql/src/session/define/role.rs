//! CREATE, ALTER and DROP ROLE, and membership.

use selkie_txn::{Txn, TxnError};
use sqlparser::ast::{
    AlterRoleOperation, CreateRole, Expr, GrantRole, Grantee, Ident, ObjectName, ObjectType,
    Password, RevokeRole, RoleGrantOptionValue, RoleOption, Statement, Value,
};

use super::super::run::Run;
use super::{grant, skip};
use crate::bind::{check_name, fold, name_parts, refuse};
use crate::catalogue::load_all;
use crate::error::{SqlError, SqlResult, SqlState};
use crate::exec::from_txn;
use crate::notice::Notice;
use crate::roles::{
    Authority, BOOTSTRAP, Mention, Role, Roles, Verifier, change, denied, is_md5, load_fresh,
    no_role,
};
use crate::types::text_format::from_text;
use crate::types::{Datum, Scalar, SqlType};

/// Does a statement about roles. What it says in the end.
pub(super) async fn run(
    run: &Run,
    txn: &mut Txn<'_>,
    statement: &Statement,
) -> SqlResult<&'static str> {
    match statement {
        Statement::CreateRole(create) => {
            create_role(run, txn, create).await?;
            Ok("CREATE ROLE")
        }
        Statement::AlterRole { name, operation } => {
            alter_role(run, txn, name, operation).await?;
            Ok("ALTER ROLE")
        }
        Statement::GrantRole(own) => {
            grant_role(run, txn, own).await?;
            Ok("GRANT ROLE")
        }
        Statement::RevokeRole(own) => {
            revoke_role(run, txn, own).await?;
            Ok("REVOKE ROLE")
        }
        other => grant::run(run, txn, other).await,
    }
}

/// What changes a role.
#[derive(Default)]
struct Options {
    superuser: Option<bool>,
    inherit: Option<bool>,
    create_role: Option<bool>,
    create_db: Option<bool>,
    login: Option<bool>,
    /// The verifier; `Some(None)` takes the password away.
    verifier: Option<Option<String>>,
    valid_until: Option<Option<i64>>,
}

impl Options {
    fn of(run: &Run, options: Vec<RoleOption>) -> SqlResult<Self> {
        let mut own = Self::default();
        for option in options {
            match option {
                RoleOption::SuperUser(yes) => own.superuser = Some(yes),
                RoleOption::Inherit(yes) => own.inherit = Some(yes),
                RoleOption::CreateRole(yes) => own.create_role = Some(yes),
                RoleOption::CreateDB(yes) => own.create_db = Some(yes),
                RoleOption::Login(yes) => own.login = Some(yes),
                RoleOption::BypassRLS(yes) => refuse(yes, "BYPASSRLS")?,
                RoleOption::Replication(yes) => refuse(yes, "REPLICATION")?,
                RoleOption::ConnectionLimit(limit) => {
                    refuse(limit.to_string() != "-1", "CONNECTION LIMIT")?;
                }
                RoleOption::Password(password) => own.verifier = Some(verifier(&password)?),
                RoleOption::ValidUntil(until) => {
                    let ty = SqlType::new(Scalar::TimestampTz);
                    let moment = from_text(text_of(&until)?, ty, &run.settings.format)?;
                    own.valid_until = Some(match moment {
                        Datum::Timestamp(i64::MAX) => None,
                        Datum::Timestamp(moment) => Some(moment),
                        _ => return Err(SqlError::internal("a moment that is none")),
                    });
                }
            }
        }
        Ok(own)
    }

    fn apply(self, role: &mut Role) {
        let set = |place: &mut bool, value: Option<bool>| *place = value.unwrap_or(*place);
        set(&mut role.superuser, self.superuser);
        set(&mut role.inherit, self.inherit);
        set(&mut role.create_role, self.create_role);
        set(&mut role.create_db, self.create_db);
        set(&mut role.login, self.login);
        if let Some(verifier) = self.verifier {
            role.verifier = verifier;
        }
        if let Some(until) = self.valid_until {
            role.valid_until = until;
        }
    }

    /// Whether it is about the password alone, which a role may change of itself.
    fn is_password_alone(&self) -> bool {
        self.verifier.is_some()
            && [self.superuser, self.inherit, self.create_role, self.create_db, self.login]
                .iter()
                .all(Option::is_none)
            && self.valid_until.is_none()
    }
}

fn text_of(expr: &Expr) -> SqlResult<&str> {
    match expr {
        Expr::Value(own) => match &own.value {
            Value::SingleQuotedString(text) | Value::EscapedStringLiteral(text) => Ok(text),
            other => Err(SqlError::unsupported(format!("the value {other}"))),
        },
        other => Err(SqlError::unsupported(format!("the value {other}"))),
    }
}

/// What is kept of a password, which may be given as that.
fn verifier(password: &Password) -> SqlResult<Option<String>> {
    let Password::Password(password) = password else { return Ok(None) };
    let password = text_of(password)?;
    refuse(is_md5(password), "a password hashed with MD5")?;
    if password.is_empty() {
        return Ok(None);
    }
    if password.len() > MAX_PASSWORD_BYTES {
        let message = format!("password is too long (allowed: {MAX_PASSWORD_BYTES} bytes)");
        return Err(SqlError::new(SqlState::INVALID_PARAMETER, message));
    }
    let verifier = match Verifier::parse(password) {
        Some(verifier) => verifier,
        None => Verifier::of_password(password)?,
    };
    Ok(Some(verifier.to_text()))
}

/// Longest password, in bytes: nobody is to make the server hash more.
const MAX_PASSWORD_BYTES: usize = 1_000;

fn of_txn(error: TxnError) -> SqlError {
    from_txn(error, None)
}

fn check_role_name(name: &str) -> SqlResult<()> {
    check_name(name)?;
    let reserved = |detail: Option<&str>| {
        let message = format!("role name \"{name}\" is reserved");
        let error = SqlError::new(SqlState::RESERVED_NAME, message);
        Err(match detail {
            Some(detail) => error.detail(detail),
            None => error,
        })
    };
    match name {
        "public" | "none" => reserved(None),
        _ if name.starts_with("pg_") => {
            reserved(Some("Role names starting with \"pg_\" are reserved."))
        }
        _ => Ok(()),
    }
}

async fn create_role(run: &Run, txn: &mut Txn<'_>, create: &CreateRole) -> SqlResult<()> {
    let [name] = &*create.names else {
        return Err(SqlError::unsupported("several roles in one CREATE ROLE"));
    };
    let name = single(name)?;
    let authority = run.authority()?;
    if create.superuser == Some(true) && !authority.is_superuser() {
        return Err(denied("must be superuser to create superusers"));
    }
    if !authority.creates_roles() {
        return Err(denied("permission denied to create role"));
    }
    check_role_name(&name)?;
    let flags = [
        create.superuser.map(RoleOption::SuperUser),
        create.inherit.map(RoleOption::Inherit),
        create.create_role.map(RoleOption::CreateRole),
        create.create_db.map(RoleOption::CreateDB),
        create.login.map(RoleOption::Login),
        create.bypassrls.map(RoleOption::BypassRLS),
        create.replication.map(RoleOption::Replication),
        create.connection_limit.clone().map(RoleOption::ConnectionLimit),
        create.password.clone().map(RoleOption::Password),
        create.valid_until.clone().map(RoleOption::ValidUntil),
    ];
    let options = Options::of(run, flags.into_iter().flatten().collect())?;
    change(txn, of_txn, |roles| {
        let mut role = Role::new();
        options.apply(&mut role);
        roles.add(&name, role)?;
        for group in &create.in_role {
            join(authority, roles, &fold(group), &name, false)?;
        }
        for member in &create.role {
            join(authority, roles, &name, &fold(member), false)?;
        }
        for member in &create.admin {
            join(authority, roles, &name, &fold(member), true)?;
        }
        Ok(())
    })
    .await
}

fn single(name: &ObjectName) -> SqlResult<String> {
    match &*name_parts(name)? {
        [name] => Ok(name.clone()),
        _ => Err(SqlError::new(SqlState::SYNTAX_ERROR, "the name of a role has one part")),
    }
}

/// The name of a role that a statement may say by a word.
pub(super) fn role_named(run: &Run, name: &Ident) -> SqlResult<String> {
    let folded = fold(name);
    if name.quote_style.is_some() {
        return Ok(folded);
    }
    let authority = run.authority()?;
    let of = |oid| {
        let own = authority.roles().and_then(|roles| roles.of_oid(oid));
        own.map_or_else(|| crate::roles::BOOTSTRAP_NAME.to_owned(), |(name, _)| name.to_owned())
    };
    Ok(match &*folded {
        "current_user" | "current_role" => of(authority.oid()),
        "session_user" => of(authority.session()),
        _ => folded,
    })
}

async fn alter_role(
    run: &Run,
    txn: &mut Txn<'_>,
    name: &Ident,
    operation: &AlterRoleOperation,
) -> SqlResult<()> {
    let AlterRoleOperation::WithOptions { options } = operation else {
        return Err(SqlError::unsupported("ALTER ROLE with RENAME, SET or RESET"));
    };
    let authority = run.authority()?;
    let name = role_named(run, name)?;
    let options = Options::of(run, options.clone())?;
    change(txn, of_txn, |roles| {
        let role = roles.named_mut(&name)?;
        if !authority.is_superuser() {
            if role.superuser || options.superuser.is_some() {
                let message =
                    "must be superuser to alter superuser roles or change superuser attribute";
                return Err(denied(message));
            }
            let is_own = role.oid == authority.oid() && options.is_password_alone();
            if !is_own && !authority.creates_roles() {
                return Err(denied("permission denied"));
            }
        }
        let is_first = role.oid == BOOTSTRAP;
        refuse(is_first && options.superuser == Some(false), "a first superuser who is none")?;
        options.apply(role);
        Ok(())
    })
    .await
}

pub(super) async fn drop_roles(
    run: &Run,
    txn: &mut Txn<'_>,
    statement: &Statement,
) -> SqlResult<&'static str> {
    let Statement::Drop { object_type, if_exists, names, cascade, restrict, .. } = statement else {
        return Err(SqlError::unsupported(statement));
    };
    refuse(*cascade || *restrict, "DROP ROLE with CASCADE or RESTRICT")?;
    debug_assert!(matches!(object_type, ObjectType::Role | ObjectType::User));
    let authority = run.authority()?;
    if !authority.creates_roles() {
        return Err(denied("permission denied to drop role"));
    }
    for name in names {
        let name = single(name)?;
        let roles = load_fresh(txn).await.map_err(of_txn)??;
        let role = roles.as_ref().and_then(|roles| roles.find(&name));
        let (Some(role), Some(roles)) = (role, &roles) else {
            if *if_exists {
                skip::tell(run, &Notice::missing(format!("role \"{name}\"")));
                continue;
            }
            return Err(no_role(&name));
        };
        if role.oid == authority.oid() || role.oid == authority.session() {
            let who = if role.oid == authority.oid() { "current" } else { "session" };
            let message = format!("{who} user cannot be dropped");
            return Err(SqlError::new(SqlState::OBJECT_IN_USE, message));
        }
        if role.superuser && !authority.is_superuser() {
            return Err(denied("must be superuser to drop superusers"));
        }
        if role.oid == BOOTSTRAP {
            let message =
                format!("cannot drop role {name} because it is required by the database system");
            return Err(SqlError::new(SqlState::DEPENDENT_OBJECTS, message));
        }
        check_free(run, txn, roles, &name, role.oid).await?;
        change(txn, of_txn, |roles| {
            roles.remove(&name);
            Ok(())
        })
        .await?;
    }
    Ok("DROP ROLE")
}

/// A role that owns something, or was granted something, stays.
async fn check_free(
    run: &Run,
    txn: &mut Txn<'_>,
    roles: &Roles,
    name: &str,
    oid: u32,
) -> SqlResult<()> {
    let mut found = Vec::new();
    for (key, table) in load_all(txn).await.map_err(of_txn)? {
        let table = table?;
        if let Some(own) = table.rights.names(oid) {
            found.push((format!("{} {}", table.kind().name(), run.path.shown(&key)), own));
        }
    }
    found.extend(roles.mentions(oid, |key| run.path.shown(key)));
    found.extend(run.path.schemas().into_iter().flat_map(|all| all.mentions(oid)));
    if found.is_empty() {
        return Ok(());
    }
    let lines = found.into_iter().map(|(what, own)| match own {
        Mention::Owner => format!("owner of {what}"),
        Mention::Grantee => format!("privileges for {what}"),
    });
    let message = format!("role \"{name}\" cannot be dropped because some objects depend on it");
    let detail = lines.collect::<Vec<_>>().join("\n");
    Err(SqlError::new(SqlState::DEPENDENT_OBJECTS, message).detail(detail))
}

/// Makes a role a member of another, if a role may do that.
fn join(
    authority: &Authority,
    roles: &mut Roles,
    of: &str,
    member: &str,
    admin: bool,
) -> SqlResult<()> {
    may_grant(authority, roles, of)?;
    roles.named(member)?;
    roles.add_member(of, member, admin)
}

fn may_grant(authority: &Authority, roles: &Roles, of: &str) -> SqlResult<()> {
    let group = roles.named(of)?;
    if authority.is_superuser() {
        return Ok(());
    }
    if group.superuser {
        return Err(denied("must be superuser to alter superusers"));
    }
    // As PostgreSQL 15: who may create roles may grant all that are no superusers.
    if authority.creates_roles() || roles.is_admin(authority.oid(), group.oid) {
        return Ok(());
    }
    Err(denied(format!("must have admin option on role \"{of}\"")))
}

async fn grant_role(run: &Run, txn: &mut Txn<'_>, own: &GrantRole) -> SqlResult<()> {
    let GrantRole { roles: groups, grantees, options, granted_by } = own;
    refuse(granted_by.is_some(), "GRANTED BY")?;
    let mut admin = false;
    for option in options {
        let is_admin = fold(&option.name) == "admin";
        refuse(!is_admin || option.value != RoleGrantOptionValue::Option, "this form of GRANT")?;
        admin = true;
    }
    let authority = run.authority()?;
    let members = members(run, grantees)?;
    change(txn, of_txn, |roles| {
        for group in groups {
            for member in &members {
                join(authority, roles, &role_named(run, group)?, member, admin)?;
            }
        }
        Ok(())
    })
    .await
}

/// The roles that a statement names behind TO or FROM.
fn members(run: &Run, grantees: &[Grantee]) -> SqlResult<Vec<String>> {
    let name = |own: &Grantee| match grant::grantee(run, own)? {
        Some(name) => Ok(name),
        None => Err(no_role("public")),
    };
    grantees.iter().map(name).collect()
}

async fn revoke_role(run: &Run, txn: &mut Txn<'_>, own: &RevokeRole) -> SqlResult<()> {
    let RevokeRole { option_for, roles: groups, grantees, granted_by, cascade: _ } = own;
    refuse(granted_by.is_some(), "GRANTED BY")?;
    let admin_alone = option_for.as_ref().map(fold);
    refuse(admin_alone.as_ref().is_some_and(|own| own != "admin"), "this form of REVOKE")?;
    let authority = run.authority()?;
    let members = members(run, grantees)?;
    change(txn, of_txn, |roles| {
        for group in groups {
            let group = role_named(run, group)?;
            may_grant(authority, roles, &group)?;
            let oid = roles.named(&group)?.oid;
            for member in &members {
                let member = roles.named_mut(member)?;
                match (admin_alone.is_some(), member.member_of.get_mut(&oid)) {
                    (true, Some(admin)) => *admin = false,
                    (true, None) => {}
                    (false, _) => drop(member.member_of.remove(&oid)),
                }
            }
        }
        Ok(())
    })
    .await
}
