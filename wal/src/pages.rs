//! Pages that are rebuilt from records.

use std::collections::{BTreeMap, HashMap};

use selkie_pool::GAddr;

use crate::conflict::MergeConflict;
use crate::psn::{PSN_BYTES, psn_of};
use crate::record::{Record, Redo};

struct Page {
    line: Box<[u8]>,
    /// The sequence number that it began with.
    base: u64,
    psn: u64,
}

/// Pages that are rebuilt from records.
pub struct Pages {
    line_bytes: usize,
    pages: HashMap<GAddr, Page>,
}

impl Pages {
    /// No pages. A page that a record names begins as zeros.
    #[must_use]
    pub fn new(line_bytes: usize) -> Self {
        Self { line_bytes, pages: HashMap::new() }
    }

    /// Inserts an earlier state of a page. Changes that it contains are skipped.
    pub fn insert(&mut self, addr: GAddr, line: Box<[u8]>) {
        let psn = psn_of(&line);
        self.pages.insert(addr, Page { line, base: psn, psn });
    }

    /// Applies a record if its pages are in the state before it.
    ///
    /// # Errors
    /// [`MergeConflict::Gap`]: it may be applied later. [`MergeConflict::Fork`]: never.
    pub fn apply(&mut self, record: &Record<'_>) -> Result<(), MergeConflict> {
        if record.is_full_page_image() {
            self.put_full_page_image(record);
            return Ok(());
        }
        for redo in record.pages() {
            let (addr, next) = (redo.addr(), redo.psn());
            let (base, has) = self.pages.get(&addr).map_or((0, 0), |page| (page.base, page.psn));
            if next > has {
                return Err(MergeConflict::Gap { addr, has, next });
            }
            if next < has && next >= base {
                return Err(MergeConflict::Fork { addr, psn: next });
            }
        }
        for redo in record.pages() {
            self.redo(&redo);
        }
        Ok(())
    }

    /// Puts the pages of a full-page image in place, but for those with a newer state.
    pub(crate) fn put_full_page_image(&mut self, record: &Record<'_>) {
        for redo in record.pages() {
            let is_new = self.pages.get(&redo.addr()).is_none_or(|page| page.psn <= redo.psn());
            if is_new {
                self.redo(&redo);
                if let Some(page) = self.pages.get_mut(&redo.addr()) {
                    // The record of the change that the image repeats may follow: it is no fork.
                    page.base = page.psn;
                }
            }
        }
    }

    fn redo(&mut self, redo: &Redo<'_>) {
        let zero = || vec![0; self.line_bytes].into_boxed_slice();
        let page = self.pages.entry(redo.addr());
        let page = page.or_insert_with(|| Page { line: zero(), base: 0, psn: 0 });
        if redo.psn() >= page.psn {
            redo.apply(&mut page.line);
            page.psn = redo.psn() + 1;
        }
    }

    /// A page with all changes that were applied.
    #[must_use]
    pub fn line(&self, addr: GAddr) -> Option<&[u8]> {
        self.pages.get(&addr).map(|page| &*page.line)
    }

    /// The sequence number of a page after the applied changes; 0 without any.
    pub(crate) fn psn(&self, addr: GAddr) -> u64 {
        self.pages.get(&addr).map_or(0, |page| page.psn)
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.pages.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// Keeps the pages of which `is_used` says so, by their bytes behind the sequence number.
    pub fn retain(&mut self, is_used: impl Fn(&[u8]) -> bool) {
        self.pages.retain(|_, page| page.line.get(PSN_BYTES..).is_some_and(&is_used));
    }

    /// The pages, by address.
    #[must_use]
    pub fn into_lines(self) -> BTreeMap<GAddr, Box<[u8]>> {
        self.pages.into_iter().map(|(addr, page)| (addr, page.line)).collect()
    }
}
