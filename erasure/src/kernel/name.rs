//! The kernels by name, slowest first.

use std::fmt;

/// How products are computed, slowest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum Kernel {
    /// 64-bit words, on any CPU.
    Portable,
    /// Tables of nibbles, shuffled in 256-bit vectors.
    Avx2,
    /// Bit matrices on 256-bit vectors (GFNI).
    Gfni256,
    /// Bit matrices on 512-bit vectors (GFNI).
    Gfni512,
}

impl Kernel {
    /// All there are, slowest first.
    pub const ALL: [Kernel; 4] = [Kernel::Portable, Kernel::Avx2, Kernel::Gfni256, Kernel::Gfni512];

    /// Its name in lower case.
    pub fn name(self) -> &'static str {
        match self {
            Kernel::Portable => "portable",
            Kernel::Avx2 => "avx2",
            Kernel::Gfni256 => "gfni256",
            Kernel::Gfni512 => "gfni512",
        }
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
