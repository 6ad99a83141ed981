//! The placement map as a value with versions: what a reader sees, and when no user of an older
//! version is left.

use std::sync::Arc;

use loom::thread;

use crate::frame::Page;
use crate::versioned::{Suits, Versioned};
use crate::{joined, model};

/// A map with two entries, that are equal in every version.
struct Map {
    entries: [Page; 2],
    number: u64,
    /// Which place the map names: maps that name the same suit each other.
    place: usize,
}

impl Map {
    fn new(number: u64, place: usize) -> Self {
        let map = Self { entries: [Page::default(), Page::default()], number, place };
        for entry in &map.entries {
            entry.write(number);
        }
        map
    }

    fn look(&self) -> u64 {
        let [one, other] = self.entries.each_ref().map(Page::read);
        assert_eq!(one, other, "half of a version");
        one
    }
}

impl PartialEq for Map {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Suits for Map {
    fn suits(&self, other: &Self) -> bool {
        self.place == other.place
    }
}

#[test]
fn a_reader_sees_one_version_whole_and_no_older_one_afterwards() {
    model(3, || {
        let map = Arc::new(Versioned::new(Map::new(0, 0)));
        let readers = [Arc::clone(&map), Arc::clone(&map)].map(|map| {
            thread::spawn(move || {
                let first = map.with(Map::look);
                assert!(map.with(Map::look) >= first);
            })
        });
        for number in 1..3 {
            map.replace(Map::new(number, 0));
        }
        assert_eq!(map.with(Map::look), 2);
        joined(readers);
    });
}

/// A map, and the places that it names.
struct Places {
    map: Versioned<Map>,
    places: [Page; 3],
}

impl Places {
    fn new() -> Arc<Self> {
        Arc::new(Self { map: Versioned::new(Map::new(0, 0)), places: Default::default() })
    }

    /// Reads at the place that the map names.
    fn operation(&self) {
        let _using = self.map.using();
        let place = self.map.with(|map| map.place);
        self.places[place].read();
    }
}

/// Threads with an operation each.
fn operations<const N: usize>(all: &Arc<Places>) -> [thread::JoinHandle<()>; N] {
    std::array::from_fn(|_| {
        let all = Arc::clone(all);
        thread::spawn(move || all.operation())
    })
}

#[test]
fn a_place_that_no_user_is_left_of_is_nobodys() {
    model(3, || {
        let all = Places::new();
        let operations = operations::<1>(&all);
        for next in 1..3 {
            while !all.map.replace(Map::new(next as u64, next)) {
                thread::yield_now();
            }
            all.places[next - 1].write(1);
        }
        joined(operations);
    });
}

#[test]
fn users_of_versions_that_suit_each_other_count_together() {
    model(3, || {
        let all = Places::new();
        let operations = operations::<2>(&all);
        assert!(all.map.replace(Map::new(1, 0)), "all users name the same place");
        while !all.map.replace(Map::new(2, 1)) {
            thread::yield_now();
        }
        all.places[0].write(1);
        joined(operations);
    });
}
