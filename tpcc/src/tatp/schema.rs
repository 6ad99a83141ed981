//! The four tables.

use selkie_txn::{ColumnType, Database, Index, Table, TableSchema, TxnError};

use crate::cluster::TableSet;

/// Positions of columns that transactions and the check use.
pub mod columns {
    /// `s_id`, first column of all four tables.
    pub const S_ID: usize = 0;
    /// `sub_nbr` of subscriber.
    pub const SUB_NBR: usize = 1;
    /// `bit_1` of subscriber; `bit_2` to `bit_10` follow, then ten `hex_` and ten `byte2_`.
    pub const BIT_1: usize = 2;
    /// `msc_location` of subscriber.
    pub const MSC_LOCATION: usize = 32;
    /// `vlr_location` of subscriber.
    pub const VLR_LOCATION: usize = 33;
    /// `ai_type` of access_info.
    pub const AI_TYPE: usize = 1;
    /// `data1` of access_info; `data2` to `data4` follow.
    pub const DATA_1: usize = 2;
    /// `sf_type` of special_facility and of call_forwarding.
    pub const SF_TYPE: usize = 1;
    /// `is_active` of special_facility.
    pub const IS_ACTIVE: usize = 2;
    /// `data_a` of special_facility.
    pub const DATA_A: usize = 4;
    /// `start_time` of call_forwarding.
    pub const START_TIME: usize = 2;
    /// `end_time` of call_forwarding.
    pub const END_TIME: usize = 3;
    /// `numberx` of call_forwarding.
    pub const NUMBERX: usize = 4;
}

/// Name of the index of subscribers by number.
const BY_NUMBER: &str = "by_number";

/// The tables and the index, resolved once.
#[derive(Clone, Copy, Debug)]
pub struct Tables {
    /// Subscribers.
    pub subscriber: Table,
    /// How a subscriber accesses the network.
    pub access_info: Table,
    /// Facilities of a subscriber.
    pub special_facility: Table,
    /// When and where to a facility forwards calls.
    pub call_forwarding: Table,
    /// Subscribers by `sub_nbr`.
    pub by_number: Index,
}

const I32: ColumnType = ColumnType::I32;
const I64: ColumnType = ColumnType::I64;

const fn text(bytes: u32) -> ColumnType {
    ColumnType::Text(bytes)
}

fn subscriber() -> TableSchema {
    let mut schema = TableSchema::new("subscriber").column("s_id", I32).column("sub_nbr", text(15));
    for columns in ["bit", "hex", "byte2"] {
        for number in 1..=10 {
            schema = schema.column(format!("{columns}_{number}"), I32);
        }
    }
    schema
        .column("msc_location", I64)
        .column("vlr_location", I64)
        .primary_key([columns::S_ID])
        .unique_index(BY_NUMBER, [columns::SUB_NBR])
}

fn access_info() -> TableSchema {
    TableSchema::new("access_info")
        .column("s_id", I32)
        .column("ai_type", I32)
        .column("data1", I32)
        .column("data2", I32)
        .column("data3", text(3))
        .column("data4", text(5))
        .primary_key([columns::S_ID, columns::AI_TYPE])
}

fn special_facility() -> TableSchema {
    TableSchema::new("special_facility")
        .column("s_id", I32)
        .column("sf_type", I32)
        .column("is_active", I32)
        .column("error_cntrl", I32)
        .column("data_a", I32)
        .column("data_b", text(5))
        .primary_key([columns::S_ID, columns::SF_TYPE])
}

fn call_forwarding() -> TableSchema {
    TableSchema::new("call_forwarding")
        .column("s_id", I32)
        .column("sf_type", I32)
        .column("start_time", I32)
        .column("end_time", I32)
        .column("numberx", text(15))
        .primary_key([columns::S_ID, columns::SF_TYPE, columns::START_TIME])
}

impl TableSet for Tables {
    fn schemas() -> Vec<TableSchema> {
        vec![subscriber(), access_info(), special_facility(), call_forwarding()]
    }

    fn resolve(db: &Database) -> Result<Self, TxnError> {
        Ok(Self {
            subscriber: db.table("subscriber")?,
            access_info: db.table("access_info")?,
            special_facility: db.table("special_facility")?,
            call_forwarding: db.table("call_forwarding")?,
            by_number: db.index("subscriber", BY_NUMBER)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_where_the_constants_say() {
        let schemas = Tables::schemas();
        let name = |table: usize, column: usize| schemas[table].columns[column].name.as_str();
        assert_eq!(name(0, columns::SUB_NBR), "sub_nbr");
        assert_eq!(name(0, columns::BIT_1), "bit_1");
        assert_eq!(name(0, columns::MSC_LOCATION), "msc_location");
        assert_eq!(name(0, columns::VLR_LOCATION), "vlr_location");
        assert_eq!((name(1, columns::AI_TYPE), name(1, columns::DATA_1)), ("ai_type", "data1"));
        assert_eq!((name(2, columns::SF_TYPE), name(3, columns::SF_TYPE)), ("sf_type", "sf_type"));
        assert_eq!(
            (name(2, columns::IS_ACTIVE), name(2, columns::DATA_A)),
            ("is_active", "data_a")
        );
        let forwarding = [columns::START_TIME, columns::END_TIME, columns::NUMBERX];
        assert_eq!(forwarding.map(|column| name(3, column)), ["start_time", "end_time", "numberx"]);
        schemas.iter().for_each(|schema| schema.validate().unwrap());
    }
}
