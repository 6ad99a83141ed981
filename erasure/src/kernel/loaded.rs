//! Which kernels this CPU can run, and the way to them.

use super::lanes::{Mode, multiply};
use super::name::Kernel;
use super::portable;
#[cfg(target_arch = "x86_64")]
use super::{avx2, gfni256, gfni512};
use crate::error::CodecError;
use crate::matrix::Row;
use crate::split::{SplitSink, SplitSource};

impl Kernel {
    /// Whether this CPU can run it.
    pub fn is_available(self) -> bool {
        Loaded::new(self).is_some()
    }

    /// The fastest that this CPU can run.
    pub fn fastest() -> Kernel {
        let available = Kernel::ALL.into_iter().filter(|kernel| kernel.is_available());
        available.max().unwrap_or(Kernel::Portable)
    }
}

/// A kernel that this CPU can run.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Loaded {
    Portable(portable::Portable),
    #[cfg(target_arch = "x86_64")]
    Avx2(avx2::Avx2),
    #[cfg(target_arch = "x86_64")]
    Gfni256(gfni256::Gfni256),
    #[cfg(target_arch = "x86_64")]
    Gfni512(gfni512::Gfni512),
}

impl Loaded {
    pub(crate) fn get(kernel: Kernel) -> Result<Loaded, CodecError> {
        Loaded::new(kernel).ok_or(CodecError::KernelUnavailable { kernel })
    }

    #[cfg(target_arch = "x86_64")]
    fn new(kernel: Kernel) -> Option<Loaded> {
        match kernel {
            Kernel::Portable => Some(Loaded::Portable(portable::Portable)),
            Kernel::Avx2 => avx2::Avx2::detect().map(Loaded::Avx2),
            Kernel::Gfni256 => gfni256::Gfni256::detect().map(Loaded::Gfni256),
            Kernel::Gfni512 => gfni512::Gfni512::detect().map(Loaded::Gfni512),
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn new(kernel: Kernel) -> Option<Loaded> {
        (kernel == Kernel::Portable).then_some(Loaded::Portable(portable::Portable))
    }

    pub(crate) fn kernel(self) -> Kernel {
        match self {
            Loaded::Portable(_) => Kernel::Portable,
            #[cfg(target_arch = "x86_64")]
            Loaded::Avx2(_) => Kernel::Avx2,
            #[cfg(target_arch = "x86_64")]
            Loaded::Gfni256(_) => Kernel::Gfni256,
            #[cfg(target_arch = "x86_64")]
            Loaded::Gfni512(_) => Kernel::Gfni512,
        }
    }

    /// Each output becomes, or gets added, the sum of all inputs times coefficients: those at the
    /// inputs' numbers in the row at the output's number.
    ///
    /// # Errors
    ///
    /// As of [`check::lengths`](crate::check::lengths).
    #[inline]
    pub(crate) fn multiply<I: SplitSource, O: SplitSink>(
        self,
        rows: &[Row],
        inputs: &[I],
        outputs: &mut [O],
        mode: Mode,
    ) -> Result<(), CodecError> {
        match self {
            Loaded::Portable(kernel) => multiply(kernel, rows, inputs, outputs, mode),
            #[cfg(target_arch = "x86_64")]
            Loaded::Avx2(kernel) => multiply(kernel, rows, inputs, outputs, mode),
            #[cfg(target_arch = "x86_64")]
            Loaded::Gfni256(kernel) => multiply(kernel, rows, inputs, outputs, mode),
            #[cfg(target_arch = "x86_64")]
            Loaded::Gfni512(kernel) => multiply(kernel, rows, inputs, outputs, mode),
        }
    }
}
