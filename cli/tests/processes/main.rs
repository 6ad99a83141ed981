//! The `selkie` binary from outside: its processes, what they say, and how they end.
//!
//! All tests that start processes are in one binary, which is linked once, and share [`harness`].
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test that meets something else has failed"
)]

mod arguments;
mod backup;
mod clients;
mod config_files;
mod data_directory;
mod decisions;
mod demo;
mod doctor;
mod driver_deaths;
mod drivers;
mod embedding;
mod errors;
mod guide;
mod harness;
mod items;
mod lifecycle;
mod logs;
mod memory_nodes;
mod notices;
mod observation;
mod psql;
mod psql_describe;
mod readme;
mod reports;
mod roles;
mod scenarios;
mod server;
mod server_computing;
mod server_cursors;
mod server_limits;
mod server_locks;
mod server_memory;
mod server_zones;
mod shared_pool;
mod shell;
mod shell_server;
mod shell_terminal;
mod signals;
mod sql;
mod status;
mod terminal;
mod tls;
mod tokens;
mod virtual_time;
