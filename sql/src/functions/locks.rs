//! Functions of advisory locks, with their signatures. A lock may have to be waited for, so calls
//! are bound as subqueries are, and what stands here is for places where that cannot be.

use super::signature::{Body, Table};
use crate::error::SqlError;

const LOCKS: [&str; 4] = [
    "pg_advisory_lock",
    "pg_advisory_lock_shared",
    "pg_advisory_xact_lock",
    "pg_advisory_xact_lock_shared",
];

/// Those that say whether they have done it.
const ATTEMPTS: [&str; 6] = [
    "pg_try_advisory_lock",
    "pg_try_advisory_lock_shared",
    "pg_try_advisory_xact_lock",
    "pg_try_advisory_xact_lock_shared",
    "pg_advisory_unlock",
    "pg_advisory_unlock_shared",
];

pub(super) fn register_functions(table: &mut Table<Body>) {
    for name in LOCKS {
        refused(table, name, &["volatile int8 -> void", "volatile int4 int4 -> void"]);
    }
    for name in ATTEMPTS {
        refused(table, name, &["volatile int8 -> bool", "volatile int4 int4 -> bool"]);
    }
    refused(table, "pg_advisory_unlock_all", &["volatile -> void"]);
}

fn refused(table: &mut Table<Body>, name: &'static str, signatures: &[&'static str]) {
    for signature in signatures {
        table.add(name, signature, |_, _| {
            Err(SqlError::unsupported("a function of advisory locks here"))
        });
    }
}
