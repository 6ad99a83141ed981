//! What a session is set to.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use selkie_txn::Isolation;

use super::memory::{shown_memory, work_memory};
use super::parameters::{
    Unit, WITHOUT_EFFECT, custom_name, number, shown_number, switch, without_effect,
};
use super::transaction::Modes;
use super::{Session, TransactionState};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::exec::WORK_MEMORY_BYTES;
use crate::notice::NoticeLevel;
use crate::schemas::{PUBLIC, list_of_names, text_of_list};
use crate::types::{ByteaOutput, DateOrder, DateStyle, FormatSettings, IntervalStyle, TimeZone};

/// What a session is set to.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) format: FormatSettings,
    /// How transactions are that do not say it.
    pub(crate) modes: Modes,
    pub(crate) statement_timeout: Option<Duration>,
    pub(crate) lock_timeout: Option<Duration>,
    /// How long a client may do nothing in a transaction.
    pub(crate) idle_timeout: Option<Duration>,
    /// How long it may do nothing outside of one.
    pub(crate) idle_session_timeout: Option<Duration>,
    /// What an operator keeps in memory.
    pub(crate) work_memory_bytes: usize,
    /// How large the temporary files of the session may be together; `None` for no bound.
    pub(crate) temp_file_limit_bytes: Option<u64>,
    pub(crate) search_path: Vec<String>,
    pub(crate) application_name: String,
    /// Which messages a client wants.
    pub(crate) client_min_messages: String,
    /// Those that change nothing and are not at their default, and those of clients.
    pub(crate) others: BTreeMap<String, String>,
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
            modes: Modes::default(),
            statement_timeout: None,
            lock_timeout: None,
            idle_timeout: None,
            idle_session_timeout: None,
            work_memory_bytes: WORK_MEMORY_BYTES,
            temp_file_limit_bytes: None,
            search_path: ["$user", PUBLIC].map(str::to_owned).to_vec(),
            application_name: String::new(),
            client_min_messages: "notice".to_owned(),
            others: BTreeMap::new(),
            role: None,
            is_superuser: true,
        }
    }
}

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
        if self.set_mode_late(name, None)? {
            return Ok(());
        }
        let value = match custom_name(name)? {
            // One that a client has made stays, without a value.
            Some(own) => self.initial.others.get(&own).cloned().unwrap_or_default(),
            None => self.initial.get(name)?,
        };
        self.set_values(name, &[value], is_local)
    }

    /// Sets all parameters to what they were when the session began; the role stays.
    pub(super) fn reset_all(&mut self) -> SqlResult<()> {
        let initial = Arc::clone(&self.initial);
        self.change(false, |settings| {
            let before = std::mem::replace(settings, (*initial).clone());
            settings.role.clone_from(&before.role);
            settings.keep_names(&before);
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
        if self.set_mode_late(name, Some(&values.join(", ")))? {
            return Ok(());
        }
        self.change(is_local, |settings| settings.set(name, values))
    }

    /// Changes settings, until the transaction ends if that is local to it: that is at once outside
    /// of one.
    pub(super) fn change(
        &mut self,
        is_local: bool,
        change: impl Fn(&mut Settings) -> SqlResult<()>,
    ) -> SqlResult<()> {
        let is_alone = is_local && self.state == TransactionState::Idle;
        let changed = |before: &Arc<Settings>| {
            let mut settings = Settings::clone(before);
            change(&mut settings).map(|()| Arc::new(settings))
        };
        let after = changed(&self.settings)?;
        if is_alone {
            return Ok(());
        }
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
        if let Some(settings) = before.or(after) {
            self.set_back(&settings, None);
        }
    }

    /// Sets parameters to what they were, and to what they are to be behind the transaction.
    pub(super) fn set_back(&mut self, before: &Arc<Settings>, lasting: Option<Arc<Settings>>) {
        self.lasting = lasting;
        if Arc::ptr_eq(before, &self.settings) {
            return;
        }
        let mut settings = Settings::clone(before);
        settings.keep_names(&self.settings);
        self.settings = Arc::new(settings);
        self.changes += 1;
    }

    /// How often parameters of the session were set.
    #[must_use]
    pub fn parameter_changes(&self) -> u64 {
        self.changes
    }
}

/// All parameters that have a place of their own, as `pg_settings` has them.
pub(super) const ALL: [&str; 30] = [
    "application_name",
    "bytea_output",
    "client_encoding",
    "client_min_messages",
    "DateStyle",
    "default_transaction_deferrable",
    "default_transaction_isolation",
    "default_transaction_read_only",
    "extra_float_digits",
    "idle_in_transaction_session_timeout",
    "idle_session_timeout",
    "in_hot_standby",
    "integer_datetimes",
    "IntervalStyle",
    "is_superuser",
    "lock_timeout",
    "max_function_args",
    "max_identifier_length",
    "max_index_keys",
    "password_encryption",
    "role",
    "search_path",
    "server_encoding",
    "server_version",
    "server_version_num",
    "standard_conforming_strings",
    "statement_timeout",
    "temp_file_limit",
    "TimeZone",
    "work_mem",
];

impl Settings {
    /// All parameters with their values, in the order of their names. `modes` are those of the
    /// transaction.
    pub(crate) fn all(&self, modes: Modes) -> Vec<(String, String)> {
        let own = ALL.into_iter().filter_map(|name| Some((name, self.get(name).ok()?)));
        let now = ["transaction_deferrable", "transaction_isolation", "transaction_read_only"];
        let now = now.into_iter().filter_map(|name| Some((name, modes.parameter(name)?)));
        let idle = WITHOUT_EFFECT.iter().map(|own| (own.name, self.without_effect(own.name)));
        let known = own.chain(now).chain(idle).map(|(name, value)| (name.to_owned(), value));
        let custom = self.others.iter().filter(|(name, _)| name.contains('.'));
        let custom = custom.map(|(name, value)| (name.clone(), value.clone()));
        let mut all: Vec<_> = known.chain(custom).collect();
        all.sort_by_key(|(name, _)| name.to_ascii_lowercase());
        all
    }

    /// The value of a parameter that changes nothing; nothing if there is none.
    fn without_effect(&self, name: &str) -> String {
        let Some(known) = without_effect(name) else { return String::new() };
        self.others.get(known.name).map_or(known.default, String::as_str).to_owned()
    }

    /// Keeps the names of clients' own parameters, without their values: they stay known.
    fn keep_names(&mut self, before: &Self) {
        for name in before.others.keys().filter(|name| name.contains('.')) {
            self.others.entry(name.clone()).or_default();
        }
    }

    /// Whether the client wants messages of a level.
    pub(crate) fn wants(&self, level: NoticeLevel) -> bool {
        match &*self.client_min_messages {
            "error" => false,
            "warning" => level >= NoticeLevel::Warning,
            _ => true,
        }
    }

    pub(super) fn set(&mut self, name: &str, values: &[String]) -> SqlResult<()> {
        let value = values.join(", ");
        let folded = value.to_lowercase();
        let invalid = |allowed: &str| invalid(name, &value, allowed);
        match &*name.to_ascii_lowercase() {
            "statement_timeout" => self.statement_timeout = timeout(name, &value)?,
            "lock_timeout" => self.lock_timeout = timeout(name, &value)?,
            "idle_in_transaction_session_timeout" => self.idle_timeout = timeout(name, &value)?,
            "idle_session_timeout" => self.idle_session_timeout = timeout(name, &value)?,
            "work_mem" => self.work_memory_bytes = work_memory(name, &value)?,
            "temp_file_limit" => self.temp_file_limit_bytes = self.temp_file_limit(name, &value)?,
            "application_name" => self.application_name = value.clone(),
            "search_path" => {
                self.search_path = list_of_names(&value).ok_or_else(|| {
                    let message = format!("invalid value for parameter \"{name}\": \"{value}\"");
                    let detail = "List syntax is invalid.".to_owned();
                    SqlError::new(SqlState::INVALID_PARAMETER, message).detail(detail)
                })?;
            }
            "default_transaction_isolation" => {
                let allowed = "serializable, repeatable read, read committed, read uncommitted";
                self.modes.isolation = level_of(&value).ok_or_else(|| invalid(allowed))?;
            }
            "default_transaction_read_only" => self.modes.read_only = switch(name, &value)?,
            "default_transaction_deferrable" => self.modes.deferrable = switch(name, &value)?,
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
                let is_on = switch(name, &value)?;
                crate::bind::refuse(!is_on, "a backslash as an escape in every literal")?;
            }
            "in_hot_standby"
            | "integer_datetimes"
            | "is_superuser"
            | "server_encoding"
            | "server_version"
            | "server_version_num"
            | "max_function_args"
            | "max_index_keys"
            | "session_authorization"
            | "role"
            | "max_identifier_length" => {
                let message = format!("parameter \"{name}\" cannot be changed");
                return Err(SqlError::new(SqlState::CANT_CHANGE_PARAMETER, message));
            }
            _ if self.set_format(name, &value)? => {}
            _ => {
                let (name, value) = match (without_effect(name), custom_name(name)?) {
                    (Some(known), _) => (known.name.to_owned(), known.checked(&value)?),
                    (None, Some(own)) => (own, value),
                    (None, None) => return Err(unknown(name)),
                };
                self.others.insert(name, value);
            }
        }
        Ok(())
    }

    /// Sets how values look. Whether there is such a setting.
    fn set_format(&mut self, name: &str, value: &str) -> SqlResult<bool> {
        let folded = value.to_lowercase();
        let invalid = |allowed: &str| invalid(name, value, allowed);
        match &*name.to_ascii_lowercase() {
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
                self.format.time_zone = TimeZone::parse(value)?;
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
        let time = |limit: Option<Duration>| {
            let millis = limit.map_or(0, |limit| limit.as_millis());
            shown_number(i64::try_from(millis).unwrap_or(i64::MAX), Unit::Milliseconds)
        };
        let word = |is_on| if is_on { "on" } else { "off" }.to_owned();
        let format = &self.format;
        Ok(match &*name.to_ascii_lowercase() {
            "statement_timeout" => time(self.statement_timeout),
            "lock_timeout" => time(self.lock_timeout),
            "idle_in_transaction_session_timeout" => time(self.idle_timeout),
            "idle_session_timeout" => time(self.idle_session_timeout),
            "work_mem" => shown_memory(self.work_memory_bytes as u64),
            "temp_file_limit" => self.temp_file_limit_bytes.map_or("-1".to_owned(), shown_memory),
            "application_name" => self.application_name.clone(),
            "search_path" => text_of_list(&self.search_path),
            "default_transaction_isolation" => level(self.modes.isolation).to_owned(),
            "default_transaction_read_only" => word(self.modes.read_only),
            "default_transaction_deferrable" => word(self.modes.deferrable),
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
            "timezone" | "time zone" => format.time_zone.name().to_owned(),
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
            "max_function_args" => "100".to_owned(),
            "max_index_keys" => "32".to_owned(),
            "role" => self.role.as_ref().map_or("none", |own| &own.name).to_owned(),
            // psql asks for it before it sends a password.
            "password_encryption" => "scram-sha-256".to_owned(),
            "is_superuser" => {
                let is_one = self.role.as_ref().map_or(self.is_superuser, |own| own.is_superuser);
                word(is_one)
            }
            "standard_conforming_strings" | "integer_datetimes" => "on".to_owned(),
            "in_hot_standby" => "off".to_owned(),
            folded => match (without_effect(folded), self.others.get(folded)) {
                (Some(known), _) => self.without_effect(known.name),
                (None, Some(value)) => value.clone(),
                (None, None) => return Err(unknown(name)),
            },
        })
    }
}

pub(super) fn level(isolation: Isolation) -> &'static str {
    match isolation {
        Isolation::Serializable => "serializable",
        Isolation::RepeatableRead => "repeatable read",
        Isolation::ReadCommitted => "read committed",
    }
}

/// The isolation of a name.
pub(super) fn level_of(name: &str) -> Option<Isolation> {
    Some(match &*name.to_ascii_lowercase() {
        "read committed" | "read uncommitted" => Isolation::ReadCommitted,
        "repeatable read" => Isolation::RepeatableRead,
        "serializable" => Isolation::Serializable,
        _ => return None,
    })
}

pub(super) fn invalid(name: &str, value: &str, allowed: &str) -> SqlError {
    let message = format!("invalid value for parameter \"{name}\": \"{value}\"");
    SqlError::new(SqlState::INVALID_PARAMETER, message)
        .hint(format!("Available values: {allowed}."))
}

fn unknown(name: &str) -> SqlError {
    let message = format!("unrecognized configuration parameter \"{name}\"");
    SqlError::new(SqlState::UNDEFINED_OBJECT, message)
}

/// A limit of time; 0 is none.
fn timeout(name: &str, value: &str) -> SqlResult<Option<Duration>> {
    let millis = number(name, value, Unit::Milliseconds, (0, i32::MAX.into()))?;
    Ok(u64::try_from(millis).ok().filter(|millis| *millis > 0).map(Duration::from_millis))
}
