//! Numbers of objects. Those of objects that PostgreSQL has too are its own; those of objects of
//! users are made of the numbers of tables and indexes, so they stay as long as these.

use crate::catalogue::SchemaId;

/// The superuser.
pub(super) const OWNER: u32 = 10;
/// The schema `pg_catalog`.
pub(super) const PG_CATALOG: u32 = 11;
/// The schema `public`.
pub(super) const PUBLIC: u32 = 2200;
/// The schema `information_schema`.
pub(super) const INFORMATION_SCHEMA: u32 = 13_000;
/// The database.
pub(super) const DATABASE: u32 = 5;
/// The tablespace `pg_default`.
pub(super) const TABLESPACE: u32 = 1663;
/// The tablespace `pg_global`.
pub(super) const GLOBAL_TABLESPACE: u32 = 1664;
/// The access method `heap`.
pub(super) const HEAP: u32 = 2;
/// The access method `btree`.
pub(super) const BTREE: u32 = 403;
/// The collation `default`.
pub(super) const DEFAULT_COLLATION: u32 = 100;
/// The collation `C`.
pub(super) const C_COLLATION: u32 = 950;

/// The number of the first object of a user.
const FIRST: u32 = 16_384;
/// Numbers that the objects of one table have.
const BLOCK: u32 = 4_096;
/// Where the indexes of a table begin in its block.
const INDEXES: u32 = 8;
/// Where its CHECK constraints begin.
const CHECKS: u32 = 1_024;
/// Where its defaults begin.
const DEFAULTS: u32 = 2_048;
/// Where its FOREIGN KEY constraints begin.
const FOREIGN_KEYS: u32 = 3_072;

/// The number of a table, whose number among all is this.
pub(crate) fn table(number: usize) -> u32 {
    let number = u32::try_from(number).unwrap_or(0);
    FIRST.wrapping_add(number.wrapping_mul(BLOCK))
}

/// Of the primary key of a table, as an index.
pub(super) const fn primary_index(table: u32) -> u32 {
    table.wrapping_add(2)
}

/// Of the primary key of a table, as a constraint.
pub(super) const fn primary_constraint(table: u32) -> u32 {
    table.wrapping_add(3)
}

/// Of an index of a table.
pub(super) fn index(table: u32, number: usize) -> u32 {
    let number = u32::try_from(number).unwrap_or(0) % 500;
    table.wrapping_add(INDEXES + 2 * number)
}

/// Of the UNIQUE constraint that an index is.
pub(super) const fn unique_constraint(index: u32) -> u32 {
    index.wrapping_add(1)
}

/// Of a CHECK constraint of a table, by its position.
pub(super) fn check(table: u32, at: usize) -> u32 {
    let at = u32::try_from(at).unwrap_or(0) % CHECKS;
    table.wrapping_add(CHECKS + at)
}

/// Of the default of a column, by its position.
pub(super) fn default(table: u32, at: usize) -> u32 {
    let at = u32::try_from(at).unwrap_or(0) % (FOREIGN_KEYS - DEFAULTS);
    table.wrapping_add(DEFAULTS + at)
}

/// Of a FOREIGN KEY constraint of a table, by its position.
pub(super) fn foreign_key(table: u32, at: usize) -> u32 {
    let at = u32::try_from(at).unwrap_or(0) % (BLOCK - FOREIGN_KEYS);
    table.wrapping_add(FOREIGN_KEYS + at)
}

/// Of a sequence, by its name in the catalogue.
pub(super) fn sequence(key: &str) -> u32 {
    0xc000_0000 | hash(key) & 0x0fff_ffff
}

/// Of a schema that is always there.
pub(super) fn system_schema(name: &str) -> u32 {
    match name {
        "pg_catalog" => PG_CATALOG,
        "information_schema" => INFORMATION_SCHEMA,
        _ => PUBLIC,
    }
}

/// Of a schema.
pub(super) fn schema(id: SchemaId) -> u32 {
    if id == SchemaId::PUBLIC { PUBLIC } else { 0xe000_0000 | id.number() & 0x0fff_ffff }
}

/// Of a function, whose signature is this.
pub(super) fn function(signature: &str) -> u32 {
    0xd000_0000 | hash(signature) & 0x0fff_ffff
}

/// Of an operator, whose signature is this.
pub(super) fn operator(signature: &str) -> u32 {
    0xb000_0000 | hash(signature) & 0x0fff_ffff
}

/// Of a statement, by its text.
pub(super) fn text(text: &str) -> u32 {
    hash(text)
}

/// FNV-1a: the same in every process.
fn hash(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}
