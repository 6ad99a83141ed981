//! Random edits against an ordered map, room, placement, and the bytes that an edit records.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::common::*;
use crate::page::layout::{HEADER, SLOT, entry_bytes};
use crate::page::*;

/// An entry's cell, its slot and those behind it, and the header: that is what goes to the log and
/// home.
#[test]
fn edits_record_little_more_than_they_change() {
    let mut page = RecordedPage::new(leaf(2048, b"", b""));
    let (header, value) = (HEADER, [7; 20]);
    let cell = entry_bytes(8, value.len());
    for key in 0..30_u64 {
        insert(&mut page, key as usize, &key.to_be_bytes(), &value).unwrap();
        assert_eq!(page.take_recorded(), header + cell);
    }
    insert(&mut page, 20, &[0, 0, 0, 0, 0, 0, 0, 19, 1], &value).unwrap();
    assert_eq!(page.take_recorded(), header + cell + 1 + 10 * SLOT);
    remove(&mut page, 25).unwrap();
    assert_eq!(page.take_recorded(), header + 6 * SLOT);
    let garbage = view(&page).header().garbage;
    replace(&mut page, 3, &[8; 30]).unwrap();
    assert_eq!(page.take_recorded(), header + cell + 10);
    assert_eq!(usize::from(view(&page).header().garbage - garbage), cell - SLOT);
    // The lowest cell of all, which is that of the last edit, leaves nothing behind.
    let heap = view(&page).header().heap;
    for (length, lower) in [(40, 10), (5, -25)] {
        replace(&mut page, 3, &vec![9; length]).unwrap();
        assert_eq!(page.take_recorded(), header + cell + length - value.len());
        assert_eq!(i32::from(heap) - i32::from(view(&page).header().heap), lower);
        assert_eq!(usize::from(view(&page).header().garbage - garbage), cell - SLOT);
    }
    view(&page).check().unwrap();
    // A cell above others stays where it is when it shrinks.
    let (before, at) = (*view(&page).header(), view(&page).cell(7).unwrap().slot.offset);
    replace(&mut page, 7, &[9; 12]).unwrap();
    assert_eq!(page.take_recorded(), header + cell - 8);
    let after = *view(&page).header();
    assert_eq!((after.heap, after.garbage), (before.heap, before.garbage + 8));
    assert!((at..at + 30).contains(&view(&page).cell(7).unwrap().slot.offset));
    view(&page).check().unwrap();
    bump_removals(&mut page).unwrap();
    assert_eq!(page.take_recorded(), header);
    mark_dead(&mut page).unwrap();
    assert_eq!(page.take_recorded(), header);
}

/// Up to the last byte, and not beyond; and nothing is left of it when all is removed.
#[test]
fn values_grow_into_whatever_is_free() {
    let mut rng = SmallRng::seed_from_u64(3);
    for bytes in SIZES {
        let empty = leaf(bytes, b"", b"");
        let mut page = RecordedPage::new(empty.clone());
        let mut count = 0_u32;
        while insert(&mut page, count as usize, &count.to_be_bytes(), b"eight by").is_ok() {
            count += 1;
        }
        remove(&mut page, count as usize / 2).unwrap();
        remove(&mut page, count as usize / 4).unwrap();
        let free = |page: &RecordedPage| {
            view(page).free_bytes() + usize::from(view(page).header().garbage)
        };
        let room = free(&page) + b"eight by".len();
        let _ = page.take_recorded();
        assert_eq!(replace(&mut page, 3, &vec![1; room + 1]), Err(NoRoomOr::NoRoom));
        assert_eq!(page.take_recorded(), 0);
        replace(&mut page, 3, &vec![1; room]).unwrap();
        assert_eq!((page.take_recorded(), free(&page)), (bytes, 0));
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
            let mut page = RecordedPage::new(leaf(bytes, low, high));
            let mut model = Model::new();
            let prefix = view(&page).prefix().to_vec();
            let mut refused = 0;
            for step in 0..600 {
                let key = random_key(&mut rng, &prefix, max_key(bytes));
                if view(&page).place(Target::At(&key)) != Placement::Here {
                    assert!(key.as_slice() < low || (!high.is_empty() && key.as_slice() >= high));
                    continue;
                }
                // The fences are longer than a short key needs.
                let largest = max_value(bytes, key.len()) - low.len() - high.len();
                let longest = if step % 16 == 0 { largest } else { 24 };
                let value = vec![step as u8; rng.random_range(0..=longest)];
                let found = view(&page).search(&key).unwrap();
                assert_eq!(found.is_ok(), model.contains_key(&key));
                let _ = page.take_recorded();
                let behind = view(&page).len();
                match (found, rng.random_range(0..3)) {
                    (Err(slot), _) => {
                        assert_eq!(slot, model.range(..key.clone()).count());
                        match insert(&mut page, slot, &key, &value) {
                            Ok(()) => {
                                let entry = entry_bytes(key.len() - prefix.len(), value.len());
                                let least = HEADER + entry + SLOT * (behind - slot);
                                // All of it, if its cells were moved together first.
                                assert!([least, least + bytes].contains(&page.take_recorded()));
                                model.insert(key, value);
                            }
                            Err(error) => {
                                assert_eq!(page.take_recorded(), 0);
                                assert_eq!(error, NoRoomOr::NoRoom);
                                assert!(!model.is_empty(), "one entry always fits");
                                refused += 1;
                            }
                        }
                    }
                    (Ok(slot), 0) => match replace(&mut page, slot, &value) {
                        Ok(()) => {
                            model.insert(key, value);
                        }
                        Err(error) => {
                            assert_eq!((error, page.take_recorded()), (NoRoomOr::NoRoom, 0));
                        }
                    },
                    (Ok(slot), _) => {
                        remove(&mut page, slot).unwrap();
                        assert_eq!(page.take_recorded(), HEADER + SLOT * (behind - slot));
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
fn the_largest_entry_fits_between_the_longest_fences_beside_its_key() {
    for bytes in SIZES {
        for length in [1, 2, 3, 4, 5, 17, max_key(bytes)] {
            let key = vec![7; length];
            let above = [&key[..], &[0]].concat();
            let (mut page, largest) = (leaf(bytes, &key, &above), max_value(bytes, length));
            assert_eq!(insert(&mut page, 0, &key, &vec![7; largest + 1]), Err(NoRoomOr::NoRoom));
            insert(&mut page, 0, &key, &vec![7; largest]).unwrap();
            view(&page).check().unwrap();
        }
        assert_eq!(max_value(bytes, bytes), 0);
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
