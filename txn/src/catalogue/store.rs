//! The catalogue: which tables a database has and where their trees begin.
//!
//! It is a JSON document (schemas are nested, named and will grow; it is read once per node, so its
//! size and speed do not matter, and a person can read a dump of it) cut into pages: the first is
//! the superblock, which every node knows, the others hang on it as a chain.
//! ```text
//! 0       8         12            16             24     32         40
//! | magic | version | chunk bytes | total bytes | next | checksum | chunk ...
//! ```
//! Little-endian; `next` is 0 on the last page; the checksum (FNV-1a, 64 bits) covers the header
//! before it and the chunk. A page that does not fit this is refused, never guessed at.
//!
//! Two nodes may try to create a database at the same time: creation holds the superblock
//! exclusively from the check that it is empty until it is written, and writes it last, so others
//! see no catalogue or a whole one.

use selkie_btree::Tree;
use selkie_engine::{Engine, ExclusiveGuard, GAddr};
use serde::{Deserialize, Serialize};

use crate::catalogue::definition::{
    COUNTER, FIRST_TABLE, TABLES, TableDefinition, system_tables, version_row,
};
use crate::catalogue::error::{
    CATALOGUE_VERSION, CatalogueError, MAX_CATALOGUE_BYTES, OLDEST_CATALOGUE_VERSION,
    OLDEST_CHANGING_VERSION,
};
use crate::catalogue::handles::Table;
use crate::catalogue::schema::{DatabaseSchema, TableSchema};
use crate::catalogue::sizes::has_long_values;
use crate::catalogue::stored_table::StoredTable;
use crate::catalogue::table_info::TableInfo;
use crate::encoding::key::KeyBuf;
use crate::error::TxnError;
use crate::protocol::choice::Protocol;

const MAGIC: u64 = u64::from_le_bytes(*b"selkiect");
const HEADER_BYTES: usize = 40;
/// Where the checksum stands, which covers the bytes before it.
const CHECKSUM_AT: usize = 32;

/// What is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Catalogue {
    pub(crate) tables: Vec<StoredTable>,
    /// Whether all transactions read and write the stamps of leaves, by which they are ordered.
    pub(crate) has_timestamps: bool,
    /// Whether all transactions keep images of leaves for snapshots. Not with the former.
    #[serde(default)]
    pub(crate) has_snapshots: bool,
    /// Whether these tables are those of the catalogue, which have the definitions of the others.
    #[serde(default)]
    pub(crate) has_changing_tables: bool,
    /// Root of the tree of the locks of rows; 0 where rows are not locked.
    #[serde(default)]
    pub(crate) locks: u64,
}

impl Catalogue {
    /// The default protocol of a handle.
    pub(crate) fn protocol(&self) -> Protocol {
        match (self.has_timestamps, self.has_snapshots) {
            (true, _) => Protocol::Timestamp,
            (false, true) => Protocol::Snapshot,
            (false, false) => Protocol::TwoPhase,
        }
    }
}

/// What creation does when the pool already holds a database.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ExistingDatabase {
    /// It fails.
    Refuse,
    /// It replaces the catalogue. The pages of the old database stay allocated and are unreachable.
    Abandon,
}

/// Creates the trees of every table and writes the catalogue.
///
/// # Errors
/// [`CatalogueError::Exists`], or what the engine and the tree report. Pages allocated before a
/// failure are not given back: the pool is to be thrown away.
pub(crate) async fn create(
    engine: &Engine,
    schema: DatabaseSchema,
    existing: ExistingDatabase,
) -> Result<Catalogue, TxnError> {
    let at = engine.superblock();
    let superblock = match existing {
        ExistingDatabase::Refuse => engine.exclusive(at).await?,
        // It may have been lost with a node that died while it wrote the catalogue before.
        ExistingDatabase::Abandon => engine.exclusive_anew(at).await?,
    };
    if existing == ExistingDatabase::Refuse && read_u64(&superblock, 0) != Some(0) {
        return Err(CatalogueError::Exists.into());
    }
    let DatabaseSchema { tables: schemas, protocol } = schema;
    let has_timestamps = protocol == Protocol::Timestamp;
    let has_snapshots = protocol == Protocol::Snapshot;
    let stored = create_tables(engine, schemas).await?;
    let tables = match has_snapshots {
        true => define(engine, stored).await?,
        false => stored,
    };
    let has_changing_tables = has_snapshots;
    let locks = match has_snapshots {
        true => Tree::create(engine, u16::MAX).await?.root().to_u64(),
        false => 0,
    };
    let catalogue = Catalogue { tables, has_timestamps, has_snapshots, has_changing_tables, locks };
    write(engine, superblock, &catalogue).await?;
    Ok(catalogue)
}

