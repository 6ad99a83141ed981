//! Drivers of several processes on one database.
//!
//! They meet in labels of the pool: `tpcc.database` says what is loaded or who is loading,
//! `tpcc.phases` which drivers run the mix and which check. A check reads the whole database and
//! needs it to be at rest, so that drivers wait for each other: no driver begins to check while
//! another runs, nor to run while another checks. A driver whose nodes are gone is waited for no
//! longer.
//!
//! ```text
//! open --> load, or wait for the loader --> run --> wait until no driver runs --> check --> leave
//! ```
//!
//! A driver may also be told to load anew: it then takes the label of the database first, so that
//! none can come in, and gives up if one is in. That works because a driver that comes in says
//! so first, and looks at the label again then: of two changes to one document one is the later,
//! and who makes that sees the other. Databases have *generations*, so that a driver that comes in
//! is not taken in by a new one under the same label.
//!
//! ```text
//!                            room, and still mine                all rows
//! Complete ----> Loading, begins ----> Loading, writes ----> Complete, one generation on
//! or nothing         |                   |         ^
//!    ^  |            |       it gives up |         | told to load anew
//!    +--+------------+                   v         |
//!         a driver is in, no room,      CutShort --+
//!         its driver is gone
//! ```
//! Until a driver that loads is about to change the first byte, the label keeps what is there, so
//! that it, or a driver that finds it gone, can put that back. A driver that comes in meanwhile
//! waits for one of the two. A load that ends before all rows are there says so, and a driver that
//! finds its driver gone concludes it. What is there then is only replaced by a driver that is told
//! to load anew.

mod awaited;
mod driver;
mod labels;
mod load_patience;
mod loader_absence;

pub use driver::{Driver, DriverRole, LoadPolicy, warehouses_in};
