//! The seven transaction types and their shares.

use crate::workload::Mix;

/// A transaction type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TransactionType {
    /// Reads a subscriber.
    #[default]
    GetSubscriberData,
    /// Reads where a call is to be forwarded to, if it is.
    GetNewDestination,
    /// Reads an access_info row, if it is there.
    GetAccessData,
    /// Changes a bit of a subscriber and data of a special_facility row, if that is there.
    UpdateSubscriberData,
    /// Changes a subscriber's location.
    UpdateLocation,
    /// Forwards calls from an hour on, unless that is so already or there is no such facility.
    InsertCallForwarding,
    /// Ends that, if it is so.
    DeleteCallForwarding,
}

impl Mix for TransactionType {
    const ALL: &'static [Self] = &[
        Self::GetSubscriberData,
        Self::GetNewDestination,
        Self::GetAccessData,
        Self::UpdateSubscriberData,
        Self::UpdateLocation,
        Self::InsertCallForwarding,
        Self::DeleteCallForwarding,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::GetSubscriberData => "get_subscriber_data",
            Self::GetNewDestination => "get_new_destination",
            Self::GetAccessData => "get_access_data",
            Self::UpdateSubscriberData => "update_subscriber_data",
            Self::UpdateLocation => "update_location",
            Self::InsertCallForwarding => "insert_call_forwarding",
            Self::DeleteCallForwarding => "delete_call_forwarding",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::GetSubscriberData => "GetSubscriberData",
            Self::GetNewDestination => "GetNewDestination",
            Self::GetAccessData => "GetAccessData",
            Self::UpdateSubscriberData => "UpdateSubscriberData",
            Self::UpdateLocation => "UpdateLocation",
            Self::InsertCallForwarding => "InsertCallForwarding",
            Self::DeleteCallForwarding => "DeleteCallForwarding",
        }
    }

    fn percent(self) -> usize {
        match self {
            Self::GetSubscriberData | Self::GetAccessData => 35,
            Self::GetNewDestination => 10,
            Self::UpdateLocation => 14,
            Self::UpdateSubscriberData
            | Self::InsertCallForwarding
            | Self::DeleteCallForwarding => 2,
        }
    }
}

impl TransactionType {
    /// Rows that it reads or writes, about.
    pub(super) const fn accesses(self) -> u32 {
        match self {
            Self::GetSubscriberData | Self::GetAccessData => 1,
            Self::GetNewDestination | Self::UpdateSubscriberData | Self::UpdateLocation => 2,
            Self::DeleteCallForwarding => 2,
            Self::InsertCallForwarding => 4,
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
        assert_eq!(shares, [35, 10, 35, 2, 14, 2, 2]);
    }
}
