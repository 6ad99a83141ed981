//! Functions and operators that PostgreSQL has and this engine has not. A call of them is told from
//! one of a name that nobody knows.

use crate::error::SqlError;
use crate::types::SqlType;

/// Their names, sorted.
const FUNCTIONS: [&str; 85] = [
    "abbrev",
    "area",
    "array_to_tsvector",
    "box",
    "broadcast",
    "center",
    "circle",
    "current_query",
    "cursor_to_xml",
    "database_to_xml",
    "daterange",
    "diameter",
    "family",
    "get_current_ts_config",
    "host",
    "hostmask",
    "inet_merge",
    "inet_same_family",
    "int4range",
    "int8range",
    "is_normalized",
    "isempty",
    "json_populate_record",
    "json_populate_recordset",
    "jsonb_path_exists",
    "jsonb_path_exists_tz",
    "jsonb_path_match",
    "jsonb_path_match_tz",
    "jsonb_path_query",
    "jsonb_path_query_array",
    "jsonb_path_query_array_tz",
    "jsonb_path_query_first",
    "jsonb_path_query_first_tz",
    "jsonb_path_query_tz",
    "jsonb_populate_record",
    "jsonb_populate_recordset",
    "line",
    "lo_create",
    "lo_export",
    "lo_from_bytea",
    "lo_get",
    "lo_import",
    "lo_put",
    "lo_unlink",
    "lower_inc",
    "lower_inf",
    "lseg",
    "macaddr8_set7bit",
    "masklen",
    "netmask",
    "network",
    "normalize",
    "numnode",
    "numrange",
    "path",
    "pg_notify",
    "phraseto_tsquery",
    "plainto_tsquery",
    "point",
    "polygon",
    "query_to_xml",
    "querytree",
    "range_merge",
    "schema_to_xml",
    "set_masklen",
    "setseed",
    "setweight",
    "table_to_xml",
    "timeofday",
    "to_ascii",
    "to_tsquery",
    "to_tsvector",
    "ts_headline",
    "ts_rank",
    "ts_rank_cd",
    "tsrange",
    "tstzrange",
    "upper_inc",
    "upper_inf",
    "websearch_to_tsquery",
    "xmlagg",
    "xmlcomment",
    "xmlparse",
    "xpath",
    "xpath_exists",
];

/// The error of a call of a function that PostgreSQL has.
pub(super) fn absent_function(name: &str) -> Option<SqlError> {
    let is_known = FUNCTIONS.contains(&name);
    is_known.then(|| SqlError::unsupported(format!("the function {name}")))
}

/// The same of an operator, by the type of what stands on its left.
pub(super) fn absent_operator(op: &str, left: Option<SqlType>) -> Option<SqlError> {
    let is_path = matches!(op, "@?" | "@@") && left == Some(SqlType::JSONB);
    is_path.then(|| SqlError::unsupported("a path of jsonb"))
}
