//! What is loaded: each subscriber's rows, from seed and number, in the description's cardinalities
//! and distributions.

use std::fmt::Write;
use std::ops::Range;

use selkie_txn::RowBuilder;
use smallvec::SmallVec;

use super::schema::Tables;
use crate::benchmark::LOAD_STREAMS;
use crate::cluster::Node;
use crate::error::TpccError;
use crate::workload::{Random, Text};

/// Types of access_info and of special_facility.
pub(super) const TYPES: i32 = 4;
/// Hours from which calls are forwarded.
pub(super) const START_TIMES: [i32; 3] = [0, 8, 16];
/// Most hours for which a loaded row forwards them.
const MAX_HOURS: i32 = 8;
/// Special facilities that are active, in percent.
const ACTIVE_PERCENT: i32 = 85;

/// A row of access_info.
#[derive(Clone, Copy, Debug)]
pub(super) struct Access {
    pub(super) ai_type: i32,
    data: [i32; 2],
    data3: Text<3>,
    data4: Text<5>,
}

/// A row of call_forwarding.
#[derive(Clone, Copy, Debug)]
pub(super) struct Forwarding {
    pub(super) start_time: i32,
    pub(super) end_time: i32,
    pub(super) numberx: Text<15>,
}

/// A row of special_facility, and those of call_forwarding that belong to it.
#[derive(Clone, Debug)]
pub(super) struct Facility {
    pub(super) sf_type: i32,
    pub(super) is_active: bool,
    error_cntrl: i32,
    pub(super) data_a: i32,
    data_b: Text<5>,
    pub(super) forwardings: SmallVec<[Forwarding; 3]>,
}

/// All that is loaded for a subscriber.
#[derive(Clone, Debug)]
pub(super) struct Subscriber {
    pub(super) s_id: i32,
    bits: [i32; 10],
    hex: [i32; 10],
    bytes: [i32; 10],
    msc_location: i64,
    pub(super) vlr_location: i64,
    pub(super) accesses: SmallVec<[Access; 4]>,
    pub(super) facilities: SmallVec<[Facility; 4]>,
}

impl Subscriber {
    /// That which is loaded under this number.
    pub(super) fn loaded(seed: u64, s_id: i32) -> Self {
        let random = &mut Random::stream(seed, LOAD_STREAMS + u64::from(s_id.unsigned_abs()));
        let mut ten = |high| [(); 10].map(|()| random.uniform(0, high));
        let (bits, hex, bytes) = (ten(1), ten(15), ten(255));
        let (msc_location, vlr_location) = (location(random), location(random));
        let ai_types = some_of([1, 2, 3, 4], 1, random);
        let accesses = ai_types.into_iter().map(|ai_type| Access {
            ai_type,
            data: [random.uniform(0, 255), random.uniform(0, 255)],
            data3: random.capitals(3),
            data4: random.capitals(5),
        });
        let accesses = accesses.collect();
        let sf_types = some_of([1, 2, 3, 4], 1, random);
        let facilities = sf_types.into_iter().map(|sf_type| Facility {
            sf_type,
            is_active: random.percent(ACTIVE_PERCENT),
            error_cntrl: random.uniform(0, 255),
            data_a: random.uniform(0, 255),
            data_b: random.capitals(5),
            forwardings: forwardings(random),
        });
        let facilities = facilities.collect();
        Self { s_id, bits, hex, bytes, msc_location, vlr_location, accesses, facilities }
    }

    pub(super) fn bit_1(&self) -> i32 {
        let [bit_1, ..] = self.bits;
        bit_1
    }

    /// Whether a call to that facility in these hours is forwarded, by what GetNewDestination is to
    /// select.
    #[cfg(test)]
    pub(super) fn forwards(&self, sf_type: i32, start_time: i32, end_time: i32) -> bool {
        let facility = self.facilities.iter().find(|facility| facility.sf_type == sf_type);
        facility.filter(|facility| facility.is_active).is_some_and(|facility| {
            let mut rows = facility.forwardings.iter();
            rows.any(|row| row.start_time <= start_time && end_time < row.end_time)
        })
    }

    /// Its row, with these values where transactions change it.
    pub(super) fn fill(&self, row: &mut RowBuilder<'_>, bit_1: i32, vlr_location: i64) {
        row.clear();
        row.i32(self.s_id).text(&number(self.s_id)).i32(bit_1);
        let rest = self.bits.iter().skip(1).chain(&self.hex).chain(&self.bytes);
        for value in rest {
            row.i32(*value);
        }
        row.i64(self.msc_location).i64(vlr_location);
    }
}

