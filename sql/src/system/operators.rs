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

/// The rows of a relation, if it is of this file.
pub(super) fn rows(relation: &'static Relation) -> Option<Rows> {
    Some(match relation.full_name {
        "pg_catalog.pg_am" => methods(relation),
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
