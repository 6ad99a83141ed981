//! Types that are of parameters only: no value has them.

use super::sql_type::{Scalar, SqlType};

/// Their numbers, names, lengths, and whether PostgreSQL passes them by value.
pub(crate) const PSEUDO_TYPES: [(u32, &str, i32, bool); 8] = [
    (2275, "cstring", -2, false),
    (2276, "any", 4, true),
    (2277, "anyarray", -1, false),
    (2279, "trigger", 4, true),
    (2281, "internal", 8, true),
    (2283, "anyelement", 4, true),
    (2776, "anynonarray", 4, true),
    (3838, "event_trigger", 4, true),
];

/// The name of the type of a number, as `format_type` gives it.
pub(crate) fn type_name(oid: u32) -> String {
    known_name(oid).unwrap_or_else(|| "???".to_owned())
}

/// The name of the type of a number, if there is such a type.
pub(crate) fn known_name(oid: u32) -> Option<String> {
    let pseudo = PSEUDO_TYPES.iter().find(|own| own.0 == oid);
    match (SqlType::from_oid(oid), pseudo) {
        (Some(ty), _) => Some(ty.name()),
        (None, Some((_, "any", ..))) => Some("\"any\"".to_owned()),
        (None, Some((_, name, ..))) => Some((*name).to_owned()),
        (None, None) => None,
    }
}

/// The number of the type of a name.
pub(crate) fn type_named(name: &str) -> Option<u32> {
    let name = name.trim().to_ascii_lowercase();
    let name = name.strip_prefix("pg_catalog.").unwrap_or(&name);
    let ty = match name {
        "\"char\"" => Some(SqlType::new(Scalar::SingleChar)),
        name => SqlType::by_name(name),
    };
    let plain = name.trim_matches('"');
    let pseudo = || PSEUDO_TYPES.iter().find(|own| own.1 == plain).map(|own| own.0);
    ty.map(SqlType::oid).or_else(pseudo)
}
