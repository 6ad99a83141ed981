//! Kernels: a matrix times splits, by what the CPU has.
//!
//! Each is a file that says how some vectors of up to four outputs are summed in registers over all
//! inputs. What outputs are taken together, and which kernel there is, is said here. A kernel with
//! vector instructions is a value that exists only if the CPU has these; so to have it is to be
//! allowed to call it.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod gfni256;
#[cfg(target_arch = "x86_64")]
mod gfni512;
#[forbid(unsafe_code)]
mod portable;
#[cfg(target_arch = "x86_64")]
#[forbid(unsafe_code)]
mod tables;

use std::fmt;

use super::matrix::Row;
use super::split::{Sink, Source};
use super::{CodecError, MAX_SPLITS, check};

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

    /// Whether this CPU can run it.
    pub fn is_available(self) -> bool {
        Loaded::new(self).is_some()
    }

    /// The fastest that this CPU can run.
    pub fn fastest() -> Kernel {
        let available = Kernel::ALL.into_iter().filter(|kernel| kernel.is_available());
        available.max().unwrap_or(Kernel::Portable)
    }

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

/// What happens to what an output was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mode {
    /// The product takes its place.
    Set,
    /// The product is added.
    Add,
}

/// A kernel that this CPU can run.
#[derive(Clone, Copy, Debug)]
pub(super) enum Loaded {
    Portable(portable::Portable),
    #[cfg(target_arch = "x86_64")]
    Avx2(avx2::Avx2),
    #[cfg(target_arch = "x86_64")]
    Gfni256(gfni256::Gfni256),
    #[cfg(target_arch = "x86_64")]
    Gfni512(gfni512::Gfni512),
}

impl Loaded {
    pub(super) fn get(kernel: Kernel) -> Result<Loaded, CodecError> {
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

    pub(super) fn kernel(self) -> Kernel {
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
    /// As of [`check::lengths`].
    #[inline]
    pub(super) fn multiply<I: Source, O: Sink>(
        self,
        rows: &[Row],
        inputs: &[I],
        outputs: &mut [O],
        mode: Mode,
    ) -> Result<(), CodecError> {
        let length = check::lengths(inputs, outputs)?;
        let task = Task { length, rows, inputs, mode };
        match self {
            Loaded::Portable(kernel) => in_groups(kernel, task, outputs),
            #[cfg(target_arch = "x86_64")]
            Loaded::Avx2(kernel) => in_groups(kernel, task, outputs),
            #[cfg(target_arch = "x86_64")]
            Loaded::Gfni256(kernel) => in_groups(kernel, task, outputs),
            #[cfg(target_arch = "x86_64")]
            Loaded::Gfni512(kernel) => in_groups(kernel, task, outputs),
        }
        Ok(())
    }
}

/// What is the same for all outputs.
struct Task<'a, I> {
    /// Bytes that every input has, and every output: the kernels rely on it.
    length: usize,
    rows: &'a [Row],
    inputs: &'a [I],
    mode: Mode,
}

/// A kernel, which computes `M` outputs at once.
trait Lanes: Copy {
    /// # Safety
    ///
    /// Every input and output has `task.length` bytes.
    unsafe fn group<const M: usize, I: Source, O: Sink>(
        self,
        task: &Task<'_, I>,
        rows: [&Row; M],
        outputs: &mut [O; M],
    );
}

impl Lanes for portable::Portable {
    unsafe fn group<const M: usize, I: Source, O: Sink>(
        self,
        task: &Task<'_, I>,
        rows: [&Row; M],
        outputs: &mut [O; M],
    ) {
        portable::sum_from(0, task, &rows, outputs);
    }
}

/// Four outputs at a time: their sums and what they need fit into the registers of every kernel.
#[inline]
fn in_groups<L: Lanes, I: Source, O: Sink>(lanes: L, task: Task<'_, I>, outputs: &mut [O]) {
    let (fours, rest) = outputs.as_chunks_mut::<4>();
    let mut position = 0;
    for four in fours {
        one_group(lanes, &task, position, four);
        position += 4;
    }
    if let Some(three) = rest.first_chunk_mut::<3>() {
        one_group(lanes, &task, position, three);
    } else if let Some(two) = rest.first_chunk_mut::<2>() {
        one_group(lanes, &task, position, two);
    } else if let Some(one) = rest.first_chunk_mut::<1>() {
        one_group(lanes, &task, position, one);
    }
}

#[inline]
fn one_group<const M: usize, L: Lanes, I: Source, O: Sink>(
    lanes: L,
    task: &Task<'_, I>,
    position: usize,
    outputs: &mut [O; M],
) {
    static ZEROS: Row = [0; MAX_SPLITS];
    let mut rows = [&ZEROS; M];
    for (place, (row, output)) in rows.iter_mut().zip(outputs.iter()).enumerate() {
        *row = task.rows.get(output.number(position + place)).unwrap_or(&ZEROS);
    }
    // SAFETY: `multiply`, which alone makes tasks, has the length from a look at all inputs and
    // outputs; these are slices, and their lengths do not change.
    unsafe { lanes.group(task, rows, outputs) }
}

/// The coefficient of the input of this number.
#[inline(always)]
fn coefficient(row: &Row, number: usize) -> u8 {
    row.get(number).copied().unwrap_or(0)
}
