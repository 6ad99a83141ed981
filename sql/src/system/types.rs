//! Rows of types, functions, and what belongs to them.

use super::oids;
use super::record::{Cell, Record, vector};
use super::relation::Relation;
use super::snapshot::SystemSnapshot;
use crate::functions::{FunctionEntry, FunctionKind, Volatility, function_entries};
use crate::types::cast::Category;
use crate::types::{Datum, Scalar, SqlType};

type Rows = Vec<Vec<Datum>>;

/// The rows of a relation, if it is of this file.
pub(super) fn rows(_: &SystemSnapshot, relation: &'static Relation) -> Option<Rows> {
    Some(match relation.full_name {
        "pg_catalog.pg_type" => types(relation),
        "pg_catalog.pg_collation" => collations(relation),
        "pg_catalog.pg_proc" => functions(relation),
        "pg_catalog.pg_language" => languages(relation),
        _ => return None,
    })
}

/// The collation of a type.
pub(super) fn collation(ty: SqlType) -> u32 {
    match ty.scalar {
        Scalar::Name => oids::C_COLLATION,
        Scalar::Text | Scalar::Varchar | Scalar::Char => oids::DEFAULT_COLLATION,
        _ => 0,
    }
}

/// `typalign` of a type.
pub(super) fn alignment(ty: SqlType) -> &'static str {
    let is_wide = matches!(
        ty.scalar,
        Scalar::Int8
            | Scalar::Float8
            | Scalar::Time
            | Scalar::Timestamp
            | Scalar::TimestampTz
            | Scalar::Interval
            | Scalar::Record
    );
    match ty.scalar {
        _ if is_wide => "d",
        _ if ty.is_array => "i",
        Scalar::Bool | Scalar::SingleChar | Scalar::Name | Scalar::Unknown | Scalar::Uuid => "c",
        Scalar::Int2 => "s",
        _ => "i",
    }
}

/// `typstorage` of a type.
pub(super) fn storage(ty: SqlType) -> &'static str {
    match ty.scalar {
        _ if ty.is_array => "x",
        Scalar::Numeric => "m",
        Scalar::Text
        | Scalar::Varchar
        | Scalar::Char
        | Scalar::Bytea
        | Scalar::Json
        | Scalar::Jsonb
        | Scalar::Record => "x",
        _ => "p",
    }
}

fn category(ty: SqlType) -> &'static str {
    match ty.category() {
        Category::Array => "A",
        Category::Bool => "B",
        Category::DateTime => "D",
        Category::Number => "N",
        Category::Pseudo => "P",
        Category::String => "S",
        Category::Timespan => "T",
        Category::Unknown => "X",
        Category::User => "U",
        Category::Internal => "Z",
    }
}

fn types(relation: &'static Relation) -> Rows {
    let plain = Scalar::all().map(SqlType::new);
    let arrays = Scalar::all().map(SqlType::array).filter(|ty| ty.oid() != 0);
    plain.chain(arrays).map(|ty| type_row(relation, ty)).collect()
}

fn type_row(relation: &'static Relation, ty: SqlType) -> Vec<Datum> {
    let is_pseudo = matches!(ty.scalar, Scalar::Record | Scalar::Void | Scalar::Unknown);
    let (element, array) = match ty.is_array {
        true => (ty.element().oid(), 0),
        false => (0, SqlType::array(ty.scalar).oid()),
    };
    let length = i32::from(ty.bytes_len());
    let is_by_value = matches!(ty.bytes_len(), 1 | 2 | 4 | 8);
    Record::new(relation)
        .set("oid", ty.oid())
        .set("typname", ty.catalogue_name())
        .set("typnamespace", oids::PG_CATALOG)
        .set("typowner", oids::OWNER)
        .set("typlen", length)
        .set("typbyval", is_by_value)
        .set("typtype", if is_pseudo { "p" } else { "b" })
        .set("typcategory", category(ty))
        .set("typispreferred", ty.is_preferred())
        .set("typisdefined", true)
        .set("typdelim", ",")
        .set("typelem", element)
        .set("typarray", array)
        .set("typalign", alignment(ty))
        .set("typstorage", storage(ty))
        .set("typtypmod", -1)
        .set("typcollation", collation(ty))
        .row()
}

fn collations(relation: &'static Relation) -> Rows {
    let all = [
        (100, "default", "d", None),
        (950, "C", "c", Some("C")),
        (951, "POSIX", "c", Some("POSIX")),
    ];
    let record = |(oid, name, provider, locale): (u32, &str, &str, Option<&str>)| {
        Record::new(relation)
            .set("oid", oid)
            .set("collname", name)
            .set("collnamespace", oids::PG_CATALOG)
            .set("collowner", oids::OWNER)
            .set("collprovider", provider)
            .set("collisdeterministic", true)
            .set("collencoding", -1)
            .set("collcollate", locale)
            .set("collctype", locale)
            .row()
    };
    all.into_iter().map(record).collect()
}

fn languages(relation: &'static Relation) -> Rows {
    // All functions are built in.
    let internal = Record::new(relation)
        .set("oid", INTERNAL_LANGUAGE)
        .set("lanname", "internal")
        .set("lanowner", oids::OWNER);
    vec![internal.row()]
}

/// The language of functions that are built in.
const INTERNAL_LANGUAGE: u32 = 12;

fn functions(relation: &'static Relation) -> Rows {
    let mut rows = Vec::new();
    for FunctionEntry {
        name,
        arguments,
        returns,
        kind,
        is_strict,
        is_variadic,
        volatility,
        signature,
    } in function_entries()
    {
        let variadic = arguments.last().copied().filter(|_| is_variadic).unwrap_or(0);
        let volatility = match volatility {
            Volatility::Immutable => "i",
            Volatility::Stable => "s",
            Volatility::Volatile => "v",
        };
        let record = Record::new(relation)
            .set("oid", oids::function(&format!("{name} {signature}")))
            .set("proname", name)
            .set("pronamespace", oids::PG_CATALOG)
            .set("proowner", oids::OWNER)
            .set("prolang", INTERNAL_LANGUAGE)
            .set("procost", 1)
            .set("prorows", if kind == FunctionKind::Rows { 1000 } else { 0 })
            .set("provariadic", variadic)
            .set("prokind", if kind == FunctionKind::Aggregate { "a" } else { "f" })
            .set("proisstrict", is_strict)
            .set("proretset", kind == FunctionKind::Rows)
            .set("provolatile", volatility)
            .set("proparallel", "s")
            .set("pronargs", arguments.len())
            .set("prorettype", returns)
            .set("proargtypes", vector(arguments.into_iter().map(Cell::from)))
            .set("prosrc", name);
        rows.push(record.row());
    }
    rows
}
