//! Who belongs to a pool, and who may access what.
//!
//! Contents: `certificates` (the authority of a pool and the certificates of its nodes), `tls` (the
//! TLS of one connection), `roles` (roles in certificates), `key` (access keys), `access_card`
//! (address and key of a node).

pub(super) mod access_card;
pub(super) mod certificates;
pub(super) mod key;
pub(super) mod roles;
pub(super) mod tls;
