//! Kernels: a matrix times splits, with the instructions that the CPU has.
//!
//! Each kernel is a file that says how some vectors of up to four outputs are summed in registers
//! over all inputs. `lanes` says which outputs are taken together, `loaded` which kernels this CPU
//! can run. A kernel with vector instructions is a value that exists only if the CPU has them: to
//! own the value is to be allowed to call the kernel.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod gfni256;
#[cfg(target_arch = "x86_64")]
mod gfni512;
pub(crate) mod lanes;
#[forbid(unsafe_code)]
pub(crate) mod loaded;
#[forbid(unsafe_code)]
pub(crate) mod name;
mod portable;
#[cfg(target_arch = "x86_64")]
#[forbid(unsafe_code)]
mod tables;
