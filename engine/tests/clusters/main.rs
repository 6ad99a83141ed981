//! Engines of several compute nodes on pools of all codings. One binary: each of its own would be
//! linked with all of the engine again.

mod allocation;
mod backup;
mod coded;
mod coherence;
mod common;
mod drain;
mod drops;
mod eviction;
mod free_lines;
mod full_plane;
mod grow;
mod late;
mod lease;
mod leaving;
mod log;
mod membership;
mod memory_loss;
mod observation;
mod paused;
mod prefetch;
#[path = "../../../fabric/tests/tcp/proxy.rs"]
mod proxy;
mod reads_only;
mod recovery;
mod sequence;
mod snapshot_barrier;
mod snapshots;
mod spare;
mod suspended;
mod upgrade;
