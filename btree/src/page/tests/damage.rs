//! Damaged bytes: never a panic, and the check names what is broken.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::common::*;
use crate::page::layout::{DEAD, HEADER};
use crate::page::*;

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
    if let Ok(cut) = choose_cut(&view, &key, 40) {
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
