//! Why a catalogue cannot be written or read.

use selkie_engine::GAddr;

use crate::protocol::choice::Protocol;

/// The version of the stored format. A program that reads it knows the orders of keys, what NULLs
/// do in unique indexes, that the tables may be those of a catalogue, that rows of tables that may
/// change say which layout they have and may have long values elsewhere, that rows may be locked,
/// and that there are sequences and statistics.
pub(crate) const CATALOGUE_VERSION: u32 = 7;
/// The oldest version with tables that may change: it has what this one has.
pub(crate) const OLDEST_CHANGING_VERSION: u32 = 7;
/// The oldest version that reads as this one: its keys are ascending with NULLs first, and in its
/// unique indexes NULL is a value like any other.
pub(crate) const OLDEST_CATALOGUE_VERSION: u32 = 2;
/// Longest catalogue, so that a damaged length or a loop in the chain ends.
pub(crate) const MAX_CATALOGUE_BYTES: u64 = 16 << 20;

/// Why a catalogue cannot be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CatalogueError {
    /// The pool holds no database.
    #[error("there is no database in this pool")]
    Missing,
    /// The pool holds a database already.
    #[error("there is a database in this pool already")]
    Exists,
    /// A page of the catalogue is damaged.
    #[error("the catalogue is damaged at page {page:?}: {reason}")]
    Damaged {
        /// The page.
        page: GAddr,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// Tables were to be created or changed in a database whose tables never change.
    #[error("the tables of this database never change: create it for the protocol snapshot")]
    FixedTables,
    /// A table's definition is not whole.
    #[error(
        "the catalogue is damaged: {found} pieces of the definition of table {table} are there (expected: {expected})"
    )]
    Pieces {
        /// The number of the table.
        table: usize,
        /// Pieces that are there.
        found: i16,
        /// Pieces that its row says.
        expected: i16,
    },
    /// A table's definition does not agree with itself.
    #[error(
        "the catalogue is damaged: table {table} has had {found} columns that are there (expected: {expected})"
    )]
    Columns {
        /// The number of the table.
        table: usize,
        /// Columns that were added and not dropped.
        found: usize,
        /// Columns of its schema.
        expected: usize,
    },
    /// The database was created for snapshots by an earlier version.
    #[error(
        "the database was created for snapshots by version {found} of the catalogue (supported: {OLDEST_CHANGING_VERSION} to {CATALOGUE_VERSION}): create it anew"
    )]
    EarlierTables {
        /// Its version.
        found: u32,
    },
    /// The catalogue was written by another version.
    #[error(
        "the catalogue has version {found} (supported: {OLDEST_CATALOGUE_VERSION} to {CATALOGUE_VERSION})"
    )]
    Version {
        /// Its version.
        found: u32,
    },
    /// The schemas together are too long.
    #[error("the catalogue takes {bytes} bytes (allowed: {MAX_CATALOGUE_BYTES})")]
    TooLong {
        /// Its length.
        bytes: u64,
    },
    /// The database was created for another family of protocols.
    #[error("the database is for protocol {allowed}: {wanted} cannot be used on it", allowed = allowed_on(*.made_for))]
    Protocol {
        /// The protocol that cannot be used on it.
        wanted: Protocol,
        /// One that it was made for.
        made_for: Protocol,
    },
    /// The document does not read as a catalogue.
    #[error("the catalogue cannot be read or written: {0}")]
    Document(#[from] serde_json::Error),
}

/// The protocols of a database that was made for one of them.
fn allowed_on(made_for: Protocol) -> String {
    let all = Protocol::ALL.into_iter().filter(|other| other.goes_with(made_for));
    all.map(Protocol::name).collect::<Vec<_>>().join(" or ")
}
