//! What statements say of things that they skip, and of those that they take along.

use sqlparser::ast::ObjectName;

use super::super::run::Run;
use crate::bind::{is_system_schema, name_parts};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::notice::Notice;
use crate::schemas::PUBLIC;

/// Tells the client of something that is no error, if its session wants that.
pub(super) fn tell(run: &Run, notice: &Notice) {
    if run.settings.wants(notice.level()) {
        run.client.notice(notice);
    }
}

/// What was to be dropped IF EXISTS is not there: a `kind` of a name, or the schema in it.
pub(super) fn missing(run: &Run, kind: &str, name: &ObjectName) -> SqlResult<()> {
    let parts = name_parts(name)?;
    let unknown = |schema: &&String| match &***schema {
        PUBLIC => !run.path.has_public(),
        name => !is_system_schema(name) && run.path.schema(name).is_none(),
    };
    let schema = parts.iter().rev().nth(1);
    let what = match schema.filter(unknown) {
        Some(schema) => format!("schema \"{schema}\""),
        None => format!("{kind} \"{}\"", parts.last().map_or("", String::as_str)),
    };
    tell(run, &Notice::missing(what));
    Ok(())
}

/// What was to be changed IF EXISTS is not there.
pub(super) fn missing_relation(run: &Run, name: &ObjectName) -> SqlResult<()> {
    let parts = name_parts(name)?;
    let last = parts.last().map_or("", String::as_str);
    tell(run, &Notice::missing(format!("relation \"{last}\"")));
    Ok(())
}

/// What was to be created IF NOT EXISTS is there: `error` is what it would be without these words.
pub(super) fn skipped(run: &Run, error: &SqlError) {
    tell(run, &Notice::skipped(error));
}

/// What was to be created is there: that is said if it is to be skipped, and else an error.
pub(super) fn if_wanted(run: &Run, is_wanted: bool, error: SqlError) -> SqlResult<()> {
    if is_wanted {
        skipped(run, &error);
        return Ok(());
    }
    Err(error)
}

/// What CASCADE has taken along: each is its kind and name.
pub(super) fn cascaded(run: &Run, taken: &[String]) {
    let line = |what: &String| format!("drop cascades to {what}");
    let notice = |message| Notice::note(SqlState::SUCCESSFUL_COMPLETION, message);
    match taken {
        [] => {}
        [only] => tell(run, &notice(line(only))),
        all => {
            let lines: Vec<String> = all.iter().map(line).collect();
            let message = format!("drop cascades to {} other objects", all.len());
            tell(run, &notice(message).detail(lines.join("\n")));
        }
    }
}
