//! The transaction types of a driver, and the deck they are drawn from.
//!
//! A deck has a hundred cards, of each type as many as its share in percent. It is shuffled for
//! each worker, and again when it is used up: so every worker keeps the mix exactly over each
//! hundred transactions, not only on average. Clause 5.2.4.2 of TPC-C allows it; SmallBank and TATP
//! ask for the shares and no more.

use std::fmt;

use super::random::Random;

/// The transaction types of a driver. Its default is never drawn.
pub trait Mix: Copy + Default + Eq + fmt::Debug + Send + Sync + 'static {
    /// All types, in the order of reports.
    const ALL: &'static [Self];

    /// The name in the JSON report.
    fn name(self) -> &'static str;

    /// The name people read.
    fn title(self) -> &'static str;

    /// Cards in the deck, of a hundred.
    fn percent(self) -> usize;

    /// Position in [`Mix::ALL`].
    #[expect(clippy::expect_used, reason = "ALL has every type")]
    fn index(self) -> usize {
        Self::ALL.iter().position(|kind| *kind == self).expect("ALL has every type")
    }
}

/// A shuffled deck.
#[derive(Clone, Debug)]
pub struct Deck<K> {
    cards: Vec<K>,
    next: usize,
}

impl<K: Mix> Deck<K> {
    /// A full deck; it is shuffled when the first card is drawn.
    #[must_use]
    pub fn new() -> Self {
        Self::of(K::percent)
    }

    /// A deck with so many cards of each type, of one at least.
    #[must_use]
    pub(crate) fn of(count: impl Fn(K) -> usize) -> Self {
        let cards = K::ALL.iter().flat_map(|kind| std::iter::repeat_n(*kind, count(*kind)));
        let cards: Vec<_> = cards.collect();
        Self { next: cards.len(), cards }
    }

    /// A deck of one type.
    #[must_use]
    pub fn only(kind: K) -> Self {
        Self { next: 1, cards: vec![kind] }
    }

    /// The next card.
    #[expect(clippy::expect_used, reason = "a deck has a card, and `next` is below their number")]
    pub fn draw(&mut self, random: &mut Random) -> K {
        if self.next >= self.cards.len() {
            random.shuffle(&mut self.cards);
            self.next = 0;
        }
        let card = *self.cards.get(self.next).expect("a deck has a card");
        self.next += 1;
        card
    }
}

impl<K: Mix> Default for Deck<K> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Draws two decks and looks for the shares in both.
    pub(crate) fn every_hundred_keeps_the_mix_in_another_order<K: Mix>() {
        let mut random = Random::stream(1, 1);
        let mut deck = Deck::new();
        let mut hundred = || -> Vec<K> { (0..100).map(|_| deck.draw(&mut random)).collect() };
        let (first, second) = (hundred(), hundred());
        for cards in [&first, &second] {
            for kind in K::ALL {
                let drawn = cards.iter().filter(|card| *card == kind).count();
                assert_eq!(drawn, kind.percent(), "{kind:?}");
            }
        }
        assert_ne!(first, second);
        let positions: Vec<_> = K::ALL.iter().map(|kind| kind.index()).collect();
        assert_eq!(positions, (0..K::ALL.len()).collect::<Vec<_>>());
    }
}
