//! Values of parameters as PostgreSQL takes them, and the parameters of PostgreSQL that are about
//! something which this engine does not have or does by itself. Drivers and dumps set them, so they
//! are taken, checked and shown; their values change nothing.

use crate::error::{SqlError, SqlResult, SqlState};

/// In what a number is, if it has no unit of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    None,
    Kilobytes,
    /// Pages of 8 KiB.
    Pages,
    Milliseconds,
    Seconds,
}

/// What values a parameter has.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Switch,
    Whole(i64, i64, Unit),
    Real(f64, f64),
    OneOf(&'static [&'static str]),
    Text,
    /// Any other value than the default would have to do something.
    Fixed,
}

/// A parameter whose value changes nothing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parameter {
    pub(super) name: &'static str,
    pub(super) default: &'static str,
    kind: Kind,
}

const MOST: i64 = i32::MAX as i64;

const fn switch_on(name: &'static str) -> Parameter {
    Parameter { name, default: "on", kind: Kind::Switch }
}

const fn switch_off(name: &'static str) -> Parameter {
    Parameter { name, default: "off", kind: Kind::Switch }
}

const fn whole(
    name: &'static str,
    default: &'static str,
    range: (i64, i64),
    unit: Unit,
) -> Parameter {
    Parameter { name, default, kind: Kind::Whole(range.0, range.1, unit) }
}

const fn real(name: &'static str, default: &'static str, range: (f64, f64)) -> Parameter {
    Parameter { name, default, kind: Kind::Real(range.0, range.1) }
}

const fn one_of(
    name: &'static str,
    default: &'static str,
    allowed: &'static [&'static str],
) -> Parameter {
    Parameter { name, default, kind: Kind::OneOf(allowed) }
}

const fn text(name: &'static str, default: &'static str) -> Parameter {
    Parameter { name, default, kind: Kind::Text }
}

const fn fixed(name: &'static str, default: &'static str) -> Parameter {
    Parameter { name, default, kind: Kind::Fixed }
}

