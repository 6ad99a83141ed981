//! The catalogue: other nodes find the database, and damage is refused.

use selkie_txn::{CatalogueError, ColumnType, Database, SchemaError, TableSchema, TxnError, key};

use crate::common::{Account, Cluster, accounts, check, insert, two_phase};

/// Tables enough for a catalogue of several pages.
fn tables() -> Vec<TableSchema> {
    let many = (0..40).map(|n| {
        TableSchema::new(format!("filler_{n}")).column("id", ColumnType::I64).primary_key([0])
    });
    many.chain([accounts()]).collect()
}

#[test]
fn another_node_opens_what_one_created() {
    let cluster = Cluster::start(3, 512);
    let missing = cluster.runtime.block_on(Database::open(&cluster.engines[1])).err().unwrap();
    assert!(matches!(missing, TxnError::Catalogue(CatalogueError::Missing)), "{missing}");
    let databases = cluster.create(two_phase(tables()));
    cluster.runtime.block_on(async {
        for db in &databases {
            let table = db.table("account").unwrap();
            assert_eq!(table, databases[0].table("account").unwrap());
            assert_eq!(*db.schema(table).unwrap(), accounts());
            assert_eq!(db.tables().count(), 41);
            assert!(db.table("missing").is_err() && db.index("account", "nothing").is_err());
        }
        let table = databases[0].table("account").unwrap();
        let account = Account { tag: 5, owner: "o".into(), balance: 3, note: None };
        let mut txn = databases[1].begin();
        insert(&databases[1], &mut txn, table, 9, &account).await.unwrap();
        txn.commit().await.unwrap();
        let mut txn = databases[2].begin();
        let by_tag = databases[2].index("account", "by_tag").unwrap();
        let range = selkie_txn::KeyRange::prefix(&key![5]);
        let row = txn.first(by_tag, &range).await.unwrap().unwrap();
        assert_eq!((row.i32(0), row.text(2)), (Ok(9), Ok("o")));
        txn.commit().await.unwrap();
        check(&databases[0]).await;
        let again = Database::create(&cluster.engines[2], two_phase(tables())).await.err().unwrap();
        assert!(matches!(again, TxnError::Catalogue(CatalogueError::Exists)), "{again}");
    });
    cluster.close();
}

#[test]
fn bad_schemas_are_refused_before_anything_is_written() {
    let cluster = Cluster::start(1, 512);
    let twice = vec![accounts(), accounts()];
    let huge = vec![
        accounts(),
        (0..30).fold(TableSchema::new("huge").primary_key([0]), |huge, number| {
            huge.column(format!("u{number}"), ColumnType::Uuid)
        }),
    ];
    cluster.runtime.block_on(async {
        let error = Database::create(&cluster.engines[0], two_phase(twice)).await.err().unwrap();
        assert!(matches!(error, TxnError::Schema(SchemaError::DuplicateName { .. })), "{error}");
        let error = Database::create(&cluster.engines[0], two_phase(huge)).await.err().unwrap();
        assert!(matches!(error, TxnError::Schema(SchemaError::EntryTooLarge { .. })), "{error}");
        assert!(Database::create(&cluster.engines[0], two_phase(tables())).await.is_ok());
    });
    cluster.close();
}

#[test]
fn a_damaged_catalogue_is_refused() {
    let cluster = Cluster::start(2, 512);
    cluster.create(two_phase(tables()));
    cluster.runtime.block_on(async {
        let engine = &cluster.engines[1];
        let superblock = engine.superblock();
        let next = {
            let page = engine.shared(superblock).await.unwrap();
            selkie_engine::GAddr::from_u64(u64::from_le_bytes(page[24..32].try_into().unwrap()))
        };
        assert!(!next.is_null(), "the catalogue has one page only");
        for page in [superblock, next] {
            for at in [0, 8, 12, 16, 24, 32, 40, 300, 503] {
                let flip = async || {
                    let mut page = engine.exclusive(page).await.unwrap();
                    page.bytes_mut(at..at + 1)[0] ^= 0x40;
                };
                flip().await;
                let refused = Database::open(&cluster.engines[0]).await.err();
                let refused = refused.unwrap_or_else(|| panic!("byte {at} of {page:?}"));
                assert!(
                    matches!(refused, TxnError::Catalogue(CatalogueError::Damaged { .. })),
                    "{refused}"
                );
                flip().await;
            }
        }
        assert!(Database::open(&cluster.engines[0]).await.is_ok());
    });
    cluster.close();
}
