//! What is entered: which subscriber, and the values.

use super::rows::{Forwarding, START_TIMES, TYPES, location};
use super::transaction_type::TransactionType;
use crate::workload::Random;

/// The input of a transaction.
#[derive(Clone, Copy, Debug)]
pub(super) enum Input {
    GetSubscriberData { s_id: i32 },
    GetNewDestination { s_id: i32, sf_type: i32, start_time: i32, end_time: i32 },
    GetAccessData { s_id: i32, ai_type: i32 },
    UpdateSubscriberData { s_id: i32, bit_1: i32, sf_type: i32, data_a: i32 },
    UpdateLocation { s_id: i32, vlr_location: i64 },
    InsertCallForwarding { s_id: i32, sf_type: i32, forwarding: Forwarding },
    DeleteCallForwarding { s_id: i32, sf_type: i32, start_time: i32 },
}

/// Draws inputs.
pub(super) struct Inputs {
    pub(super) random: Random,
    subscribers: i32,
    a: u32,
}

impl Inputs {
    pub(super) fn new(subscribers: i32, random: Random) -> Self {
        Self { random, subscribers, a: constant_a(subscribers) }
    }

    /// The input of a transaction of that type.
    pub(super) fn draw(&mut self, kind: TransactionType) -> Input {
        let s_id = self.subscriber();
        let random = &mut self.random;
        match kind {
            TransactionType::GetSubscriberData => Input::GetSubscriberData { s_id },
            TransactionType::GetNewDestination => Input::GetNewDestination {
                s_id,
                sf_type: one_of_types(random),
                start_time: start_time(random),
                end_time: end_time(random),
            },
            TransactionType::GetAccessData => {
                Input::GetAccessData { s_id, ai_type: one_of_types(random) }
            }
            TransactionType::UpdateSubscriberData => Input::UpdateSubscriberData {
                s_id,
                bit_1: random.uniform(0, 1),
                sf_type: one_of_types(random),
                data_a: random.uniform(0, 255),
            },
            TransactionType::UpdateLocation => {
                Input::UpdateLocation { s_id, vlr_location: location(random) }
            }
            TransactionType::InsertCallForwarding => Input::InsertCallForwarding {
                s_id,
                sf_type: one_of_types(random),
                forwarding: Forwarding {
                    start_time: start_time(random),
                    end_time: end_time(random),
                    numberx: random.digits(15, 15),
                },
            },
            TransactionType::DeleteCallForwarding => Input::DeleteCallForwarding {
                s_id,
                sf_type: one_of_types(random),
                start_time: start_time(random),
            },
        }
    }

    /// NURand(A, 1, subscribers): some come up more often than others.
    fn subscriber(&mut self) -> i32 {
        self.random.non_uniform(self.a, 0, 1, self.subscribers)
    }
}

/// A of NURand for so many subscribers.
fn constant_a(subscribers: i32) -> u32 {
    match subscribers {
        ..=1_000_000 => 65_535,
        1_000_001..=10_000_000 => 1_048_575,
        10_000_001.. => 2_097_151,
    }
}

fn one_of_types(random: &mut Random) -> i32 {
    random.uniform(1, TYPES)
}

fn start_time(random: &mut Random) -> i32 {
    let [first, second, third] = START_TIMES;
    match random.uniform(0, 2) {
        0 => first,
        1 => second,
        _ => third,
    }
}

fn end_time(random: &mut Random) -> i32 {
    random.uniform(1, 24)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Mix;

    #[test]
    fn subscribers_are_drawn_unevenly_and_none_is_left_out_of_reach() {
        let mut inputs = Inputs::new(100_000, Random::stream(2, 2));
        let mut counts = vec![0u32; 100_001];
        for _ in 0..1_000_000 {
            counts[inputs.subscriber() as usize] += 1;
        }
        assert_eq!(counts[0], 0);
        // Uniform, each would come up 10 times, and the most frequent about 30 times.
        let most = counts.iter().max().unwrap();
        assert!(*most > 60, "the most frequent came up {most} times");
        let drawn = counts.iter().filter(|count| **count > 0).count();
        assert!(drawn > 30_000, "{drawn} of 100,000 were drawn");
        let constants = [100_000, 1_000_000, 1_000_001, 10_000_000, 10_000_001].map(constant_a);
        assert_eq!(constants, [65_535, 65_535, 1_048_575, 1_048_575, 2_097_151]);
    }

    #[test]
    fn values_are_those_of_the_description() {
        let mut inputs = Inputs::new(10, Random::stream(2, 4));
        let types = 1..=TYPES;
        for _ in 0..1_000 {
            for kind in TransactionType::ALL {
                match inputs.draw(*kind) {
                    Input::GetSubscriberData { s_id } => assert!((1..=10).contains(&s_id)),
                    Input::GetNewDestination { sf_type, start_time, end_time, .. } => {
                        assert!(types.contains(&sf_type) && START_TIMES.contains(&start_time));
                        assert!((1..=24).contains(&end_time));
                    }
                    Input::GetAccessData { ai_type, .. } => assert!(types.contains(&ai_type)),
                    Input::UpdateSubscriberData { bit_1, sf_type, data_a, .. } => {
                        assert!((0..=1).contains(&bit_1) && (0..=255).contains(&data_a));
                        assert!(types.contains(&sf_type));
                    }
                    Input::UpdateLocation { vlr_location, .. } => {
                        assert!((1..=i64::from(u32::MAX)).contains(&vlr_location));
                    }
                    Input::InsertCallForwarding { sf_type, forwarding, .. } => {
                        assert!(types.contains(&sf_type));
                        assert!(START_TIMES.contains(&forwarding.start_time));
                        assert!((1..=24).contains(&forwarding.end_time));
                        assert_eq!(forwarding.numberx.len(), 15);
                    }
                    Input::DeleteCallForwarding { sf_type, start_time, .. } => {
                        assert!(types.contains(&sf_type) && START_TIMES.contains(&start_time));
                    }
                }
            }
        }
    }
}
