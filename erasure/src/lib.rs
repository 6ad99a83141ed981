//! The erasure codec: systematic Reed-Solomon over GF(2^8), for pages of some kilobytes.
//!
//! A code of [`Shape`] k + r makes r parity splits from k data splits of equal length. Splits are
//! numbered: data 0 to k - 1, then parity k to k + r - 1. The code works on each byte position
//! by itself: byte b of a split is a sum of products of the bytes b of the k data splits. The
//! coefficients are the row of the split in the *generator matrix*, the first k rows of which are
//! the identity. Any k rows are linearly independent, so any k splits determine all others. With n
//! splits at hand up to n - k wrong splits are detected, and up to (n - k) / 2 are located
//! ([`Codec::locate`]).
//!
//! Encoding and reconstructing are the same computation, a matrix times the splits at hand, with
//! matrices that are known beforehand. Encoding uses the last r rows of the generator.
//! Reconstruction uses one row for each set of k splits at hand and each wanted split (`patterns`).
//! A [`Kernel`] computes the product in one pass: it sums a few vectors of each output in registers
//! over all inputs, then stores them. It allocates and copies nothing: data splits may be slices of
//! the page itself.
//!
//! [`Native`] is our codec. [`Reference`] is the same code by the crate `reed-solomon-erasure`, and
//! ours is tested against it. Each reads the splits of the other. [`codec`] returns the fastest.
//!
//! Not done: the codec does not know which splits are current. It takes a split of an older version
//! of a page for a wrong split.

#[forbid(unsafe_code)]
mod check;
#[forbid(unsafe_code)]
mod codec;
#[forbid(unsafe_code)]
mod error;
#[forbid(unsafe_code)]
mod field;
mod kernel;
#[forbid(unsafe_code)]
mod matrix;
#[forbid(unsafe_code)]
mod native;
#[forbid(unsafe_code)]
mod patterns;
#[forbid(unsafe_code)]
mod reference;
#[forbid(unsafe_code)]
mod shape;
#[forbid(unsafe_code)]
mod split;
#[forbid(unsafe_code)]
mod split_set;

pub use codec::Codec;
pub use error::CodecError;
pub use kernel::name::Kernel;
pub use native::{Native, codec};
pub use reference::Reference;
pub use shape::Shape;
pub use split_set::MAX_SPLITS;
