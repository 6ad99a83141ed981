//! The worlds that are searched, and the mistakes that are found.

use super::Does::{Commits, Locks, Numbers, Scans};
use super::{Marks, Mistake, Part, breaks, search};

const fn world(parts: &'static [Part]) -> Marks {
    Marks { parts, mortal: false, merges: 0, room: 4, mistake: Mistake::Nothing }
}

const TWO: Marks = world(&[Part::new(Locks, 0, 1), Part::new(Commits, 0, 2)]);

const LOCKERS: Marks = world(&[
    Part::new(Locks, 0, 1),
    Part { may_give_up: true, ..Part::new(Locks, 0, 2) },
    Part { waits: false, ..Part::new(Locks, 0, 3) },
    Part::new(Commits, 0, 4),
]);

const COMMITTERS: Marks =
    world(&[Part::new(Locks, 0, 1), Part::new(Commits, 0, 2), Part::new(Commits, 0, 3)]);

const TWO_ROWS: Marks =
    world(&[Part::new(Locks, 1, 1), Part::new(Commits, 0, 2), Part::new(Commits, 1, 3)]);

const SPLIT: Marks = world(&[
    Part::new(Locks, 1, 1),
    Part { splits: true, ..Part::new(Commits, 0, 2) },
    Part::new(Commits, 1, 3),
]);

const MERGE: Marks = Marks { merges: 1, ..SPLIT };

const SCAN: Marks = world(&[
    Part::new(Scans, 0, 1),
    Part::new(Locks, 1, 2),
    Part { splits: true, ..Part::new(Commits, 0, 3) },
    Part::new(Commits, 1, 4),
]);

const FULL: Marks = Marks { room: 1, ..COMMITTERS };

const DEATH: Marks = Marks {
    mortal: true,
    ..world(&[Part::new(Locks, 0, 0), Part::new(Locks, 0, 1), Part::new(Commits, 0, 2)])
};

const DEATH_OF_COMMITTER: Marks = Marks {
    mortal: true,
    ..world(&[
        Part { splits: true, ..Part::new(Commits, 0, 0) },
        Part::new(Locks, 1, 1),
        Part::new(Commits, 1, 2),
    ])
};

/// The dead, its survivors and its successor, with a split and a merge.
const ALL: Marks = Marks {
    mortal: true,
    merges: 1,
    ..world(&[
        Part::new(Locks, 1, 0),
        Part { splits: true, ..Part::new(Commits, 0, 0) },
        Part { incarnation: 2, ..Part::new(Commits, 1, 0) },
        Part::new(Locks, 1, 1),
        Part::new(Commits, 1, 2),
    ])
};

const SUCCESSOR: Marks = Marks {
    mortal: true,
    ..world(&[
        Part::new(Locks, 0, 0),
        Part { incarnation: 2, ..Part::new(Locks, 0, 0) },
        Part::new(Locks, 0, 1),
        Part::new(Commits, 0, 2),
    ])
};

const SHARE: Part = Part::new(Numbers(&[&[(0, true)]]), 0, 1);
const ALONE: Part = Part::new(Numbers(&[&[(0, false)]]), 0, 2);
/// It shares a number, and has it alone then.
const SHARE_THEN_ALONE: Part =
    Part { may_give_up: true, ..Part::new(Numbers(&[&[(0, true)], &[(0, false)]]), 0, 1) };

const NUMBER: Marks = world(&[SHARE, SHARE, ALONE]);

const ANOTHER_TURN: Marks = world(&[SHARE_THEN_ALONE, SHARE, SHARE]);

const SHARED_LATER: Marks =
    world(&[Part { may_share: true, ..ALONE }, SHARE, Part { waits: false, ..SHARE_THEN_ALONE }]);

const CYCLE_OF_SHARED: Marks = world(&[
    Part::new(Numbers(&[&[(0, true), (1, false)]]), 0, 1),
    Part::new(Numbers(&[&[(1, true), (0, false)]]), 0, 1),
    SHARE,
]);

const DEATH_OF_SHARER: Marks = Marks {
    mortal: true,
    ..world(&[
        Part { node: 0, ..SHARE_THEN_ALONE },
        Part { node: 0, incarnation: 2, ..SHARE },
        SHARE_THEN_ALONE,
        Part { may_share: true, ..ALONE },
    ])
};

fn is_right(model: Marks, states: usize) {
    assert_eq!(search(model), Ok(states));
}

fn fails(model: Marks, mistake: Mistake, property: &'static str) {
    assert!(breaks(Marks { mistake, ..model }, property), "the mistake is found");
}

fn comes_not_to_rest(model: Marks, mistake: Mistake) {
    let failure = search(Marks { mistake, ..model }).expect_err("the mistake is found");
    assert!(failure.starts_with("comes to rest"), "{failure}");
}

#[test]
fn a_locker_and_a_committer_are_right() {
    is_right(TWO, 213);
}

