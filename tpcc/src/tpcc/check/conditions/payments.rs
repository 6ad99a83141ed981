//! Conditions on money: what warehouses, districts and customers were paid and owe, 1, 8 to 10, 12.

use std::collections::{BTreeMap, BTreeSet};

use super::findings::ConditionFindings;
use super::sums::Sums;
use crate::tpcc::check::facts::{DistrictKey, Facts};
use crate::tpcc::check::unread::CheckedTable;

/// Clause 3.3.2.1: `W_YTD = sum(D_YTD)` for each warehouse.
pub(super) fn condition_1(facts: &Facts) -> ConditionFindings {
    let mut findings = ConditionFindings::new(1, "W_YTD = sum(D_YTD)");
    let mut sums: BTreeMap<i32, i64> = BTreeMap::new();
    for (&(w, _), district) in &facts.districts {
        *sums.entry(w).or_default() += district.ytd;
    }
    for (w, ytd) in &facts.warehouses {
        if !findings.judges(facts.unread.is_whole(CheckedTable::District, *w, 0)) {
            continue;
        }
        let sum = sums.get(w).copied().unwrap_or(0);
        findings.expect(*ytd == sum, || format!("warehouse {w}: {ytd} and {sum}"));
    }
    findings
}

/// Clause 3.3.2.8: `W_YTD = sum(H_AMOUNT)` for each warehouse.
pub(super) fn condition_8(facts: &Facts) -> ConditionFindings {
    let mut findings = ConditionFindings::new(8, "W_YTD = sum(H_AMOUNT)");
    let mut paid: BTreeMap<i32, i64> = facts.warehouses.keys().map(|&w| (w, 0)).collect();
    for (&(w, _), amount) in &facts.paid_in_district {
        *paid.entry(w).or_default() += amount;
    }
    for (w, paid) in paid {
        let parts = [CheckedTable::Warehouse, CheckedTable::History];
        if !findings.judges(parts.into_iter().all(|part| facts.unread.is_whole(part, w, 0))) {
            continue;
        }
        let ytd = facts.warehouses.get(&w).copied();
        findings.expect(ytd == Some(paid), || format!("warehouse {w}: {ytd:?} and {paid}"));
    }
    findings
}

/// Clause 3.3.2.9: `D_YTD = sum(H_AMOUNT)` for each district.
pub(super) fn condition_9(facts: &Facts) -> ConditionFindings {
    let mut findings = ConditionFindings::new(9, "D_YTD = sum(H_AMOUNT)");
    let keys: BTreeSet<DistrictKey> =
        facts.districts.keys().chain(facts.paid_in_district.keys()).copied().collect();
    for key in keys {
        let (w, d) = key;
        let row = !facts.unread.hides(CheckedTable::District, (w, 0, d));
        if !findings.judges(row && facts.unread.is_whole(CheckedTable::History, w, 0)) {
            continue;
        }
        let ytd = facts.districts.get(&key).map(|district| district.ytd);
        let paid = facts.paid_in_district.get(&key).copied().unwrap_or(0);
        findings.expect(ytd == Some(paid), || format!("district {key:?}: {ytd:?} and {paid}"));
    }
    findings
}

/// Clause 3.3.2.10: `C_BALANCE = sum(OL_AMOUNT) - sum(H_AMOUNT)` for each customer, over delivered
/// lines.
pub(super) fn condition_10(facts: &Facts, sums: &Sums) -> ConditionFindings {
    let mut findings =
        ConditionFindings::new(10, "C_BALANCE = sum(delivered OL_AMOUNT) - sum(H_AMOUNT)");
    let payments = facts.unread.has_all_payments();
    for (key, customer) in &facts.customers {
        let orders = facts
            .unread
            .are_whole(&[CheckedTable::Orders, CheckedTable::OrderLine], (key.0, key.1));
        if !findings.judges(payments && orders) {
            continue;
        }
        let delivered = sums.delivered.get(key).copied().unwrap_or(0);
        let paid = facts.paid_by_customer.get(key).copied().unwrap_or(0);
        let balance = customer.balance;
        findings.expect(balance == delivered - paid, || {
            format!("customer {key:?}: {balance}, {delivered} and {paid}")
        });
    }
    findings
}

/// Clause 3.3.2.12: `C_BALANCE + C_YTD_PAYMENT = sum(OL_AMOUNT)` for each customer, over delivered
/// lines.
pub(super) fn condition_12(facts: &Facts, sums: &Sums) -> ConditionFindings {
    let mut findings =
        ConditionFindings::new(12, "C_BALANCE + C_YTD_PAYMENT = sum(delivered OL_AMOUNT)");
    for (key, customer) in &facts.customers {
        if !findings.judges(
            facts
                .unread
                .are_whole(&[CheckedTable::Orders, CheckedTable::OrderLine], (key.0, key.1)),
        ) {
            continue;
        }
        let delivered = sums.delivered.get(key).copied().unwrap_or(0);
        let (balance, paid) = (customer.balance, customer.ytd_payment);
        findings.expect(balance + paid == delivered, || {
            format!("customer {key:?}: {balance} + {paid} and {delivered}")
        });
    }
    findings
}
