//! The byte maps of the control page, slabs and headers: no two parts overlap, and none moves.

use super::*;
use crate::coding::Coding;

/// Every legal GCL size with the smallest range and some larger ones.
fn geometries() -> impl Iterator<Item = SlabGeometry> {
    (9..=13).flat_map(|shift| {
        let gcl_bytes = 1_usize << shift;
        [1, 2, 16, 1024]
            .map(|extents| SlabGeometry::new(gcl_bytes, extents * min_range_bytes(gcl_bytes)))
    })
}

#[test]
fn pieces_of_a_region_follow_each_other_without_gap_or_overlap() {
    for geometry in geometries() {
        let gcls = geometry.gcls_per_range() as u32;
        let mut next = CONTROL_PAGE_BYTES;
        for range in 0..3 {
            for gcl in 0..gcls {
                assert_eq!(geometry.header_offset(range, gcl), next, "{geometry:?}");
                next += HEADER_BYTES;
            }
            for gcl in 0..gcls {
                assert_eq!(geometry.data_offset(range, gcl), next, "{geometry:?}");
                next += geometry.gcl_bytes() as u64;
            }
        }
        assert_eq!(geometry.region_bytes(3), Some(next));
    }
}

#[test]
fn logs_lie_before_the_slabs_each_in_a_place_of_its_own() {
    let coding: Coding = "2+1".parse().unwrap();
    for without in [SlabGeometry::new(2048, 1 << 20), SlabGeometry::coded(2048, 1 << 20, coding)] {
        let with = without.with_logs(1 << 20, 3);
        assert_eq!(with.log_offset(0), without.slab_offset(0));
        assert_eq!(with.log_offset(2) + (1 << 20), with.slab_offset(0));
        assert_eq!(with.region_bytes(5), without.region_bytes(5).map(|bytes| bytes + (3 << 20)));
        assert_eq!(with.ranges_that_fit(with.region_bytes(5).unwrap()), 5);
    }
}

#[test]
fn offsets_are_aligned() {
    for geometry in geometries() {
        for range in [0, 1, 7] {
            assert_eq!(geometry.slab_offset(range) % 4096, 0);
            assert_eq!(geometry.data_offset(range, 0) % 4096, 0);
            for gcl in [0, 1, geometry.gcls_per_range() as u32 - 1] {
                assert_eq!(geometry.latch_offset(range, gcl) % HEADER_BYTES, 0);
                let data = geometry.data_offset(range, gcl);
                assert_eq!(data % (geometry.gcl_bytes() as u64).min(4096), 0);
            }
        }
    }
}

#[test]
fn ranges_that_fit_is_the_floor_at_every_boundary() {
    for geometry in geometries() {
        assert_eq!(geometry.ranges_that_fit(0), 0);
        assert_eq!(geometry.ranges_that_fit(CONTROL_PAGE_BYTES), 0);
        for ranges in 1..5 {
            let exact = geometry.region_bytes(ranges).unwrap();
            assert_eq!(geometry.ranges_that_fit(exact - 1), ranges - 1);
            assert_eq!(geometry.ranges_that_fit(exact), ranges);
            assert_eq!(geometry.ranges_that_fit(exact + 1), ranges);
        }
    }
}

#[test]
fn pieces_of_a_coded_slab_do_not_overlap_and_every_gcl_has_one_header() {
    for (gcl_bytes, coding) in [(512, "2+1"), (2048, "4+2"), (4096, "8+2"), (8192, "replicate=3")] {
        let coding: Coding = coding.parse().unwrap();
        let range_bytes = 4 * min_range_bytes(gcl_bytes);
        let geometry = SlabGeometry::coded(gcl_bytes, range_bytes, coding);
        let gcls = geometry.gcls_per_range() as u32;
        let mut headers = std::collections::BTreeSet::new();
        for position in 0..coding.splits() {
            let own = (0..geometry.headers_per_table())
                .filter_map(|header| geometry.gcl_of_header(position, header));
            for gcl in own {
                assert_eq!(geometry.home_position(gcl), position);
                assert!(headers.insert(gcl), "{gcl} has two headers");
            }
        }
        assert_eq!(headers.len() as u32, gcls);
        let mut ends = geometry.leased_offset(1) + super::geometry::LEAD_BYTES;
        for gcl in (0..gcls).step_by(coding.splits()) {
            assert_eq!(geometry.header_offset(1, gcl), ends);
            ends += HEADER_BYTES;
        }
        for table in 1..=coding.parity() {
            assert!(ends <= geometry.header_offset_in(1, 0, table));
            let last = (gcls - 1) / coding.splits() as u32 * coding.splits() as u32;
            ends = geometry.header_offset_in(1, last, table) + HEADER_BYTES;
        }
        assert!(ends <= geometry.data_offset(1, 0));
        let split = (gcl_bytes / coding.data()) as u64 + TAG_BYTES;
        assert_eq!(geometry.payload_bytes() as u64, split - TAG_BYTES);
        for gcl in 1..gcls {
            let before = geometry.data_offset(1, gcl - 1);
            assert_eq!(geometry.data_offset(1, gcl), before + split);
        }
        assert!(geometry.data_offset(1, gcls - 1) + split <= geometry.slab_offset(2));
        let positions: std::collections::BTreeSet<_> =
            (0..coding.splits()).map(|split| geometry.split_position(7, split)).collect();
        assert_eq!(positions.len(), coding.splits(), "no two splits on one node");
    }
}

