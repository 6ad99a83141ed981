//! What partitions ask of each other and answer, byte by byte. Numbers are little-endian.
//!
//! ```text
//! take stock   1 | district u8 | for each line: item u32, warehouse u32, quantity u8
//! answer       for each line: original u8, length u8, S_DIST
//! pay          2 | amount u64 | warehouse, district u32 | customer's warehouse, district u32 |
//!              0, number u32  or  1, length u8, last name
//! answer       customer u32 | balance u64 | bad credit u8
//! ```

use smallvec::SmallVec;

use crate::error::TpccError;
use crate::tpcc::input::{CustomerBy, LineInput, PaymentInput};
use crate::tpcc::scale::MAX_LINES;
use crate::tpcc::transactions::{PaymentOutput, StockTaken};
use crate::workload::Text;

const TAKE_STOCK: u8 = 1;
const PAY: u8 = 2;
const BY_NUMBER: u8 = 0;
const BY_NAME: u8 = 1;

/// A line of an order, for the partition that supplies it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StockLine {
    item: i32,
    warehouse: i32,
    quantity: u8,
}

impl StockLine {
    pub(super) fn new(line: &LineInput) -> Self {
        let quantity = u8::try_from(line.quantity).unwrap_or(u8::MAX);
        Self { item: line.item, warehouse: line.supply_warehouse, quantity }
    }

    pub(super) fn input(self) -> LineInput {
        let Self { item, warehouse, quantity } = self;
        LineInput { item, supply_warehouse: warehouse, quantity: quantity.into() }
    }
}

pub(super) type StockLines = SmallVec<[StockLine; MAX_LINES as usize]>;

/// What is asked of another partition.
#[derive(Clone, Debug)]
pub(super) enum PartitionRequest {
    /// Take the items of these lines from stock, for an order of that district.
    TakeStock { district: i32, lines: StockLines },
    /// Book the payment with the customer.
    Pay(PaymentInput),
}

impl PartitionRequest {
    pub(super) fn encode(&self) -> Vec<u8> {
        match self {
            Self::TakeStock { district, lines } => {
                let mut bytes = vec![TAKE_STOCK, u8::try_from(*district).unwrap_or(u8::MAX)];
                for StockLine { item, warehouse, quantity } in lines {
                    bytes.extend_from_slice(&item.to_le_bytes());
                    bytes.extend_from_slice(&warehouse.to_le_bytes());
                    bytes.push(*quantity);
                }
                bytes
            }
            Self::Pay(input) => {
                let mut bytes = vec![PAY];
                bytes.extend_from_slice(&input.amount.to_le_bytes());
                for number in [
                    input.warehouse,
                    input.district,
                    input.customer_warehouse,
                    input.customer_district,
                ] {
                    bytes.extend_from_slice(&number.to_le_bytes());
                }
                match &input.customer {
                    CustomerBy::Id(id) => {
                        bytes.push(BY_NUMBER);
                        bytes.extend_from_slice(&id.to_le_bytes());
                    }
                    CustomerBy::LastName(name) => {
                        bytes.push(BY_NAME);
                        push_text(&mut bytes, name);
                    }
                }
                bytes
            }
        }
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, TpccError> {
        let mut reader = MessageReader(bytes);
        let request = match reader.u8()? {
            TAKE_STOCK => {
                let district = reader.u8()?.into();
                let mut lines = StockLines::new();
                while !reader.is_empty() {
                    let (item, warehouse) = (reader.i32()?, reader.i32()?);
                    lines.push(StockLine { item, warehouse, quantity: reader.u8()? });
                }
                Self::TakeStock { district, lines }
            }
            PAY => {
                let amount = reader.i64()?;
                let (warehouse, district) = (reader.i32()?, reader.i32()?);
                let (customer_warehouse, customer_district) = (reader.i32()?, reader.i32()?);
                let customer = match reader.u8()? {
                    BY_NUMBER => CustomerBy::Id(reader.i32()?),
                    BY_NAME => CustomerBy::LastName(reader.text()?),
                    _ => return Err(TpccError::DamagedMessage),
                };
                Self::Pay(PaymentInput {
                    warehouse,
                    district,
                    customer_warehouse,
                    customer_district,
                    customer,
                    amount,
                })
            }
            _ => return Err(TpccError::DamagedMessage),
        };
        reader.end().map(|()| request)
    }
}

pub(super) fn encode_stock_taken(taken: &StockTaken, bytes: &mut Vec<u8>) {
    bytes.push(taken.original.into());
    push_text(bytes, &taken.dist_info);
}

/// What was taken for the lines of a request.
pub(super) fn stock_taken(
    answer: &[u8],
) -> Result<SmallVec<[StockTaken; MAX_LINES as usize]>, TpccError> {
    let mut reader = MessageReader(answer);
    let mut all = SmallVec::new();
    while !reader.is_empty() {
        let original = reader.u8()? != 0;
        all.push(StockTaken { dist_info: reader.text()?, original });
    }
    Ok(all)
}

pub(super) fn encode_paid(output: &PaymentOutput) -> Vec<u8> {
    let mut bytes = output.customer.to_le_bytes().to_vec();
    bytes.extend_from_slice(&output.balance.to_le_bytes());
    bytes.push(output.bad_credit.into());
    bytes
}

/// What came of a payment; it has no HISTORY row yet.
pub(super) fn paid(answer: &[u8]) -> Result<PaymentOutput, TpccError> {
    let mut reader = MessageReader(answer);
    let (customer, balance) = (reader.i32()?, reader.i64()?);
    let bad_credit = reader.u8()? != 0;
    reader.end().map(|()| PaymentOutput { customer, balance, sequence: 0, bad_credit })
}

fn push_text(bytes: &mut Vec<u8>, text: &str) {
    // The longest column that is sent has 24 bytes.
    bytes.push(u8::try_from(text.len()).unwrap_or(u8::MAX));
    bytes.extend_from_slice(text.as_bytes());
}

/// Takes values off the front of bytes.
struct MessageReader<'a>(&'a [u8]);

