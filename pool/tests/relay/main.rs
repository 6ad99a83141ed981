//! What relays and planes behind relays promise beyond what all planes do: see `tests/control.rs`.
#![expect(clippy::unwrap_used, reason = "a test that meets something else has failed")]
#![cfg(target_os = "linux")]

mod calls;
mod common;
mod failover;
mod malformed;
mod pools;
#[path = "../relay_server/mod.rs"]
mod relay_server;
mod streams;
mod trust;
