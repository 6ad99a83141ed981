//! What is measured of TPC-C.

use super::commit_record::CommitRecords;
use super::transaction_type::TransactionType;
use crate::run::Interval;

/// What was counted in the measurement, with the transactions that the workers committed.
pub type TpccInterval = Interval<TransactionType, CommitRecords>;
