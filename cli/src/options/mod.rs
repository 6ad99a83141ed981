//! Groups of options, and values of options, that several commands share.

pub(crate) mod durability;
pub(crate) mod member;
pub(crate) mod network;
pub(crate) mod values;