/// Those that change nothing, with the defaults, ranges and words of PostgreSQL 15.
pub(super) static WITHOUT_EFFECT: &[Parameter] = &[
    fixed("array_nulls", "on"),
    whole("backend_flush_after", "0", (0, 256), Unit::Pages),
    one_of("backslash_quote", "safe_encoding", &["safe_encoding", "on", "off"]),
    switch_on("check_function_bodies"),
    whole("client_connection_check_interval", "0", (0, MOST), Unit::Milliseconds),
    whole("commit_siblings", "5", (0, 1000), Unit::None),
    one_of("constraint_exclusion", "partition", &["partition", "on", "off"]),
    real("cpu_index_tuple_cost", "0.005", (0.0, f64::MAX)),
    real("cpu_operator_cost", "0.0025", (0.0, f64::MAX)),
    real("cpu_tuple_cost", "0.01", (0.0, f64::MAX)),
    real("cursor_tuple_fraction", "0.1", (0.0, 1.0)),
    switch_on("debug_pretty_print"),
    whole("default_statistics_target", "100", (1, 10_000), Unit::None),
    fixed("default_table_access_method", "heap"),
    fixed("default_tablespace", ""),
    text("default_text_search_config", "pg_catalog.simple"),
    one_of("default_toast_compression", "pglz", &["pglz", "lz4"]),
    whole("effective_cache_size", "4GB", (1, MOST), Unit::Pages),
    whole("effective_io_concurrency", "1", (0, 1000), Unit::None),
    switch_on("enable_async_append"),
    switch_on("enable_bitmapscan"),
    switch_on("enable_gathermerge"),
    switch_on("enable_hashagg"),
    switch_on("enable_hashjoin"),
    switch_on("enable_incremental_sort"),
    switch_on("enable_indexonlyscan"),
    switch_on("enable_indexscan"),
    switch_on("enable_material"),
    switch_on("enable_memoize"),
    switch_on("enable_mergejoin"),
    switch_on("enable_nestloop"),
    switch_on("enable_parallel_append"),
    switch_on("enable_parallel_hash"),
    switch_on("enable_partition_pruning"),
    switch_off("enable_partitionwise_aggregate"),
    switch_off("enable_partitionwise_join"),
    switch_on("enable_seqscan"),
    switch_on("enable_sort"),
    switch_on("enable_tidscan"),
    switch_on("escape_string_warning"),
    one_of("force_parallel_mode", "off", &["off", "on", "regress"]),
    whole("from_collapse_limit", "8", (1, MOST), Unit::None),
    switch_on("geqo"),
    whole("geqo_effort", "5", (1, 10), Unit::None),
    whole("geqo_generations", "0", (0, MOST), Unit::None),
    whole("geqo_pool_size", "0", (0, MOST), Unit::None),
    real("geqo_seed", "0", (0.0, 1.0)),
    real("geqo_selection_bias", "2", (1.5, 2.0)),
    whole("geqo_threshold", "12", (2, MOST), Unit::None),
    whole("gin_fuzzy_search_limit", "0", (0, MOST), Unit::None),
    whole("gin_pending_list_limit", "4MB", (64, MOST), Unit::Kilobytes),
    real("hash_mem_multiplier", "2", (1.0, 1000.0)),
    switch_on("jit"),
    real("jit_above_cost", "100000", (-1.0, f64::MAX)),
    switch_on("jit_expressions"),
    real("jit_inline_above_cost", "500000", (-1.0, f64::MAX)),
    real("jit_optimize_above_cost", "500000", (-1.0, f64::MAX)),
    switch_on("jit_tuple_deforming"),
    whole("join_collapse_limit", "8", (1, MOST), Unit::None),
    fixed("lc_monetary", "C"),
    fixed("lc_numeric", "C"),
    fixed("lc_time", "C"),
    whole("logical_decoding_work_mem", "64MB", (64, MOST), Unit::Kilobytes),
    whole("maintenance_io_concurrency", "10", (0, 1000), Unit::None),
    whole("maintenance_work_mem", "64MB", (1024, MOST), Unit::Kilobytes),
    whole("max_parallel_maintenance_workers", "2", (0, 1024), Unit::None),
    whole("max_parallel_workers", "8", (0, 1024), Unit::None),
    whole("max_parallel_workers_per_gather", "2", (0, 1024), Unit::None),
    whole("min_parallel_index_scan_size", "512kB", (0, 715_827_882), Unit::Pages),
    whole("min_parallel_table_scan_size", "8MB", (0, 715_827_882), Unit::Pages),
    switch_on("parallel_leader_participation"),
    real("parallel_setup_cost", "1000", (0.0, f64::MAX)),
    real("parallel_tuple_cost", "0.1", (0.0, f64::MAX)),
    one_of("plan_cache_mode", "auto", &["auto", "force_generic_plan", "force_custom_plan"]),
    fixed("quote_all_identifiers", "off"),
    real("random_page_cost", "4", (0.0, f64::MAX)),
    real("recursive_worktable_factor", "10", (0.001, 1e6)),
    switch_on("row_security"),
    real("seq_page_cost", "1", (0.0, f64::MAX)),
    fixed("session_replication_role", "origin"),
    one_of("stats_fetch_consistency", "cache", &["none", "cache", "snapshot"]),
    switch_on("synchronize_seqscans"),
    one_of("synchronous_commit", "on", &["local", "remote_write", "remote_apply", "on", "off"]),
    whole("tcp_keepalives_count", "0", (0, MOST), Unit::None),
    whole("tcp_keepalives_idle", "0", (0, MOST), Unit::Seconds),
    whole("tcp_keepalives_interval", "0", (0, MOST), Unit::Seconds),
    whole("tcp_user_timeout", "0", (0, MOST), Unit::Milliseconds),
    whole("temp_buffers", "8MB", (100, MOST / 2), Unit::Pages),
    fixed("temp_tablespaces", ""),
    fixed("transform_null_equals", "off"),
    real("vacuum_cost_delay", "0", (0.0, 100.0)),
    whole("vacuum_cost_limit", "200", (1, 10_000), Unit::None),
    whole("vacuum_cost_page_dirty", "20", (0, 10_000), Unit::None),
    whole("vacuum_cost_page_hit", "1", (0, 10_000), Unit::None),
    whole("vacuum_cost_page_miss", "2", (0, 10_000), Unit::None),
    whole("vacuum_failsafe_age", "1600000000", (0, 2_100_000_000), Unit::None),
    whole("vacuum_freeze_min_age", "50000000", (0, 1_000_000_000), Unit::None),
    whole("vacuum_freeze_table_age", "150000000", (0, 2_000_000_000), Unit::None),
    whole("vacuum_multixact_failsafe_age", "1600000000", (0, 2_100_000_000), Unit::None),
    whole("vacuum_multixact_freeze_min_age", "5000000", (0, 1_000_000_000), Unit::None),
    whole("vacuum_multixact_freeze_table_age", "150000000", (0, 2_000_000_000), Unit::None),
    whole("wal_sender_timeout", "1min", (0, MOST), Unit::Milliseconds),
    whole("wal_skip_threshold", "2MB", (0, MOST), Unit::Kilobytes),
    one_of("xmlbinary", "base64", &["base64", "hex"]),
    one_of("xmloption", "content", &["content", "document"]),
];

