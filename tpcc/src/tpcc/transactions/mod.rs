//! The five transactions (clauses 2.4 to 2.8).
//!
//! Each is one function: it begins a transaction, does what the clause's profile says and commits.
//! A conflict comes back as a retryable error with everything rolled back; the worker tries again
//! with the same input.
//!
//! Locks are leaf latches held to the end, and no transaction waits for one, so what is hot is
//! touched last: the rows of WAREHOUSE and DISTRICT are on pages of their own and are reached after
//! everything that does not depend on them. All but StockLevel are serializable; StockLevel runs at
//! read committed, which clause 2.8.2.3 allows.

mod by_name;
mod delivery;
mod new_order;
mod order_status;
mod payment;
mod session;
mod stock_level;

pub use delivery::{DeliveryOutput, deliver_district};
pub use new_order::{NewOrderOutput, new_order};
pub(crate) use new_order::{StockTaken, Supplied, enter_order, take_stock};
pub use order_status::{OrderStatusOutput, order_status};
pub(crate) use payment::{BAD_CREDIT, book, pay};
pub use payment::{PaymentOutput, payment};
pub use session::Session;
pub use stock_level::{StockLevelOutput, StockLevelProgress, stock_level};
