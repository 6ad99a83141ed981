//! TPC-C by the specification's revision 5.11.
//!
//! ```text
//! config, affinity              what to run, and which node works on which warehouse
//! scale, schema, columns        cardinalities, tables, positions of columns
//! nurand, input                 the specification's random values; what terminals enter
//! transaction_type              the five types and their shares of the mix
//! transactions/                 what each of the five does, a file a type
//! by_sql/                       the same as SQL
//! partitioned/                  the baseline: warehouses that belong to nodes, two-phase commit
//! load/                         the initial database
//! worker, commit_record         a worker, and the records of what it committed
//! nodes, stages, run            compute nodes; load, measure, check; a whole run
//! shared_pool/, run_shared      drivers of several processes on one database
//! check/                        consistency conditions, and a search for committed transactions
//! report/                       the result, as JSON and as tables
//! ```

mod affinity;
mod by_sql;
pub mod check;
pub mod columns;
mod commit_record;
mod config;
mod input;
mod interval;
mod load;
mod nodes;
mod nurand;
mod partitioned;
mod report;
mod run;
mod run_shared;
mod scale;
pub mod schema;
mod shared_pool;
mod stages;
mod transaction_type;
pub mod transactions;
mod worker;

pub use affinity::Affinity;
pub use by_sql::{SqlStatement, Via};
pub use commit_record::{CommitRecords, MAX_COMMIT_RECORDS};
pub use config::{Config, MAX_WAREHOUSES};
pub use input::{
    CustomerBy, DeliveryInput, InputSource, LineInput, Lines, NewOrderInput, OrderStatusInput,
    PaymentInput, StockLevelInput, UNUSED_ITEM,
};
pub use interval::TpccInterval;
pub use load::load;
pub use nodes::{TpccCluster, TpccNode};
pub use nurand::{NuConstants, ORIGINAL, last_name};
pub use report::Report;
pub use run::{run, run_on};
pub use run_shared::{Purpose, run_shared};
pub use scale::{DISTRICTS, MAX_LINES, MIN_LINES, Scale};
pub use shared_pool::{Driver, DriverRole, LoadPolicy, warehouses_in};
pub use stages::measure;
pub use transaction_type::TransactionType;
pub use transactions::Session;
