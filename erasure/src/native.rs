//! Our own codec.

use std::sync::Arc;

use crate::check;
use crate::codec::Codec;
use crate::error::CodecError;
use crate::kernel::lanes::Mode;
use crate::kernel::loaded::Loaded;
use crate::kernel::name::Kernel;
use crate::matrix::Row;
use crate::patterns::Patterns;
use crate::shape::Shape;
use crate::split_set::SplitSet;

/// The fastest codec of k = `data` and r = `parity` splits on this CPU. Making one takes up to some
/// milliseconds, using it takes nanoseconds: make one a pool.
///
/// # Errors
///
/// [`CodecError::Shape`] if there is no such code.
pub fn codec(data: usize, parity: usize) -> Result<Arc<dyn Codec>, CodecError> {
    Ok(Arc::new(Native::new(Shape::new(data, parity)?)?))
}

/// Reed-Solomon by a [`Kernel`], with all its matrices computed beforehand. It allocates nothing
/// while it encodes, updates or reconstructs.
#[derive(Debug)]
pub struct Native {
    shape: Shape,
    kernel: Loaded,
    patterns: Patterns,
}

impl Native {
    /// A codec by the fastest kernel that this CPU can run.
    pub fn new(shape: Shape) -> Result<Native, CodecError> {
        Native::with(shape, Kernel::fastest())
    }

    /// A codec by this kernel.
    pub fn with(shape: Shape, kernel: Kernel) -> Result<Native, CodecError> {
        let kernel = Loaded::get(kernel)?;
        Ok(Native { shape, kernel, patterns: Patterns::new(shape)? })
    }

    /// The rows of all splits from these, which must be k.
    #[inline]
    fn rows(&self, at_hand: SplitSet) -> Result<&[Row], CodecError> {
        let (needed, rows) = (self.shape.data(), self.patterns.rows(at_hand));
        rows.ok_or_else(|| CodecError::TooFew { needed, given: at_hand.len() })
    }

    /// The rows of the parity splits from all data splits.
    #[inline]
    fn parity_rows(&self) -> Result<&[Row], CodecError> {
        let rows = self.rows(SplitSet::below(self.shape.data()))?;
        Ok(rows.split_at(self.shape.data()).1)
    }
}

impl Codec for Native {
    fn shape(&self) -> Shape {
        self.shape
    }

    fn name(&self) -> &'static str {
        self.kernel.kernel().name()
    }

    fn encode(&self, data: &[&[u8]], parity: &mut [&mut [u8]]) -> Result<(), CodecError> {
        check::encode(self.shape, data.len(), parity.len())?;
        self.kernel.multiply(self.parity_rows()?, data, parity, Mode::Set)
    }

    fn update(
        &self,
        index: usize,
        old: &[u8],
        new: &[u8],
        parity: &mut [&mut [u8]],
    ) -> Result<(), CodecError> {
        check::update(self.shape, index, parity.len())?;
        // The same coefficient for both, so that no difference has to be written anywhere.
        self.kernel.multiply(self.parity_rows()?, &[(index, old), (index, new)], parity, Mode::Add)
    }

    fn reconstruct(
        &self,
        present: &[(usize, &[u8])],
        missing: &mut [(usize, &mut [u8])],
    ) -> Result<(), CodecError> {
        let at_hand = check::splits(self.shape, present, missing)?;
        let (first, surplus) = present.split_at(self.shape.data());
        if !surplus.is_empty() {
            check::lengths(present, missing)?;
        }
        self.kernel.multiply(self.rows(at_hand)?, first, missing, Mode::Set)
    }
}