/// The parameter of a name, if its value changes nothing.
pub(super) fn without_effect(name: &str) -> Option<&'static Parameter> {
    WITHOUT_EFFECT.iter().find(|own| own.name.eq_ignore_ascii_case(name))
}

impl Parameter {
    /// A value as it is shown.
    pub(super) fn checked(&self, value: &str) -> SqlResult<String> {
        Ok(match self.kind {
            Kind::Switch => if switch(self.name, value)? { "on" } else { "off" }.to_owned(),
            Kind::Whole(least, most, unit) => {
                shown_number(number(self.name, value, unit, (least, most))?, unit)
            }
            Kind::Real(least, most) => {
                let wrong = || invalid(self.name, value);
                let number: f64 = value.trim().parse().map_err(|_| wrong())?;
                if !number.is_finite() {
                    return Err(wrong());
                }
                if number < least || number > most {
                    // As C prints the greatest double.
                    let end =
                        if most == f64::MAX { "1.79769e+308".into() } else { most.to_string() };
                    return Err(outside(self.name, &number.to_string(), &least.to_string(), &end));
                }
                number.to_string()
            }
            Kind::OneOf(allowed) => {
                let found = allowed.iter().find(|own| own.eq_ignore_ascii_case(value));
                let wrong = || super::settings::invalid(self.name, value, &allowed.join(", "));
                (*found.ok_or_else(wrong)?).to_owned()
            }
            Kind::Text => value.to_owned(),
            Kind::Fixed => {
                let is_switch = switch_of(self.default).is_some();
                let is_same = match switch_of(value).filter(|_| is_switch) {
                    Some(value) => switch_of(self.default) == Some(value),
                    None => value.eq_ignore_ascii_case(self.default),
                };
                let what = format!("{} other than \"{}\"", self.name, self.default);
                crate::bind::refuse(!is_same, &what)?;
                self.default.to_owned()
            }
        })
    }
}

