//! SHOW: parameters as clients are told of them.

use super::Session;
use super::settings::ALL;
use crate::error::SqlResult;

/// Parameters that a client is told of when its session begins, and when they change.
const REPORTED: [&str; 12] = [
    "application_name",
    "client_encoding",
    "DateStyle",
    "default_transaction_read_only",
    "in_hot_standby",
    "integer_datetimes",
    "IntervalStyle",
    "is_superuser",
    "server_encoding",
    "server_version",
    "standard_conforming_strings",
    "TimeZone",
];

impl Session {
    /// The parameters that a client is told of, and their values.
    #[must_use]
    pub fn reported_parameters(&self) -> Vec<(&'static str, String)> {
        let value = |name: &'static str| Some((name, self.settings.get(name).ok()?));
        REPORTED.into_iter().filter_map(value).collect()
    }

    /// A parameter as `SHOW` says it: its name, and its value.
    pub(super) fn shown(&self, name: &str) -> SqlResult<(String, String)> {
        let name = match name {
            "transaction isolation level" => "transaction_isolation",
            "time zone" => "TimeZone",
            "session authorization" => "session_authorization",
            name => name,
        };
        if let Some(value) = self.modes().parameter(name) {
            return Ok((name.to_owned(), value));
        }
        if name.eq_ignore_ascii_case("session_authorization") {
            return Ok((name.to_owned(), self.user.to_string()));
        }
        let known = ALL.iter().find(|own| own.eq_ignore_ascii_case(name));
        Ok((known.map_or(name, |own| own).to_owned(), self.settings.get(name)?))
    }

    /// All parameters, as `SHOW ALL` says them: names, values and what they are.
    pub(super) fn all_parameters(&self) -> Vec<[String; 3]> {
        let described = |(name, value): (String, String)| {
            let what = describe(&name);
            [name, value, what.to_owned()]
        };
        self.settings.all(self.modes()).into_iter().map(described).collect()
    }
}

/// What a parameter is, in a line.
fn describe(name: &str) -> &'static str {
    match &*name.to_ascii_lowercase() {
        "application_name" => "The name of the program that is connected.",
        "bytea_output" => "How byte strings are printed.",
        "client_encoding" => "The encoding of the client's text.",
        "client_min_messages" => "The least level of messages that the client is sent.",
        "datestyle" => "How dates are printed, and the order of their parts.",
        "default_transaction_deferrable" => "Whether new transactions are deferrable.",
        "default_transaction_isolation" => "The isolation of new transactions.",
        "default_transaction_read_only" => "Whether new transactions only read.",
        "extra_float_digits" => "How many digits of floating-point numbers are printed.",
        "idle_in_transaction_session_timeout" => {
            "How long a client may do nothing in a transaction."
        }
        "idle_session_timeout" => "How long a client may do nothing outside of a transaction.",
        "in_hot_standby" => "Whether the server only follows another.",
        "integer_datetimes" => "Whether times are counted in whole microseconds.",
        "intervalstyle" => "How intervals are printed.",
        "is_superuser" => "Whether the role is a superuser.",
        "lock_timeout" => "How long a statement may wait for a lock.",
        "max_function_args" => "The most arguments of a function.",
        "max_identifier_length" => "The most bytes of a name.",
        "max_index_keys" => "The most columns of a key.",
        "password_encryption" => "How passwords are kept.",
        "role" => "The role that SET ROLE has said.",
        "search_path" => "The schemas in which names are looked for.",
        "server_encoding" => "The encoding of the database.",
        "server_version" | "server_version_num" => "The version of PostgreSQL that is followed.",
        "standard_conforming_strings" => "Whether a backslash in '...' is a character.",
        "statement_timeout" => "How long a statement may take.",
        "temp_file_limit" => "How large the temporary files of the session may be together.",
        "timezone" => "The zone in which times are read and printed.",
        "transaction_deferrable" => "Whether the transaction is deferrable.",
        "transaction_isolation" => "The isolation of the transaction.",
        "transaction_read_only" => "Whether the transaction only reads.",
        "work_mem" => "How much an operation of a statement keeps in memory.",
        name if name.contains('.') => "",
        _ => "It is known to PostgreSQL, and changes nothing here.",
    }
}
