//! Bounds on the chains of a connection.

/// Most verbs in one chain.
pub const MAX_CHAIN_VERBS: usize = 1024;
/// Most bytes of payload in one chain, of its reads and its writes together.
pub const MAX_CHAIN_BYTES: usize = 16 << 20;
