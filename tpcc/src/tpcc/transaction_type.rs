//! The five transaction types of TPC-C, and their shares 45/43/4/4/4 (clause 5.2.4.2).

use serde::Serialize;

use crate::workload::Mix;

/// A transaction type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TransactionType {
    /// Enters an order (clause 2.4).
    #[default]
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

impl TransactionType {
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

    /// Position in [`TransactionType::ALL`].
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

impl Mix for TransactionType {
    const ALL: &'static [Self] = &Self::ALL;

    fn name(self) -> &'static str {
        self.name()
    }

    fn title(self) -> &'static str {
        self.title()
    }

    fn percent(self) -> usize {
        self.percent()
    }

    fn index(self) -> usize {
        self.index()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_hundred_keeps_the_mix_in_another_order() {
        crate::workload::mix::tests::every_hundred_keeps_the_mix_in_another_order::<TransactionType>(
        );
    }

    #[test]
    fn indexes_are_positions() {
        for (at, kind) in TransactionType::ALL.into_iter().enumerate() {
            assert_eq!(kind.index(), at);
        }
    }
}
