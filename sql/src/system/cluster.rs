//! Rows of what belongs to no schema: databases, settings, time zones.

use std::sync::Arc;

use super::oids;
use super::record::{Cell, Record};
use super::relation::Relation;
use super::snapshot::{KeptCursor, KeptStatement, SystemSnapshot};
use crate::session_list::Activity;
use crate::statement_list::StatementStats;
use crate::types::Datum;
use crate::types::zone::{self, ListedZone};

type Rows = Vec<Vec<Datum>>;

/// PostgreSQL's number of the encoding UTF8.
const UTF8: i32 = 6;

/// The rows of a relation, if it is of this file.
pub(super) fn rows(system: &SystemSnapshot, relation: &'static Relation) -> Option<Rows> {
    Some(match relation.full_name {
        "pg_catalog.pg_database" => vec![database(system, relation)],
        "pg_catalog.pg_tablespace" => tablespaces(relation),
        "pg_catalog.pg_settings" => settings(system, relation),
        "pg_catalog.pg_prepared_statements" => prepared(system, relation),
        "pg_catalog.pg_cursors" => cursors(system, relation),
        "pg_catalog.pg_stat_activity" => activity(system, relation),
        "pg_catalog.pg_stat_progress_create_index" => index_builds(system, relation),
        "pg_catalog.pg_stat_statements" => statements(system, relation),
        "pg_catalog.pg_timezone_names" => {
            let zones = zone::all_names(system.session.transaction_start);
            zones.map(|own| time_zone(relation, "name", own)).collect()
        }
        "pg_catalog.pg_timezone_abbrevs" => {
            let zones = zone::all_abbreviations(system.session.transaction_start);
            zones.map(|own| time_zone(relation, "abbrev", own)).collect()
        }
        _ => return None,
    })
}

fn database(system: &SystemSnapshot, relation: &'static Relation) -> Vec<Datum> {
    Record::new(relation)
        .set("oid", oids::DATABASE)
        .set("datname", system.session.database)
        .set("datdba", oids::OWNER)
        .set("encoding", UTF8)
        .set("datlocprovider", "c")
        .set("datallowconn", true)
        .set("datconnlimit", -1)
        .set("datfrozenxid", "0")
        .set("datminmxid", "0")
        .set("dattablespace", oids::TABLESPACE)
        // Texts are in the order of their bytes.
        .set("datcollate", "C")
        .set("datctype", "C.UTF-8")
        .row()
}

/// Plans are for all values, so that all runs are by such.
fn prepared(system: &SystemSnapshot, relation: &'static Relation) -> Rows {
    let record = |own: &KeptStatement| {
        Record::new(relation)
            .set("name", &*own.name)
            .set("statement", &*own.text)
            .set("prepare_time", Cell::Moment(own.prepared_at))
            .set("parameter_types", own.types.iter().map(|ty| ty.oid()).collect::<Vec<u32>>())
            .set("from_sql", own.is_from_sql)
            .set("generic_plans", i64::try_from(own.runs).unwrap_or(i64::MAX))
            .set("custom_plans", 0)
            .row()
    };
    system.session.prepared.iter().map(record).collect()
}

fn cursors(system: &SystemSnapshot, relation: &'static Relation) -> Rows {
    let record = |own: &KeptCursor| {
        Record::new(relation)
            .set("name", &*own.name)
            .set("statement", &*own.text)
            .set("is_holdable", own.is_holdable)
            .set("is_binary", false)
            .set("is_scrollable", own.is_scrollable)
            .set("creation_time", Cell::Moment(own.opened_at))
            .row()
    };
    system.session.cursors.iter().map(record).collect()
}

fn tablespaces(relation: &'static Relation) -> Rows {
    let all = [(oids::TABLESPACE, "pg_default"), (oids::GLOBAL_TABLESPACE, "pg_global")];
    let record = |(oid, name): (u32, &str)| {
        let record = Record::new(relation).set("oid", oid).set("spcname", name);
        record.set("spcowner", oids::OWNER).row()
    };
    all.into_iter().map(record).collect()
}

