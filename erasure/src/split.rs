//! Splits as arguments: with their numbers, or in their order.

/// A split that is read.
pub(crate) trait SplitSource {
    /// Its number, given its position among the arguments.
    fn number(&self, position: usize) -> usize;

    /// Its bytes.
    fn bytes(&self) -> &[u8];
}

/// A split that is written.
pub(crate) trait SplitSink {
    /// Its number, given its position among the arguments.
    fn number(&self, position: usize) -> usize;

    /// How many bytes it has.
    fn length(&self) -> usize;

    /// Its bytes.
    fn bytes_mut(&mut self) -> &mut [u8];
}

impl SplitSource for &[u8] {
    #[inline(always)]
    fn number(&self, position: usize) -> usize {
        position
    }

    #[inline(always)]
    fn bytes(&self) -> &[u8] {
        self
    }
}

impl SplitSource for (usize, &[u8]) {
    #[inline(always)]
    fn number(&self, _: usize) -> usize {
        self.0
    }

    #[inline(always)]
    fn bytes(&self) -> &[u8] {
        self.1
    }
}

impl SplitSink for &mut [u8] {
    #[inline(always)]
    fn number(&self, position: usize) -> usize {
        position
    }

    #[inline(always)]
    fn length(&self) -> usize {
        self.len()
    }

    #[inline(always)]
    fn bytes_mut(&mut self) -> &mut [u8] {
        self
    }
}

impl SplitSink for (usize, &mut [u8]) {
    #[inline(always)]
    fn number(&self, _: usize) -> usize {
        self.0
    }

    #[inline(always)]
    fn length(&self) -> usize {
        self.1.len()
    }

    #[inline(always)]
    fn bytes_mut(&mut self) -> &mut [u8] {
        self.1
    }
}