impl Access {
    pub(super) fn fill(&self, row: &mut RowBuilder<'_>, s_id: i32) {
        let [data1, data2] = self.data;
        row.clear();
        row.i32(s_id).i32(self.ai_type).i32(data1).i32(data2);
        row.text(&self.data3).text(&self.data4);
    }
}

impl Facility {
    /// The row, with this value where transactions change it.
    pub(super) fn fill(&self, row: &mut RowBuilder<'_>, s_id: i32, data_a: i32) {
        row.clear();
        row.i32(s_id).i32(self.sf_type).i32(i32::from(self.is_active));
        row.i32(self.error_cntrl).i32(data_a).text(&self.data_b);
    }
}

impl Forwarding {
    pub(super) fn fill(&self, row: &mut RowBuilder<'_>, (s_id, sf_type): (i32, i32)) {
        row.clear();
        row.i32(s_id).i32(sf_type).i32(self.start_time).i32(self.end_time).text(&self.numberx);
    }

    /// As [`destination`].
    pub(super) fn destination(&self) -> i64 {
        destination(self.end_time, &self.numberx)
    }
}

/// `end_time` and `numberx` of a row of call_forwarding as one number, positive and another for all
/// others: `32 numberx + end_time`. Of values out of range it need not be.
pub(super) fn destination(end_time: i32, numberx: &str) -> i64 {
    32 * numberx.parse().unwrap_or(0) + i64::from(end_time)
}

/// A subscriber's number in the network: that in the table, with zeros in front.
pub(super) fn number(s_id: i32) -> Text<15> {
    let mut number = Text::new();
    // It fits.
    let _ = write!(number, "{s_id:015}");
    number
}

/// A location of 32 bits that is not zero.
pub(super) fn location(random: &mut Random) -> i64 {
    random.amount(1, u32::MAX.into())
}

/// None to three, each number of them with the same probability.
fn forwardings(random: &mut Random) -> SmallVec<[Forwarding; 3]> {
    let start_times = some_of(START_TIMES, 0, random);
    let forwardings = start_times.into_iter().map(|start_time| Forwarding {
        start_time,
        end_time: start_time + random.uniform(1, MAX_HOURS),
        numberx: random.digits(15, 15),
    });
    forwardings.collect()
}

/// At least so many of them, each number with the same probability, in their order.
fn some_of<const N: usize>(
    mut all: [i32; N],
    least: i32,
    random: &mut Random,
) -> SmallVec<[i32; 4]> {
    random.shuffle(&mut all);
    let count = random.uniform(least, i32::try_from(N).unwrap_or(i32::MAX));
    let mut some: SmallVec<[i32; 4]> =
        all.into_iter().take(usize::try_from(count).unwrap_or(0)).collect();
    some.sort_unstable();
    some
}