/// A name with dots between identifiers, which is a parameter of the client: in lower case, as case
/// does not matter.
///
/// # Errors
/// 42602 if a part is no identifier.
pub(super) fn custom_name(name: &str) -> SqlResult<Option<String>> {
    if !name.contains('.') {
        return Ok(None);
    }
    let is_word = |part: &str| {
        let starts = |c: char| c.is_ascii_alphabetic() || c == '_' || !c.is_ascii();
        part.starts_with(starts)
            && part.chars().all(|c| starts(c) || c.is_ascii_digit() || c == '$')
    };
    if !name.split('.').all(is_word) {
        let message = format!("invalid configuration parameter name \"{name}\"");
        let detail = "Custom parameter names must be two or more simple identifiers separated by \
                      dots.";
        return Err(SqlError::new(SqlState::INVALID_NAME, message).detail(detail));
    }
    Ok(Some(name.to_ascii_lowercase()))
}

/// What is on or off: a word, or so much of its beginning that it cannot be another.
fn switch_of(text: &str) -> Option<bool> {
    let text = text.trim().to_ascii_lowercase();
    let begins = |word: &str, least: usize| text.len() >= least && word.starts_with(&text);
    match &*text {
        "1" => Some(true),
        "0" => Some(false),
        _ if begins("true", 1) || begins("yes", 1) || text == "on" => Some(true),
        _ if begins("false", 1) || begins("no", 1) || begins("off", 2) => Some(false),
        _ => None,
    }
}

/// The value of a parameter that is on or off.
pub(super) fn switch(name: &str, value: &str) -> SqlResult<bool> {
    switch_of(value).ok_or_else(|| {
        let message = format!("parameter \"{name}\" requires a Boolean value");
        SqlError::new(SqlState::INVALID_PARAMETER, message)
    })
}

impl Unit {
    /// The units that a value may have, and how much of this one they are.
    fn units(self) -> &'static [(&'static str, f64)] {
        const KIB: f64 = 1024.0;
        match self {
            Self::None => &[],
            Self::Kilobytes => &[
                ("TB", KIB * KIB * KIB),
                ("GB", KIB * KIB),
                ("MB", KIB),
                ("kB", 1.0),
                ("B", 1.0 / KIB),
            ],
            Self::Pages => &[
                ("TB", KIB * KIB * KIB / 8.0),
                ("GB", KIB * KIB / 8.0),
                ("MB", KIB / 8.0),
                ("kB", 1.0 / 8.0),
                ("B", 1.0 / KIB / 8.0),
            ],
            Self::Milliseconds => &[
                ("d", 86_400_000.0),
                ("h", 3_600_000.0),
                ("min", 60_000.0),
                ("s", 1_000.0),
                ("ms", 1.0),
                ("us", 0.001),
            ],
            Self::Seconds => &[
                ("d", 86_400.0),
                ("h", 3_600.0),
                ("min", 60.0),
                ("s", 1.0),
                ("ms", 0.001),
                ("us", 0.000_001),
            ],
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Kilobytes => "kB",
            Self::Pages => "8kB",
            Self::Milliseconds => "ms",
            Self::Seconds => "s",
        }
    }

    fn hint(self) -> Option<&'static str> {
        match self {
            Self::None => None,
            Self::Kilobytes | Self::Pages => Some(
                "Valid units for this parameter are \"B\", \"kB\", \"MB\", \"GB\", and \"TB\".",
            ),
            Self::Milliseconds | Self::Seconds => Some(
                "Valid units for this parameter are \"us\", \"ms\", \"s\", \"min\", \"h\", and \
                 \"d\".",
            ),
        }
    }
}

/// A whole number of a unit.
pub(super) fn number(
    name: &str,
    value: &str,
    unit: Unit,
    (least, most): (i64, i64),
) -> SqlResult<i64> {
    let text = value.trim();
    let is_part = |c: char| c.is_ascii_digit() || matches!(c, '.' | '+' | '-');
    let end = text.find(|c: char| !is_part(c)).unwrap_or(text.len());
    let (digits, of) = text.split_at_checked(end).unwrap_or((text, ""));
    let wrong = || {
        let error = invalid(name, value);
        match unit.hint().filter(|_| !of.trim().is_empty()) {
            Some(hint) => error.hint(hint),
            None => error,
        }
    };
    let number: f64 = digits.parse().map_err(|_| invalid(name, value))?;
    let of = of.trim();
    let times = match of.is_empty() {
        true => 1.0,
        false => unit.units().iter().find(|own| own.0 == of).ok_or_else(wrong)?.1,
    };
    let number = (number * times).round_ties_even();
    if number < least as f64 || number > most as f64 {
        let unit = unit.name();
        let shown = if unit.is_empty() { number.to_string() } else { format!("{number} {unit}") };
        return Err(outside(name, &shown, &least.to_string(), &most.to_string()));
    }
    Ok(number as i64)
}

