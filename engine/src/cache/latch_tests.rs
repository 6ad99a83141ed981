//! Tests of the latch of a frame by one thread; the interleavings of several are searched in
//! `tests/loom`.

use super::latch::{FrameLatch, MAX_READERS, Permissions, Released};
use crate::coherence::machine::LocalUse;

fn with(readable: bool, writable: bool, pending: bool) -> FrameLatch {
    let latch = FrameLatch::default();
    let _ = latch.publish(Permissions { readable, writable, pending });
    latch
}

#[test]
fn permissions_decide_who_gets_in() {
    for (readable, writable) in [(false, false), (true, false), (true, true)] {
        assert_eq!(with(readable, writable, false).try_shared_fast(), readable);
        assert_eq!(with(readable, writable, false).try_exclusive_fast(), writable);
        assert!(!with(readable, writable, true).try_shared_fast(), "there is a waiter");
        assert!(!with(readable, writable, true).try_exclusive_fast(), "there is a waiter");
    }
}

#[test]
fn readers_exclude_writers_and_the_other_way_round() {
    let latch = with(true, true, false);
    assert!(latch.try_shared_fast() && latch.try_shared_fast());
    assert!(!latch.try_exclusive_fast());
    assert!(latch.is_crowded() && !latch.try_upgrade_sealed(), "two readers");
    assert_eq!(latch.unlock_shared(), Released::Quiet);
    assert!(latch.try_upgrade_sealed());
    assert_eq!(latch.in_use(), LocalUse::Writer);
    assert!(!latch.try_shared_fast() && !latch.try_exclusive_fast());
    assert_eq!(latch.downgrade(), Released::Quiet);
    assert_eq!(latch.in_use(), LocalUse::Readers);
    assert_eq!(latch.unlock_shared(), Released::Quiet);
    assert_eq!(latch.in_use(), LocalUse::Idle);
    assert!(latch.try_exclusive_fast());
    assert_eq!(latch.unlock_exclusive(), Released::Quiet);
}

#[test]
fn the_last_release_notifies_when_somebody_waits() {
    let latch = with(true, true, false);
    assert!(latch.try_shared_fast() && latch.try_shared_fast());
    assert_eq!(latch.seal(), LocalUse::Readers);
    let _ = latch.publish(Permissions { readable: true, writable: false, pending: true });
    assert_eq!(latch.unlock_shared(), Released::Quiet, "one reader is left");
    assert_eq!(latch.unlock_shared(), Released::Notify);
    assert_eq!(latch.seal(), LocalUse::Idle);
}

#[test]
fn a_sealed_latch_lets_nobody_in_but_everybody_out() {
    let latch = with(true, true, false);
    assert!(latch.try_exclusive_fast());
    assert_eq!(latch.seal(), LocalUse::Writer);
    assert_eq!(latch.unlock_exclusive(), Released::Quiet);
    assert!(!latch.try_shared_fast() && !latch.try_exclusive_fast());
    assert!(latch.try_shared_sealed() && !latch.try_exclusive_sealed());
    assert_eq!(latch.unlock_shared(), Released::Quiet);
    assert!(latch.try_exclusive_sealed() && !latch.try_shared_sealed());
    assert_eq!(latch.unlock_exclusive(), Released::Quiet);
    let _ = latch.publish(Permissions { readable: true, writable: false, pending: false });
    assert!(latch.try_shared_fast());
}

#[test]
fn the_clock_passes_over_frames_in_use_or_used_since() {
    let latch = with(true, false, false);
    assert!(latch.try_shared_fast());
    assert!(!latch.second_chance_over(), "in use");
    assert_eq!(latch.unlock_shared(), Released::Quiet);
    assert!(!latch.second_chance_over(), "used since");
    assert!(latch.second_chance_over());
    assert!(!with(false, false, false).second_chance_over(), "in transit");
}

#[test]
fn a_full_reader_count_refuses_rather_than_carries() {
    let latch = with(true, false, false);
    for _ in 0..MAX_READERS {
        assert!(latch.try_shared_fast());
    }
    assert!(!latch.try_shared_fast());
    assert_eq!(latch.in_use(), LocalUse::Readers);
}
