//! The codec of the crate `reed-solomon-erasure`.

use reed_solomon_erasure::galois_8::ReedSolomon;

use crate::check;
use crate::codec::Codec;
use crate::error::CodecError;
use crate::shape::Shape;
use crate::split_set::MAX_SPLITS;

/// The same code by a crate that many use: what [`Native`](crate::native::Native) is tested
/// against, and what can take its place.
///
/// That crate caches the matrices of the last 254 patterns of loss behind a lock, and wants all
/// splits of a page mutable; so to reconstruct, this copies what is at hand, and it allocates.
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
        // The code is linear: what a page of the change alone has for parity is the change of
        // parity.
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
        // Of no length where nothing was written: that is how those are known below.
        for (index, split) in present {
            if let (Some(to), Some(copy)) = (splits.get_mut(*index), copies.next()) {
                copy.copy_from_slice(split);
                *to = (copy, true);
            }
        }
        let only_data = missing.iter().all(|split| split.0 < data);
        for (index, split) in missing {
            if let Some(to) = splits.get_mut(*index) {
                *to = (split, false);
            }
        }
        let splits = splits.get_mut(..self.shape.splits()).unwrap_or_default();
        for split in splits.iter_mut().filter(|split| split.0.is_empty()) {
            split.0 = copies.next().unwrap_or_default();
        }
        let done = if only_data { code.reconstruct_data(splits) } else { code.reconstruct(splits) };
        done.map_err(CodecError::Reference)
    }
}
