//! The erasure codec: systematic Reed-Solomon over GF(2^8), for pages of some kilobytes.
//!
//! A code of [`Shape`] k + r makes r parity splits from k data splits of equal length. Splits are
//! numbered: data 0 to k - 1, then parity k to k + r - 1. Byte b of every split belongs together: a
//! split's byte is a sum of products of the k data splits' bytes b, with coefficients that are the
//! split's row of the *generator matrix*, the first k rows of which are the identity. Any k rows
//! are linearly independent; so any k splits determine all others, and with n splits at hand up to
//! n - k wrong ones show, and up to (n - k) / 2 can be found ([`Codec::locate`]).
//!
//! Encoding and reconstructing are the same computation, a matrix times the splits at hand, with
//! matrices that are known beforehand: for encoding the last r rows of the generator, for
//! reconstructing a row for each pair of k splits at hand and split wanted (`patterns`). The
//! product is what a [`Kernel`] does, in one pass: a few vectors of each output are summed in
//! registers over all inputs, then stored. Nothing is allocated and nothing is copied: data splits
//! may be slices of the page itself.
//!
//! [`Native`] is this; [`Reference`] is the same code by the crate `reed-solomon-erasure`, against
//! which it is tested. Each reads what the other wrote. [`codec`] gives the fastest.
//!
//! What is not done: the codec does not know which splits are current. A split of an older version
//! of a page is a wrong split to it.

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
