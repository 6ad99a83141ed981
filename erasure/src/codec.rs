//! The interface of all codecs.

use std::fmt::Debug;

use crate::check;
use crate::error::CodecError;
use crate::shape::Shape;
use crate::split_set::{MAX_SPLITS, SplitSet};

/// Bytes of each split that are compared at a time.
const COMPARED_BYTES: usize = 512;

/// A systematic Reed-Solomon code: computes splits from splits.
///
/// All splits of a call have the same length, at least a byte; any alignment will do. None of this
/// blocks. All codecs of a shape read each other's splits. Where an error is returned nothing was
/// written.
///
/// ```
/// use selkie_erasure::codec;
///
/// let codec = codec(2, 1)?;
/// let page = *b"one page of data";
/// let (first, second) = page.split_at(8);
/// let mut parity = [0; 8];
/// codec.encode(&[first, second], &mut [&mut parity])?;
///
/// // The memory node with the first half is lost.
/// let mut again = [0; 8];
/// codec.reconstruct(&[(1, second), (2, &parity)], &mut [(0, &mut again)])?;
/// assert_eq!(&again, b"one page");
/// # Ok::<(), selkie_erasure::CodecError>(())
/// ```
pub trait Codec: Debug + Send + Sync {
    /// How many splits the code has.
    fn shape(&self) -> Shape;

    /// How it computes, in a word.
    fn name(&self) -> &'static str;

    /// Computes all parity splits from all data splits.
    ///
    /// # Errors
    ///
    /// `Count`, `Length`, `Empty`.
    fn encode(&self, data: &[&[u8]], parity: &mut [&mut [u8]]) -> Result<(), CodecError>;

    /// Makes the parity splits follow the change of data split `index` from `old` to `new`. Pays if
    /// few data splits have changed: it reads two splits and the parity, however many data splits
    /// there are.
    ///
    /// # Errors
    ///
    /// `Index` (of a data split), `Count` (of parity), `Length`, `Empty`.
    fn update(
        &self,
        index: usize,
        old: &[u8],
        new: &[u8],
        parity: &mut [&mut [u8]],
    ) -> Result<(), CodecError>;

    /// Computes splits that are missing, data or parity, from k or more that are at hand, in any
    /// order. If more than k are at hand, the first k are used. Not all that is missing must be
    /// wanted.
    ///
    /// # Errors
    ///
    /// `Index`, `Repeated` (also if a split is both), `Length`, `Empty`, `TooFew`.
    fn reconstruct(
        &self,
        present: &[(usize, &[u8])],
        missing: &mut [(usize, &mut [u8])],
    ) -> Result<(), CodecError>;

    /// Whether these splits, more than k, belong together. With n splits, up to n - k wrong ones
    /// are sure to show.
    ///
    /// # Errors
    ///
    /// As of [`reconstruct`](Codec::reconstruct); `TooFew` also if there are only k, which always
    /// belong together.
    #[expect(clippy::indexing_slicing, reason = "`check` has checked all counts and lengths")]
    fn verify(&self, present: &[(usize, &[u8])]) -> Result<bool, CodecError> {
        let data = self.shape().data();
        check::splits(self.shape(), present, &[])?;
        check::lengths::<_, &mut [u8]>(present, &[])?;
        check::enough(data + 1, present.len())?;
        let (first, surplus) = present.split_at(data);
        let length = present.first().map_or(0, |split| split.1.len());
        let mut scratch = [[0; COMPARED_BYTES]; MAX_SPLITS - 1];
        for at in (0..length).step_by(COMPARED_BYTES) {
            let end = length.min(at + COMPARED_BYTES);
            let mut inputs: [(usize, &[u8]); MAX_SPLITS] = Default::default();
            for (input, (index, split)) in inputs.iter_mut().zip(first) {
                *input = (*index, &split[at..end]);
            }
            let mut outputs: [(usize, &mut [u8]); MAX_SPLITS - 1] = Default::default();
            for ((output, scratch), split) in outputs.iter_mut().zip(&mut scratch).zip(surplus) {
                *output = (split.0, &mut scratch[..end - at]);
            }
            let inputs = &inputs[..first.len()];
            let outputs = &mut outputs[..surplus.len()];
            self.reconstruct(inputs, outputs)?;
            let mut pairs = outputs.iter().zip(surplus);
            if pairs.any(|(expected, split)| split.1[at..end] != *expected.1) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Finds which of these splits, more than k, are wrong: with n splits up to (n - k) / 2, by
    /// their numbers, ascending; none if they belong together. If more are wrong than that, others
    /// may be blamed.
    ///
    /// For when no checksum names them. It leaves out every set of splits of that many, the small
    /// ones first, until the rest belongs together: that rest has k splits in common with the right
    /// ones, so it is right. It allocates, and verifies as often as there are such sets: at most 11
    /// times for 8+2, 79 for 8+4, and 1586 for 2+10, the worst case; a wrong guess mostly ends
    /// after its first 512 bytes.
    ///
    /// # Errors
    ///
    /// As of [`verify`](Codec::verify); `TooManyWrong` if no such set is found.
    fn locate(&self, present: &[(usize, &[u8])]) -> Result<Vec<usize>, CodecError> {
        let data = self.shape().data();
        check::enough(data + 1, present.len())?;
        let most = (present.len() - data) / 2;
        for count in 0..=most {
            let sets = (0..1u16 << present.len()).map(SplitSet::from_bits);
            for left_out in sets.filter(|set| set.len() == count) {
                let places = present.iter().enumerate();
                let rest = places.filter(|(place, _)| !left_out.contains(*place));
                let rest: Vec<(usize, &[u8])> = rest.map(|(_, split)| *split).collect();
                if self.verify(&rest)? {
                    let wrong = left_out.iter().filter_map(|place| present.get(place));
                    let mut numbers: Vec<usize> = wrong.map(|split| split.0).collect();
                    numbers.sort_unstable();
                    return Ok(numbers);
                }
            }
        }
        Err(CodecError::TooManyWrong { most, given: present.len() })
    }
}
