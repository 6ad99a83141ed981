//! The `tcp` fabric between nodes that do not share a `TcpFabric`, and against peers that do not
//! play by the rules: what conformance cannot show.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "helpers of tests may fail like tests")]

mod access;
mod admission;
mod broken;
#[path = "../certificates/mod.rs"]
mod certificates;
mod chains;
mod common;
mod connections;
mod deaths;
mod fencing;
mod newcomers;
mod other_protocols;
mod proxy;
mod wakers;
mod window;
