//! What a session is set to.

use std::sync::Arc;
use std::time::Duration;

use selkie_txn::Isolation;

use super::{Session, TransactionState};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::schemas::{PUBLIC, list_of_names, text_of_list};
use crate::types::{ByteaOutput, DateOrder, DateStyle, FormatSettings, IntervalStyle, TimeZone};

/// What a session is set to.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) format: FormatSettings,
    pub(crate) isolation: Isolation,
    pub(crate) read_only: bool,
    pub(crate) statement_timeout: Option<Duration>,
    pub(crate) lock_timeout: Option<Duration>,
    pub(crate) idle_timeout: Option<Duration>,
    pub(crate) search_path: Vec<String>,
    pub(crate) application_name: String,
    /// Which messages a client wants; it gets none that it could do without.
    pub(crate) client_min_messages: String,
    /// The role that SET ROLE has said.
    pub(crate) role: Option<SetRole>,
    /// Whether the session began as a superuser.
    pub(crate) is_superuser: bool,
}

/// A role that a session has become.
#[derive(Clone, Debug)]
pub(crate) struct SetRole {
    pub(crate) oid: u32,
    pub(crate) name: Arc<str>,
    pub(crate) is_superuser: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            format: FormatSettings::default(),
            isolation: Isolation::ReadCommitted,
            read_only: false,
            statement_timeout: None,
            lock_timeout: None,
            idle_timeout: None,
            search_path: ["$user", PUBLIC].map(str::to_owned).to_vec(),
            application_name: String::new(),
            client_min_messages: "notice".to_owned(),
            role: None,
            is_superuser: true,
        }
    }
}

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
    /// Sets a parameter of the session, as `SET name TO 'value'` does.
    ///
    /// # Errors
    /// 42704 if there is no such parameter, 22023 if it cannot have that value, 55P02 if it cannot
    /// be changed.
    pub fn set_parameter(&mut self, name: &str, value: &str) -> SqlResult<()> {
        self.set_values(name, &[value.to_owned()], false)
    }

    /// What is set now is what RESET goes back to.
    pub fn keep_parameters(&mut self) {
        self.initial = Arc::clone(&self.settings);
    }

    /// Sets a parameter to what it was when the session began.
    pub(super) fn reset_parameter(&mut self, name: &str, is_local: bool) -> SqlResult<()> {
        let value = self.initial.get(name)?;
        self.set_values(name, &[value], is_local)
    }

    /// Sets all parameters to what they were when the session began; the role stays.
    pub(super) fn reset_all(&mut self) -> SqlResult<()> {
        let initial = Arc::clone(&self.initial);
        self.change(false, |settings| {
            let role = settings.role.take();
            *settings = Settings { role, ..(*initial).clone() };
            Ok(())
        })
    }

    /// Sets a parameter to a value, or to a list of them.
    pub(super) fn set_values(
        &mut self,
        name: &str,
        values: &[String],
        is_local: bool,
    ) -> SqlResult<()> {
        self.change(is_local, |settings| settings.set(name, values))
    }

    /// Changes settings, until the transaction ends if that is local to it.
    pub(super) fn change(
        &mut self,
        is_local: bool,
        change: impl Fn(&mut Settings) -> SqlResult<()>,
    ) -> SqlResult<()> {
        let is_local = is_local && self.state != TransactionState::Idle;
        let changed = |before: &Arc<Settings>| {
            let mut settings = Settings::clone(before);
            change(&mut settings).map(|()| Arc::new(settings))
        };
        let after = changed(&self.settings)?;
        match (is_local, &mut self.lasting) {
            (true, lasting @ None) => *lasting = Some(Arc::clone(&self.settings)),
            (false, Some(lasting)) => *lasting = changed(lasting)?,
            _ => {}
        }
        self.settings = after;
        self.changes += 1;
        Ok(())
    }

    /// Takes back what was set in a transaction: all of it if that has failed, else what was local
    /// to it.
    pub(super) fn end_settings(&mut self, has_failed: bool) {
        let before = self.before.take().filter(|_| has_failed);
        let after = self.lasting.take();
        if let Some(settings) = before.or(after)
            && !Arc::ptr_eq(&settings, &self.settings)
        {
            self.settings = settings;
            self.changes += 1;
        }
    }

    /// The value of a parameter as `SHOW` says it.
    pub(super) fn shown(&self, name: &str) -> SqlResult<String> {
        let (isolation, read_only) = match self.state {
            TransactionState::Idle => (self.settings.isolation, self.settings.read_only),
            _ => self.modes_now,
        };
        Ok(match &*name.to_lowercase() {
            "transaction_isolation" | "transaction isolation level" => level(isolation).to_owned(),
            "transaction_read_only" => if read_only { "on" } else { "off" }.to_owned(),
            _ => self.settings.get(name)?,
        })
    }

    /// How often parameters of the session were set.
    #[must_use]
    pub fn parameter_changes(&self) -> u64 {
        self.changes
    }

    /// The parameters that a client is told of, and their values.
    #[must_use]
    pub fn reported_parameters(&self) -> Vec<(&'static str, String)> {
        let value = |name: &'static str| Some((name, self.settings.get(name).ok()?));
        REPORTED.into_iter().filter_map(value).collect()
    }
}

