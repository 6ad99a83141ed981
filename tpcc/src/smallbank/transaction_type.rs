//! The six transaction types and their shares.

use crate::workload::Mix;

/// A transaction type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TransactionType {
    /// Shows the sum of a customer's accounts.
    #[default]
    Balance,
    /// Pays into a checking account.
    DepositChecking,
    /// Pays into a savings account or out of it, if it covers that.
    TransactSavings,
    /// Moves all that a customer has into the checking account of another.
    Amalgamate,
    /// Pays a check, with a penalty if both accounts together do not cover it.
    WriteCheck,
    /// Moves money from a checking account that covers it to another.
    SendPayment,
}

impl Mix for TransactionType {
    const ALL: &'static [Self] = &[
        Self::Balance,
        Self::DepositChecking,
        Self::TransactSavings,
        Self::Amalgamate,
        Self::WriteCheck,
        Self::SendPayment,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Balance => "balance",
            Self::DepositChecking => "deposit_checking",
            Self::TransactSavings => "transact_savings",
            Self::Amalgamate => "amalgamate",
            Self::WriteCheck => "write_check",
            Self::SendPayment => "send_payment",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::Balance => "Balance",
            Self::DepositChecking => "DepositChecking",
            Self::TransactSavings => "TransactSavings",
            Self::Amalgamate => "Amalgamate",
            Self::WriteCheck => "WriteCheck",
            Self::SendPayment => "SendPayment",
        }
    }

    fn percent(self) -> usize {
        match self {
            Self::SendPayment => 25,
            _ => 15,
        }
    }
}

impl TransactionType {
    /// Rows that it reads or writes.
    pub(super) const fn accesses(self) -> u32 {
        match self {
            Self::DepositChecking | Self::TransactSavings => 2,
            Self::Balance | Self::WriteCheck => 3,
            Self::SendPayment => 4,
            Self::Amalgamate => 5,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mix_is_kept() {
        crate::workload::mix::tests::every_hundred_keeps_the_mix_in_another_order::<TransactionType>(
        );
        let shares: Vec<_> = TransactionType::ALL.iter().map(|kind| kind.percent()).collect();
        assert_eq!(shares, [15, 15, 15, 15, 15, 25]);
    }
}
