//! The bytes of a connection. Nothing here does input or output.
//!
//! Contents: `hello` (the begin of a connection), `frames` (requests and responses), `fields`
//! (reads numbers), `limits` (bounds), `frame_buffer` (received bytes), `error` (what is wrong with
//! bytes).

pub(super) mod error;
mod fields;
pub(super) mod frame_buffer;
pub(super) mod frames;
pub(super) mod hello;
pub(super) mod limits;
