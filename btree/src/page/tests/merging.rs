//! Neighbours that become one page, or divide their entries.

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::common::*;
use crate::page::*;

/// Two neighbours with random entries, each up to so many.
fn neighbours(rng: &mut SmallRng, bytes: usize, most: [usize; 2]) -> (Vec<u8>, Vec<u8>) {
    let [low, middle, high]: [&[u8]; 3] = [
        [&b""[..], b"m", b""],
        [b"row/10", b"row/15", b"row/20"],
        [b"row/1000", b"row/1001", b"row/1002"],
        [b"row/1000", b"row/1001", b"s"],
    ][rng.random_range(0..4)];
    let mut left = leaf(bytes, low, middle);
    let mut right = leaf(bytes, middle, high);
    for (page, most) in [(&mut left, most[0]), (&mut right, most[1])] {
        let (low, prefix) = (view(page).low().to_vec(), view(page).prefix().to_vec());
        for _ in 0..rng.random_range(0..=most) {
            let base = if rng.random_bool(0.5) { &low } else { &prefix };
            let key = random_key(rng, base, max_key(bytes));
            let value = vec![5; rng.random_range(0..30)];
            if view(page).place(Target::At(&key)) == Placement::Here
                && let Err(slot) = view(page).search(&key).unwrap()
            {
                let _ = insert(page, slot, &key, &value);
            }
        }
    }
    (left, right)
}

fn union(left: &[u8], right: &[u8]) -> Model {
    let mut both = entries(left);
    both.extend(entries(right));
    both
}

#[test]
fn what_is_said_to_fit_fits() {
    let mut rng = SmallRng::seed_from_u64(11);
    let mut met = [0; 3];
    for round in 0..4_000 {
        let bytes = SIZES[round % 3];
        let most = [[bytes / 10, bytes / 10], [bytes / 60, bytes / 60], [0, bytes / 10], [400, 0]];
        let most = most[rng.random_range(0..4)];
        let (left, right) = neighbours(&mut rng, bytes, most);
        let both = union(&left, &right);
        let is_any_empty = view(&left).len() == 0 || view(&right).len() == 0;
        let joint = joint(&view(&left), &view(&right)).unwrap();
        met[joint as usize] += 1;
        let mut merged = left.clone();
        let fits = absorb(&mut merged, &view(&right));
        if fits.is_ok() {
            assert_same(&merged, &both);
            assert_eq!(view(&merged).low(), view(&left).low());
            assert_eq!(view(&merged).high(), view(&right).high());
            assert_eq!(view(&merged).header().right, view(&right).header().right);
        } else {
            assert_eq!(merged, left, "unchanged");
        }
        match joint {
            Joint::Merge => {
                fits.unwrap();
                assert!(is_any_empty || view(&merged).used_bytes() * 8 <= bytes * 5);
                let underfill = [&left, &right].map(|page| underfill(&view(page)));
                assert!(is_any_empty || underfill.iter().any(|fill| *fill > 0));
            }
            Joint::Share => {
                assert!(is_any_empty && fits.is_err());
                let halves = share(&view(&left), &view(&right), 0x9000).unwrap();
                assert_eq!(union(&halves.left, &halves.right), both);
                assert_eq!(view(&halves.left).high(), halves.separator);
                assert_eq!(view(&halves.right).low(), halves.separator);
                assert_eq!(view(&halves.left).header().right, 0x9000);
                assert_eq!(view(&halves.right).header().right, view(&right).header().right);
                for half in [&halves.left, &halves.right] {
                    view(half).check().unwrap();
                    let used = view(half).used_bytes() * 10;
                    assert!((bytes * 2..bytes * 8).contains(&used), "{used}");
                }
            }
            Joint::Apart => {
                assert!(!is_any_empty);
                assert!(fits.is_err() || view(&merged).used_bytes() * 8 > bytes * 5);
            }
        }
    }
    assert!(met.iter().all(|count| *count > 50), "{met:?}");
}

#[test]
fn a_page_becomes_underfull_in_steps() {
    for bytes in SIZES {
        let mut page = leaf(bytes, b"", b"");
        assert_eq!(underfill(&view(&page)), 4, "empty");
        let mut steps = vec![4];
        let mut key = 0_u32;
        while insert(&mut page, key as usize, &key.to_be_bytes(), b"value").is_ok() {
            key += 1;
            steps.push(underfill(&view(&page)));
        }
        assert!(steps.is_sorted_by(|a, b| a >= b), "{steps:?}");
        steps.dedup();
        assert_eq!(steps, [4, 3, 2, 1, 0]);
        let rows = view(&page).len();
        while underfill(&view(&page)) == 0 {
            remove(&mut page, 0).unwrap();
        }
        assert!((view(&page).len() * 8).abs_diff(rows * 3) <= 8);
    }
}

