//! Reading a page: header check, placement of a key, search, entries, children.

use std::cmp::Ordering;
use std::ops::Range;

use super::layout::{CELL_HEADER, CHILD, DEAD, Damage, HEAD, HEADER, Header, LOCKED, SLOT, Slot};
use super::order::{compare, head_of, rest_of};

/// What a traversal looks for on a level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target<'a> {
    /// The page whose range holds this key.
    At(&'a [u8]),
    /// The page that holds the greatest keys strictly below this one.
    Before(&'a [u8]),
    /// The last page of the level.
    End,
}

/// Where the target lies, seen from one page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Placement {
    /// In this page's range.
    Here,
    /// Further right: follow the right link.
    Right,
    /// Not reachable from here (dead page, or the target lies to the left): start from the root.
    Elsewhere,
}

/// A page that passed the header check.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PageView<'a> {
    page: &'a [u8],
    header: Header,
    slots: &'a [[u8; SLOT]],
}

/// The parts of an entry's cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cell<'a> {
    /// Head and length of the suffix.
    pub(crate) slot: Slot,
    /// The suffix after the bytes that live in the head.
    pub(crate) rest: &'a [u8],
    pub(crate) value: &'a [u8],
    /// Where `value` starts in the page.
    pub(crate) value_at: usize,
}

impl Cell<'_> {
    /// Bytes of the cell in the heap.
    pub(crate) fn heap_bytes(&self) -> usize {
        let rest = if self.slot.is_low_fence { 0 } else { self.rest.len() };
        CELL_HEADER + rest + self.value.len()
    }

    /// Appends the whole suffix to `key`.
    fn append_suffix(&self, key: &mut Vec<u8>) {
        let in_head = usize::from(self.slot.suffix_len).min(HEAD);
        key.extend(self.slot.head.to_be_bytes().iter().take(in_head));
        key.extend_from_slice(self.rest);
    }
}

impl<'a> PageView<'a> {
    /// Checks the header (constant time) and gives access to the page.
    #[inline]
    pub(crate) fn parse(page: &'a [u8]) -> Result<Self, Damage> {
        let header = Header::load(page)?;
        let slots = page.get(HEADER..header.slots_end()).ok_or(Damage("slots out of bounds"))?;
        Ok(Self { page, header, slots: slots.as_chunks::<SLOT>().0 })
    }

    #[inline]
    pub(crate) fn header(&self) -> &Header {
        &self.header
    }