/// All parameters, as `pg_settings` has them.
const ALL: [&str; 23] = [
    "application_name",
    "bytea_output",
    "client_encoding",
    "client_min_messages",
    "DateStyle",
    "default_transaction_isolation",
    "default_transaction_read_only",
    "extra_float_digits",
    "idle_in_transaction_session_timeout",
    "in_hot_standby",
    "integer_datetimes",
    "IntervalStyle",
    "is_superuser",
    "lock_timeout",
    "max_identifier_length",
    "password_encryption",
    "search_path",
    "server_encoding",
    "server_version",
    "server_version_num",
    "standard_conforming_strings",
    "statement_timeout",
    "TimeZone",
];

impl Settings {
    /// All parameters with their values.
    pub(super) fn all(&self) -> Vec<(&'static str, String)> {
        ALL.into_iter().filter_map(|name| Some((name, self.get(name).ok()?))).collect()
    }

    pub(super) fn set(&mut self, name: &str, values: &[String]) -> SqlResult<()> {
        let value = values.join(", ");
        let folded = value.to_lowercase();
        let invalid = |allowed: &str| invalid(name, &value, allowed);
        match &*name.to_lowercase() {
            "statement_timeout" => {
                self.statement_timeout = timeout(&value).ok_or_else(|| invalid(TIMES))?;
            }
            "lock_timeout" => self.lock_timeout = timeout(&value).ok_or_else(|| invalid(TIMES))?,
            "idle_in_transaction_session_timeout" => {
                self.idle_timeout = timeout(&value).ok_or_else(|| invalid(TIMES))?;
            }
            "application_name" => self.application_name = value.clone(),
            "search_path" => {
                self.search_path = list_of_names(&value).ok_or_else(|| {
                    let message = format!("invalid value for parameter \"{name}\": \"{value}\"");
                    let detail = "List syntax is invalid.".to_owned();
                    SqlError::new(SqlState::INVALID_PARAMETER, message).detail(detail)
                })?;
            }
            "default_transaction_isolation" | "transaction_isolation" => {
                self.isolation = match &*folded {
                    "read committed" | "read uncommitted" => Isolation::ReadCommitted,
                    "repeatable read" => Isolation::RepeatableRead,
                    "serializable" => Isolation::Serializable,
                    _ => {
                        return Err(invalid("serializable, repeatable read, read committed"));
                    }
                };
            }
            "default_transaction_read_only" => {
                self.read_only = switch(&folded).ok_or_else(|| invalid("on, off"))?;
            }
            "client_encoding" | "names" => {
                let is_utf8 = matches!(folded.trim_matches('\''), "utf8" | "utf-8" | "unicode");
                crate::bind::refuse(!is_utf8, "an encoding other than UTF8")?;
            }
            "client_min_messages" => {
                let levels = "debug5, debug4, debug3, debug2, debug1, log, notice, warning, error";
                if !levels.split(", ").any(|level| level == folded) {
                    return Err(invalid(levels));
                }
                self.client_min_messages = folded;
            }
            "password_encryption" => {
                crate::bind::refuse(folded != "scram-sha-256", "a password hashed otherwise")?;
            }
            "standard_conforming_strings" => {
                let is_on = switch(&folded).ok_or_else(|| invalid("on"))?;
                crate::bind::refuse(!is_on, "a backslash as an escape in every literal")?;
            }
            "in_hot_standby"
            | "integer_datetimes"
            | "is_superuser"
            | "server_encoding"
            | "server_version"
            | "server_version_num"
            | "max_identifier_length" => {
                let message = format!("parameter \"{name}\" cannot be changed");
                return Err(SqlError::new(SqlState::CANT_CHANGE_PARAMETER, message));
            }
            _ if self.set_format(name, &value)? => {}
            _ => return Err(unknown(name)),
        }
        Ok(())
    }