/// Creates the trees of tables.
async fn create_tables(
    engine: &Engine,
    schemas: Vec<TableSchema>,
) -> Result<Vec<StoredTable>, TxnError> {
    let mut tables = Vec::with_capacity(schemas.len());
    for schema in schemas {
        let limit = schema.max_rows_per_page.unwrap_or(u16::MAX);
        let primary = Tree::create(engine, limit).await?.root().to_u64();
        let mut indexes = Vec::with_capacity(schema.indexes.len());
        for _ in &schema.indexes {
            indexes.push(Tree::create(engine, u16::MAX).await?.root().to_u64());
        }
        tables.push(StoredTable { schema, primary, indexes });
    }
    Ok(tables)
}

/// Creates the tables of the catalogue, with the definitions of these tables.
async fn define(engine: &Engine, stored: Vec<StoredTable>) -> Result<Vec<StoredTable>, TxnError> {
    let system = create_tables(engine, system_tables(engine.page_bytes())).await?;
    let mut infos = Vec::with_capacity(system.len());
    for (number, table) in system.iter().enumerate() {
        infos.push(TableInfo::resolve(Table::of_number(number), table.clone())?);
    }
    let mut next = FIRST_TABLE;
    for table in stored {
        let random = || engine.env().random_u64().cast_signed() | 1;
        let version = random();
        let values = match has_long_values(&table.schema, engine.page_bytes()) {
            true => Some(Tree::create(engine, u16::MAX).await?.root().to_u64()),
            false => None,
        };
        let definition = TableDefinition::new(table, values, random);
        let system: Vec<&TableInfo> = infos.iter().collect();
        for (table, row) in definition.rows(next, version, &system, engine.page_bytes())? {
            insert(engine, table, &row).await?;
        }
        next += 1;
    }
    if let Some(tables) = infos.get(TABLES.number()) {
        insert(engine, tables, &version_row(tables, COUNTER, next, 0)?).await?;
    }
    Ok(system)
}

/// Inserts a row into a table that no other node knows yet.
async fn insert(engine: &Engine, table: &TableInfo, row: &[u8]) -> Result<(), TxnError> {
    let mut key = KeyBuf::new();
    table.primary.encode(table.row(row)?, &mut key)?;
    table.primary.tree.insert(engine, &key, row).await?;
    Ok(())
}

async fn write(
    engine: &Engine,
    mut superblock: ExclusiveGuard<'_>,
    catalogue: &Catalogue,
) -> Result<(), TxnError> {
    let document = serde_json::to_vec(catalogue).map_err(CatalogueError::from)?;
    let total = document.len() as u64;
    if total > MAX_CATALOGUE_BYTES {
        return Err(CatalogueError::TooLong { bytes: total }.into());
    }
    let mut chunks: Vec<&[u8]> = document.chunks(engine.page_bytes() - HEADER_BYTES).collect();
    let first = if chunks.is_empty() { &[][..] } else { chunks.remove(0) };
    let mut next = GAddr::NULL;
    // From the last to the first, so that each page knows its successor.
    for chunk in chunks.iter().rev() {
        let mut page = engine.allocate().await?;
        put_page(page.bytes_mut(0..HEADER_BYTES + chunk.len()), chunk, total, next);
        next = page.addr();
    }
    put_page(superblock.bytes_mut(0..HEADER_BYTES + first.len()), first, total, next);
    drop(superblock);
    // Beyond that, and beyond a lease that is over, the caller is told of no database.
    let lsn = engine.shared(engine.superblock()).await?.lsn();
    Ok(engine.until_durable(lsn).await?)
}

/// Reads and checks the whole catalogue.
///
/// # Errors
/// [`CatalogueError`], and what the engine reports.
pub(crate) async fn read(engine: &Engine) -> Result<Catalogue, TxnError> {
    let mut document = Vec::new();
    let mut page = engine.superblock();
    loop {
        let guard = engine.shared(page).await?;
        if document.is_empty() && read_u64(&guard, 0) == Some(0) {
            return Err(CatalogueError::Missing.into());
        }
        let version = read_u32(&guard, 8);
        let (chunk, total, next) = checked_page(&guard, page)?;
        document.extend_from_slice(chunk);
        let length = document.len() as u64;
        if next.is_null() && length == total {
            return Ok(parse(&document, version)?);
        }
        if next.is_null() || chunk.is_empty() || length >= total {
            let reason = "the chain and its length disagree";
            return Err(CatalogueError::Damaged { page, reason }.into());
        }
        page = next;
    }
}

