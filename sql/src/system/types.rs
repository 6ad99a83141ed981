//! Rows of types, and what belongs to them.

use super::oids;
use super::record::Record;
use super::relation::Relation;
use super::snapshot::SystemSnapshot;
use crate::types::cast::Category;
use crate::types::pseudo_types::PSEUDO_TYPES;
use crate::types::{Datum, Scalar, SqlType};

type Rows = Vec<Vec<Datum>>;

/// The rows of a relation, if it is of this file.
pub(super) fn rows(_: &SystemSnapshot, relation: &'static Relation) -> Option<Rows> {
    Some(match relation.full_name {
        "pg_catalog.pg_type" => types(relation),
        "pg_catalog.pg_collation" => collations(relation),
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
        _ if ty.is_vector() => "p",
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
    let vectors = [Scalar::Int2, Scalar::Oid].map(SqlType::vector);
    let own = plain.chain(arrays).chain(vectors).map(|ty| type_row(relation, ty));
    own.chain(PSEUDO_TYPES.iter().map(|own| pseudo_row(relation, own))).collect()
}

/// A type that no value has.
fn pseudo_row(
    relation: &'static Relation,
    (oid, name, length, is_by_value): &(u32, &str, i32, bool),
) -> Vec<Datum> {
    Record::new(relation)
        .set("oid", *oid)
        .set("typname", *name)
        .set("typnamespace", oids::PG_CATALOG)
        .set("typowner", oids::OWNER)
        .set("typlen", *length)
        .set("typbyval", *is_by_value)
        .set("typtype", "p")
        .set("typcategory", "P")
        .set("typisdefined", true)
        .set("typdelim", ",")
        .set("typalign", if *length == -2 { "c" } else { "i" })
        .set("typstorage", "p")
        .set("typtypmod", -1)
        .row()
}

/// The functions of each type: its number, then the numbers of `typinput`, `typoutput`,
/// `typreceive`, `typsend`, `typmodin`, `typmodout` and `typsubscript`.
const FUNCTIONS: &str = include_str!("type_functions.txt");

/// The columns of these.
const FUNCTION_COLUMNS: [&str; 7] =
    ["typinput", "typoutput", "typreceive", "typsend", "typmodin", "typmodout", "typsubscript"];

/// The functions of a type. All arrays have the same, but those of the modifier.
fn functions_of(ty: SqlType) -> [u32; 7] {
    const OF_ARRAYS: [u32; 4] = [750, 751, 2400, 2401];
    const SUBSCRIPT: u32 = 6179;
    let of = |oid: u32| {
        let mut lines = FUNCTIONS.lines().map(|line| {
            let mut numbers = line.split(' ').map(|word| word.parse().unwrap_or(0));
            (numbers.next(), std::array::from_fn(|_| numbers.next().unwrap_or(0)))
        });
        lines.find(|(own, _)| *own == Some(oid)).map(|(_, functions)| functions).unwrap_or_default()
    };
    if !ty.is_array || ty.is_vector() {
        return of(ty.oid());
    }
    let [_, _, _, _, modin, modout, _] = of(ty.element().oid());
    let [input, output, receive, send] = OF_ARRAYS;
    [input, output, receive, send, modin, modout, SUBSCRIPT]
}

fn type_row(relation: &'static Relation, ty: SqlType) -> Vec<Datum> {
    let is_pseudo = matches!(ty.scalar, Scalar::Record | Scalar::Void | Scalar::Unknown);
    let character = SqlType::new(Scalar::SingleChar).oid();
    let (element, array) = match ty.is_array {
        // Its characters can be taken by their numbers.
        false if ty.scalar == Scalar::Name => (character, SqlType::array(ty.scalar).oid()),
        true => (ty.element().oid(), 0),
        false => (0, SqlType::array(ty.scalar).oid()),
    };
    let mut record = Record::new(relation);
    for (column, function) in FUNCTION_COLUMNS.into_iter().zip(functions_of(ty)) {
        record = record.set(column, function);
    }
    let length = i32::from(ty.bytes_len());
    let is_by_value = matches!(ty.bytes_len(), 1 | 2 | 4 | 8);
    record
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

/// The collations, with their numbers.
pub(super) const COLLATIONS: [(u32, &str); 3] = [(100, "default"), (950, "C"), (951, "POSIX")];

fn collations(relation: &'static Relation) -> Rows {
    let record = |(oid, name): (u32, &str)| {
        let is_default = oid == oids::DEFAULT_COLLATION;
        let provider = if is_default { "d" } else { "c" };
        let locale = (!is_default).then_some(name);
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
    COLLATIONS.into_iter().map(record).collect()
}

fn languages(relation: &'static Relation) -> Rows {
    // All functions are built in.
    let internal = Record::new(relation)
        .set("oid", super::callables::INTERNAL_LANGUAGE)
        .set("lanname", "internal")
        .set("lanowner", oids::OWNER);
    vec![internal.row()]
}