impl MessageReader<'_> {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn end(self) -> Result<(), TpccError> {
        if self.is_empty() { Ok(()) } else { Err(TpccError::DamagedMessage) }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], TpccError> {
        let (array, rest) = self.0.split_first_chunk().ok_or(TpccError::DamagedMessage)?;
        self.0 = rest;
        Ok(*array)
    }

    fn u8(&mut self) -> Result<u8, TpccError> {
        self.array().map(u8::from_le_bytes)
    }

    fn i32(&mut self) -> Result<i32, TpccError> {
        self.array().map(i32::from_le_bytes)
    }

    fn i64(&mut self) -> Result<i64, TpccError> {
        self.array().map(i64::from_le_bytes)
    }

    fn text<const N: usize>(&mut self) -> Result<Text<N>, TpccError> {
        let length = usize::from(self.u8()?);
        let (text, rest) = self.0.split_at_checked(length).ok_or(TpccError::DamagedMessage)?;
        self.0 = rest;
        let text = std::str::from_utf8(text).map_err(|_| TpccError::DamagedMessage)?;
        if text.len() > N { Err(TpccError::DamagedMessage) } else { Ok(Text::new().with(text)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payment(customer: CustomerBy) -> PartitionRequest {
        PartitionRequest::Pay(PaymentInput {
            warehouse: 7,
            district: 10,
            customer_warehouse: 100_000,
            customer_district: 1,
            customer,
            amount: 499_999,
        })
    }

    fn requests() -> [PartitionRequest; 3] {
        let line = StockLine { item: 99_999, warehouse: 12, quantity: 10 };
        let lines = StockLines::from_elem(line, MAX_LINES as usize);
        [
            PartitionRequest::TakeStock { district: 9, lines },
            payment(CustomerBy::Id(3_000)),
            payment(CustomerBy::LastName(Text::new().with("BARBARBAR"))),
        ]
    }

    #[test]
    fn requests_are_read_as_they_were_written_and_fit_the_ledger() {
        for request in requests() {
            let bytes = request.encode();
            assert!(bytes.len() + 2 <= selkie_txn::partition::MAX_REQUEST_BYTES, "{request:?}");
            let read = PartitionRequest::decode(&bytes).unwrap();
            assert_eq!(format!("{read:?}"), format!("{request:?}"));
        }
        let output = PaymentOutput { customer: 5, balance: -7, sequence: 0, bad_credit: true };
        let read = paid(&encode_paid(&output)).unwrap();
        assert_eq!((read.customer, read.balance, read.bad_credit), (5, -7, true));
        let mut bytes = Vec::new();
        for (text, original) in [("abc", true), ("", false)] {
            encode_stock_taken(
                &StockTaken { dist_info: Text::new().with(text), original },
                &mut bytes,
            );
        }
        let read = stock_taken(&bytes).unwrap();
        assert!(read[0].original && &*read[0].dist_info == "abc" && read.len() == 2);
        assert!(!read[1].original && read[1].dist_info.is_empty());
    }

    #[test]
    fn what_is_cut_short_or_too_long_is_damaged() {
        for request in requests() {
            let mut bytes = request.encode();
            bytes.push(0);
            assert!(PartitionRequest::decode(&bytes).is_err(), "{request:?}");
            bytes.truncate(bytes.len() - 2);
            assert!(PartitionRequest::decode(&bytes).is_err(), "{request:?}");
        }
        assert!(PartitionRequest::decode(&[]).is_err() && PartitionRequest::decode(&[3]).is_err());
        assert!(paid(&[0; 12]).is_err() && paid(&[0; 14]).is_err());
        assert!(stock_taken(&[1, 2, b'a']).is_err() && stock_taken(&[1, 25]).is_err());
    }
}
