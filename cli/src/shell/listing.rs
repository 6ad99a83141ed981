//! Commands that list what there is, asked of `pg_catalog` as psql does.

use super::backend::Answer;
use super::describe::describe;
use super::error::CommandError;
use super::meta::{Typed, Verb};
use super::output::Rows;
use super::run::Shell;
use super::sink::mention;
use super::view::Column;
use super::words::Pattern;

/// Runs a command that lists or describes.
///
/// # Errors
/// If there is nothing of the name, and what a statement reports.
pub(super) fn list(shell: &mut Shell, typed: &Typed<'_>) -> Result<(), CommandError> {
    let name = typed.word()?;
    let (title, answer) = match (typed.verb, &name) {
        (Verb::Describe, Some(name)) => {
            return match describe(shell, name, typed.is_verbose)? {
                0 => Err(none("relation", Some(name))),
                _ => Ok(()),
            };
        }
        (Verb::Describe, None) => relations(shell, "'r', 'v', 'S'", None, typed.is_verbose)?,
        (Verb::Relations(kind), name) => {
            let kinds = format!("'{kind}'");
            relations(shell, &kinds, name.as_deref(), typed.is_verbose)?
        }
        (Verb::Roles, name) => ("List of roles", roles(shell, name.as_deref())?),
        (Verb::Databases, name) => ("List of databases", databases(shell, name.as_deref())?),
        (Verb::Schemas, name) => ("List of schemas", schemas(shell, name.as_deref())?),
        (Verb::Privileges, name) => ("Access privileges", privileges(shell, name.as_deref())?),
        (_, name) => ("List of functions", functions(shell, name.as_deref())?),
    };
    if answer.rows.is_empty() && shell.view.format.is_for_people() {
        let what = title.strip_prefix("List of ").unwrap_or("relations");
        return match &name {
            Some(_) => Err(none(what.strip_suffix('s').unwrap_or(what), name.as_deref())),
            // That there is nothing yet is no failure.
            None => {
                mention(&format!("Did not find any {what}."));
                Ok(())
            }
        };
    }
    let mut out = String::new();
    let mut rows = Rows::new(&shell.view, answer.columns, Some(title));
    answer.rows.iter().for_each(|row| rows.row(row, &mut out));
    rows.end(&mut out);
    shell.say(&out)
}

fn none(what: &str, name: Option<&str>) -> CommandError {
    let name = name.unwrap_or_default();
    CommandError::usage(format!("did not find any {what} named \"{name}\""))
}

/// The condition for names of a pattern.
fn condition(name: Option<&str>, column: &str) -> String {
    name.map_or("true".to_owned(), |name| Pattern::of(name).condition("''", column, "true"))
}

const USER_SCHEMAS: &str =
    "n.nspname <> 'pg_catalog' AND n.nspname !~ '^pg_toast' AND n.nspname <> 'information_schema'";

fn relations(
    shell: &Shell,
    kinds: &str,
    name: Option<&str>,
    is_verbose: bool,
) -> Result<(&'static str, Answer), CommandError> {
    let visible = "pg_catalog.pg_table_is_visible(c.oid)";
    let condition = match name {
        Some(name) => Pattern::of(name).condition("n.nspname", "c.relname", visible),
        None => format!("{USER_SCHEMAS} AND {visible}"),
    };
    let table = if kinds == "'i'" { ", c2.relname AS \"Table\"" } else { "" };
    let more = match is_verbose {
        true => ", pg_catalog.obj_description(c.oid, 'pg_class') AS \"Description\"",
        false => "",
    };
    let answer = shell.ask(&format!(
        "SELECT n.nspname AS \"Schema\", c.relname AS \"Name\", \
           CASE c.relkind WHEN 'r' THEN 'table' WHEN 'v' THEN 'view' WHEN 'i' THEN 'index' \
             WHEN 'S' THEN 'sequence' END AS \"Type\", \
           pg_catalog.pg_get_userbyid(c.relowner) AS \"Owner\"{table}{more} \
         FROM pg_catalog.pg_class c \
           LEFT JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
           LEFT JOIN pg_catalog.pg_index i ON i.indexrelid = c.oid \
           LEFT JOIN pg_catalog.pg_class c2 ON i.indrelid = c2.oid \
         WHERE c.relkind IN ({kinds}) AND {condition} ORDER BY 1, 2"
    ))?;
    Ok(("List of relations", answer))
}

