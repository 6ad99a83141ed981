//! Statements as they were parsed, with the plans that were made for them.

use std::collections::HashMap;
use std::mem;
use std::sync::Arc;

use foldhash::fast::RandomState;
use parking_lot::Mutex;
use selkie_txn::{DefinitionId, Table};
use sqlparser::ast::Statement;

use crate::bind::{NewCursor, OutputColumn};
use crate::copy::CopyFormat;
use crate::error::{SqlError, SqlResult, SqlState};
use crate::exec::RelationCache;
use crate::notice::Notice;
use crate::parse::parse_noting;
use crate::plan::Plan;
use crate::roles::{Needed, RolesCache};
use crate::schemas::{SchemasCache, SearchPath};
use crate::statement_list::{StatementList, StatementStats};
use crate::types::{FormatSettings, SqlType};

/// Most texts of a generation.
const MOST_TEXTS: usize = 512;

/// Most plans of a statement: there is one for each path that its sessions have.
const MOST_PLANS: usize = 16;

/// Longest text that is kept, in bytes.
const LONGEST_TEXT: usize = 16 << 10;

/// A statement as it was parsed.
pub(crate) struct ParsedStatement {
    pub(super) statement: Statement,
    /// The text that it is in.
    pub(super) sql: Arc<str>,
    pub(super) stats: Arc<StatementStats>,
    /// What is to be said of the text; the first statement has it.
    pub(super) notices: Vec<Notice>,
    /// The plans that were made last, at most [`MOST_PLANS`].
    planned: Mutex<Vec<Arc<Planned>>>,
}

/// The plan of a statement, and what it is right for.
pub(super) struct Planned {
    /// The types of parameters that were known.
    pub(super) types: Arc<[Option<SqlType>]>,
    pub(super) format: FormatSettings,
    /// Where names were looked for.
    pub(super) path: Arc<SearchPath>,
    /// The table of schemas and its definition; `None` if none was ever made.
    pub(super) schemas: Option<(Table, DefinitionId)>,
    /// Whether what it does rests on the path, whatever tables it names.
    pub(super) uses_path: bool,
    /// Names in the catalogue by which it would have other tables, were there some.
    pub(super) absent: Vec<String>,
    /// The tables that it is made of, and their definitions.
    pub(super) tables: Vec<(Table, DefinitionId)>,
    /// The types of all parameters, as far as they can be told.
    pub(super) parameters: Vec<Option<SqlType>>,
    pub(super) columns: Arc<[OutputColumn]>,
    pub(super) plan: Plan,
    pub(super) verb: Verb,
    /// Whether it needs the definitions of all tables when it runs.
    pub(super) uses_catalogue: bool,
    /// What who runs it has to be allowed: the plan is for all roles.
    pub(super) needed: Vec<Needed>,
}

impl Planned {
    /// An error if it takes or gives other types than the plan that the client was told of: the
    /// client's values and reads are of those.
    pub(super) fn is_as(&self, told: &Self) -> SqlResult<()> {
        let is_alike = |one: &OutputColumn, other: &OutputColumn| {
            (&one.name, one.ty) == (&other.name, other.ty)
        };
        let has_columns = self.columns.len() == told.columns.len()
            && self.columns.iter().zip(&*told.columns).all(|(own, told)| is_alike(own, told));
        let changed = if !has_columns {
            "result type"
        } else if self.parameters != told.parameters {
            "parameter types"
        } else {
            return Ok(());
        };
        let message = format!("cached plan must not change {changed}");
        Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message))
    }
}

/// What a statement does, as its tag says it.
#[derive(Clone, Debug)]
pub(super) enum Verb {
    Select,
    Insert,
    Update,
    Delete,
    CopyIn,
    /// With how its rows are written.
    CopyOut(Arc<CopyFormat>),
    /// Its rows are kept, for FETCH.
    Declare(Arc<NewCursor>),
}

impl ParsedStatement {
    /// The statements of a text.
    fn all(sql: &str) -> SqlResult<Arc<[Arc<Self>]>> {
        let (statements, mut notices) = parse_noting(sql)?;
        let sql: Arc<str> = sql.into();
        // What is not kept is not shown.
        let is_one = statements.len() == 1 || sql.len() > LONGEST_TEXT;
        let mut own = |statement: Statement| {
            let text = if is_one {
                Arc::clone(&sql)
            } else {
                statement.to_string().replace('\0', "").into()
            };
            let (stats, planned) = (Arc::new(StatementStats::new(text)), Mutex::default());
            let notices = mem::take(&mut notices);
            Self { statement, sql: Arc::clone(&sql), stats, notices, planned }
        };
        Ok(statements.into_iter().map(|statement| Arc::new(own(statement))).collect())
    }