/// A leaf that may hold few rows is full when it holds them.
#[test]
fn a_leaf_with_a_limit_is_merged_by_its_rows() {
    let limited = |limit: u32, low: &[u8], high: &[u8], rows: u8| {
        let mut page = vec![0; 512];
        let right = if high.is_empty() { 0 } else { 64 };
        let (low, high) = (low.to_vec(), high.to_vec());
        let spec = PageSpec { extra: limit, low, high, right, ..PageSpec::default() };
        format(&mut page, &spec, []).unwrap();
        for row in 0..rows {
            let key = [view(&page).low(), &[row]].concat();
            insert(&mut page, usize::from(row), &key, b"row").unwrap();
        }
        page
    };
    for (limit, rows, expected) in [
        (1, [1, 0], Joint::Merge),
        (1, [1, 1], Joint::Apart),
        (2, [1, 1], Joint::Apart),
        (4, [1, 1], Joint::Merge),
        (4, [2, 1], Joint::Apart),
        (8, [3, 2], Joint::Merge),
        (8, [3, 3], Joint::Apart),
        (4, [4, 0], Joint::Merge),
    ] {
        let (left, right) =
            (limited(limit, b"", b"m", rows[0]), limited(limit, b"m", b"", rows[1]));
        assert_eq!(joint(&view(&left), &view(&right)).unwrap(), expected, "{rows:?} of {limit}");
    }
    let fills = [0, 1, 2, 3, 4, 8].map(|rows| underfill(&view(&limited(8, b"", b"", rows))));
    assert_eq!(fills, [4, 3, 2, 1, 0, 0]);
}

#[test]
fn inner_pages_count_up_when_they_take_over_a_range() {
    let inner = |low: &[u8], high: &[u8], extra, children: &[&[u8]]| {
        let mut page = vec![0; 512];
        let right = if high.is_empty() { 0 } else { 64 };
        let (low, high) = (low.to_vec(), high.to_vec());
        let spec = PageSpec { level: 2, extra, low, high, right, ..PageSpec::default() };
        let child = 7_u64.to_le_bytes();
        format(&mut page, &spec, children.iter().map(|key| (*key, &child[..]))).unwrap();
        page
    };
    for (counts, after) in [((5, 3), 6), ((3, 5), 6), ((u32::MAX, 0), 0)] {
        let mut left = inner(b"", b"g", counts.0, &[b"", b"c"]);
        let right = inner(b"g", b"", counts.1, &[b"g"]);
        assert_eq!(joint(&view(&left), &view(&right)).unwrap(), Joint::Merge);
        let halves = share(&view(&left), &view(&right), 64).unwrap();
        for half in [&halves.left, &halves.right] {
            assert_eq!((view(half).header().extra, view(half).level()), (after, 2));
            let first = entries(half).keys().next().unwrap().clone();
            assert_eq!(first, view(half).low(), "slot 0 carries the low fence");
        }
        absorb(&mut left, &view(&right)).unwrap();
        assert_eq!((view(&left).header().extra, view(&left).len()), (after, 3));
    }
    // With one child it goes wherever it fits, and takes some from a page that is full.
    let many: Vec<[u8; 44]> = (1..9).map(|key| [key; 44]).collect();
    let mut keys: Vec<&[u8]> = many.iter().map(|key| &key[..]).collect();
    keys.insert(0, b"");
    let (one, last) = (inner(&[9; 44], b"", 0, &[&[9; 44]]), inner(&[8; 44], b"", 0, &[&[8; 44]]));
    let full = inner(b"", &[9; 44], 0, &keys[..8]);
    assert_eq!(joint(&view(&full), &view(&one)).unwrap(), Joint::Share);
    let halves = share(&view(&full), &view(&one), 64).unwrap();
    assert!(view(&halves.left).len().abs_diff(view(&halves.right).len()) <= 1);
    let room = inner(b"", &[8; 44], 0, &keys[..6]);
    assert_eq!(joint(&view(&room), &view(&last)).unwrap(), Joint::Merge);
    for (separator, fits) in [(&[8; 45][..], true), (&[8; 400], false)] {
        assert_eq!(has_room_instead(&view(&room), 3, separator).unwrap(), fits);
    }
}
