//! Transactions on small clusters in one process.

mod beyond_cache;
mod bulk_load;
mod cancel;
mod catalogue;
mod columns;
mod columns_model;
mod common;
mod cursor_conflicts;
mod cursors;
mod ddl;
mod deferred_writes;
mod hermitage;
mod large;
mod logged;
mod maintenance;
mod million;
mod optimistic;
mod partition;
mod read_ahead;
mod reading;
mod rollback;
mod serializable;
mod sessions;
mod snapshot;
mod timestamp;
mod types;