    /// Sets how values look. Whether there is such a setting.
    fn set_format(&mut self, name: &str, value: &str) -> SqlResult<bool> {
        let folded = value.to_lowercase();
        let invalid = |allowed: &str| invalid(name, value, allowed);
        match &*name.to_lowercase() {
            "extra_float_digits" => {
                let digits = value.parse().ok().filter(|digits| (-15..=3).contains(digits));
                self.format.extra_float_digits = digits.ok_or_else(|| invalid("-15 to 3"))?;
            }
            "datestyle" => self
                .date_style(&folded)
                .ok_or_else(|| invalid("ISO, Postgres, SQL or German, and DMY, MDY or YMD"))?,
            "intervalstyle" => {
                self.format.interval_style = match &*folded {
                    "postgres" => IntervalStyle::Postgres,
                    "postgres_verbose" => IntervalStyle::PostgresVerbose,
                    "sql_standard" => IntervalStyle::SqlStandard,
                    "iso_8601" => IntervalStyle::Iso8601,
                    _ => {
                        return Err(invalid("postgres, postgres_verbose, sql_standard, iso_8601"));
                    }
                };
            }
            "timezone" | "time zone" => {
                self.format.time_zone = match &*folded {
                    "default" | "local" => TimeZone::utc(),
                    _ => TimeZone::parse(value)?,
                };
            }
            "bytea_output" => {
                self.format.bytea_output = match &*folded {
                    "hex" => ByteaOutput::Hex,
                    "escape" => ByteaOutput::Escape,
                    _ => return Err(invalid("escape, hex")),
                };
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Sets the style of dates, their order, or both; `None` if there is no such style.
    fn date_style(&mut self, text: &str) -> Option<()> {
        for word in text.split(',').map(str::trim) {
            let format = &mut self.format;
            match word {
                "iso" => format.date_style = DateStyle::Iso,
                "sql" => format.date_style = DateStyle::Sql,
                "postgres" => format.date_style = DateStyle::Postgres,
                "german" => format.date_style = DateStyle::German,
                "ymd" => format.date_order = DateOrder::Ymd,
                "dmy" | "european" | "euro" => format.date_order = DateOrder::Dmy,
                "mdy" | "us" | "noneuropean" | "noneuro" => format.date_order = DateOrder::Mdy,
                _ => return None,
            }
        }
        Some(())
    }

    pub(super) fn get(&self, name: &str) -> SqlResult<String> {
        let time = |limit: Option<Duration>| match limit {
            None => "0".to_owned(),
            Some(limit) => {
                let millis = limit.as_millis();
                let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s")];
                let unit = units.into_iter().find(|(of, _)| millis.is_multiple_of(*of));
                let (of, unit) = unit.unwrap_or((1, "ms"));
                format!("{}{unit}", millis / of)
            }
        };
        let format = &self.format;
        Ok(match &*name.to_lowercase() {
            "statement_timeout" => time(self.statement_timeout),
            "lock_timeout" => time(self.lock_timeout),
            "idle_in_transaction_session_timeout" => time(self.idle_timeout),
            "application_name" => self.application_name.clone(),
            "search_path" => text_of_list(&self.search_path),
            "default_transaction_isolation" => level(self.isolation).to_owned(),
            "default_transaction_read_only" => if self.read_only { "on" } else { "off" }.to_owned(),
            "extra_float_digits" => format.extra_float_digits.to_string(),
            "datestyle" => {
                let style = match format.date_style {
                    DateStyle::Iso => "ISO",
                    DateStyle::Sql => "SQL",
                    DateStyle::Postgres => "Postgres",
                    DateStyle::German => "German",
                };
                let order = match format.date_order {
                    DateOrder::Mdy => "MDY",
                    DateOrder::Dmy => "DMY",
                    DateOrder::Ymd => "YMD",
                };
                format!("{style}, {order}")
            }
            "intervalstyle" => match format.interval_style {
                IntervalStyle::Postgres => "postgres",
                IntervalStyle::PostgresVerbose => "postgres_verbose",
                IntervalStyle::SqlStandard => "sql_standard",
                IntervalStyle::Iso8601 => "iso_8601",
            }
            .to_owned(),
            "timezone" | "time zone" => format.time_zone.name.to_string(),
            "bytea_output" => match format.bytea_output {
                ByteaOutput::Hex => "hex",
                ByteaOutput::Escape => "escape",
            }
            .to_owned(),
            "client_min_messages" => self.client_min_messages.clone(),
            "client_encoding" | "server_encoding" => "UTF8".to_owned(),
            "server_version" => "15.0".to_owned(),
            "server_version_num" => "150000".to_owned(),
            "max_identifier_length" => "63".to_owned(),
            // psql asks for it before it sends a password.
            "password_encryption" => "scram-sha-256".to_owned(),
            "is_superuser" => {
                let is_one = self.role.as_ref().map_or(self.is_superuser, |own| own.is_superuser);
                if is_one { "on" } else { "off" }.to_owned()
            }
            "standard_conforming_strings" | "integer_datetimes" => "on".to_owned(),
            "in_hot_standby" => "off".to_owned(),
            _ => return Err(unknown(name)),
        })
    }
}

fn level(isolation: Isolation) -> &'static str {
    match isolation {
        Isolation::Serializable => "serializable",
        Isolation::RepeatableRead => "repeatable read",
        Isolation::ReadCommitted => "read committed",
    }
}

fn invalid(name: &str, value: &str, allowed: &str) -> SqlError {
    let message = format!("invalid value for parameter \"{name}\": \"{value}\"");
    SqlError::new(SqlState::INVALID_PARAMETER, message)
        .hint(format!("Available values: {allowed}."))
}

fn unknown(name: &str) -> SqlError {
    let message = format!("unrecognized configuration parameter \"{name}\"");
    SqlError::new(SqlState::UNDEFINED_OBJECT, message)
}

const TIMES: &str = "0 for none, milliseconds, or a number with ms, s, min, h or d";

/// What is on or off.
fn switch(text: &str) -> Option<bool> {
    match text {
        "on" | "true" | "yes" | "1" => Some(true),
        "off" | "false" | "no" | "0" => Some(false),
        _ => None,
    }
}

/// A limit of time; 0 is none.
fn timeout(text: &str) -> Option<Option<Duration>> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(digits)?;
    let number: u64 = number.parse().ok()?;
    let millis = match unit.trim() {
        "" | "ms" => number,
        "s" => number.checked_mul(1_000)?,
        "min" => number.checked_mul(60_000)?,
        "h" => number.checked_mul(3_600_000)?,
        "d" => number.checked_mul(86_400_000)?,
        _ => return None,
    };
    Some((millis > 0).then(|| Duration::from_millis(millis)))
}
