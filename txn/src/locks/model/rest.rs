//! Whether every path can come to rest: from each state some path leads to one in which all
//! transactions have ended. Waiters that look again and again go round in circles, so this is a
//! search of the whole graph, backwards from rest.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

use stateright::Model;

use super::Marks;
use super::world::{Seen, World};

/// What a search has found.
pub(super) struct Found {
    pub(super) states: usize,
    /// In any of them.
    pub(super) seen: Seen,
}

/// Fails with a state from which no path leads to rest.
pub(super) fn search(model: &Marks) -> Result<Found, String> {
    let hasher = BuildHasherDefault::<DefaultHasher>::default();
    let mut numbers = HashMap::new();
    let mut to_follow: Vec<(usize, World)> = Vec::new();
    // By state: those that lead to it.
    let mut from: Vec<Vec<u32>> = Vec::new();
    let (mut rest, mut seen, mut steps) = (Vec::new(), Seen::default(), Vec::new());
    let mut number_of = |world: World, to_follow: &mut Vec<_>, from: &mut Vec<Vec<u32>>| {
        let next = numbers.len();
        match numbers.entry(hasher.hash_one(&world)) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(vacant) => {
                from.push(Vec::new());
                to_follow.push((next, world));
                *vacant.insert(next)
            }
        }
    };
    number_of(World::new(model), &mut to_follow, &mut from);
    while let Some((number, world)) = to_follow.pop() {
        seen.overcome |= world.seen.overcome;
        seen.cleared |= world.seen.cleared;
        seen.shared |= world.seen.shared;
        if world.is_over() {
            rest.push(number as u32);
        }
        model.actions(&world, &mut steps);
        for step in steps.drain(..) {
            let next = model.next_state(&world, step).expect("each step leads somewhere");
            let next = number_of(next, &mut to_follow, &mut from);
            from[next].push(number as u32);
        }
    }
    let states = from.len();
    let mut rests = vec![false; states];
    while let Some(number) = rest.pop() {
        if !std::mem::replace(&mut rests[number as usize], true) {
            rest.append(&mut from[number as usize]);
        }
    }
    match rests.iter().filter(|rests| !**rests).count() {
        0 => Ok(Found { states, seen }),
        stuck => Err(format!("comes to rest fails: {stuck} states of {states} lead to none")),
    }
}