    #[inline]
    pub(crate) fn level(&self) -> u8 {
        self.header.level
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether rows of the range of a leaf may be locked.
    #[inline]
    pub(crate) fn may_be_locked(&self) -> bool {
        self.header.flags & LOCKED != 0
    }

    #[inline]
    pub(crate) fn is_dead(&self) -> bool {
        self.header.flags & DEAD != 0
    }

    /// Inclusive lower bound of the page's keys; empty is minus infinity.
    #[inline]
    #[expect(
        clippy::indexing_slicing,
        reason = "the header check has found the fences in the page"
    )]
    pub(crate) fn low(&self) -> &'a [u8] {
        let end = self.page.len() - usize::from(self.header.high_len);
        &self.page[end - usize::from(self.header.low_len)..end]
    }

    /// Exclusive upper bound of the page's keys; empty is plus infinity.
    #[inline]
    #[expect(
        clippy::indexing_slicing,
        reason = "the header check has found the fences in the page"
    )]
    pub(crate) fn high(&self) -> &'a [u8] {
        &self.page[self.page.len() - usize::from(self.header.high_len)..]
    }

    /// Size of the page.
    pub(crate) fn page_bytes(&self) -> usize {
        self.page.len()
    }

    /// First byte after the heap.
    pub(crate) fn heap_end(&self) -> usize {
        self.page.len() - usize::from(self.header.low_len) - usize::from(self.header.high_len)
    }

    /// What all keys of the page start with.
    #[expect(clippy::indexing_slicing, reason = "the header check has compared prefix and fences")]
    pub(crate) fn prefix(&self) -> &'a [u8] {
        &self.low()[..usize::from(self.header.prefix_len)]
    }

    /// Whether the target lies in this page.
    #[inline]
    pub(crate) fn place(&self, target: Target<'_>) -> Placement {
        if self.is_dead() {
            return Placement::Elsewhere;
        }
        let (low, high) = (self.low(), self.high());
        let (below, above) = match target {
            Target::At(key) => (compare(key, low).is_lt(), compare(key, high).is_ge()),
            Target::Before(key) => {
                (compare(key, low).is_le() && !low.is_empty(), compare(key, high).is_gt())
            }
            Target::End => (false, true),
        };
        if below {
            Placement::Elsewhere
        } else if above && !high.is_empty() {
            Placement::Right
        } else {
            Placement::Here
        }
    }

    /// Finds `key`, which the page covers: its slot, or the slot where it would go.
    #[inline]
    pub(crate) fn search(&self, key: &[u8]) -> Result<Result<usize, usize>, Damage> {
        let suffix = key
            .get(usize::from(self.header.prefix_len)..)
            .ok_or(Damage("prefix longer than a key between the fences"))?;
        let head = head_of(suffix);
        let rest = rest_of(suffix);
        let (mut from, mut to) = (0, self.slots.len());
        while let Some(bytes) = self.slots.get(from..to).and_then(|s| s.get(s.len() / 2)) {
            let middle = from + (to - from) / 2;
            let slot = Slot::decode(bytes);
            let order = match slot.head.cmp(&head) {
                // Padding makes "a" and "a\0" equal here; the lengths tell them apart.
                Ordering::Equal => compare(self.rest_of(slot)?, rest)
                    .then_with(|| usize::from(slot.suffix_len).cmp(&suffix.len())),
                order => order,
            };
            match order {
                Ordering::Less => from = middle + 1,
                Ordering::Greater => to = middle,
                Ordering::Equal => return Ok(Ok(middle)),
            }
        }
        Ok(Err(from))
    }

    /// Those of the one entry of an inner page whose key is the low fence.
    #[cold]
    fn rest_in_low_fence(&self, rest_len: usize) -> Result<&'a [u8], Damage> {
        let rest = self.low().get(usize::from(self.header.prefix_len) + HEAD..);
        let is_whole = |rest: &&[u8]| rest.len() == rest_len;
        rest.filter(is_whole).ok_or(Damage("low fence of another length"))
    }

    /// The suffix bytes of an entry behind those in its head: they lie in its cell, or in the low
    /// fence.
    #[inline]
    fn rest_of(&self, slot: Slot) -> Result<&'a [u8], Damage> {
        let rest_len = usize::from(slot.suffix_len).saturating_sub(HEAD);
        if rest_len == 0 {
            return Ok(&[]);
        }
        if slot.is_low_fence {
            return self.rest_in_low_fence(rest_len);
        }
        let at = usize::from(slot.offset) + CELL_HEADER;
        self.page.get(at..at + rest_len).ok_or(Damage("cell out of bounds"))
    }

    /// The entry in `slot`.
    #[inline]
    pub(crate) fn cell(&self, slot: usize) -> Result<Cell<'a>, Damage> {
        let slot = Slot::decode(self.slots.get(slot).ok_or(Damage("no such slot"))?);
        let rest = self.rest_of(slot)?;
        let at = usize::from(slot.offset);
        let value_len = self
            .page
            .get(at..)
            .and_then(|cell| cell.first_chunk::<CELL_HEADER>())
            .map(|len| usize::from(u16::from_le_bytes(*len)))
            .ok_or(Damage("cell out of bounds"))?;
        let in_cell = if slot.is_low_fence { 0 } else { rest.len() };
        let value_at = at + CELL_HEADER + in_cell;
        let value =
            self.page.get(value_at..value_at + value_len).ok_or(Damage("cell out of bounds"))?;
        Ok(Cell { slot, rest, value, value_at })
    }

    /// Where in the page the value of `slot` lies.
    pub(crate) fn value_range(&self, slot: usize) -> Result<Range<usize>, Damage> {
        let cell = self.cell(slot)?;
        Ok(cell.value_at..cell.value_at + cell.value.len())
    }

    /// Replaces `key` by the whole key of `slot`.
    pub(crate) fn key_into(&self, slot: usize, key: &mut Vec<u8>) -> Result<(), Damage> {
        key.clear();
        key.extend_from_slice(self.prefix());
        self.cell(slot)?.append_suffix(key);
        Ok(())
    }

    /// The child address an inner entry holds; never 0.
    #[inline]
    pub(crate) fn child(&self, slot: usize) -> Result<u64, Damage> {
        match self.cell(slot)?.value.first_chunk::<CHILD>() {
            Some(bytes) if *bytes != [0; CHILD] => Ok(u64::from_le_bytes(*bytes)),
            _ => Err(Damage("inner entry without a child address")),
        }
    }

    /// The slot of the child to follow for `target`, which this inner page covers.
    #[inline]
    pub(crate) fn child_slot(&self, target: Target<'_>) -> Result<usize, Damage> {
        let below = self.slots_below(target)?;
        let slot = match target {
            // No key is below the empty key: the first child finds that.
            Target::Before(_) if !self.slots.is_empty() => Some(below.saturating_sub(1)),
            _ => below.checked_sub(1),
        };
        slot.ok_or(Damage("inner page without a child for a covered key"))
    }

    /// How many entries lie below `target`, which this page covers (for [`Target::At`]: up to it).
    pub(crate) fn slots_below(&self, target: Target<'_>) -> Result<usize, Damage> {
        Ok(match target {
            Target::At(key) => self.search(key)?.map_or_else(|slot| slot, |slot| slot + 1),
            Target::Before(key) => self.search(key)?.unwrap_or_else(|slot| slot),
            Target::End => self.slots.len(),
        })
    }

    /// Bytes between slots and heap.
    pub(crate) fn free_bytes(&self) -> usize {
        usize::from(self.header.heap) - self.header.slots_end()
    }

    /// Everything the page stores or needs to store, in bytes: fill is this over the page size.
    pub(crate) fn used_bytes(&self) -> usize {
        let free = self.free_bytes() + usize::from(self.header.garbage);
        self.page.len().saturating_sub(free)
    }

    /// Checks what the header check does not: prefix, order, fences, heads, cell bounds.
    pub(crate) fn check(&self) -> Result<(), Damage> {
        let common = self.low().iter().zip(self.high()).take_while(|(a, b)| a == b).count();
        if common != usize::from(self.header.prefix_len) {
            return Err(Damage("prefix is not the common prefix of the fences"));
        }
        if !self.high().is_empty() && self.low() >= self.high() {
            return Err(Damage("fences out of order"));
        }
        let (mut last, mut key) = (Vec::new(), Vec::new());
        let mut cells = 0;
        for slot in 0..self.len() {
            let cell = self.cell(slot)?;
            let start = usize::from(cell.slot.offset);
            if start < usize::from(self.header.heap) || start + cell.heap_bytes() > self.heap_end()
            {
                return Err(Damage("cell outside the heap"));
            }
            cells += cell.heap_bytes();
            self.key_into(slot, &mut key)?;
            let (_, suffix) = key.split_at(usize::from(self.header.prefix_len));
            if head_of(suffix) != cell.slot.head {
                return Err(Damage("key head is not the start of its key"));
            }
            if self.level() > 0 {
                self.child(slot)?;
            }
            if cell.slot.is_low_fence && (self.level() == 0 || slot > 0) {
                return Err(Damage("key of the low fence at another place"));
            }
            if slot > 0 && key <= last {
                return Err(Damage("keys out of order"));
            }
            if self.place(Target::At(&key)) != Placement::Here && !self.is_dead() {
                return Err(Damage("key outside the fences"));
            }
            std::mem::swap(&mut last, &mut key);
        }
        let heap = self.heap_end() - usize::from(self.header.heap);
        if cells + usize::from(self.header.garbage) != heap {
            return Err(Damage("garbage count is wrong"));
        }
        Ok(())
    }
}
