//! Roles, their memberships, and who may do what.

use super::record::{Cell, Record};
use super::relation::Relation;
use super::snapshot::{SystemSnapshot, SystemTable};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::roles::{
    Authority, BOOTSTRAP, BOOTSTRAP_NAME, EVERYONE, Grant, Kind, Privileges, Rights, Role, no_role,
};
use crate::schemas::{PUBLIC, names_of_text, no_schema};
use crate::types::Datum;

type Rows = Vec<Vec<Datum>>;

/// The role of the session before there are roles, if it is not the first superuser.
const NO_ROLE: u32 = 16_383;

/// The rows of a relation, if it is of this file.
pub(super) fn rows(system: &SystemSnapshot, relation: &'static Relation) -> Option<Rows> {
    Some(match relation.full_name {
        "pg_catalog.pg_authid" => roles(system, relation),
        "pg_catalog.pg_auth_members" => members(system, relation),
        "information_schema.table_privileges" => table_privileges(system, relation, true),
        "information_schema.role_table_grants" => table_privileges(system, relation, false),
        _ => return None,
    })
}

fn roles(system: &SystemSnapshot, relation: &'static Relation) -> Rows {
    let record = |oid: u32, name: &str, role: &Role| {
        let is_first = oid == BOOTSTRAP;
        Record::new(relation)
            .set("oid", oid)
            .set("rolname", name)
            .set("rolsuper", role.superuser)
            .set("rolinherit", role.inherit)
            .set("rolcreaterole", role.create_role)
            .set("rolcreatedb", role.create_db)
            .set("rolcanlogin", role.login)
            .set("rolreplication", is_first)
            .set("rolbypassrls", is_first)
            .set("rolconnlimit", -1)
            .set("rolvaliduntil", role.valid_until.map_or(Cell::Null, Cell::Moment))
            .row()
    };
    if let Some(roles) = system.authority.roles() {
        return roles.iter().map(|(name, role)| record(role.oid, name, role)).collect();
    }
    // Before there are roles each may do everything.
    let all = all_roles(system).into_iter().map(|(oid, name)| {
        let (superuser, login) = (true, true);
        let (create_role, create_db) = (true, true);
        let mut row = record(
            BOOTSTRAP,
            name,
            &Role { superuser, login, create_role, create_db, ..Role::new() },
        );
        if let Some(place) = row.first_mut() {
            *place = Datum::I64(oid.into());
        }
        row
    });
    all.collect()
}

/// Who there is, with their numbers.
pub(super) fn all_roles(system: &SystemSnapshot) -> Vec<(u32, &str)> {
    if let Some(roles) = system.authority.roles() {
        return roles.iter().map(|(name, role)| (role.oid, name)).collect();
    }
    let user = &*system.session.user;
    let mut all = vec![(BOOTSTRAP, BOOTSTRAP_NAME)];
    if user != BOOTSTRAP_NAME {
        all.push((NO_ROLE, user));
    }
    all
}

fn members(system: &SystemSnapshot, relation: &'static Relation) -> Rows {
    let Some(roles) = system.authority.roles() else { return Vec::new() };
    let mut rows = Vec::new();
    for (_, member) in roles.iter() {
        for (group, admin) in &member.member_of {
            let record = Record::new(relation)
                .set("roleid", *group)
                .set("member", member.oid)
                .set("grantor", BOOTSTRAP)
                .set("admin_option", *admin);
            rows.push(record.row());
        }
    }
    rows
}

/// What was granted of tables and views to roles that the session has, or by them.
fn table_privileges(
    system: &SystemSnapshot,
    relation: &'static Relation,
    with_public: bool,
) -> Rows {
    let name = |oid: u32| system.user(oid).unwrap_or_else(|| "PUBLIC".to_owned());
    let has = |oid: u32| has_role(system, None, oid);
    let mut rows = Vec::new();
    for table in &system.tables {
        let (kind, rights) = (table.def.kind(), &table.def.rights);
        for Grant { to, by, privileges, options } in explicit(kind, rights) {
            let by = by.unwrap_or(rights.owner);
            let is_shown = has(by) || has(to) || (to == EVERYONE && with_public);
            if !is_shown {
                continue;
            }
            // Who has what the owner has may grant it.
            let grants_all = to != EVERYONE && has_role(system, Some(to), rights.owner);
            for privilege in privileges.names() {
                let may_grant = grants_all || options.names().any(|own| own == privilege);
                let yes = |is: bool| if is { "YES" } else { "NO" };
                let record = Record::new(relation)
                    .set("grantor", name(by))
                    .set("grantee", name(to))
                    .set("table_catalog", system.session.database)
                    .set("table_schema", &*table.schema)
                    .set("table_name", &*table.def.name)
                    .set("privilege_type", privilege)
                    .set("is_grantable", yes(may_grant))
                    .set("with_hierarchy", yes(privilege == "SELECT"));
                rows.push(record.row());
            }
        }
    }
    rows
}

