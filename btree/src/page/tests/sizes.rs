//! Levels of a tree as pages without an engine: entries and separators of every size find room.

use std::collections::BTreeMap;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::common::*;
use crate::page::*;
use crate::split::MAX_SPLITS;

/// The pages of a level by their low fences.
type Pages = BTreeMap<Vec<u8>, Vec<u8>>;

fn page_of<'p>(pages: &'p mut Pages, key: &[u8]) -> &'p mut Vec<u8> {
    pages.range_mut(..=key.to_vec()).next_back().unwrap().1
}

/// Splits the page of a key where it says.
fn split_at(pages: &mut Pages, key: &[u8], value_bytes: usize) {
    let page = page_of(pages, key);
    let before = entries(page);
    let cut = choose_cut(&view(page), key, value_bytes).unwrap();
    let mut right = vec![0xaa; page.len()];
    split(page, &mut right, &cut, 0x7000).unwrap();
    let mut both = entries(page);
    both.extend(entries(&right));
    assert_eq!(both, before);
    view(page).check().unwrap();
    view(&right).check().unwrap();
    assert!(pages.insert(cut.separator, right).is_none());
}

/// Keys that share long beginnings with others, and short ones among them.
fn long_key(rng: &mut SmallRng, longest: usize) -> Vec<u8> {
    let mut key = Vec::new();
    let length = [1, 4, 9, longest / 2, longest - 1, longest][rng.random_range(0..6)];
    while key.len() < length {
        let run = [1, 1, 3, longest / 3, longest][rng.random_range(0..5)];
        let byte = [0, b'a', b'b', 0xff][rng.random_range(0..4)];
        key.resize((key.len() + run).min(length), byte);
    }
    key
}

fn value(rng: &mut SmallRng, largest: usize) -> Vec<u8> {
    let bytes = match rng.random_range(0..6) {
        0 => 0,
        1 => rng.random_range(0..=largest),
        2 => largest / 2,
        3 => largest,
        _ => rng.random_range(0..=largest.min(40)),
    };
    vec![rng.random(); bytes]
}

#[test]
fn entries_of_every_size_find_room_after_a_few_splits() {
    let mut rng = SmallRng::seed_from_u64(21);
    let mut most_splits = 0;
    for round in 0..60 {
        let bytes = SIZES[round % SIZES.len()] - 8;
        let mut pages = Pages::from([(Vec::new(), leaf(bytes, b"", b""))]);
        let mut model = Model::new();
        for step in 0..400 {
            let known = model.keys().nth(rng.random_range(0..=model.len()));
            let key = match known.filter(|_| rng.random_bool(0.4)) {
                Some(key) => key.clone(),
                None => long_key(&mut rng, max_key(bytes)),
            };
            if step % 100 > 70 && model.contains_key(&key) {
                // Fences stay that are longer than the keys between them.
                let page = page_of(&mut pages, &key);
                let slot = view(page).search(&key).unwrap().unwrap();
                remove(page, slot).unwrap();
                model.remove(&key);
                continue;
            }
            let value = value(&mut rng, max_value(bytes, key.len()));
            for splits in 0.. {
                assert!(splits < MAX_SPLITS, "{splits} splits at {bytes}");
                most_splits = splits.max(most_splits);
                let page = page_of(&mut pages, &key);
                let done = match view(page).search(&key).unwrap() {
                    Ok(slot) => replace(page, slot, &value),
                    Err(slot) => insert(page, slot, &key, &value),
                };
                match done {
                    Ok(()) => break,
                    Err(NoRoomOr::NoRoom) => split_at(&mut pages, &key, value.len()),
                    Err(NoRoomOr::Damage(damage)) => panic!("{damage:?}"),
                }
            }
            model.insert(key, value);
        }
        let mut all = Model::new();
        for page in pages.values() {
            view(page).check().unwrap();
            all.extend(entries(page));
        }
        assert_eq!(all, model);
    }
    assert!((3..MAX_SPLITS - 1).contains(&most_splits), "{most_splits} splits");
}

#[test]
fn separators_of_every_size_find_room_after_one_split() {
    let mut rng = SmallRng::seed_from_u64(22);
    for round in 0..60 {
        let bytes = SIZES[round % SIZES.len()] - 8;
        let mut root = vec![0; bytes];
        let spec = PageSpec { level: 1, ..PageSpec::default() };
        format(&mut root, &spec, [(&b""[..], &1_u64.to_le_bytes()[..])]).unwrap();
        let (mut pages, mut model) = (Pages::from([(Vec::new(), root)]), BTreeMap::new());
        model.insert(Vec::new(), 1_u64.to_le_bytes().to_vec());
        let short = rng.random_bool(0.5);
        for child in 2..400_u64 {
            let longest = if short && rng.random_bool(0.8) { 12 } else { max_key(bytes) };
            let key = match round % 3 {
                // As long as they can be, and different from the first byte on.
                0 => [&[(child * 37) as u8][..], &vec![9; max_key(bytes) - 1]].concat(),
                _ => long_key(&mut rng, longest),
            };
            if model.contains_key(&key) {
                continue;
            }
            let address = child.to_le_bytes();
            for splits in 0.. {
                assert!(splits < 2, "a separator fits a page that was split");
                let page = page_of(&mut pages, &key);
                let slot = view(page).search(&key).unwrap().unwrap_err();
                assert!(slot > 0, "no separator is below its page's low fence");
                match insert(page, slot, &key, &address) {
                    Ok(()) => break,
                    Err(NoRoomOr::NoRoom) => {
                        assert!(view(page).len() > 2, "three children fit every inner page");
                        split_at(&mut pages, &key, CHILD);
                    }
                    Err(NoRoomOr::Damage(damage)) => panic!("{damage:?}"),
                }
            }
            model.insert(key, address.to_vec());
        }
        let mut all = Model::new();
        for (low, page) in &pages {
            view(page).check().unwrap();
            assert_eq!(entries(page).keys().next(), Some(low), "slot 0 has the low fence");
            all.extend(entries(page));
        }
        assert_eq!(all, model);
        assert!(model.len() >= 2 * pages.len() - 1, "{} in {}", model.len(), pages.len());
        // As the tree does with two that have become underfull.
        for _ in 0..20 {
            let Some((low, right)) = pages.iter().nth(rng.random_range(0..pages.len())) else {
                break;
            };
            let Some((before, left)) = pages.range(..low.clone()).next_back() else { continue };
            let (before, mut merged, both) = (before.clone(), left.clone(), union(left, right));
            let fits = absorb(&mut merged, &view(right)).is_ok();
            if joint(&view(left), &view(right)).unwrap() == Joint::Merge {
                assert!(fits, "what is said to fit fits");
            }
            if fits {
                assert_same(&merged, &both);
                let gone = low.clone();
                pages.remove(&gone);
                pages.insert(before, merged);
            }
        }
    }
}

fn union(left: &[u8], right: &[u8]) -> Model {
    let mut both = entries(left);
    both.extend(entries(right));
    both
}
