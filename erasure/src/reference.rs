//! The codec of the crate `reed-solomon-erasure`.

use reed_solomon_erasure::galois_8::ReedSolomon;

use crate::check;
use crate::codec::Codec;
use crate::error::CodecError;
use crate::shape::Shape;
use crate::split_set::MAX_SPLITS;

/// The same code by a crate that many use. [`Native`](crate::native::Native) is tested against it,
/// and it can take the place of `Native`.
///
/// That crate caches the matrices of the last 254 patterns of loss behind a lock, and wants all
/// splits of a page mutable; so reconstruction copies the present splits and allocates.
#[derive(Debug)]
pub struct Reference {
    shape: Shape,
    /// None without parity, which the crate refuses; then there is nothing to compute.
    code: Option<ReedSolomon>,
}

impl Reference {
    /// A codec of this shape.
    pub fn new(shape: Shape) -> Result<Reference, CodecError> {
        let (data, parity) = (shape.data(), shape.parity());
        let code = match parity {
            0 => None,
            _ => {
                let code = ReedSolomon::new(data, parity);
                Some(code.map_err(|_| CodecError::Shape { data, parity })?)
            }
        };
        Ok(Reference { shape, code })
    }
}

impl Codec for Reference {
    fn shape(&self) -> Shape {
        self.shape
    }

    fn name(&self) -> &'static str {
        "reference"
    }

    fn encode(&self, data: &[&[u8]], parity: &mut [&mut [u8]]) -> Result<(), CodecError> {
        check::encode(self.shape, data.len(), parity.len())?;
        check::lengths(data, parity)?;
        match &self.code {
            Some(code) => code.encode_sep(data, parity).map_err(CodecError::Reference),
            None => Ok(()),
        }
    }

    fn update(
        &self,
        index: usize,
        old: &[u8],
        new: &[u8],
        parity: &mut [&mut [u8]],
    ) -> Result<(), CodecError> {
        check::update(self.shape, index, parity.len())?;
        check::lengths(&[old, new], parity)?;
        let Some(code) = &self.code else { return Ok(()) };
        // The code is linear: the parity of the change of data is the change of parity.
        let change: Vec<u8> = old.iter().zip(new).map(|(old, new)| old ^ new).collect();
        let zeros = vec![0; change.len()];
        let data =
            (0..self.shape.data()).map(|split| if split == index { &change } else { &zeros });
        let data: Vec<&[u8]> = data.map(|split| &**split).collect();
        let mut changes = vec![zeros.clone(); self.shape.parity()];
        code.encode_sep(&data, &mut changes).map_err(CodecError::Reference)?;
        for (split, change) in parity.iter_mut().zip(&changes) {
            split.iter_mut().zip(change).for_each(|(byte, change)| *byte ^= change);
        }
        Ok(())
    }

    #[expect(
        clippy::expect_used,
        clippy::indexing_slicing,
        reason = "`check::splits` has checked all numbers, and scratch has a chunk for each split"
    )]
    fn reconstruct(
        &self,
        present: &[(usize, &[u8])],
        missing: &mut [(usize, &mut [u8])],
    ) -> Result<(), CodecError> {
        check::splits(self.shape, present, missing)?;
        check::lengths(present, missing)?;
        let Some(code) = &self.code else { return Ok(()) };
        let data = self.shape.data();
        let Some(length) = present.first().map(|split| split.1.len()) else { return Ok(()) };
        let mut scratch = vec![0; length * self.shape.splits()];
        let mut copies = scratch.chunks_exact_mut(length);
        let mut splits: [(&mut [u8], bool); MAX_SPLITS] = Default::default();
        // A split of no length is neither present nor missing, until it gets a chunk below.
        for (index, split) in present {
            let copy = copies.next().expect("a chunk for each split");
            copy.copy_from_slice(split);
            splits[*index] = (copy, true);
        }
        let only_data = missing.iter().all(|split| split.0 < data);
        for (index, split) in missing {
            splits[*index] = (split, false);
        }
        let splits = &mut splits[..self.shape.splits()];
        for split in splits.iter_mut().filter(|split| split.0.is_empty()) {
            split.0 = copies.next().expect("a chunk for each split");
        }
        let done = if only_data { code.reconstruct_data(splits) } else { code.reconstruct(splits) };
        done.map_err(CodecError::Reference)
    }
}