fn roles(shell: &Shell, name: Option<&str>) -> Result<Answer, CommandError> {
    let condition = match name {
        Some(_) => condition(name, "r.rolname"),
        None => "r.rolname !~ '^pg_'".to_owned(),
    };
    let asked = shell.ask(&format!(
        "SELECT r.rolname, r.rolsuper, r.rolinherit, r.rolcreaterole, r.rolcreatedb, \
           r.rolcanlogin, r.rolreplication, r.rolbypassrls, r.rolvaliduntil, \
           ARRAY(SELECT b.rolname FROM pg_catalog.pg_auth_members m \
                 JOIN pg_catalog.pg_roles b ON m.roleid = b.oid WHERE m.member = r.oid) \
         FROM pg_catalog.pg_roles r WHERE {condition} ORDER BY 1"
    ))?;
    let rows = asked.rows.iter().map(|row| {
        let text = |at: usize| row.get(at).cloned().flatten();
        let is = |at: usize| text(at).as_deref() == Some("t");
        let attributes = [
            (is(1), "Superuser"),
            (!is(2), "No inheritance"),
            (is(3), "Create role"),
            (is(4), "Create DB"),
            (!is(5), "Cannot login"),
            (is(6), "Replication"),
            (is(7), "Bypass RLS"),
        ];
        let attributes = attributes.into_iter().filter(|own| own.0).map(|own| own.1.to_owned());
        let mut attributes = attributes.collect::<Vec<_>>().join(", ");
        if let Some(until) = text(8) {
            attributes.push_str(if attributes.is_empty() { "" } else { "\n" });
            attributes.push_str(&format!("Password valid until {until}"));
        }
        vec![text(0), Some(attributes), text(9)]
    });
    let columns = ["Role name", "Attributes", "Member of"].map(Column::text).to_vec();
    Ok(Answer { columns, rows: rows.collect() })
}

fn databases(shell: &Shell, name: Option<&str>) -> Result<Answer, CommandError> {
    shell.ask(&format!(
        "SELECT d.datname AS \"Name\", pg_catalog.pg_get_userbyid(d.datdba) AS \"Owner\", \
           pg_catalog.pg_encoding_to_char(d.encoding) AS \"Encoding\", \
           d.datcollate AS \"Collate\", d.datctype AS \"Ctype\", \
           pg_catalog.array_to_string(d.datacl, E'\\n') AS \"Access privileges\" \
         FROM pg_catalog.pg_database d WHERE {} ORDER BY 1",
        condition(name, "d.datname")
    ))
}

fn schemas(shell: &Shell, name: Option<&str>) -> Result<Answer, CommandError> {
    let condition = match name {
        Some(_) => condition(name, "n.nspname"),
        None => "n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'".to_owned(),
    };
    shell.ask(&format!(
        "SELECT n.nspname AS \"Name\", pg_catalog.pg_get_userbyid(n.nspowner) AS \"Owner\" \
         FROM pg_catalog.pg_namespace n WHERE {condition} ORDER BY 1"
    ))
}

fn privileges(shell: &Shell, name: Option<&str>) -> Result<Answer, CommandError> {
    let visible = "pg_catalog.pg_table_is_visible(c.oid)";
    let condition = match name {
        Some(name) => Pattern::of(name).condition("n.nspname", "c.relname", visible),
        None => format!("{USER_SCHEMAS} AND {visible}"),
    };
    shell.ask(&format!(
        "SELECT n.nspname AS \"Schema\", c.relname AS \"Name\", \
           CASE c.relkind WHEN 'r' THEN 'table' WHEN 'v' THEN 'view' \
             WHEN 'S' THEN 'sequence' END AS \"Type\", \
           pg_catalog.array_to_string(c.relacl, E'\\n') AS \"Access privileges\" \
         FROM pg_catalog.pg_class c \
           LEFT JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
         WHERE c.relkind IN ('r', 'v', 'S') AND {condition} ORDER BY 1, 2"
    ))
}

/// All functions are those of the system, so they are listed without a name, too.
fn functions(shell: &Shell, name: Option<&str>) -> Result<Answer, CommandError> {
    shell.ask(&format!(
        "SELECT DISTINCT n.nspname AS \"Schema\", p.proname AS \"Name\", \
           CASE p.prokind WHEN 'a' THEN 'agg' WHEN 'w' THEN 'window' ELSE 'func' END AS \"Type\" \
         FROM pg_catalog.pg_proc p LEFT JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace \
         WHERE {} ORDER BY 1, 2",
        match name {
            Some(name) => Pattern::of(name).condition("n.nspname", "p.proname", "true"),
            None => "true".to_owned(),
        }
    ))
}