    /// A statement that is part of another one of a text.
    pub(super) fn within(statement: Statement, sql: &Arc<str>) -> Self {
        let (stats, sql) = (Arc::new(StatementStats::new(Arc::clone(sql))), Arc::clone(sql));
        Self { statement, sql, stats, notices: Vec::new(), planned: Mutex::default() }
    }

    /// A plan for these types, this format and this path. Whether its tables are what they were is
    /// another question.
    pub(super) fn planned(
        &self,
        types: &[Option<SqlType>],
        format: &FormatSettings,
        path: &SearchPath,
    ) -> Option<Arc<Planned>> {
        let mut plans = self.planned.lock();
        let at = plans.iter().position(|own| own.is_for(types, format, path))?;
        let found = plans.get(at).cloned();
        if let Some(before) = at.checked_sub(1) {
            // Those that are used stay.
            plans.swap(at, before);
        }
        found
    }

    /// Keeps no plan any longer.
    fn forget(&self) {
        self.planned.lock().clear();
    }

    /// Keeps a plan.
    pub(super) fn keep(&self, planned: &Arc<Planned>) {
        let mut plans = self.planned.lock();
        plans.retain(|own| !own.is_for(&planned.types, &planned.format, &planned.path));
        plans.truncate(MOST_PLANS - 1);
        plans.insert(0, Arc::clone(planned));
    }
}

impl Planned {
    fn is_for(
        &self,
        types: &[Option<SqlType>],
        format: &FormatSettings,
        path: &SearchPath,
    ) -> bool {
        self.path.is_same(path) && *self.types == *types && self.format == *format
    }
}

/// The statements of texts, with their plans. Sessions of one database may share it. A plan is used
/// as long as the tables that it reads are defined as they were when it was made.
#[derive(Default)]
pub struct PlanCache {
    texts: Mutex<Texts>,
    /// Tables that constraints name.
    relations: Arc<RelationCache>,
    /// The roles that were read last.
    pub(super) roles: RolesCache,
    /// The schemas that were read last.
    pub(super) schemas: SchemasCache,
    /// What its statements took.
    pub(super) list: Arc<StatementList>,
}

type Generation = HashMap<Arc<str>, Arc<[Arc<ParsedStatement>]>, RandomState>;

/// Texts that were used lately: those of a generation, and those of the one before.
#[derive(Default)]
struct Texts {
    young: Generation,
    old: Generation,
}

impl PlanCache {
    pub(super) fn relations(&self) -> &Arc<RelationCache> {
        &self.relations
    }

    /// Has all plans made anew, as more is known of their tables.
    pub(super) fn forget_plans(&self) {
        let texts = self.texts.lock();
        let all = texts.young.values().chain(texts.old.values());
        all.flat_map(|statements| statements.iter()).for_each(|own| own.forget());
    }

    /// The statements of a text.
    pub(super) fn statements(&self, sql: &str) -> SqlResult<Arc<[Arc<ParsedStatement>]>> {
        if let Some(found) = self.texts.lock().find(sql) {
            return Ok(found);
        }
        // Without the lock: a long text takes time.
        let parsed = ParsedStatement::all(sql)?;
        // One with a password is not kept.
        let is_secret = parsed.iter().any(|own| super::define::is_about_roles(&own.statement));
        if sql.len() <= LONGEST_TEXT && !is_secret {
            parsed.iter().for_each(|own| self.list.add(&own.stats));
            self.texts.lock().add(sql.into(), Arc::clone(&parsed));
        }
        Ok(parsed)
    }
}

impl Texts {
    fn find(&mut self, sql: &str) -> Option<Arc<[Arc<ParsedStatement>]>> {
        if let Some(found) = self.young.get(sql) {
            return Some(Arc::clone(found));
        }
        let (text, found) = self.old.remove_entry(sql)?;
        self.add(text, Arc::clone(&found));
        Some(found)
    }

    fn add(&mut self, text: Arc<str>, parsed: Arc<[Arc<ParsedStatement>]>) {
        if self.young.len() >= MOST_TEXTS {
            self.old = mem::take(&mut self.young);
        }
        self.young.insert(text, parsed);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use super::*;

    #[test]
    fn texts_in_use_stay_and_others_go() {
        let cache = PlanCache::default();
        let first = cache.statements("select 1").unwrap();
        for n in 0..3 * MOST_TEXTS {
            cache.statements(&format!("select {n}, 2")).unwrap();
            assert!(Arc::ptr_eq(&first, &cache.statements("select 1").unwrap()));
        }
        let texts = cache.texts.lock();
        assert!(texts.young.len() <= MOST_TEXTS && texts.old.len() <= MOST_TEXTS);
        assert!(!texts.young.contains_key("select 0, 2") && !texts.old.contains_key("select 0, 2"));
    }

    #[test]
    fn long_texts_are_not_kept() {
        let cache = PlanCache::default();
        cache.statements(&format!("select '{}'", "x".repeat(LONGEST_TEXT))).unwrap();
        assert!(cache.texts.lock().young.is_empty());
    }
}