/// A number of a unit, in the largest unit of which it is a whole number.
pub(super) fn shown_number(number: i64, unit: Unit) -> String {
    if number > 0 {
        let amount = number as f64;
        let fits =
            |(_, times): &&(&str, f64)| *times >= 1.0 / 8.0 && (amount / times).fract() == 0.0;
        if let Some((name, times)) = unit.units().iter().find(fits) {
            return format!("{}{name}", amount / times);
        }
    }
    number.to_string()
}

fn invalid(name: &str, value: &str) -> SqlError {
    let message = format!("invalid value for parameter \"{name}\": \"{value}\"");
    SqlError::new(SqlState::INVALID_PARAMETER, message)
}

fn outside(name: &str, value: &str, least: &str, most: &str) -> SqlError {
    let message =
        format!("{value} is outside the valid range for parameter \"{name}\" ({least} .. {most})");
    SqlError::new(SqlState::INVALID_PARAMETER, message)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use super::*;

    #[test]
    fn every_default_is_a_value_that_is_shown_as_it_is() {
        for own in WITHOUT_EFFECT {
            assert_eq!(own.checked(own.default).unwrap(), own.default, "{}", own.name);
        }
        assert!(WITHOUT_EFFECT.is_sorted_by_key(|own| own.name));
    }

    #[test]
    fn numbers_have_units() {
        let checked = |name: &str, value: &str| without_effect(name).unwrap().checked(value);
        assert_eq!(checked("maintenance_work_mem", "65536").unwrap(), "64MB");
        assert_eq!(checked("maintenance_work_mem", "1.5 MB").unwrap(), "1536kB");
        assert_eq!(checked("Temp_Buffers", "128").unwrap(), "1MB");
        assert_eq!(checked("temp_buffers", "101").unwrap(), "808kB");
        assert_eq!(checked("tcp_keepalives_idle", "90s").unwrap(), "90s");
        assert_eq!(checked("tcp_user_timeout", "0").unwrap(), "0");
        let error = checked("gin_pending_list_limit", "1x").unwrap_err();
        assert!(error.hint_text().unwrap().starts_with("Valid units"), "{error}");
        let error = checked("gin_pending_list_limit", "1").unwrap_err();
        let range = "1 kB is outside the valid range for parameter \"gin_pending_list_limit\" \
                     (64 .. 2147483647)";
        assert_eq!(error.message(), range);
        let error = checked("random_page_cost", "-1").unwrap_err();
        assert!(error.message().ends_with("(0 .. 1.79769e+308)"), "{error}");
    }

    #[test]
    fn what_would_have_to_do_something_is_refused() {
        for (name, value) in [("default_tablespace", "x"), ("quote_all_identifiers", "on")] {
            let error = without_effect(name).unwrap().checked(value).unwrap_err();
            assert_eq!(error.state(), SqlState::FEATURE_NOT_SUPPORTED, "{name}");
        }
        assert_eq!(without_effect("array_nulls").unwrap().checked("true").unwrap(), "on");
        for text in ["o", "", "2", "onn"] {
            assert_eq!(switch_of(text), None, "{text}");
        }
        assert_eq!(["t", "YES", "on"].map(switch_of), [Some(true); 3]);
        assert_eq!(["f", "n", "of", "OFF"].map(switch_of), [Some(false); 4]);
    }
}
