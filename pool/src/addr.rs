//! Global addresses: flat 64-bit byte addresses of global cache lines in the pool.

use std::fmt;

/// Address of a global cache line (GCL): a flat byte address, a multiple of the pool's GCL size.
///
/// Address 0 is never handed out; it serves as the null address in pages and catalogues.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct GAddr(u64);

impl GAddr {
    /// No line: what a page stores where it points nowhere.
    pub const NULL: GAddr = GAddr(0);

    /// The address with these raw bits, as read from a page.
    pub const fn from_u64(raw: u64) -> Self {
        GAddr(raw)
    }

    /// The raw bits, as stored in a page.
    pub const fn to_u64(self) -> u64 {
        self.0
    }

    /// Whether this is [`GAddr::NULL`].
    pub const fn is_null(self) -> bool {
        self.0 == 0
    }
}

impl fmt::Debug for GAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "gcl:{:#x}", self.0)
    }
}

impl fmt::Display for GAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}