/// Inserts the rows of these subscribers in one transaction; returns how many.
pub(super) async fn insert(
    node: &Node<Tables>,
    seed: u64,
    subscribers: Range<i32>,
) -> Result<u64, TpccError> {
    let tables = node.tables;
    let mut txn = node.db.begin();
    let mut subscriber = node.db.row(tables.subscriber)?;
    let mut access_info = node.db.row(tables.access_info)?;
    let mut special_facility = node.db.row(tables.special_facility)?;
    let mut call_forwarding = node.db.row(tables.call_forwarding)?;
    let mut rows = 0;
    for s_id in subscribers {
        let loaded = Subscriber::loaded(seed, s_id);
        loaded.fill(&mut subscriber, loaded.bit_1(), loaded.vlr_location);
        txn.insert(tables.subscriber, subscriber.finish()?).await?;
        rows += 1;
        for access in &loaded.accesses {
            access.fill(&mut access_info, s_id);
            txn.insert(tables.access_info, access_info.finish()?).await?;
            rows += 1;
        }
        for facility in &loaded.facilities {
            facility.fill(&mut special_facility, s_id, facility.data_a);
            txn.insert(tables.special_facility, special_facility.finish()?).await?;
            rows += 1;
            for forwarding in &facility.forwardings {
                forwarding.fill(&mut call_forwarding, (s_id, facility.sf_type));
                txn.insert(tables.call_forwarding, call_forwarding.finish()?).await?;
                rows += 1;
            }
        }
    }
    txn.commit().await?;
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often each of `N` values comes up, `least` the first.
    fn counted<const N: usize>(values: impl Iterator<Item = usize>, least: usize) -> [u32; N] {
        let mut counts = [0; N];
        values.for_each(|value| counts[value - least] += 1);
        counts
    }

    #[test]
    fn cardinalities_are_those_of_the_description() {
        let loaded: Vec<_> = (1..=8_000).map(|s_id| Subscriber::loaded(3, s_id)).collect();
        let accesses = counted::<4>(loaded.iter().map(|s| s.accesses.len()), 1);
        let facilities = counted::<4>(loaded.iter().map(|s| s.facilities.len()), 1);
        // 2,000 each, with a standard deviation of 39.
        for counts in [accesses, facilities] {
            assert!(counts.iter().all(|count| (1_840..2_160).contains(count)), "{counts:?}");
        }
        let all: Vec<_> = loaded.iter().flat_map(|s| &s.facilities).collect();
        let forwardings = counted::<4>(all.iter().map(|f| f.forwardings.len()), 0);
        // 2.5 facilities a subscriber: 5,000 each, with a standard deviation of 61.
        assert!(forwardings.iter().all(|count| (4_700..5_300).contains(count)), "{forwardings:?}");
        let active = all.iter().filter(|facility| facility.is_active).count();
        assert!((16_600..17_400).contains(&active), "{active} of about 20,000, 85 % expected");
        let of_type = counted::<4>(all.iter().map(|f| f.sf_type as usize), 1);
        assert!(of_type.iter().all(|count| (4_700..5_300).contains(count)), "{of_type:?}");
    }

    #[test]
    fn new_destinations_are_found_as_often_as_the_population_says() {
        let (mut found, mut asked) = (0, 0);
        for s_id in 1..=20_000 {
            let loaded = Subscriber::loaded(5, s_id);
            for (sf_type, start_time) in
                (1..=TYPES).flat_map(|of| START_TIMES.map(|start_time| (of, start_time)))
            {
                let ends = (1..=24).filter(|end| loaded.forwards(sf_type, start_time, *end));
                (found, asked) = (found + ends.count(), asked + 24);
            }
        }
        let share = found as f64 / asked as f64;
        assert!((share - 8_177.0 / 55_296.0).abs() < 0.005, "{share}");
    }

    #[test]
    fn values_are_in_their_ranges() {
        for s_id in 1..500 {
            let loaded = Subscriber::loaded(4, s_id);
            assert!(loaded.bits.iter().all(|bit| (0..=1).contains(bit)));
            assert!(loaded.hex.iter().all(|hex| (0..=15).contains(hex)));
            assert!(loaded.bytes.iter().all(|byte| (0..=255).contains(byte)));
            assert!((1..=i64::from(u32::MAX)).contains(&loaded.vlr_location));
            let rises = |numbers: &[i32]| numbers.windows(2).all(|pair| pair[0] < pair[1]);
            let ai_types: Vec<_> = loaded.accesses.iter().map(|access| access.ai_type).collect();
            assert!(rises(&ai_types) && ai_types.iter().all(|of| (1..=TYPES).contains(of)));
            for access in &loaded.accesses {
                assert_eq!((access.data3.len(), access.data4.len()), (3, 5));
                assert!(access.data4.bytes().all(|letter| letter.is_ascii_uppercase()));
            }
            for facility in &loaded.facilities {
                let starts: Vec<_> = facility.forwardings.iter().map(|f| f.start_time).collect();
                assert!(rises(&starts) && starts.iter().all(|start| START_TIMES.contains(start)));
                for forwarding in &facility.forwardings {
                    let hours = forwarding.end_time - forwarding.start_time;
                    assert!((1..=8).contains(&hours) && forwarding.numberx.len() == 15);
                }
            }
        }
        assert_eq!(&*number(4711), "000000000004711");
    }

    #[test]
    fn other_destinations_are_other_positive_numbers() {
        let numbers = ["000000000000000", "000000000000001", "999999999999998", "999999999999999"];
        let all = numbers.iter().flat_map(|number| (1..=24).map(|end| destination(end, number)));
        let all: Vec<_> = all.collect();
        assert!(all.windows(2).all(|pair| pair[0] < pair[1]) && all[0] == 1, "{all:?}");
        assert_eq!(destination(7, "no number"), 7);
    }
}
