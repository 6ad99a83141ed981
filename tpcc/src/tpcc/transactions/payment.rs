//! Payment: a customer pays (clause 2.5.2.2).
//!
//! Order of accesses: the customer, then the district, then the warehouse, the hottest row of all,
//! and last the HISTORY row, which needs both names and lies on a page only this worker appends to.

use std::fmt::Write;

use selkie_txn::{RowMut, Txn, TxnError, key};

use super::by_name::customer_key;
use super::session::{Rows, Session};
use crate::error::{TpccError, missing};
use crate::tpcc::columns::{customer as c, customer_data as cd, district as d, warehouse as w};
use crate::tpcc::input::PaymentInput;
use crate::tpcc::schema::C_DATA_BYTES;
use crate::workload::Text;

/// What the terminal shows (clause 2.5.3).
#[derive(Clone, Copy, Debug)]
pub struct PaymentOutput {
    /// The customer who paid.
    pub customer: i32,
    /// The customer's balance, cents.
    pub balance: i64,
    /// The number of its HISTORY row among those of the session.
    pub sequence: i64,
    /// Whether the customer has bad credit, so that the payment was noted in `C_DATA`.
    pub bad_credit: bool,
}

/// Books a payment.
///
/// # Errors
/// A retryable one on a conflict; else what the database reports, or [`TpccError::Missing`].
pub async fn payment(
    session: &Session<'_>,
    input: &PaymentInput,
    now: i64,
) -> Result<PaymentOutput, TpccError> {
    let mut rows = session.take_rows()?;
    let mut txn = session.db.begin();
    let output = pay(session, &mut txn, input).await?;
    let output = book(session, &mut txn, &mut rows, (input, output), now).await?;
    session.put_rows(rows);
    txn.commit().await?;
    Ok(output)
}

/// Books a payment with district and warehouse, and in HISTORY, once the customer has paid.
pub(crate) async fn book(
    session: &Session<'_>,
    txn: &mut Txn<'_>,
    rows: &mut Rows<'_>,
    (input, paid): (&PaymentInput, PaymentOutput),
    now: i64,
) -> Result<PaymentOutput, TpccError> {
    let tables = &session.tables;
    let amount = input.amount;
    let district_key = key![input.warehouse, input.district];
    let d_name: Text<10> = txn
        .update(tables.district, &district_key, |row| {
            row.set_i64(d::D_YTD, row.i64(d::D_YTD)? + amount)?;
            Ok(Text::new().with(row.text(d::D_NAME)?))
        })
        .await?;
    session.work(1).await;
    let w_name: Text<10> = txn
        .update(tables.warehouse, &key![input.warehouse], |row| {
            row.set_i64(w::W_YTD, row.i64(w::W_YTD)? + amount)?;
            Ok(Text::new().with(row.text(w::W_NAME)?))
        })
        .await?;

    session.work(1).await;
    let (writer, sequence) = session.history_key();
    let data: Text<24> = Text::new().with(&w_name).with("    ").with(&d_name);
    let row = &mut rows.history;
    row.clear();
    row.i32(input.warehouse).i32(writer).i64(sequence).i32(input.district);
    row.i32(input.customer_warehouse).i32(input.customer_district).i32(paid.customer);
    row.i64(now).i64(amount).text(&data);
    txn.insert(tables.history, row.finish()?).await?;
    session.work(1).await;
    Ok(PaymentOutput { sequence, ..paid })
}

/// Books the payment with the customer.
pub(crate) async fn pay(
    session: &Session<'_>,
    txn: &mut Txn<'_>,
    input: &PaymentInput,
) -> Result<PaymentOutput, TpccError> {
    let (warehouse, district) = (input.customer_warehouse, input.customer_district);
    let key = customer_key(session, txn, warehouse, district, &input.customer).await?;
    let amount = input.amount;
    let book = |row: &mut RowMut<'_>| {
        let balance = row.i64(c::C_BALANCE)? - amount;
        row.set_i64(c::C_BALANCE, balance)?;
        row.set_i64(c::C_YTD_PAYMENT, row.i64(c::C_YTD_PAYMENT)? + amount)?;
        row.set_i32(c::C_PAYMENT_CNT, row.i32(c::C_PAYMENT_CNT)? + 1)?;
        let bad_credit = row.text(c::C_CREDIT)? == BAD_CREDIT;
        Ok(PaymentOutput { customer: row.i32(c::C_ID)?, balance, sequence: 0, bad_credit })
    };
    let output =
        txn.update(session.tables.customer, &key, book).await.map_err(|error| match error {
            TxnError::NotFound { .. } => {
                missing("customer", (warehouse, district, &input.customer))
            }
            other => other.into(),
        })?;
    session.work(1).await;
    if output.bad_credit {
        let note = note(input, output.customer);
        txn.update(session.tables.customer_data, &key, |row| {
            let data: Text<C_DATA_BYTES> = note.with(row.text(cd::C_DATA)?);
            row.set_text(cd::C_DATA, &data)?;
            Ok(())
        })
        .await?;
        session.work(1).await;
    }
    Ok(output)
}

/// `C_CREDIT` of a customer with bad credit.
pub(crate) const BAD_CREDIT: &str = "BC";

/// What is put before `C_DATA`; what no longer fits drops off its end.
fn note(input: &PaymentInput, customer: i32) -> Text<C_DATA_BYTES> {
    let mut note = Text::new();
    // Writing to a text cannot fail: what does not fit is cut.
    let _ = write!(
        note,
        "{customer} {} {} {} {} {}.{:02}|",
        input.customer_district,
        input.customer_warehouse,
        input.district,
        input.warehouse,
        input.amount / 100,
        input.amount % 100,
    );
    note
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tpcc::input::CustomerBy;

    #[test]
    fn notes_read_like_the_specification() {
        let input = PaymentInput {
            warehouse: 1,
            district: 2,
            customer_warehouse: 3,
            customer_district: 4,
            customer: CustomerBy::Id(5),
            amount: 1207,
        };
        assert_eq!(&*note(&input, 5), "5 4 3 2 1 12.07|");
        let long = note(&input, 5).with(&"x".repeat(C_DATA_BYTES));
        assert_eq!(long.len(), C_DATA_BYTES);
    }
}
