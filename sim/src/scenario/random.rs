//! What the seed of a run draws.

use selkie_fabric::env::SplitMix;

/// One of some choices for a run, which the seed draws from a stream of its own: the remainders of
/// seeds say already which scenario they run in a sweep over all, and would leave each scenario
/// some of the choices only.
///
/// # Panics
/// If there are no choices.
#[expect(clippy::indexing_slicing, reason = "a number drawn below the length is an index")]
pub(super) fn drawn<T>(seed: u64, stream: u64, choices: &[T]) -> &T {
    let number = SplitMix::of_stream(seed, stream).below(choices.len() as u64);
    &choices[number as usize]
}

/// The generator of one client.
pub(super) fn client_random(seed: u64, client: usize) -> SplitMix {
    SplitMix::of_stream(seed, 1000_u64.wrapping_add(client as u64))
}