/// The catalogue that a document of this version says.
fn parse(document: &[u8], version: u32) -> Result<Catalogue, CatalogueError> {
    let catalogue: Catalogue = serde_json::from_slice(document)?;
    if catalogue.has_snapshots && version < OLDEST_CHANGING_VERSION {
        return Err(CatalogueError::EarlierTables { found: version });
    }
    Ok(catalogue)
}

/// The pages of the catalogue.
///
/// # Errors
/// As [`read`].
pub(crate) async fn pages(engine: &Engine) -> Result<Vec<GAddr>, TxnError> {
    // Checks that the chain is whole, and so that it ends.
    read(engine).await?;
    let (mut pages, mut next) = (Vec::new(), engine.superblock());
    while !next.is_null() {
        pages.push(next);
        let guard = engine.shared(next).await?;
        (_, _, next) = checked_page(&guard, next)?;
    }
    Ok(pages)
}

/// Why a page is not a page of this catalogue.
enum CataloguePageFault {
    Version(u32),
    Damage(&'static str),
}

/// The chunk in a page, the length of the document, and the next page.
fn checked_page(bytes: &[u8], page: GAddr) -> Result<(&[u8], u64, GAddr), CatalogueError> {
    take_page(bytes).map_err(|fault| match fault {
        CataloguePageFault::Version(found) => CatalogueError::Version { found },
        CataloguePageFault::Damage(reason) => CatalogueError::Damaged { page, reason },
    })
}

#[expect(clippy::expect_used, reason = "a chunk is shorter than a page")]
#[expect(clippy::indexing_slicing, reason = "the page was cut to header and chunk by the caller")]
fn put_page(page: &mut [u8], chunk: &[u8], total: u64, next: GAddr) {
    let chunk_bytes = u32::try_from(chunk.len()).expect("a chunk is shorter than a page");
    page[0..8].copy_from_slice(&MAGIC.to_le_bytes());
    page[8..12].copy_from_slice(&CATALOGUE_VERSION.to_le_bytes());
    page[12..16].copy_from_slice(&chunk_bytes.to_le_bytes());
    page[16..24].copy_from_slice(&total.to_le_bytes());
    page[24..32].copy_from_slice(&next.to_u64().to_le_bytes());
    let checksum = fnv(&[&page[..CHECKSUM_AT], chunk]);
    page[32..40].copy_from_slice(&checksum.to_le_bytes());
    page[HEADER_BYTES..].copy_from_slice(chunk);
}

fn take_page(page: &[u8]) -> Result<(&[u8], u64, GAddr), CataloguePageFault> {
    let short = || CataloguePageFault::Damage("the page is too short");
    if read_u64(page, 0).ok_or_else(short)? != MAGIC {
        return Err(CataloguePageFault::Damage("it does not begin with the magic number"));
    }
    let word = read_u64(page, 8).ok_or_else(short)?;
    let (version, chunk_bytes) = (word & 0xffff_ffff, word >> 32);
    let end = usize::try_from(chunk_bytes).unwrap_or(usize::MAX).saturating_add(HEADER_BYTES);
    let chunk = page
        .get(HEADER_BYTES..end)
        .ok_or(CataloguePageFault::Damage("the chunk ends behind the page"))?;
    let header = page.get(..CHECKSUM_AT).ok_or_else(short)?;
    if read_u64(page, CHECKSUM_AT) != Some(fnv(&[header, chunk])) {
        return Err(CataloguePageFault::Damage("the checksum is wrong"));
    }
    if !(OLDEST_CATALOGUE_VERSION.into()..=CATALOGUE_VERSION.into()).contains(&version) {
        return Err(CataloguePageFault::Version(u32::try_from(version).unwrap_or(u32::MAX)));
    }
    let total = read_u64(page, 16).ok_or_else(short)?;
    if total > MAX_CATALOGUE_BYTES {
        return Err(CataloguePageFault::Damage("the length is too great"));
    }
    Ok((chunk, total, GAddr::from_u64(read_u64(page, 24).ok_or_else(short)?)))
}

fn read_u64(page: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(page.get(at..at + 8)?.try_into().ok()?))
}

/// The version of a page, which is checked before it is relied on.
fn read_u32(page: &[u8], at: usize) -> u32 {
    let bytes = page.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
    bytes.map_or(0, u32::from_le_bytes)
}

