//! Splits, absorbed neighbours, stamps, and inner pages.

use std::collections::BTreeMap;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use selkie_engine::Stamp;

use super::common::*;
use crate::page::*;

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
    let longest = [8, 64, bytes][rng.random_range(0..3)];
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
        let largest = max_value(bytes, key.len());
        let value = vec![model.len() as u8; longest.saturating_sub(key.len()).min(largest)];
        match insert(&mut page, slot, &key, &value) {
            Ok(()) => model.insert(key, value),
            Err(_) => break (key, value),
        };
    };
    let whole = page.clone();
    let cut = choose_cut(&view(&page), &new_key, new_value.len()).unwrap();
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
    if longest <= 64 {
        assert!(view(&page).len() + usize::from(to_left) > 0);
        assert!(view(&right).len() + usize::from(!to_left) > 0);
        let side = if to_left { &mut page } else { &mut right };
        let slot = view(side).search(&new_key).unwrap().unwrap_err();
        insert(side, slot, &new_key, &new_value).unwrap();
        remove(side, slot).unwrap();
        absorb_once(&page, &right, high, &prefix);
    }
}

/// The pages have an entry or none: they are one page again. The prefix may be shorter than that of
/// the halves.
fn absorb_once(page: &[u8], right: &[u8], high: &[u8], prefix: &[u8]) {
    let shorten = |page: &mut Vec<u8>, rows: usize| {
        while view(page).len() > rows {
            remove(page, view(page).len() - 1).unwrap();
        }
    };
    for rows in [[1, 0], [0, 1], [0, 0], [1, 1]] {
        let (mut page, mut right) = (page.to_vec(), right.to_vec());
        shorten(&mut page, rows[0]);
        shorten(&mut right, rows[1]);
        let mut both = entries(&page);
        both.extend(entries(&right));
        absorb(&mut page, &view(&right)).unwrap();
        assert_eq!(view(&page).high(), high);
        assert_eq!(view(&page).prefix(), prefix);
        assert_same(&page, &both);
    }
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
        let cut = choose_cut(&view(&page), b"c", 8).unwrap();
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
    let end = choose_cut(&view(&page), &(key * 2).to_be_bytes(), 8).unwrap();
    assert_eq!(end.at, count);
    let middle = choose_cut(&view(&page), &(key + 1 - key % 2).to_be_bytes(), 8).unwrap();
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
    assert_eq!(choose_cut(&view(&page), b"apple-zzz", 60).unwrap().separator, b"p");
}

#[test]
fn a_single_row_splits_beside_a_new_one() {
    for (new, at) in [(&b"a"[..], 0), (b"z", 1)] {
        let mut page = leaf(512, b"", b"");
        insert(&mut page, 0, b"m", b"row").unwrap();
        let cut = choose_cut(&view(&page), new, 3).unwrap();
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
    assert!(choose_cut(&view(&page), b"m", 600).is_err(), "one row cannot be split from itself");
}

#[test]
fn inner_pages_route_by_key_and_split_with_room_for_a_separator() {
    let mut rng = SmallRng::seed_from_u64(3);
    for bytes in SIZES {
        let mut page = vec![0; bytes];
        let low = [5; 2];
        let spec = PageSpec { level: 1, extra: 77, low: low.to_vec(), ..PageSpec::default() };
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
        let cut = choose_cut(&view(&page), &new, CHILD).unwrap();
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
