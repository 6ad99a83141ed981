//! The consistency conditions 1 to 12 of clause 3.3.2, checked over the whole database.
//!
//! Every table is read once, front to back, warehouse by warehouse and on all compute nodes at the
//! same time (`collect`), into maps of what the conditions speak about (`facts`); each condition is
//! then a function over these maps (`conditions`). No transaction may write meanwhile.
//!
//! Condition 11 of the specification, orders less new orders is 2,100 in every district, holds only
//! before the first delivery. Here it says what is meant: that difference is the number of orders
//! delivered initially plus the number delivered since, which the customers' `C_DELIVERY_CNT` tell.
//!
//! Where compute nodes died, pages that they alone held are lost. What is on them is left out
//! (`unread`), and a condition is judged only for those warehouses, districts, customers and orders
//! of which everything that it speaks about can be read. That no committed transaction is lost but
//! with such a page, the driver's own journal says (`verify_commits`).

mod collect;
mod conditions;
mod facts;
mod unread;
mod unread_rows;
mod verify_commits;

pub use collect::collect;
pub use conditions::{BrokenCondition, CONDITIONS, Judgement, check, judge};
pub use facts::Facts;
pub use unread_rows::{UnreadRows, unread_rows};
pub use verify_commits::{CommitVerification, verify_commits};
