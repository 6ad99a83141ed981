//! Functions that tell of the session and the system.

use super::CallContext;
use super::arguments::argument;
use super::signature::{Body, Table};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::session_list::Activity;
use crate::types::{Datum, SqlType};

/// What `version()` gives: clients take the number of PostgreSQL from it.
const VERSION: &str = concat!("PostgreSQL 15.0 (Selkie ", env!("CARGO_PKG_VERSION"), ")");

pub(super) fn register_functions(table: &mut Table<Body>) {
    table.add("version", "stable -> text", |_, _| Ok(Datum::text(VERSION)));
    for name in ["current_database", "current_catalog"] {
        table.add(name, "stable -> name", |_, context| Ok(Datum::text(context.database)));
    }
    for name in ["current_user", "user", "current_role"] {
        table.add(name, "stable -> name", |_, context| Ok(Datum::text(context.user)));
    }
    table.add("session_user", "stable -> name", |_, context| Ok(Datum::text(context.session_user)));
    search_path(table);
    table.add_typed("pg_typeof", "lax any -> regtype", |types, _, _| {
        Ok(Datum::I64(i64::from(types.argument(0).oid())))
    });
    for name in ["gen_random_uuid", "uuid_generate_v4"] {
        table.add(name, "volatile -> uuid", |_, context| {
            // So many bits of a random number are random for certain.
            let mut bytes = [0u8; 16];
            for byte in &mut bytes {
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "a byte"
                )]
                let random = ((context.random)() * 256.0) as u8;
                *byte = random;
            }
            bytes[6] = bytes[6] & 0x0f | 0x40;
            bytes[8] = bytes[8] & 0x3f | 0x80;
            Ok(Datum::Uuid(bytes))
        });
    }
    table.add("num_nulls", "lax variadic any -> int4", |values, _| {
        let count = values.iter().filter(|value| value.is_null()).count();
        Ok(Datum::I32(i32::try_from(count).unwrap_or(i32::MAX)))
    });
    table.add("num_nonnulls", "lax variadic any -> int4", |values, _| {
        let count = values.iter().filter(|value| !value.is_null()).count();
        Ok(Datum::I32(i32::try_from(count).unwrap_or(i32::MAX)))
    });
    table.add("format_type", "lax oid int4 -> text", |values, _| {
        let Datum::I64(oid) = argument(values, 0) else { return Ok(Datum::Null) };
        let modifier = match argument(values, 1) {
            Datum::I32(modifier) => *modifier,
            _ => -1,
        };
        let oid = u32::try_from(*oid).unwrap_or(0);
        let name = match SqlType::from_oid(oid) {
            _ if oid == 0 => "-".to_owned(),
            Some(ty) if modifier >= 0 => ty.with_modifier(modifier).name(),
            _ => crate::types::pseudo_types::type_name(oid),
        };
        Ok(Datum::text(name))
    });
    table.add("pg_backend_pid", "stable -> int4", |_, context| {
        Ok(Datum::I32(context.session_number))
    });
    table.add("pg_cancel_backend", "volatile int4 -> bool", |values, context| {
        end_one_of(values, context, "query is being canceled", |found| (found.cancel)())
    });
    table.add("pg_terminate_backend", "volatile int4 -> bool", |values, context| {
        end_one_of(values, context, "process is being terminated", |found| (found.terminate)())
    });
    table.add("pg_client_encoding", "stable -> name", |_, _| Ok(Datum::text("UTF8")));
}

/// The schemas in which names are looked for, and how that is set.
fn search_path(table: &mut Table<Body>) {
    table.add("current_schema", "stable -> name", |_, context| {
        Ok(context.search_path.first().map_or(Datum::Null, |name| Datum::text(name.as_str())))
    });
    table.add("current_schemas", "stable bool -> name[]", |values, context| {
        let implicit = matches!(argument(values, 0), Datum::Bool(true));
        // Where it is not named it is looked at first.
        let is_named = context.search_path.iter().any(|own| own == "pg_catalog");
        let catalogue = (implicit && !is_named).then(|| Datum::text("pg_catalog"));
        let names = context.search_path.iter().map(|name| Datum::text(name.as_str()));
        let all = catalogue.into_iter().chain(names).collect();
        Ok(super::arrays::of_elements(SqlType::NAME.scalar, all))
    });
    table.add("set_config", "lax volatile text text bool -> text", |values, context| {
        let Datum::Text(name) = argument(values, 0) else {
            let message = "SET requires parameter name";
            return Err(SqlError::new(SqlState::NULL_VALUE_NOT_ALLOWED, message));
        };
        let value = match argument(values, 1) {
            Datum::Text(value) => Some(&**value),
            _ => None,
        };
        let is_local = matches!(argument(values, 2), Datum::Bool(true));
        context.to_set.add(name, value, is_local);
        Ok(value.map_or(Datum::Null, Datum::text))
    });
}

/// Ends what the session of a number does, or the session. Whether there is one.
fn end_one_of(
    values: &[Datum],
    context: &CallContext,
    what: &str,
    end: impl FnOnce(&Activity),
) -> SqlResult<Datum> {
    let Datum::I32(number) = argument(values, 0) else { return Ok(Datum::Null) };
    let Some(found) = context.sessions.find(*number) else { return Ok(Datum::Bool(false)) };
    if !context.is_superuser && *found.user != *context.user {
        let message = format!("must be a member of the role whose {what}");
        return Err(SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, message));
    }
    end(&found);
    Ok(Datum::Bool(true))
}