#[test]
fn coded_memory_takes_what_splits_and_headers_take() {
    let taken = |gcl_bytes, coding: &str| {
        let coding: Coding = coding.parse().unwrap();
        let geometry = SlabGeometry::coded(gcl_bytes, 4 << 20, coding);
        (coding.splits() as u64 * geometry.slab_bytes()) as f64 / (4 << 20) as f64
    };
    assert!((1.31..1.33).contains(&taken(4096, "8+2")), "{}", taken(4096, "8+2"));
    assert!((1.37..1.39).contains(&taken(2048, "8+2")), "{}", taken(2048, "8+2"));
    assert!((2.02..2.05).contains(&taken(4096, "replicate=2")));
}

#[test]
fn largest_geometry_does_not_overflow() {
    let geometry = SlabGeometry::new(MIN_GCL_BYTES, MAX_RANGE_BYTES);
    assert_eq!(geometry.gcls_per_range(), 1 << 31);
    let last = geometry.data_offset(3, u32::MAX >> 1);
    assert_eq!(Some(last + MIN_GCL_BYTES as u64), geometry.region_bytes(4));
    assert_eq!(geometry.region_bytes(u64::MAX), None);
    assert!(geometry.ranges_that_fit(u64::MAX) > 0);
}

#[test]
fn extents_tile_a_range() {
    for geometry in geometries() {
        assert!(geometry.extents_per_range() >= 1);
        assert_eq!(geometry.extents_per_range() * geometry.extent_bytes(), geometry.range_bytes());
        assert_eq!(geometry.extents_per_node(5), 5 * geometry.extents_per_range());
    }
}

#[test]
fn header_bytes_match_the_byte_map() {
    let header = Header {
        latch: 0x0102_0304_0506_0708,
        free_mark: 0x1112_1314_1516_1718,
        split_version: std::array::from_fn(|i| 0xA000_0000 + i as u32),
    };
    let bytes = header.to_bytes();
    assert_eq!(bytes[..8], [8, 7, 6, 5, 4, 3, 2, 1]);
    assert_eq!(bytes[8..16], 0x1112_1314_1516_1718_u64.to_le_bytes());
    assert_eq!(bytes[16..20], 0xA000_0000_u32.to_le_bytes());
    assert_eq!(bytes[60..], 0xA000_000B_u32.to_le_bytes());
    assert_eq!(Header::from_bytes(&bytes), header);
}

#[test]
fn epoch_table_lies_between_its_word_and_the_end_of_the_page() {
    assert_eq!(node_epoch_offset(0), GLOBAL_EPOCH_AT + 8);
    assert_eq!(node_epoch_offset(57), 592);
}

#[test]
fn snapshot_slots_lie_between_the_epochs_and_the_end_of_the_page() {
    assert_eq!(snapshot_slot_offset(0), node_epoch_offset(57) + 8);
    assert_eq!(snapshot_slot_offset(0), SNAPSHOT_SLOTS_AT);
    assert_eq!(snapshot_slot_offset(57) + 8 * SNAPSHOT_SLOT_WORDS as u64, 3848);
    assert_eq!(SNAPSHOT_MASK_AT, CLOCK_AT + 8);
}

/// A node that reads only publishes epochs and snapshots, and changes nothing else outside of
/// headers: not the clock, and no page.
#[test]
fn a_node_that_reads_only_may_publish_its_snapshots() {
    use selkie_fabric::{Buf, PeerId, RegionKey, RemoteAddr, Verb};
    let domain = SlabGeometry::new(2048, 1 << 20).reading(1);
    let at = |offset| RemoteAddr::new(RegionKey::from_raw(1), offset);
    let may = |verb: Verb| domain.check(PeerId::memory(0), &verb).is_ok();
    let write = |offset, bytes| Verb::write(at(offset), Buf::zeroed(bytes));
    assert!(may(write(snapshot_slot_offset(57), 56)) && !may(write(3848, 8)));
    assert!(may(Verb::fetch_and_add(at(SNAPSHOT_MASK_AT), 1)));
    assert!(!may(write(SNAPSHOT_MASK_AT, 8)) && !may(Verb::fetch_and_add(at(CLOCK_AT), 1)));
    assert!(!may(Verb::fetch_and_add(at(snapshot_slot_offset(0)), 1)));
}

#[test]
#[should_panic(expected = "beyond the epoch table")]
fn epoch_of_a_node_beyond_the_table_is_refused() {
    let _ = node_epoch_offset(MAX_COMPUTE_NODES);
}

#[test]
#[should_panic(expected = "at least one extent")]
fn range_smaller_than_an_extent_is_refused() {
    let _ = SlabGeometry::new(1024, 32 * 1024);
}
