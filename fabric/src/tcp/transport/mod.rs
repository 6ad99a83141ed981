//! Sockets, with TLS or without.
//!
//! Contents: `pipe` (a socket that does not block, of a link), `blocking` (a socket that blocks, of
//! a server thread).

pub(super) mod blocking;
pub(super) mod pipe;
