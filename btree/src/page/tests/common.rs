//! Pages, models and keys for the tests of this folder.

use std::collections::BTreeMap;

use rand::Rng;
use rand::rngs::SmallRng;

use crate::page::*;

pub(super) const SIZES: [usize; 5] = [512, 1024, 2048, 4096, 8192];

pub(super) type Model = BTreeMap<Vec<u8>, Vec<u8>>;

pub(super) fn leaf(bytes: usize, low: &[u8], high: &[u8]) -> Vec<u8> {
    let mut page = vec![0; bytes];
    let right = if high.is_empty() { 0 } else { 0x4000 };
    let (low, high) = (low.to_vec(), high.to_vec());
    let spec = PageSpec { extra: u32::MAX, low, high, right, ..PageSpec::default() };
    format(&mut page, &spec, []).unwrap();
    page
}

pub(super) fn view(page: &[u8]) -> PageView<'_> {
    PageView::parse(page).unwrap()
}

pub(super) fn entries(page: &[u8]) -> Model {
    let view = view(page);
    let mut key = Vec::new();
    (0..view.len())
        .map(|slot| {
            view.key_into(slot, &mut key).unwrap();
            (key.clone(), view.cell(slot).unwrap().value.to_vec())
        })
        .collect()
}

pub(super) fn assert_same(page: &[u8], model: &Model) {
    view(page).check().unwrap();
    assert_eq!(&entries(page), model);
    let view = view(page);
    for (slot, key) in model.keys().enumerate() {
        assert_eq!(view.search(key).unwrap(), Ok(slot));
    }
}

impl PageMut for Vec<u8> {
    fn change(&mut self, range: std::ops::Range<usize>) -> &mut [u8] {
        &mut self[range]
    }
}

/// A page that counts the bytes that were recorded as changed.
pub(super) struct RecordedPage {
    page: Vec<u8>,
    bytes: usize,
}

impl RecordedPage {
    pub(super) fn new(page: Vec<u8>) -> Self {
        Self { page, bytes: 0 }
    }

    /// How many since the last call.
    pub(super) fn take_recorded(&mut self) -> usize {
        std::mem::take(&mut self.bytes)
    }
}

impl std::ops::Deref for RecordedPage {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.page
    }
}

impl PageMut for RecordedPage {
    fn change(&mut self, range: std::ops::Range<usize>) -> &mut [u8] {
        self.bytes += range.len();
        &mut self.page[range]
    }
}

/// Keys that hurt: empty, all 0x00, all 0xff, prefixes of each other, four-byte edges.
pub(super) fn random_key(rng: &mut SmallRng, prefix: &[u8], longest: usize) -> Vec<u8> {
    let mut key = prefix.to_vec();
    let extra = match rng.random_range(0..4) {
        0 => rng.random_range(0..=2),
        1 => rng.random_range(3..=6),
        _ => rng.random_range(0..=longest.saturating_sub(prefix.len()).min(40)),
    };
    for _ in 0..extra {
        key.push([0, 1, b'1', b'1', b'a', 0xfe, 0xff][rng.random_range(0..7)]);
    }
    key.truncate(longest);
    key
}

/// The fences to test with: none, a shared prefix, a prefix that is the low fence itself.
pub(super) fn fences() -> [(&'static [u8], &'static [u8]); 5] {
    [
        (b"", b""),
        (b"", b"\xff\xff\xff\xff\xff\xff\xff\xff"),
        (b"warehouse-1", b"warehouse-2"),
        (b"ab", b"ab\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"),
        (b"zz", b""),
    ]
}
