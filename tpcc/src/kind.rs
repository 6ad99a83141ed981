//! The five transaction types and the deck they are drawn from.
//!
//! Clause 5.2.4.2 allows a deck of cards: here a hundred, 45/43/4/4/4, shuffled for each worker and
//! shuffled again when used up. So every worker keeps the mix exactly over each hundred transactions,
//! not only on average.

use serde::Serialize;

use crate::random::Random;

/// A transaction type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Enters an order (clause 2.4).
    NewOrder,
    /// Books a payment (clause 2.5).
    Payment,
    /// Shows a customer's last order (clause 2.6).
    OrderStatus,
    /// Delivers the oldest order of each district (clause 2.7).
    Delivery,
    /// Counts items that run short (clause 2.8).
    StockLevel,
}

impl Kind {
    /// All types, in the order of reports.
    pub const ALL: [Self; 5] =
        [Self::NewOrder, Self::Payment, Self::OrderStatus, Self::Delivery, Self::StockLevel];

    /// The name in the JSON report.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NewOrder => "new_order",
            Self::Payment => "payment",
            Self::OrderStatus => "order_status",
            Self::Delivery => "delivery",
            Self::StockLevel => "stock_level",
        }
    }

    /// The name people read.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::NewOrder => "NewOrder",
            Self::Payment => "Payment",
            Self::OrderStatus => "OrderStatus",
            Self::Delivery => "Delivery",
            Self::StockLevel => "StockLevel",
        }
    }

    /// Position in [`Kind::ALL`].
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Cards in the deck, of a hundred.
    #[must_use]
    pub const fn percent(self) -> usize {
        match self {
            Self::NewOrder => 45,
            Self::Payment => 43,
            Self::OrderStatus | Self::Delivery | Self::StockLevel => 4,
        }
    }

    /// Seconds a terminal needs to type the input (clause 5.2.5.7).
    #[must_use]
    pub const fn keying_seconds(self) -> f64 {
        match self {
            Self::NewOrder => 18.0,
            Self::Payment => 3.0,
            Self::OrderStatus | Self::Delivery | Self::StockLevel => 2.0,
        }
    }

    /// Mean seconds a person thinks about the answer (clause 5.2.5.7).
    #[must_use]
    pub const fn think_seconds(self) -> f64 {
        match self {
            Self::NewOrder | Self::Payment => 12.0,
            Self::OrderStatus => 10.0,
            Self::Delivery | Self::StockLevel => 5.0,
        }
    }
}

/// A shuffled deck.
#[derive(Clone, Debug)]
pub struct Deck {
    cards: Vec<Kind>,
    next: usize,
}

impl Deck {
    /// A full deck; it is shuffled when the first card is drawn.
    #[must_use]
    pub fn new() -> Self {
        let cards =
            Kind::ALL.into_iter().flat_map(|kind| std::iter::repeat_n(kind, kind.percent()));
        let cards: Vec<_> = cards.collect();
        Self { next: cards.len(), cards }
    }

    /// The next card.
    pub fn draw(&mut self, random: &mut Random) -> Kind {
        if self.next >= self.cards.len() {
            random.shuffle(&mut self.cards);
            self.next = 0;
        }
        let card = self.cards.get(self.next).copied().unwrap_or(Kind::NewOrder);
        self.next += 1;
        card
    }
}

impl Default for Deck {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_hundred_keeps_the_mix_in_another_order() {
        let mut random = Random::stream(1, 1);
        let mut deck = Deck::new();
        let mut hundred = || -> Vec<Kind> { (0..100).map(|_| deck.draw(&mut random)).collect() };
        let (first, second) = (hundred(), hundred());
        for cards in [&first, &second] {
            for kind in Kind::ALL {
                let drawn = cards.iter().filter(|&&card| card == kind).count();
                assert_eq!(drawn, kind.percent(), "{kind:?}");
            }
        }
        assert_ne!(first, second);
    }

    #[test]
    fn indexes_are_positions() {
        for (at, kind) in Kind::ALL.into_iter().enumerate() {
            assert_eq!(kind.index(), at);
        }
    }
}