/// Who has what of an object, also as long as nothing was granted.
fn explicit(kind: Kind, rights: &Rights) -> Vec<Grant> {
    match rights.grants() {
        Some(grants) => grants.to_vec(),
        None => {
            let (privileges, options) = (kind.all(), Privileges::NONE);
            vec![Grant { to: rights.owner, by: None, privileges, options }]
        }
    }
}

/// The privileges of an object as PostgreSQL prints them; NULL as long as nothing was granted.
pub(super) fn acl(system: &SystemSnapshot, rights: &Rights) -> Cell {
    let Some(grants) = rights.grants() else { return Cell::Null };
    let name = |oid: u32| match oid {
        EVERYONE => String::new(),
        oid => system.user(oid).map_or_else(|| oid.to_string(), |name| of_acl(&name)),
    };
    let item = |own: &Grant| {
        let by = own.by.unwrap_or(rights.owner);
        format!("{}={}/{}", name(own.to), own.privileges.letters(own.options), name(by))
    };
    grants.iter().map(item).collect::<Vec<String>>().into()
}

/// The name of a role as PostgreSQL prints it in privileges.
fn of_acl(name: &str) -> String {
    let is_plain = name.chars().all(|c| c.is_alphanumeric() || c == '_');
    if is_plain { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}

/// The same of the schema `public`.
pub(super) fn public_acl(system: &SystemSnapshot) -> Cell {
    match system.authority.roles() {
        Some(roles) => acl(system, &roles.public),
        None => acl(system, &Rights::of_public_schema()),
    }
}

impl SystemSnapshot {
    /// The name of a role.
    pub(super) fn user(&self, oid: u32) -> Option<String> {
        let found = all_roles(self).into_iter().find(|own| own.0 == oid);
        found.map(|(_, name)| name.to_owned())
    }

    fn authority_of(&self, role: Option<u32>) -> SqlResult<Authority> {
        let roles = self.authority.roles().cloned();
        match role {
            None => Ok(self.authority.clone()),
            Some(EVERYONE) => Ok(Authority::of_everyone(roles)),
            Some(role) => Authority::new(roles, crate::roles::Standing::Role(role), "", None),
        }
    }

    /// The number that a value names a role by.
    fn role_of(&self, value: &Datum, takes_public: bool) -> SqlResult<u32> {
        match value {
            Datum::I64(oid) => Ok(u32::try_from(*oid).unwrap_or(u32::MAX)),
            Datum::Text(name) if takes_public && &**name == "public" => Ok(EVERYONE),
            Datum::Text(name) => {
                let found = all_roles(self).into_iter().find(|own| own.1 == &**name);
                found.map(|(oid, _)| oid).ok_or_else(|| no_role(name))
            }
            _ => Err(SqlError::internal("a role that is no name and no number")),
        }
    }

    /// What `has_table_privilege` and its like say; `None` if there is no such object.
    pub(super) fn privilege(
        &self,
        function: &str,
        role: Option<&Datum>,
        object: &Datum,
        wanted: &str,
    ) -> SqlResult<Option<bool>> {
        let role = role.map(|role| self.role_of(role, true)).transpose()?;
        if function == "pg_has_role" {
            return self.membership(role, object, wanted).map(Some);
        }
        if self.authority.roles().is_none() {
            return Ok(Some(true));
        }
        let authority = self.authority_of(role)?;
        let (kind, rights) = match function {
            "has_table_privilege" | "has_column_privilege" | "has_any_column_privilege" => {
                match self.table_of(object)? {
                    Some(Some(table)) => (table.def.kind(), table.def.rights.clone()),
                    // Relations of the system are to be read.
                    Some(None) => {
                        let wanted = wanted_of(Kind::Table.all(), wanted)?;
                        let reads = wanted.iter().any(|own| own.0 == Privileges::SELECT && !own.1);
                        return Ok(Some(authority.is_superuser() || reads));
                    }
                    None => return Ok(None),
                }
            }
            "has_sequence_privilege" => match self.sequence_of(object)? {
                Some(rights) => (Kind::Sequence, rights),
                None => return Ok(None),
            },
            "has_schema_privilege" => match self.schema_of(object)? {
                Some(rights) => (Kind::Schema, rights),
                None => return Ok(None),
            },
            "has_database_privilege" => {
                let creates = wanted.to_lowercase().contains("create");
                return Ok(Some(authority.may_create_schemas() || !creates));
            }
            _ => return Ok(Some(true)),
        };
        let held = authority.held(kind, &rights);
        let options = authority.options(kind, &rights);
        let known = match function {
            "has_column_privilege" | "has_any_column_privilege" => Privileges::OF_COLUMNS,
            _ => kind.all(),
        };
        let wanted = wanted_of(known, wanted)?;
        Ok(Some(wanted.iter().any(|(own, grantable)| match grantable {
            true => options.has_all(*own),
            false => held.has_all(*own),
        })))
    }

    fn membership(&self, role: Option<u32>, of: &Datum, wanted: &str) -> SqlResult<bool> {
        let of = self.role_of(of, false)?;
        let Some(roles) = self.authority.roles() else { return Ok(true) };
        let role = role.unwrap_or_else(|| self.authority.oid());
        if roles.is_superuser(role) {
            return Ok(true);
        }
        for own in wanted.split(',') {
            let own = own.trim().to_uppercase();
            let (what, admin) = match own.split_once(" WITH ") {
                Some((what, "ADMIN OPTION" | "GRANT OPTION")) => (what, true),
                _ => (&*own, false),
            };
            let has = match what {
                _ if admin => roles.is_admin(role, of),
                "MEMBER" => roles.memberships(role).contains(&of),
                "USAGE" => roles.inherited(role).contains(&of),
                _ => return Err(unrecognized(wanted)),
            };
            if has {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The table or view that a value names: `Some(None)` is a relation of the system.
    fn table_of(&self, object: &Datum) -> SqlResult<Option<Option<&SystemTable>>> {
        use crate::types::object_names::ObjectNames;
        let (oid, name) = match object {
            Datum::I64(oid) => (u32::try_from(*oid).ok(), None),
            Datum::Text(name) => (self.relation_oid(name), Some(name)),
            _ => (None, None),
        };
        let Some(oid) = oid.filter(|oid| self.relation(*oid).is_some()) else {
            return match name {
                Some(name) => Err(no_relation(name)),
                None => Ok(None),
            };
        };
        Ok(Some(self.tables.iter().find(|own| own.oid == oid)))
    }

    fn schema_of(&self, object: &Datum) -> SqlResult<Option<Rights>> {
        let name = match object {
            Datum::Text(name) => {
                if !self.all_schemas().contains(&&**name) {
                    return Err(no_schema(name));
                }
                (**name).to_owned()
            }
            Datum::I64(oid) => {
                let is_it = |name: &&str| i64::from(self.number_of_schema(name)) == *oid;
                match self.all_schemas().into_iter().find(is_it) {
                    Some(name) => name.to_owned(),
                    None => return Ok(None),
                }
            }
            _ => return Ok(None),
        };
        if let Some(own) = self.session.path.schema(&name) {
            return Ok(Some(own.rights.clone()));
        }
        let public = self.authority.roles().filter(|_| name == PUBLIC);
        let rights = public.map(|roles| roles.public.clone());
        Ok(Some(rights.unwrap_or_else(Rights::of_public_schema)))
    }

    fn sequence_of(&self, object: &Datum) -> SqlResult<Option<Rights>> {
        let Datum::Text(name) = object else { return Ok(None) };
        let keys = self.session.path.keys_of(&names_of_text(name)?)?;
        let is_there = |key: &String| self.sequences.iter().any(|own| own.own.name == *key);
        let Some(key) = keys.into_iter().find(is_there) else {
            return Err(no_relation(name));
        };
        let roles = self.authority.roles();
        Ok(Some(roles.map(|roles| roles.sequence(&key)).unwrap_or_default()))
    }
}

fn has_role(system: &SystemSnapshot, role: Option<u32>, of: u32) -> bool {
    let Some(roles) = system.authority.roles() else { return true };
    let role = role.unwrap_or_else(|| system.authority.oid());
    roles.is_superuser(role) || roles.inherited(role).contains(&of)
}

pub(super) fn no_relation(name: &str) -> SqlError {
    let message = format!("relation \"{name}\" does not exist");
    SqlError::new(SqlState::UNDEFINED_TABLE, message)
}

fn unrecognized(wanted: &str) -> SqlError {
    let message = format!("unrecognized privilege type: \"{wanted}\"");
    SqlError::new(SqlState::INVALID_PARAMETER, message)
}

/// Privileges of a list, of which one is enough, and whether they are to be granted further.
fn wanted_of(known: Privileges, wanted: &str) -> SqlResult<Vec<(Privileges, bool)>> {
    let one = |own: &str| {
        let folded = own.trim().to_uppercase();
        let (name, grantable) = match folded.strip_suffix(" WITH GRANT OPTION") {
            Some(name) => (name, true),
            None => (&*folded, false),
        };
        let found = Privileges::named(name).filter(|own| known.has_all(*own));
        found.map(|own| (own, grantable)).ok_or_else(|| unrecognized(own.trim()))
    };
    wanted.split(',').map(one).collect()
}