/// FNV-1a: enough to notice damage, and nothing here needs more.
fn fnv(parts: &[&[u8]]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for &byte in parts.iter().copied().flatten() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::column_type::ColumnType;
    use crate::catalogue::schema::{IndexSchema, KeyOrder};

    #[test]
    fn every_changed_byte_is_noticed() {
        let chunk = b"{\"tables\":[]}";
        let mut page = vec![0; HEADER_BYTES + chunk.len()];
        put_page(&mut page, chunk, 13, GAddr::NULL);
        let (found, total, next) = take_page(&page).ok().unwrap();
        assert_eq!((found, total, next.is_null()), (&chunk[..], 13, true));
        for at in 0..page.len() {
            let mut bad = page.clone();
            bad[at] ^= 0x10;
            assert!(take_page(&bad).is_err(), "byte {at}");
        }
        assert!(take_page(&page[..page.len() - 1]).is_err());
    }

    /// A catalogue as version 2 wrote it.
    const OLD: &str = r#"{"tables":[{"schema":{"name":"account","columns":[
        {"name":"id","ty":"I32","nullable":false},
        {"name":"owner","ty":{"Text":20},"nullable":true},
        {"name":"balance","ty":"I64","nullable":false},
        {"name":"rate","ty":"F64","nullable":false},
        {"name":"blob","ty":{"Bytes":8},"nullable":false}],
        "primary_key":[0],
        "indexes":[{"name":"by_owner","columns":[1,2],"unique":true}],
        "max_rows_per_page":null},"primary":4096,"indexes":[8192]}],"has_timestamps":false}"#;

    #[test]
    fn a_catalogue_written_before_still_reads() {
        let read: Catalogue = serde_json::from_str(OLD).unwrap();
        let expected = TableSchema::new("account")
            .column("id", ColumnType::I32)
            .nullable_column("owner", ColumnType::Text(20))
            .column("balance", ColumnType::I64)
            .column("rate", ColumnType::F64)
            .column("blob", ColumnType::Bytes(8))
            .primary_key([0])
            .unique_index("by_owner", [1, 2]);
        assert_eq!(read.tables[0].schema, expected);
        let mut page = vec![0; HEADER_BYTES + OLD.len()];
        put_page(&mut page, OLD.as_bytes(), OLD.len() as u64, GAddr::NULL);
        for (version, is_read) in
            [(1u32, false), (2, true), (5, true), (6, true), (7, true), (8, false)]
        {
            page[8..12].copy_from_slice(&version.to_le_bytes());
            let checksum = fnv(&[&page[..CHECKSUM_AT], OLD.as_bytes()]);
            page[32..40].copy_from_slice(&checksum.to_le_bytes());
            assert_eq!(take_page(&page).is_ok(), is_read, "version {version}");
        }
    }

    #[test]
    fn a_database_whose_rows_have_no_layouts_is_refused() {
        let snapshots = OLD.replace(
            "\"has_timestamps\":false",
            "\"has_timestamps\":false,\"has_snapshots\":true,\"has_changing_tables\":true",
        );
        for version in 2..CATALOGUE_VERSION {
            assert!(parse(OLD.as_bytes(), version).is_ok());
            let refused = parse(snapshots.as_bytes(), version).unwrap_err().to_string();
            assert!(refused.contains(&format!("by version {version} of the catalogue")));
            assert!(refused.contains("(supported: 7 to 7): create it anew"), "{refused}");
        }
        assert!(parse(snapshots.as_bytes(), CATALOGUE_VERSION).is_ok());
    }

    #[test]
    fn types_and_orders_come_back_under_their_names() {
        let types = [
            (ColumnType::Bool, r#""Bool""#),
            (ColumnType::I16, r#""I16""#),
            (ColumnType::F32, r#""F32""#),
            (ColumnType::Date, r#""Date""#),
            (ColumnType::Time, r#""Time""#),
            (ColumnType::Timestamp, r#""Timestamp""#),
            (ColumnType::Interval, r#""Interval""#),
            (ColumnType::Uuid, r#""Uuid""#),
            (ColumnType::Decimal(9), r#"{"Decimal":9}"#),
            (ColumnType::Json(9), r#"{"Json":9}"#),
        ];
        let mut schema = TableSchema::new("t").column("id", ColumnType::I32).primary_key([0]);
        for (ty, name) in types {
            assert_eq!(serde_json::to_string(&ty).unwrap(), name);
            schema = schema.nullable_column(name, ty);
        }
        let order = [KeyOrder::DESCENDING, KeyOrder::ASCENDING.nulls_last()];
        let index = IndexSchema::new("i", [1, 2]).order(order).unique().nulls_distinct();
        let schema = schema.primary_key_order([KeyOrder::DESCENDING]).with_index(index);
        assert_eq!(schema.validate(), Ok(()));
        let document = serde_json::to_string(&schema).unwrap();
        assert!(document.contains(r#"{"descending":false,"nulls_last":true}"#), "{document}");
        assert_eq!(serde_json::from_str::<TableSchema>(&document).unwrap(), schema);
    }
}
