//! The statements.

use crate::connection::StatementText;

/// A statement of one of the five transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SqlStatement {
    /// Begins a transaction that changes rows.
    Begin,
    /// Begins one that reads one state.
    BeginReading,
    /// Begins one of which each statement reads a state of its own (clause 2.8.2.3).
    BeginReadCommitted,
    /// Commits it.
    Commit,
    /// Rolls it back.
    Rollback,
    /// NewOrder: what the customer has.
    Customer,
    /// NewOrder: the warehouse's tax rate.
    WarehouseTax,
    /// NewOrder: takes the district's next order number.
    TakeOrderNumber,
    /// NewOrder: inserts the order.
    InsertOrder,
    /// NewOrder: inserts its row of NEW-ORDER.
    InsertNewOrder,
    /// NewOrder: looks an item up.
    Item,
    /// NewOrder: takes an item from stock, for an order of this district, 1 to 10.
    TakeStock(u8),
    /// NewOrder: inserts a line.
    InsertLine,
    /// Payment, OrderStatus: the customers of a last name.
    CustomersByName,
    /// Payment: books it with the customer.
    PayCustomer,
    /// Payment: notes it in the data of a customer with bad credit.
    NoteCustomer,
    /// Payment: books it with the district.
    PayDistrict,
    /// Payment: books it with the warehouse.
    PayWarehouse,
    /// Payment: inserts its row of HISTORY.
    InsertHistory,
    /// OrderStatus: the customer.
    CustomerBalance,
    /// OrderStatus: the customer's last order.
    LastOrder,
    /// OrderStatus: its lines.
    OrderLines,
    /// Delivery: the oldest order that was not delivered.
    OldestOrder,
    /// Delivery: deletes its row of NEW-ORDER.
    DeleteNewOrder,
    /// Delivery: enters the carrier.
    DeliverOrder,
    /// Delivery: enters when its lines were delivered.
    DeliverLines,
    /// Delivery: books it with the customer.
    DeliverCustomer,
    /// StockLevel: the district's next order number.
    NextOrderNumber,
    /// StockLevel: how many items of the last orders run short.
    LowStock,
}

impl StatementText for SqlStatement {
    fn number(&self) -> usize {
        match *self {
            Self::Begin => 0,
            Self::BeginReading => 1,
            Self::BeginReadCommitted => 2,
            Self::Commit => 3,
            Self::Rollback => 4,
            Self::Customer => 5,
            Self::WarehouseTax => 6,
            Self::TakeOrderNumber => 7,
            Self::InsertOrder => 8,
            Self::InsertNewOrder => 9,
            Self::Item => 10,
            Self::InsertLine => 11,
            Self::CustomersByName => 12,
            Self::PayCustomer => 13,
            Self::NoteCustomer => 14,
            Self::PayDistrict => 15,
            Self::PayWarehouse => 16,
            Self::InsertHistory => 17,
            Self::CustomerBalance => 18,
            Self::LastOrder => 19,
            Self::OrderLines => 20,
            Self::OldestOrder => 21,
            Self::DeleteNewOrder => 22,
            Self::DeliverOrder => 23,
            Self::DeliverLines => 24,
            Self::DeliverCustomer => 25,
            Self::NextOrderNumber => 26,
            Self::LowStock => 27,
            Self::TakeStock(district) => 27 + usize::from(district.clamp(1, 10)),
        }
    }

    fn is_control(&self) -> bool {
        self.number() <= Self::Rollback.number()
    }

    fn text(&self) -> String {
        let text = match *self {
            Self::TakeStock(district) => return take_stock(district),
            Self::Begin => "begin isolation level serializable",
            Self::BeginReading => "begin isolation level repeatable read read only",
            Self::BeginReadCommitted => "begin isolation level read committed read only",
            Self::Commit => "commit",
            Self::Rollback => "rollback",
            Self::Customer => {
                "select c_discount, c_last, c_credit from customer \
                 where c_w_id = $1 and c_d_id = $2 and c_id = $3"
            }
            Self::WarehouseTax => "select w_tax from warehouse where w_id = $1",
            Self::TakeOrderNumber => {
                "update district set d_next_o_id = d_next_o_id + 1 \
                 where d_w_id = $1 and d_id = $2 returning d_next_o_id - 1, d_tax"
            }
            Self::InsertOrder => {
                "insert into orders \
                 (o_w_id, o_d_id, o_id, o_c_id, o_entry_d, o_ol_cnt, o_all_local) \
                 values ($1, $2, $3, $4, $5, $6, $7)"
            }
            Self::InsertNewOrder => {
                "insert into new_order (no_w_id, no_d_id, no_o_id) values ($1, $2, $3)"
            }
            Self::Item => "select i_price, i_data from item where i_id = $1",
            Self::InsertLine => {
                "insert into order_line (ol_w_id, ol_d_id, ol_o_id, ol_number, ol_i_id, \
                 ol_supply_w_id, ol_quantity, ol_amount, ol_dist_info) \
                 values ($1, $2, $3, $4, $5, $6, $7, $8, $9)"
            }
            other => return other.text_of_others().to_owned(),
        };
        text.to_owned()
    }
}

impl SqlStatement {
    /// All of them; the number of each is its position.
    pub const COUNT: usize = 38;

