//! Page tests: random edits against an ordered map, split and absorb round trips, damaged bytes.

use std::collections::BTreeMap;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::layout::{DEAD, HEADER, SLOT, entry_bytes};
use super::*;

const SIZES: [usize; 5] = [512, 1024, 2048, 4096, 8192];

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn leaf(bytes: usize, low: &[u8], high: &[u8]) -> Vec<u8> {
    let mut page = vec![0; bytes];
    let right = if high.is_empty() { 0 } else { 0x4000 };
    let (low, high) = (low.to_vec(), high.to_vec());
    let spec = Spec { extra: u32::MAX, low, high, right, ..Spec::default() };
    format(&mut page, &spec, []).unwrap();
    page
}

fn view(page: &[u8]) -> PageView<'_> {
    PageView::parse(page).unwrap()
}

fn entries(page: &[u8]) -> Model {
    let view = view(page);
    let mut key = Vec::new();
    (0..view.len())
        .map(|slot| {
            view.key_into(slot, &mut key).unwrap();
            (key.clone(), view.cell(slot).unwrap().value.to_vec())
        })
        .collect()
}

fn assert_same(page: &[u8], model: &Model) {
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

/// A page that counts the bytes that it was told of.
struct Told {
    page: Vec<u8>,
    bytes: usize,
}

impl Told {
    fn new(page: Vec<u8>) -> Self {
        Self { page, bytes: 0 }
    }

    /// How many since this was asked last.
    fn told(&mut self) -> usize {
        std::mem::take(&mut self.bytes)
    }
}

impl std::ops::Deref for Told {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.page
    }
}

impl PageMut for Told {
    fn change(&mut self, range: std::ops::Range<usize>) -> &mut [u8] {
        self.bytes += range.len();
        &mut self.page[range]
    }
}

