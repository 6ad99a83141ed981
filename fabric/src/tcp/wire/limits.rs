//! Bounds on the chains of a session.

/// Most verbs in one chain.
pub const MAX_CHAIN_VERBS: usize = 1024;
/// Most bytes of payload in one chain, of its reads and its writes together.
pub const MAX_CHAIN_BYTES: usize = 16 << 20;
/// Most chains of a session that are sent and not answered. Their responses are kept where they
/// were executed, to be sent again over another connection.
pub(crate) const WINDOW_CHAINS: usize = 8192;
/// No further chain is sent while the unanswered ones move this many bytes.
pub(crate) const WINDOW_BYTES: usize = 4 << 20;