/// What statements took; their texts are for superusers.
fn statements(system: &SystemSnapshot, relation: &'static Relation) -> Rows {
    let is_superuser = system.authority.is_superuser();
    let ms = |micros: u64| micros as f64 / 1e3;
    let all = system.session.statements.all();
    let record = |own: &Arc<StatementStats>| {
        let figures = own.figures()?;
        let text = if is_superuser { &*own.text } else { "<insufficient privilege>" };
        let record = Record::new(relation)
            .set("userid", oids::OWNER)
            .set("dbid", oids::DATABASE)
            .set("toplevel", true)
            .set("queryid", i64::from(oids::text(&own.text)))
            .set("query", text)
            .set("calls", figures.calls as i64)
            .set("total_exec_time", ms(figures.micros))
            .set("min_exec_time", ms(figures.least))
            .set("max_exec_time", ms(figures.most))
            .set("mean_exec_time", ms(figures.micros) / figures.calls as f64)
            .set("rows", figures.rows as i64);
        Some(record.row())
    };
    all.iter().filter_map(record).collect()
}

/// What sessions of others do is for superusers.
fn activity(system: &SystemSnapshot, relation: &'static Relation) -> Rows {
    let record = |own: Activity| {
        let role = system.authority.roles().and_then(|roles| roles.find(&own.user));
        let record = Record::new(relation)
            .set("datid", oids::DATABASE)
            .set("datname", system.session.database)
            .set("pid", own.number)
            .set("usesysid", role.map_or(oids::OWNER, |role| role.oid))
            .set("usename", &*own.user)
            .set("application_name", &*own.application);
        if !system.authority.is_superuser() && own.user != system.session.user {
            return record.set("query", "<insufficient privilege>").row();
        }
        record
            .set("client_addr", own.client.map(|client| client.ip().to_string()))
            .set("client_port", own.client.map_or(-1, |client| i32::from(client.port())))
            .set("backend_start", Cell::Moment(own.session_start))
            .set("xact_start", own.transaction_start.map(Cell::Moment))
            .set("query_start", own.statement_start.map(Cell::Moment))
            .set("state_change", Cell::Moment(own.state_change))
            .set("state", own.state.name())
            .set("query", &*own.text)
            .set("backend_type", "client backend")
            .row()
    };
    system.session.sessions.all().into_iter().map(record).collect()
}

fn index_builds(system: &SystemSnapshot, relation: &'static Relation) -> Rows {
    let record = |own: Activity| {
        let index = own.index?;
        let record = Record::new(relation)
            .set("pid", own.number)
            .set("datid", oids::DATABASE)
            .set("datname", system.session.database);
        if !system.authority.is_superuser() && own.user != system.session.user {
            return Some(record.row());
        }
        let concurrently = if index.is_concurrent { " CONCURRENTLY" } else { "" };
        let count = |rows: u64| i64::try_from(rows).unwrap_or(i64::MAX);
        // There are no blocks, partitions, or others that it waits for.
        let none = [
            "lockers_total",
            "lockers_done",
            "current_locker_pid",
            "blocks_total",
            "blocks_done",
            "partitions_total",
            "partitions_done",
        ];
        let record = none.into_iter().fold(record, |record, name| record.set(name, 0));
        let record = record
            .set("relid", oids::table(index.table_number))
            .set("index_relid", 0)
            .set("command", format!("CREATE INDEX{concurrently}"))
            .set("phase", "building index: loading tuples in tree")
            .set("tuples_total", count(index.rows_total))
            .set("tuples_done", count(index.rows_done));
        Some(record.row())
    };
    system.session.sessions.all().into_iter().filter_map(record).collect()
}

/// A zone or an abbreviation, of which `key` is the column.
fn time_zone(relation: &'static Relation, key: &str, own: ListedZone) -> Vec<Datum> {
    let record = Record::new(relation);
    let record = match key {
        "name" => record.set("abbrev", own.clock.abbreviation),
        _ => record,
    };
    record
        .set(key, own.name)
        .set("utc_offset", Cell::Seconds(own.clock.offset_s))
        .set("is_dst", own.clock.is_summer)
        .row()
}

fn settings(system: &SystemSnapshot, relation: &'static Relation) -> Rows {
    let record = |(name, value): &(String, String)| {
        Record::new(relation)
            .set("name", &**name)
            .set("setting", &**value)
            .set("category", "Client Connection Defaults")
            .set("short_desc", "")
            .set("context", "user")
            .set("vartype", "string")
            .set("source", "session")
            .set("boot_val", &**value)
            .set("reset_val", &**value)
            .set("pending_restart", false)
            .row()
    };
    system.session.settings.iter().map(record).collect()
}