/// Keys that hurt: empty, all 0x00, all 0xff, prefixes of each other, four-byte edges.
fn random_key(rng: &mut SmallRng, prefix: &[u8], longest: usize) -> Vec<u8> {
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
fn fences() -> [(&'static [u8], &'static [u8]); 5] {
    [
        (b"", b""),
        (b"", b"\xff\xff\xff\xff\xff\xff\xff\xff"),
        (b"warehouse-1", b"warehouse-2"),
        (b"ab", b"ab\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"),
        (b"zz", b""),
    ]
}

/// An entry's cell, its slot and those behind it, and the header: that is what goes to the log and
/// home.
#[test]
fn edits_tell_of_little_more_than_they_change() {
    let mut page = Told::new(leaf(2048, b"", b""));
    let (header, value) = (HEADER, [7; 20]);
    let cell = entry_bytes(8, value.len());
    for key in 0..30_u64 {
        insert(&mut page, key as usize, &key.to_be_bytes(), &value).unwrap();
        assert_eq!(page.told(), header + cell);
    }
    insert(&mut page, 20, &[0, 0, 0, 0, 0, 0, 0, 19, 1], &value).unwrap();
    assert_eq!(page.told(), header + cell + 1 + 10 * SLOT);
    remove(&mut page, 25).unwrap();
    assert_eq!(page.told(), header + 6 * SLOT);
    let garbage = view(&page).header().garbage;
    replace(&mut page, 3, &[8; 30]).unwrap();
    assert_eq!(page.told(), header + cell + 10);
    assert_eq!(usize::from(view(&page).header().garbage - garbage), cell - SLOT);
    // The lowest cell of all, which is that of the last edit, leaves nothing behind.
    let heap = view(&page).header().heap;
    for (length, lower) in [(40, 10), (5, -25)] {
        replace(&mut page, 3, &vec![9; length]).unwrap();
        assert_eq!(page.told(), header + cell + length - value.len());
        assert_eq!(i32::from(heap) - i32::from(view(&page).header().heap), lower);
        assert_eq!(usize::from(view(&page).header().garbage - garbage), cell - SLOT);
    }
    view(&page).check().unwrap();
    // A cell above others stays where it is when it shrinks.
    let (before, at) = (*view(&page).header(), view(&page).cell(7).unwrap().slot.offset);
    replace(&mut page, 7, &[9; 12]).unwrap();
    assert_eq!(page.told(), header + cell - 8);
    let after = *view(&page).header();
    assert_eq!((after.heap, after.garbage), (before.heap, before.garbage + 8));
    assert!((at..at + 30).contains(&view(&page).cell(7).unwrap().slot.offset));
    view(&page).check().unwrap();
    bump_removals(&mut page).unwrap();
    assert_eq!(page.told(), header);
    mark_dead(&mut page).unwrap();
    assert_eq!(page.told(), header);
}

/// Up to the last byte, and not beyond; and nothing is left of it when all is removed.
#[test]
fn values_grow_into_whatever_is_free() {
    let mut rng = SmallRng::seed_from_u64(3);
    for bytes in SIZES {
        let empty = leaf(bytes, b"", b"");
        let mut page = Told::new(empty.clone());
        let mut count = 0_u32;
        while insert(&mut page, count as usize, &count.to_be_bytes(), b"eight by").is_ok() {
            count += 1;
        }
        remove(&mut page, count as usize / 2).unwrap();
        remove(&mut page, count as usize / 4).unwrap();
        let free = |page: &Told| view(page).free_bytes() + usize::from(view(page).header().garbage);
        let room = free(&page) + b"eight by".len();
        let _ = page.told();
        assert_eq!(replace(&mut page, 3, &vec![1; room + 1]), Err(NoRoomOr::NoRoom));
        assert_eq!(page.told(), 0);
        replace(&mut page, 3, &vec![1; room]).unwrap();
        assert_eq!((page.told(), free(&page)), (bytes, 0));
        for _ in 0..200 {
            let slot = rng.random_range(0..view(&page).len());
            let length = rng.random_range(0..20);
            let _ = replace(&mut page, slot, &vec![2; length]);
            view(&page).check().unwrap();
        }
        while view(&page).len() > 0 {
            let slot = rng.random_range(0..view(&page).len());
            remove(&mut page, slot).unwrap();
        }
        assert_eq!(view(&page).header(), view(&empty).header());
    }
}

#[test]
fn random_edits_match_an_ordered_map() {
    let mut rng = SmallRng::seed_from_u64(1);
    for bytes in SIZES {
        for (low, high) in fences() {
            let mut page = Told::new(leaf(bytes, low, high));
            let mut model = Model::new();
            let prefix = view(&page).prefix().to_vec();
            let mut refused = 0;
            for step in 0..600 {
                let key = random_key(&mut rng, &prefix, max_key(bytes));
                if view(&page).place(Target::At(&key)) != Placement::Here {
                    assert!(key.as_slice() < low || (!high.is_empty() && key.as_slice() >= high));
                    continue;
                }
                let longest = if step % 16 == 0 { max_entry(bytes) - key.len() } else { 24 };
                let value = vec![step as u8; rng.random_range(0..=longest)];
                let found = view(&page).search(&key).unwrap();
                assert_eq!(found.is_ok(), model.contains_key(&key));
                let _ = page.told();
                let behind = view(&page).len();
                match (found, rng.random_range(0..3)) {
                    (Err(slot), _) => {
                        assert_eq!(slot, model.range(..key.clone()).count());
                        match insert(&mut page, slot, &key, &value) {
                            Ok(()) => {
                                let entry = entry_bytes(key.len() - prefix.len(), value.len());
                                let least = HEADER + entry + SLOT * (behind - slot);
                                // All of it, if its cells were moved together first.
                                assert!([least, least + bytes].contains(&page.told()));
                                model.insert(key, value);
                            }
                            Err(error) => {
                                assert_eq!(page.told(), 0);
                                assert_eq!(error, NoRoomOr::NoRoom);
                                assert!(model.len() >= 2, "two maximal entries always fit");
                                refused += 1;
                            }
                        }
                    }
                    (Ok(slot), 0) => match replace(&mut page, slot, &value) {
                        Ok(()) => {
                            model.insert(key, value);
                        }
                        Err(error) => {
                            assert_eq!((error, page.told()), (NoRoomOr::NoRoom, 0));
                        }
                    },
                    (Ok(slot), _) => {
                        remove(&mut page, slot).unwrap();
                        assert_eq!(page.told(), HEADER + SLOT * (behind - slot));
                        model.remove(&key);
                    }
                }
                if refused % 8 == 7 {
                    while model.len() > 1 {
                        let at = rng.random_range(0..model.len());
                        remove(&mut page, at).unwrap();
                        let key = model.keys().nth(at).unwrap().clone();
                        model.remove(&key);
                    }
                    refused = 0;
                }
                assert_same(&page, &model);
            }
            assert!(!model.is_empty());
        }
    }
}

#[test]
fn a_page_can_be_filled_to_the_last_byte_and_emptied() {
    for bytes in SIZES {
        let mut page = leaf(bytes, b"", b"");
        let empty = page.clone();
        let mut count = 0_u32;
        loop {
            let slot = view(&page).len();
            if insert(&mut page, slot, &count.to_be_bytes(), b"xxxxxx").is_err() {
                break;
            }
            count += 1;
        }
        assert_eq!(usize::try_from(count).unwrap(), (bytes - HEADER) / 16);
        // Free every second cell, then fill the holes: that needs compaction.
        let mut slot = 0;
        while slot < view(&page).len() {
            remove(&mut page, slot).unwrap();
            slot += 1;
        }
        for key in (0..count).step_by(2) {
            let at = view(&page).search(&key.to_be_bytes()).unwrap().unwrap_err();
            insert(&mut page, at, &key.to_be_bytes(), b"yyyyyy").unwrap();
        }
        assert_eq!(view(&page).len(), usize::try_from(count).unwrap());
        view(&page).check().unwrap();
        while view(&page).len() > 0 {
            let at = view(&page).len() / 2;
            remove(&mut page, at).unwrap();
        }
        assert_eq!(page[..HEADER], empty[..HEADER], "an emptied page has all its room back");
    }
}

#[test]
fn three_maximal_entries_fit() {
    for bytes in SIZES {
        let mut page = leaf(bytes, b"0000000000", b"3333333333");
        for slot in 0..3 {
            let key = [b'0' + slot as u8; 20];
            insert(&mut page, slot, &key, &vec![7; max_entry(bytes) - 20]).unwrap();
        }
        view(&page).check().unwrap();
    }
}

#[test]
fn prefix_and_heads_take_no_cell_bytes() {
    let mut plain = leaf(512, b"", b"");
    let mut shared = leaf(512, b"customer/1", b"customer/2");
    insert(&mut plain, 0, b"customer/1abcd", b"").unwrap();
    insert(&mut shared, 0, b"customer/1abcd", b"").unwrap();
    assert_eq!(view(&shared).prefix(), b"customer/");
    assert_eq!(view(&plain).cell(0).unwrap().rest, b"omer/1abcd");
    assert_eq!(view(&shared).cell(0).unwrap().rest, b"d");
}

#[test]
fn placement_follows_the_fences() {
    let mut page = leaf(512, b"b", b"d");
    let place = |page: &[u8], target| view(page).place(target);
    for (key, at, before) in [
        (&b""[..], Placement::Elsewhere, Placement::Elsewhere),
        (b"a", Placement::Elsewhere, Placement::Elsewhere),
        (b"b", Placement::Here, Placement::Elsewhere),
        (b"b\0", Placement::Here, Placement::Here),
        (b"c\xff", Placement::Here, Placement::Here),
        (b"d", Placement::Right, Placement::Here),
        (b"d\0", Placement::Right, Placement::Right),
    ] {
        assert_eq!(place(&page, Target::At(key)), at, "{key:?}");
        assert_eq!(place(&page, Target::Before(key)), before, "{key:?}");
    }
    assert_eq!(place(&page, Target::End), Placement::Right);
    mark_dead(&mut page).unwrap();
    assert_eq!(place(&page, Target::At(b"c")), Placement::Elsewhere);
    let last = leaf(512, b"b", b"");
    assert_eq!(place(&last, Target::At(b"\xff")), Placement::Here);
    assert_eq!(place(&last, Target::End), Placement::Here);
    let first = leaf(512, b"", b"b");
    assert_eq!(place(&first, Target::Before(b"")), Placement::Here);
}

#[test]
fn splits_keep_every_entry_and_absorbing_restores_the_range() {
    let mut rng = SmallRng::seed_from_u64(2);
    for bytes in SIZES {
        for (low, high) in fences() {
            for _ in 0..40 {
                split_once(&mut rng, bytes, low, high);
            }
        }
    }
}

fn split_once(rng: &mut SmallRng, bytes: usize, low: &[u8], high: &[u8]) {
    let mut page = leaf(bytes, low, high);
    let mut model = Model::new();
    let prefix = view(&page).prefix().to_vec();
    let longest = [8, 64, max_entry(bytes)][rng.random_range(0..3)];
    let (new_key, new_value) = loop {
        let key = random_key(rng, &prefix, max_key(bytes));
        if view(&page).place(Target::At(&key)) != Placement::Here {
            continue;
        }
        let Err(slot) = view(&page).search(&key).unwrap() else {
            // A long run of duplicates: the key space of the generator is exhausted.
            if rng.random_bool(0.01) && model.len() >= 2 {
                return;
            }
            continue;
        };
        let value = vec![model.len() as u8; longest.saturating_sub(key.len())];
        match insert(&mut page, slot, &key, &value) {
            Ok(()) => model.insert(key, value),
            Err(_) => break (key, value),
        };
    };
    let whole = page.clone();
    let cut = choose_cut(&view(&page), &new_key).unwrap();
    let mut right = vec![0xaa; bytes];
    split(&mut page, &mut right, &cut, 0x7000).unwrap();
    for half in [&page, &right] {
        view(half).check().unwrap();
        assert!(view(half).len() <= model.len());
    }
    assert_eq!((view(&page).low(), view(&right).high()), (low, high));
    assert_eq!(view(&page).high(), view(&right).low());
    assert_eq!(view(&page).high(), cut.separator);
    assert_eq!(view(&page).header().right, 0x7000);
    assert_eq!(view(&right).header().right, view(&whole).header().right);
    let mut both = entries(&page);
    both.extend(entries(&right));
    assert_eq!(both, model);
    // The new entry has a side, and both sides hold something once it is in.
    let to_left = view(&page).place(Target::At(&new_key)) == Placement::Here;
    assert_ne!(to_left, view(&right).place(Target::At(&new_key)) == Placement::Here);
    assert!(view(&page).len() + usize::from(to_left) > 0);
    assert!(view(&right).len() + usize::from(!to_left) > 0);
    if longest <= 64 {
        let side = if to_left { &mut page } else { &mut right };
        let slot = view(side).search(&new_key).unwrap().unwrap_err();
        insert(side, slot, &new_key, &new_value).unwrap();
        remove(side, slot).unwrap();
    }
    // Empty the right page, absorb it, and put its entries back.
    let mut small = entries(&page);
    while small.len() > 1 {
        remove(&mut page, small.len() - 1).unwrap();
        small.pop_last();
    }
    absorb(&mut page, &view(&right)).unwrap();
    assert_eq!(view(&page).high(), high);
    assert_eq!(view(&page).prefix(), prefix);
    assert_same(&page, &small);
}

fn stamps(read: u64, write: u64) -> Stamps {
    Stamps { read: Stamp::new(read), write: Stamp::new(write) }
}

fn set_stamps(page: &mut [u8], stamps: Stamps) {
    let (range, bytes) = stamp(stamps);
    page[range].copy_from_slice(&bytes);
}

#[test]
fn stamps_hold_for_the_range_of_keys_wherever_it_goes() {
    for bytes in SIZES {
        let mut page = leaf(bytes, b"a", b"z");
        assert_eq!(view(&page).header().stamps, Stamps::default());
        for slot in 0..3_u8 {
            insert(&mut page, usize::from(slot), &[b'b' + slot], b"value").unwrap();
        }
        set_stamps(&mut page, stamps(7, u64::MAX));
        view(&page).check().unwrap();
        // Edits leave them alone, also those that write the page anew.
        insert(&mut page, 3, b"e", b"value").unwrap();
        replace(&mut page, 0, b"a longer value").unwrap();
        remove(&mut page, 1).unwrap();
        assert_eq!(view(&page).header().stamps, stamps(7, u64::MAX));
        assert_eq!(view(&page).len(), 3);
        let cut = choose_cut(&view(&page), b"c").unwrap();
        let mut right = vec![0xaa; bytes];
        split(&mut page, &mut right, &cut, 0x7000).unwrap();
        for half in [&page, &right] {
            assert_eq!(view(half).header().stamps, stamps(7, u64::MAX), "of either half");
        }
        while view(&right).len() > 0 {
            remove(&mut right, 0).unwrap();
        }
        for (left, right_has, both) in
            [((3, 9), (8, 2), (8, 9)), ((8, 2), (3, 9), (8, 9)), ((1, 1), (1, 1), (1, 1))]
        {
            let mut merged = page.clone();
            set_stamps(&mut merged, stamps(left.0, left.1));
            set_stamps(&mut right, stamps(right_has.0, right_has.1));
            absorb(&mut merged, &view(&right)).unwrap();
            assert_eq!(view(&merged).header().stamps, stamps(both.0, both.1), "the later ones");
            assert_eq!(view(&merged).high(), b"z");
        }
        mark_dead(&mut right).unwrap();
        assert_eq!(view(&right).header().stamps, stamps(1, 1));
    }
}

#[test]
fn ascending_inserts_leave_full_pages_and_random_ones_halves() {
    let mut page = leaf(2048, b"", b"");
    let mut key = 0_u32;
    let append = |page: &mut Vec<u8>, key: u32| {
        let slot = view(page).len();
        insert(page, slot, &(key * 2).to_be_bytes(), b"12345678")
    };
    while append(&mut page, key).is_ok() {
        key += 1;
    }
    let count = view(&page).len();
    let end = choose_cut(&view(&page), &(key * 2).to_be_bytes()).unwrap();
    assert_eq!(end.at, count);
    let middle = choose_cut(&view(&page), &(key + 1 - key % 2).to_be_bytes()).unwrap();
    assert!(middle.at.abs_diff(count / 2) <= 1, "{} of {count}", middle.at);
}

#[test]
fn separators_are_as_short_as_they_can_be() {
    let mut page = leaf(512, b"", b"");
    for (slot, key) in
        [&b"apple-one"[..], b"apple-two", b"pear-one", b"pear-two"].iter().enumerate()
    {
        insert(&mut page, slot, key, &vec![0; 60 + 20 * slot]).unwrap();
    }
    assert_eq!(choose_cut(&view(&page), b"apple-zzz").unwrap().separator, b"p");
}

#[test]
fn a_single_row_splits_beside_a_new_one() {
    for (new, at) in [(&b"a"[..], 0), (b"z", 1)] {
        let mut page = leaf(512, b"", b"");
        insert(&mut page, 0, b"m", b"row").unwrap();
        let cut = choose_cut(&view(&page), new).unwrap();
        assert_eq!(cut.at, at);
        let mut right = vec![0; 512];
        split(&mut page, &mut right, &cut, 8).unwrap();
        view(&page).check().unwrap();
        view(&right).check().unwrap();
        let side = if at == 0 { &page } else { &right };
        assert_eq!(view(side).place(Target::At(new)), Placement::Here);
        assert_eq!(view(side).len(), 0);
    }
    let mut page = leaf(512, b"", b"");
    insert(&mut page, 0, b"m", b"row").unwrap();
    assert!(choose_cut(&view(&page), b"m").is_err(), "one row cannot be split from itself");
}

#[test]
fn inner_pages_route_by_key_and_split_with_room_for_a_separator() {
    let mut rng = SmallRng::seed_from_u64(3);
    for bytes in SIZES {
        let mut page = vec![0; bytes];
        let low = [5; 2];
        let spec = Spec { level: 1, extra: 77, low: low.to_vec(), ..Spec::default() };
        format(&mut page, &spec, [(&low[..], &1_u64.to_le_bytes()[..])]).unwrap();
        let mut model = BTreeMap::from([(low.to_vec(), 1_u64)]);
        let new = loop {
            let mut key = vec![6; rng.random_range(1..=max_key(bytes))];
            key.iter_mut().for_each(|b| *b = rng.random_range(6..=255));
            let Err(slot) = view(&page).search(&key).unwrap() else { continue };
            let child = model.len() as u64 + 1;
            match insert(&mut page, slot, &key, &child.to_le_bytes()) {
                Ok(()) => model.insert(key, child),
                Err(_) => break key,
            };
        };
        view(&page).check().unwrap();
        for _ in 0..100 {
            let probe = [rng.random_range(5..=255), rng.random(), rng.random()];
            let probe = if probe < [5, 5, 0] { [5, 5, 0] } else { probe };
            let child = |target| {
                let view = view(&page);
                view.child(view.child_slot(target).unwrap()).unwrap()
            };
            let at = model.range(..=probe.to_vec()).next_back().unwrap().1;
            assert_eq!(child(Target::At(&probe)), *at);
            let (exact, _) =
                model.range(probe.to_vec()..).next().unwrap_or(model.iter().next_back().unwrap());
            if exact.as_slice() > &low[..] {
                let before = model.range(..exact.clone()).next_back().unwrap().1;
                assert_eq!(child(Target::Before(exact)), *before);
            }
            assert_eq!(child(Target::End), *model.values().next_back().unwrap());
        }
        let cut = choose_cut(&view(&page), &new).unwrap();
        let mut right = vec![0; bytes];
        split(&mut page, &mut right, &cut, 0x9000).unwrap();
        assert_eq!(view(&right).prefix(), b"");
        for half in [&mut page, &mut right] {
            view(half).check().unwrap();
            assert_eq!(view(half).header().extra, 77);
            let first = entries(half).keys().next().unwrap().clone();
            assert_eq!(first, view(half).low(), "slot 0 carries the low fence");
            if view(half).place(Target::At(&new)) == Placement::Here {
                let slot = view(half).search(&new).unwrap().unwrap_err();
                insert(half, slot, &new, &9_u64.to_le_bytes()).unwrap();
            }
        }
    }
}

/// Runs every operation on a page whose bytes cannot be trusted. Only panics count.
fn exercise(page: &[u8], rng: &mut SmallRng) {
    let Ok(view) = PageView::parse(page) else { return };
    let key = random_key(rng, view.prefix(), 40);
    let _ = view.check();
    let _ = view.place(Target::At(&key));
    let _ = view.search(&key);
    let _ = view.child_slot(Target::Before(&key));
    let _ = view.child_slot(Target::End).and_then(|slot| view.child(slot));
    let mut scratch = Vec::new();
    for slot in [0, view.len() / 2, view.len()] {
        let _ = view.key_into(slot, &mut scratch);
        let _ = view.value_range(slot);
    }
    let slot = rng.random_range(0..=view.len());
    let _ = remove(&mut page.to_vec(), slot);
    for value in [0, 90, 400] {
        let _ = replace(&mut page.to_vec(), slot, &vec![1; value]);
    }
    for value in [8, 200] {
        let mut copy = page.to_vec();
        let _ = insert(&mut copy, slot, &key, &vec![3; value]);
    }
    if let Ok(cut) = choose_cut(&view, &key) {
        let (mut copy, mut right) = (page.to_vec(), vec![0; page.len()]);
        let _ = split(&mut copy, &mut right, &cut, 64);
    }
    let mut copy = page.to_vec();
    let _ = absorb(&mut copy, &PageView::parse(&leaf(page.len(), b"pre-2", b"zzzzzz")).unwrap());
    let _ = absorb(&mut leaf(page.len(), b"", b"pre-1"), &view);
}

#[test]
fn damaged_pages_never_panic() {
    let mut rng = SmallRng::seed_from_u64(4);
    let mut caught = 0;
    for round in 0..6_000 {
        let bytes = SIZES[round % 2];
        let mut page = leaf(bytes, b"pre-1", b"pre-2");
        for slot in 0..8_u8 {
            insert(
                &mut page,
                usize::from(slot),
                &[b"pre-1long".as_slice(), &[slot]].concat(),
                b"v",
            )
            .unwrap();
        }
        if round % 3 == 0 {
            // Keep only the magic, so that the header check gets something to look at.
            rng.fill(&mut page[2..]);
            for at in [5, 7, 11, 13, 15] {
                page[at] &= 1;
            }
        } else {
            for _ in 0..rng.random_range(1..6) {
                let at = if rng.random_bool(0.7) {
                    rng.random_range(0..HEADER + 64)
                } else {
                    rng.random_range(0..bytes)
                };
                page[at] = rng.random();
            }
        }
        caught += usize::from(PageView::parse(&page).is_ok_and(|v| v.check().is_err()));
        exercise(&page, &mut rng);
    }
    assert!(caught > 300, "the header check alone caught nearly everything: {caught}");
    for bytes in [0, 1, HEADER - 1, HEADER, 511] {
        assert!(PageView::parse(&vec![0; bytes]).is_err());
    }
}

#[test]
fn the_check_names_what_is_broken() {
    let mut good = leaf(512, b"a", b"c");
    for (slot, key) in [&b"a1"[..], b"b2", b"b3"].iter().enumerate() {
        insert(&mut good, slot, key, b"value").unwrap();
    }
    view(&good).check().unwrap();
    let broken = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut page = good.clone();
        change(&mut page);
        PageView::parse(&page).and_then(|view| view.check()).unwrap_err().0
    };
    let swap = |page: &mut Vec<u8>| page[HEADER..HEADER + 16].rotate_left(8);
    assert_eq!(broken(&swap), "keys out of order");
    assert_eq!(broken(&|page| page[HEADER] ^= 1), "key head is not the start of its key");
    assert_eq!(broken(&|page| page[HEADER + 3] = b'd'), "key outside the fences");
    assert_eq!(broken(&|page| page[HEADER + 5] = 0xff), "cell out of bounds");
    assert_eq!(broken(&|page| page[8] = 3), "garbage count is wrong");
    assert_eq!(broken(&|page| page[4] = 200), "slots, heap or fences out of bounds");
    assert_eq!(broken(&|page| page[0] = 0), "not a tree page");
    assert_eq!(broken(&|page| page[17] = 0), "high fence and right link disagree");
    assert_eq!(broken(&|page| page[510] = b'z'), "fences out of order");
    assert_eq!(broken(&|page| page[10] = 1), "prefix is not the common prefix of the fences");
    let mut dead = good.clone();
    mark_dead(&mut dead).unwrap();
    assert_eq!(dead[3], DEAD);
}
