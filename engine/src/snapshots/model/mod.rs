//! Model of what nodes share for snapshots: clock, mask, slots, leaves with their stamps and links,
//! and the images of each node. It drives the same [`Registry`], [`Images`], [`ActiveSnapshots`],
//! [`follow`] and [`horizon`] as the engine, and takes each verb for a step of its own, as others
//! may come between the verbs of a chain.
//!
//! Each node has a committer, a reader and a housekeeper. A reader reads all leaves at its
//! snapshot. What holds in every state:
//!
//! - *right content*: a reader of a leaf at S gets what the latest commit up to S left there;
//! - *includes the acknowledged*: commits acknowledged before a snapshot begins are not after it;
//! - *never gone*: a reader finds its image, unless one was dropped for want of room.
//!
//! [`Mistake`] plants mistakes, which the search must find.

mod steps;
mod world;

use stateright::{Checker, HasDiscoveries, Model, Property};

use world::{Fault, Step, World};

/// A mistake of the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mistake {
    Nothing,
    /// A commit learns of the active snapshots before it draws its stamp.
    MaskBeforeDraw,
    /// A node closes although a snapshot is beginning.
    CloseWhileBeginning,
    /// The horizon is what is published, or beyond all if nothing is.
    HorizonWithoutClock,
    /// The clock is read after what is published.
    HorizonClockLast,
    /// An image is left out of the chain whatever snapshots there are.
    UncheckedRelink,
    /// An image that was left out of a chain is freed at once.
    FreedRelink,
    /// What is listed becomes visible after the `open_from` that relies on it.
    ListedLast,
}

/// What is searched.
#[derive(Clone, Copy, Debug)]
struct Snapshots {
    nodes: usize,
    leaves: usize,
    /// Commits, snapshots, ticks and horizons of each node, at most.
    commits: [u8; 3],
    snapshots: [u8; 3],
    ticks: [u8; 3],
    horizons: [u8; 3],
    /// Slots of each node's arena.
    room: usize,
    /// The second leaf comes of a split of the first.
    splits: bool,
    mistake: Mistake,
}

/// Node 0 commits and node 1 reads.
const SMALL: Snapshots = Snapshots {
    nodes: 2,
    leaves: 1,
    commits: [2, 0, 0],
    snapshots: [0, 1, 0],
    ticks: [0, 2, 0],
    horizons: [0; 3],
    room: 4,
    splits: false,
    mistake: Mistake::Nothing,
};

/// Both nodes do both.
const BOTH: Snapshots =
    Snapshots { commits: [1, 1, 0], snapshots: [1, 1, 0], ticks: [1, 1, 0], ..SMALL };

/// A leaf is split whose chain of images is long: node 0 has a snapshot of its own beside that of
/// node 1.
const SPLIT: Snapshots =
    Snapshots { leaves: 2, splits: true, commits: [3, 0, 0], snapshots: [1, 1, 0], ..SMALL };

impl Model for Snapshots {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        vec![World::new(self)]
    }

    fn actions(&self, world: &World, out: &mut Vec<Step>) {
        if world.fault.is_none() {
            self.steps(world, out);
        }
    }

    fn next_state(&self, world: &World, step: Step) -> Option<World> {
        let mut next = world.clone();
        self.take(&mut next, step);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("right content", |_, world: &World| world.reads_are_right()),
            Property::always("includes the acknowledged", |_, world: &World| {
                world.fault != Some(Fault::Excluded)
            }),
            Property::always("never gone", |_, world: &World| world.fault != Some(Fault::Gone)),
            Property::sometimes("an image is read", |_, world: &World| world.seen.image_read),
        ]
    }
}

/// Searches all states; how many there are, or what fails with the steps to it.
fn search(model: Snapshots) -> Result<usize, String> {
    let checker = model.checker().threads(2).finish_when(HasDiscoveries::AnyFailures);
    let checker = checker.spawn_bfs().join();
    let failed = checker.discoveries().into_iter().find(|(name, _)| *name != "an image is read");
    if let Some((name, path)) = failed {
        let steps = path.into_actions();
        return Err(format!("{name} fails after {} steps: {steps:?}", steps.len()));
    }
    assert!(checker.discovery("an image is read").is_some(), "the search reads no image");
    Ok(checker.unique_state_count())
}

fn fails(model: Snapshots, property: &str) {
    let failure = search(model).expect_err("the mistake is found");
    assert!(failure.starts_with(property), "{failure}");
}

fn is_right(model: Snapshots, states: usize) {
    assert_eq!(search(model), Ok(states));
}

#[test]
fn a_node_that_commits_and_one_that_reads_are_right() {
    is_right(SMALL, 1_497);
}

#[test]
fn two_nodes_that_commit_and_read_are_right() {
    is_right(BOTH, 49_373);
}

#[test]
fn two_leaves_are_read_as_of_one_time() {
    is_right(Snapshots { leaves: 2, ..SMALL }, 6_765);
}

#[test]
fn what_a_horizon_frees_is_needed_by_no_snapshot() {
    is_right(Snapshots { horizons: [1, 0, 0], snapshots: [0, 2, 0], ..SMALL }, 97_933);
}

#[test]
fn snapshots_that_come_and_go_between_ticks_are_right() {
    is_right(Snapshots { snapshots: [0, 3, 0], ticks: [0, 3, 0], ..SMALL }, 21_008);
}

#[test]
fn halves_of_a_split_leaf_share_images() {
    is_right(SPLIT, 2_065_921);
}

#[test]
fn without_room_images_are_gone_and_never_wrong() {
    is_right(Snapshots { room: 1, snapshots: [1, 1, 0], ..SMALL }, 21_357);
}

/// `cargo test --release -p selkie-engine --lib snapshots -- --ignored`.
#[test]
#[ignore = "minutes; to be run by hand"]
fn three_nodes_are_right() {
    let (commits, snapshots) = ([1, 1, 0], [0, 1, 1]);
    let model = Snapshots { nodes: 3, commits, snapshots, ticks: [0, 1, 1], ..SMALL };
    println!("{} states", search(model).expect("all states are right"));
}

#[test]
fn a_commit_that_reads_the_mask_first_is_found() {
    fails(Snapshots { mistake: Mistake::MaskBeforeDraw, ..SMALL }, "never gone");
}

#[test]
fn a_close_while_a_snapshot_begins_is_found() {
    let mistake = Mistake::CloseWhileBeginning;
    fails(Snapshots { mistake, snapshots: [0, 2, 0], ..SMALL }, "never gone");
}

#[test]
fn a_horizon_without_the_clock_is_found() {
    let mistake = Mistake::HorizonWithoutClock;
    fails(Snapshots { mistake, horizons: [1, 0, 0], ..SMALL }, "never gone");
}

#[test]
fn a_horizon_that_reads_the_clock_last_is_found() {
    let mistake = Mistake::HorizonClockLast;
    fails(Snapshots { mistake, horizons: [1, 0, 0], ..SMALL }, "never gone");
}

#[test]
fn a_relink_of_an_image_that_is_needed_is_found() {
    fails(
        Snapshots { mistake: Mistake::UncheckedRelink, room: 2, commits: [3, 0, 0], ..SMALL },
        "never gone",
    );
}

#[test]
fn a_relinked_image_that_is_freed_is_missed_by_the_other_half_of_a_split() {
    fails(Snapshots { mistake: Mistake::FreedRelink, ..SPLIT }, "never gone");
}

#[test]
fn a_list_that_comes_late_is_found() {
    fails(Snapshots { mistake: Mistake::ListedLast, ..SMALL }, "never gone");
}