#[test]
fn lockers_that_wait_give_up_or_do_not_wait_are_right() {
    is_right(LOCKERS, 43_063);
}

#[test]
fn two_committers_at_a_locked_row_are_right() {
    is_right(COMMITTERS, 2_394);
}

#[test]
fn a_queue_without_room_is_right() {
    is_right(FULL, 2_316);
}

#[test]
fn rows_of_one_leaf_share_its_mark() {
    is_right(TWO_ROWS, 1_422);
}

#[test]
fn halves_of_a_split_leaf_are_marked() {
    is_right(SPLIT, 2_444);
}

#[test]
fn leaves_that_are_split_and_merged_are_marked() {
    is_right(MERGE, 2_974);
}

#[test]
fn a_scan_that_locks_all_rows_is_right() {
    is_right(SCAN, 73_601);
}

#[test]
fn a_cycle_through_a_queue_without_room_ends() {
    is_right(Marks { room: 1, ..SCAN }, 70_096);
}

#[test]
fn a_locker_that_dies_is_right() {
    is_right(DEATH, 24_896);
}

#[test]
fn a_committer_that_dies_is_right() {
    is_right(DEATH_OF_COMMITTER, 15_153);
}

#[test]
fn a_successor_of_the_dead_is_right() {
    is_right(SUCCESSOR, 73_743);
}

#[test]
fn a_death_a_successor_a_split_and_a_merge_are_right() {
    is_right(ALL, 909_556);
}

#[test]
fn those_who_share_a_number_hold_it_together() {
    is_right(NUMBER, 620);
}

#[test]
fn who_has_shared_a_number_gets_it_alone_in_its_turn() {
    is_right(ANOTHER_TURN, 2_784);
}

#[test]
fn a_queue_of_a_number_without_room_is_right() {
    is_right(Marks { room: 2, ..ANOTHER_TURN }, 3_328);
}

#[test]
fn a_number_that_is_shared_later_is_right() {
    is_right(SHARED_LATER, 3_120);
}

#[test]
fn a_cycle_of_those_who_share_ends() {
    is_right(CYCLE_OF_SHARED, 1_510);
}

#[test]
fn one_that_shares_and_dies_is_right() {
    is_right(DEATH_OF_SHARER, 291_733);
}

#[test]
fn a_mark_before_the_entry_is_found() {
    fails(COMMITTERS, Mistake::MarkFirst, "locked rows stay");
}

#[test]
fn a_mark_after_the_read_is_found() {
    fails(TWO, Mistake::MarkLast, "locked rows stay");
}

#[test]
fn a_look_before_the_latch_is_found() {
    fails(TWO, Mistake::LooksFirst, "locked rows stay");
}

#[test]
fn a_mark_that_is_cleared_though_another_row_is_locked_is_found() {
    fails(TWO_ROWS, Mistake::ClearedForOneRow, "locked rows stay");
}

#[test]
fn a_split_that_does_not_mark_the_right_half_is_found() {
    fails(SPLIT, Mistake::UnmarkedSplit, "locked rows stay");
}

#[test]
fn a_merge_that_loses_a_mark_is_found() {
    fails(MERGE, Mistake::UnmarkedMerge, "locked rows stay");
}

#[test]
fn entries_of_the_dead_that_stay_are_found() {
    comes_not_to_rest(DEATH, Mistake::DeadStay);
}

#[test]
fn a_successor_that_is_taken_for_the_dead_is_found() {
    comes_not_to_rest(SUCCESSOR, Mistake::SuccessorTaken);
}

#[test]
fn a_node_that_is_entered_before_others_know_of_it_is_found() {
    fails(SUCCESSOR, Mistake::EnteredUnknown, "locks are of one");
}

#[test]
fn who_gives_up_and_stays_in_the_queue_is_found() {
    fails(LOCKERS, Mistake::StaysInQueue, "none is left");
}

#[test]
fn cycles_in_which_none_gives_up_are_found() {
    comes_not_to_rest(SCAN, Mistake::NoneGivesUp);
}

#[test]
fn who_leaves_the_queue_before_it_says_so_is_found() {
    fails(LOCKERS, Mistake::LeavesFirst, "waits are true");
}

#[test]
fn who_wants_a_number_alone_where_it_has_shared_it_is_found() {
    fails(ANOTHER_TURN, Mistake::KeepsPlace, "locks are of one");
}

#[test]
fn a_task_that_leaves_for_another_request_is_found() {
    fails(ANOTHER_TURN, Mistake::LeavesAny, "locks are of one");
}

#[test]
fn a_cycle_of_those_who_share_in_which_none_gives_up_is_found() {
    comes_not_to_rest(CYCLE_OF_SHARED, Mistake::NoneGivesUp);
}

#[test]
fn one_that_shares_and_is_dead_and_stays_is_found() {
    comes_not_to_rest(DEATH_OF_SHARER, Mistake::DeadStay);
}
