//! Texts on the stack.

/// A text of at most `N` bytes on the stack.
#[derive(Clone, Copy, Debug)]
pub struct Text<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Text<N> {
    /// The empty text.
    #[must_use]
    pub fn new() -> Self {
        Self { bytes: [0; N], len: 0 }
    }

    /// Appends as much of `text` as fits, in whole characters.
    #[must_use]
    pub fn with(mut self, text: &str) -> Self {
        self.push(text);
        self
    }

    /// Appends as much of `text` as fits, in whole characters.
    #[expect(clippy::indexing_slicing, reason = "`end` is at most what is left of `N`")]
    pub fn push(&mut self, text: &str) {
        let mut end = text.len().min(N - self.len);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        self.bytes[self.len..self.len + end].copy_from_slice(&text.as_bytes()[..end]);
        self.len += end;
    }

    /// A text of `len` bytes that `fill` writes, all of them ASCII characters.
    ///
    /// # Panics
    /// If `len` is above `N`, or a byte is not ASCII.
    pub(super) fn of_ascii(len: usize, fill: impl FnOnce(&mut [u8])) -> Self {
        assert!(len <= N, "{len} bytes do not fit a text of {N}");
        let mut text = Self { bytes: [0; N], len };
        fill(&mut text.bytes[..len]);
        debug_assert!(text.bytes.is_ascii(), "not ASCII: {:?}", text.bytes);
        text
    }

    /// Replaces the characters from byte `at` on by as many of another ASCII text.
    ///
    /// # Panics
    /// If that reaches beyond the end of the text.
    pub(crate) fn overwrite(&mut self, at: usize, with: &str) {
        let end = at + with.len();
        assert!(end <= self.len, "{with:?} at {at} reaches beyond {} bytes", self.len);
        debug_assert!(self.is_ascii() && with.is_ascii(), "characters would be cut");
        self.bytes[at..end].copy_from_slice(with.as_bytes());
    }

    /// The text.
    #[must_use]
    #[expect(clippy::expect_used, reason = "only whole characters are written")]
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.len]).expect("a text has whole characters")
    }
}

impl<const N: usize> std::fmt::Write for Text<N> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.push(text);
        Ok(())
    }
}

impl<const N: usize> Default for Text<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const N: usize> std::ops::Deref for Text<N> {
    type Target = str;
    fn deref(&self) -> &str {
        self.as_str()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_take_what_fits() {
        assert_eq!(&*Text::<5>::new().with("abc").with("defg"), "abcde");
        assert_eq!(&*Text::<5>::new().with("abcd\u{e9}"), "abcd");
    }
}
