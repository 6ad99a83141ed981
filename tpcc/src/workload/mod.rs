//! What a benchmark's workload is drawn from: random values, texts, and decks of transaction types.

pub(crate) mod mix;
mod random;
mod text;

pub use mix::{Deck, Mix};
pub use random::Random;
pub use text::Text;