    /// Of all transactions but NewOrder.
    fn text_of_others(self) -> &'static str {
        match self {
            Self::CustomersByName => {
                "select c_id from customer where c_w_id = $1 and c_d_id = $2 and c_last = $3 \
                 order by c_first, c_id"
            }
            Self::PayCustomer => {
                "update customer set c_balance = c_balance - $4, \
                 c_ytd_payment = c_ytd_payment + $4, c_payment_cnt = c_payment_cnt + 1 \
                 where c_w_id = $1 and c_d_id = $2 and c_id = $3 returning c_credit"
            }
            Self::NoteCustomer => {
                "update customer_data set c_data = left($4 || c_data, 500) \
                 where cd_w_id = $1 and cd_d_id = $2 and cd_c_id = $3"
            }
            Self::PayDistrict => {
                "update district set d_ytd = d_ytd + $3 \
                 where d_w_id = $1 and d_id = $2 returning d_name"
            }
            Self::PayWarehouse => {
                "update warehouse set w_ytd = w_ytd + $2 where w_id = $1 returning w_name"
            }
            Self::InsertHistory => {
                "insert into history (h_w_id, h_writer, h_sequence, h_d_id, h_c_w_id, h_c_d_id, \
                 h_c_id, h_date, h_amount, h_data) \
                 values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"
            }
            Self::CustomerBalance => {
                "select c_balance, c_first, c_middle, c_last from customer \
                 where c_w_id = $1 and c_d_id = $2 and c_id = $3"
            }
            Self::LastOrder => {
                "select o_id, o_entry_d, o_carrier_id from orders \
                 where o_w_id = $1 and o_d_id = $2 and o_c_id = $3 order by o_id desc limit 1"
            }
            Self::OrderLines => {
                "select ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_delivery_d \
                 from order_line where ol_w_id = $1 and ol_d_id = $2 and ol_o_id = $3"
            }
            Self::OldestOrder => {
                "select no_o_id from new_order where no_w_id = $1 and no_d_id = $2 \
                 order by no_o_id limit 1 for update"
            }
            Self::DeleteNewOrder => {
                "delete from new_order where no_w_id = $1 and no_d_id = $2 and no_o_id = $3"
            }
            Self::DeliverOrder => {
                "update orders set o_carrier_id = $4 \
                 where o_w_id = $1 and o_d_id = $2 and o_id = $3 returning o_c_id"
            }
            Self::DeliverLines => {
                "update order_line set ol_delivery_d = $4 \
                 where ol_w_id = $1 and ol_d_id = $2 and ol_o_id = $3 returning ol_amount"
            }
            Self::DeliverCustomer => {
                "update customer set c_balance = c_balance + $4, \
                 c_delivery_cnt = c_delivery_cnt + 1 \
                 where c_w_id = $1 and c_d_id = $2 and c_id = $3"
            }
            Self::NextOrderNumber => {
                "select d_next_o_id from district where d_w_id = $1 and d_id = $2"
            }
            Self::LowStock => {
                "select count(distinct s_i_id) from order_line \
                 join stock on s_w_id = ol_w_id and s_i_id = ol_i_id \
                 where ol_w_id = $1 and ol_d_id = $2 and ol_o_id >= $3 and ol_o_id < $4 \
                 and s_quantity < $5"
            }
            _ => "",
        }
    }
}

/// As clause 2.4.2.2 has it: what is left is filled up where it would be less than ten.
fn take_stock(district: u8) -> String {
    format!(
        "update stock set s_quantity = case when s_quantity - $3 >= 10 then s_quantity - $3 \
         else s_quantity - $3 + 91 end, s_ytd = s_ytd + $3, s_order_cnt = s_order_cnt + 1, \
         s_remote_cnt = s_remote_cnt + $4 \
         where s_w_id = $1 and s_i_id = $2 returning s_dist_{district:02}, s_data"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_that_of_one_statement_with_a_text() {
        use SqlStatement as S;
        let others = [
            S::Begin,
            S::BeginReading,
            S::BeginReadCommitted,
            S::Commit,
            S::Rollback,
            S::Customer,
            S::WarehouseTax,
            S::TakeOrderNumber,
            S::InsertOrder,
            S::InsertNewOrder,
            S::Item,
            S::InsertLine,
            S::CustomersByName,
            S::PayCustomer,
            S::NoteCustomer,
            S::PayDistrict,
            S::PayWarehouse,
            S::InsertHistory,
            S::CustomerBalance,
            S::LastOrder,
            S::OrderLines,
            S::OldestOrder,
            S::DeleteNewOrder,
            S::DeliverOrder,
            S::DeliverLines,
            S::DeliverCustomer,
            S::NextOrderNumber,
            S::LowStock,
        ];
        let all: Vec<S> = others.into_iter().chain((1..=10).map(S::TakeStock)).collect();
        let numbers: Vec<usize> = all.iter().map(|own| own.number()).collect();
        assert_eq!(numbers, (0..S::COUNT).collect::<Vec<_>>());
        let mut texts: Vec<String> = all.iter().map(|own| own.text()).collect();
        assert!(texts.iter().all(|text| !text.is_empty() && !text.contains("  ")), "{texts:?}");
        texts.sort_unstable();
        texts.dedup();
        assert_eq!(texts.len(), S::COUNT);
    }
}
