//! Rows of access methods and their operator classes.

use super::oids;
use super::record::Record;
use super::relation::Relation;
use crate::types::{Datum, Scalar, SqlType};

type Rows = Vec<Vec<Datum>>;

/// The default operator class of each type for `btree`: its number, family and name.
const CLASSES: [(Scalar, u32, u32, &str); 18] = [
    (Scalar::Int4, 1978, 1976, "int4_ops"),
    (Scalar::Int2, 1979, 1976, "int2_ops"),
    (Scalar::Oid, 1981, 1989, "oid_ops"),
    (Scalar::Date, 3122, 434, "date_ops"),
    (Scalar::Float8, 3123, 1970, "float8_ops"),
    (Scalar::Int8, 3124, 1976, "int8_ops"),
    (Scalar::Numeric, 3125, 1988, "numeric_ops"),
    (Scalar::Text, 3126, 1994, "text_ops"),
    (Scalar::TimestampTz, 3127, 434, "timestamptz_ops"),
    (Scalar::Timestamp, 3128, 434, "timestamp_ops"),
    (Scalar::Bool, 10_003, 424, "bool_ops"),
    (Scalar::Char, 10_004, 426, "bpchar_ops"),
    (Scalar::Bytea, 10_006, 428, "bytea_ops"),
    (Scalar::Float4, 10_012, 1970, "float4_ops"),
    (Scalar::Interval, 10_022, 1982, "interval_ops"),
    (Scalar::Name, 10_028, 1994, "name_ops"),
    (Scalar::Time, 10_038, 1996, "time_ops"),
    (Scalar::Uuid, 10_065, 2968, "uuid_ops"),
];

/// The families of these: their numbers and names.
const FAMILIES: [(u32, &str); 12] = [
    (424, "bool_ops"),
    (426, "bpchar_ops"),
    (428, "bytea_ops"),
    (434, "datetime_ops"),
    (1970, "float_ops"),
    (1976, "integer_ops"),
    (1982, "interval_ops"),
    (1988, "numeric_ops"),
    (1989, "oid_ops"),
    (1994, "text_ops"),
    (1996, "time_ops"),
    (2968, "uuid_ops"),
];

/// The operators `=` of two types that differ, of one family.
const EQUAL_ACROSS: [(Scalar, Scalar, u32); 14] = [
    (Scalar::Int8, Scalar::Int4, 416),
    (Scalar::Int4, Scalar::Int8, 15),
    (Scalar::Int2, Scalar::Int4, 532),
    (Scalar::Int4, Scalar::Int2, 533),
    (Scalar::Int2, Scalar::Int8, 1862),
    (Scalar::Int8, Scalar::Int2, 1868),
    (Scalar::Float4, Scalar::Float8, 1120),
    (Scalar::Float8, Scalar::Float4, 1130),
    (Scalar::Date, Scalar::Timestamp, 2347),
    (Scalar::Date, Scalar::TimestampTz, 2360),
    (Scalar::Timestamp, Scalar::Date, 2373),
    (Scalar::TimestampTz, Scalar::Date, 2386),
    (Scalar::Timestamp, Scalar::TimestampTz, 2536),
    (Scalar::TimestampTz, Scalar::Timestamp, 2542),
];

/// The operators `=` of a type.
const EQUAL: [(Scalar, u32); 18] = [
    (Scalar::Bool, 91),
    (Scalar::Name, 93),
    (Scalar::Int2, 94),
    (Scalar::Int4, 96),
    (Scalar::Text, 98),
    (Scalar::Int8, 410),
    (Scalar::Oid, 607),
    (Scalar::Float4, 620),
    (Scalar::Float8, 670),
    (Scalar::Char, 1054),
    (Scalar::Date, 1093),
    (Scalar::Time, 1108),
    (Scalar::TimestampTz, 1320),
    (Scalar::Interval, 1330),
    (Scalar::Numeric, 1752),
    (Scalar::Bytea, 1955),
    (Scalar::Timestamp, 2060),
    (Scalar::Uuid, 2972),
];

/// `=` of arrays.
const EQUAL_ARRAYS: u32 = 1070;

/// The operator by which values of two types are equal; the second is taken for the first where
/// there is none of both.
pub(super) fn equality((left, right): (SqlType, SqlType)) -> u32 {
    if left.is_array {
        return EQUAL_ARRAYS;
    }
    let across = EQUAL_ACROSS.iter().find(|own| (own.0, own.1) == (left.scalar, right.scalar));
    if let Some(own) = across {
        return own.2;
    }
    let left = if left.scalar == Scalar::Varchar { Scalar::Text } else { left.scalar };
    EQUAL.iter().find(|own| own.0 == left).map_or(0, |own| own.1)
}

/// The number of the operator `=` of the types of two numbers, if PostgreSQL has it.
pub(super) fn known_equality(left: u32, right: u32) -> Option<u32> {
    /// `anyarray`.
    const ANY_ARRAY: u32 = 2277;
    if left == ANY_ARRAY {
        return Some(EQUAL_ARRAYS);
    }
    let (left, right) = (SqlType::from_oid(left)?.scalar, SqlType::from_oid(right)?.scalar);
    if left == right {
        return EQUAL.iter().find(|own| own.0 == left).map(|own| own.1);
    }
    EQUAL_ACROSS.iter().find(|own| (own.0, own.1) == (left, right)).map(|own| own.2)
}

/// The rows of a relation, if it is of this file.
pub(super) fn rows(relation: &'static Relation) -> Option<Rows> {
    Some(match relation.full_name {
        "pg_catalog.pg_am" => methods(relation),
        "pg_catalog.pg_opfamily" => FAMILIES.iter().map(|own| family(relation, *own)).collect(),
        "pg_catalog.pg_opclass" => CLASSES.iter().map(|own| class(relation, own)).collect(),
        _ => return None,
    })
}

/// The operator class by which an index has columns of a type in order.
pub(super) fn class_of(ty: SqlType) -> u32 {
    let scalar = match ty.scalar {
        Scalar::Varchar => Scalar::Text,
        scalar => scalar,
    };
    let found = CLASSES.iter().find(|own| own.0 == scalar && !ty.is_array);
    found.map_or(0, |own| own.1)
}

fn methods(relation: &'static Relation) -> Rows {
    let all = [(oids::HEAP, "heap", "t"), (oids::BTREE, "btree", "i")];
    let record = |(oid, name, kind): (u32, &str, &str)| {
        Record::new(relation).set("oid", oid).set("amname", name).set("amtype", kind).row()
    };
    all.into_iter().map(record).collect()
}

fn class(
    relation: &'static Relation,
    (scalar, oid, family, name): &(Scalar, u32, u32, &str),
) -> Vec<Datum> {
    Record::new(relation)
        .set("oid", *oid)
        .set("opcmethod", oids::BTREE)
        .set("opcname", *name)
        .set("opcnamespace", oids::PG_CATALOG)
        .set("opcowner", oids::OWNER)
        .set("opcfamily", *family)
        .set("opcintype", SqlType::new(*scalar).oid())
        .set("opcdefault", true)
        .row()
}

fn family(relation: &'static Relation, (oid, name): (u32, &str)) -> Vec<Datum> {
    Record::new(relation)
        .set("oid", oid)
        .set("opfmethod", oids::BTREE)
        .set("opfname", name)
        .set("opfnamespace", oids::PG_CATALOG)
        .set("opfowner", oids::OWNER)
        .row()
}
