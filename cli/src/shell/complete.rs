//! What may stand where something is typed: keywords, and names that `pg_catalog` has.

use std::time::{Duration, Instant};

use selkie_sql::TransactionState;

use super::backend::Backend;
use super::help::all_statements;
use super::keywords::{KEYWORDS, is_keyword};
use super::meta::{KNOWN, Typed, Verb};
use super::statements::is_of_word;
use super::view::Format;
use super::words::identifier;

/// How long a user waits for all names, who types meanwhile. A server that has not answered by then
/// is asked to cancel, which has a bound of its own.
const LONGEST_WAIT: Duration = Duration::from_secs(3);

/// Names of the database.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    /// Relations without indexes: schema and name.
    pub(super) relations: Vec<(String, String)>,
    pub(super) indexes: Vec<String>,
    /// Relation and column.
    pub(super) columns: Vec<(String, String)>,
    pub(super) functions: Vec<String>,
    pub(super) roles: Vec<String>,
}

const RELATIONS: &str = "SELECT n.nspname, c.relname, c.relkind FROM pg_catalog.pg_class c \
    JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
    WHERE c.relkind IN ('r', 'v', 'S', 'i') ORDER BY 2";
const COLUMNS: &str = "SELECT c.relname, a.attname FROM pg_catalog.pg_attribute a \
    JOIN pg_catalog.pg_class c ON c.oid = a.attrelid \
    WHERE a.attnum > 0 AND NOT a.attisdropped AND c.relkind IN ('r', 'v') ORDER BY 2";
const FUNCTIONS: &str = "SELECT DISTINCT p.proname FROM pg_catalog.pg_proc p ORDER BY 1";
const ROLES: &str = "SELECT rolname FROM pg_catalog.pg_roles ORDER BY 1";

impl Names {
    /// Asks for all names. Not in a transaction: its first statement would not be that of the user
    /// any more, and what fails here would fail the whole.
    pub(super) fn of(backend: &mut Backend) -> Option<Self> {
        if backend.state() != TransactionState::Idle {
            return None;
        }
        let (mut names, until) = (Self::default(), Instant::now() + LONGEST_WAIT);
        for [schema, name, kind] in asked(backend, RELATIONS, until)? {
            match kind.as_str() {
                "i" => names.indexes.push(name),
                _ => names.relations.push((schema, name)),
            }
        }
        let columns = asked(backend, COLUMNS, until)?;
        names.columns = columns.into_iter().map(|[table, name]| (table, name)).collect();
        let functions = asked(backend, FUNCTIONS, until)?;
        names.functions = functions.into_iter().map(|[name]| name).collect();
        names.roles = asked(backend, ROLES, until)?.into_iter().map(|[name]| name).collect();
        Some(names)
    }

    /// Relations that need no schema before their name.
    fn visible(&self) -> impl Iterator<Item = &str> {
        let visible = |schema: &str| schema != "information_schema" && schema != "pg_catalog";
        self.relations.iter().filter(move |own| visible(&own.0)).map(|own| own.1.as_str())
    }

    fn schemas(&self) -> Vec<&str> {
        let mut schemas: Vec<&str> = self.relations.iter().map(|own| own.0.as_str()).collect();
        schemas.sort_unstable();
        schemas.dedup();
        schemas
    }

    fn columns_of<'n>(&'n self, table: &'n str) -> impl Iterator<Item = &'n str> {
        self.columns.iter().filter(move |own| own.0 == table).map(|own| own.1.as_str())
    }
}

/// The rows of a statement, each of so many texts.
fn asked<const N: usize>(
    backend: &mut Backend,
    sql: &str,
    until: Instant,
) -> Option<Vec<[String; N]>> {
    let asked = backend.glance(sql, until)?;
    let row = |row: Vec<Option<String>>| {
        row.into_iter().map(Option::unwrap_or_default).collect::<Vec<_>>().try_into().ok()
    };
    asked.rows.into_iter().map(row).collect()
}

/// What may stand at a place.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Candidates {
    /// Bytes before the place that they replace.
    pub(super) replaced: usize,
    pub(super) words: Vec<String>,
    /// They are names of files.
    pub(super) are_files: bool,
}

/// What may stand behind a line up to its cursor. `before` is what was typed of the statement in
/// lines before, and `behind` what is behind the cursor.
pub(super) fn candidates(before: &str, line: &str, behind: &str, names: &Names) -> Candidates {
    let command = line.trim_start();
    if command.starts_with('\\') {
        return in_command(command, names);
    }
    let text = format!("{before}{line}");
    let from = text.rfind(|c| !is_of_word(c) && c != '.' && c != '"').map_or(0, |at| {
        at + text.get(at..).and_then(|rest| rest.chars().next()).map_or(1, char::len_utf8)
    });
    let (head, word) = text.split_at_checked(from).unwrap_or((&text, ""));
    let tokens = tokens(head);
    let whole = [&tokens[..], &self::tokens(behind)[..]].concat();
    let mut words = match word.rsplit_once('.') {
        Some((owner, _)) => qualified(owner, &whole, names),
        None => in_statement(word, &tokens, &whole, names),
    };
    let typed = word.rsplit_once('.').map_or(word, |(_, last)| last);
    let bare = typed.trim_start_matches('"').to_lowercase();
    words.retain(|own| own.trim_start_matches('"').to_lowercase().starts_with(&bare));
    words.sort_unstable();
    words.dedup();
    Candidates { replaced: typed.len(), words, are_files: false }
}

/// Words of a statement, and commas and parentheses. What is in quotes is one word.
fn tokens(text: &str) -> Vec<String> {
    let (mut tokens, mut word, mut quote) = (Vec::new(), String::new(), None);
    for c in text.chars() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some('"'), c) => word.push(c),
            (Some(_), _) => {}
            (None, '\'' | '"') => quote = Some(c),
            (None, c) if is_of_word(c) || c == '.' => word.extend(c.to_lowercase()),
            (None, c) => {
                if !word.is_empty() {
                    tokens.push(std::mem::take(&mut word));
                }
                match c {
                    // What is behind is another statement.
                    ';' => tokens.clear(),
                    ',' | '(' | ')' => tokens.push(c.to_string()),
                    _ => {}
                }
            }
        }
    }
    if !word.is_empty() {
        tokens.push(word);
    }
    tokens
}

/// Names of relations come behind these.
const BEFORE_RELATIONS: [&str; 10] = [
    "from",
    "join",
    "into",
    "update",
    "table",
    "copy",
    "truncate",
    "analyze",
    "references",
    "view",
];

/// These end the place of names of relations.
const CLAUSES: [&str; 14] = [
    "select",
    "where",
    "set",
    "on",
    "by",
    "having",
    "values",
    "returning",
    "using",
    "limit",
    "and",
    "or",
    "as",
    "when",
];

fn in_statement(word: &str, tokens: &[String], whole: &[String], names: &Names) -> Vec<String> {
    let last = tokens.last().map_or("", String::as_str);
    let clause = tokens.iter().rev().map(String::as_str);
    let clause = clause.clone().find(|own| BEFORE_RELATIONS.contains(own) || CLAUSES.contains(own));
    let wants_relation = clause.is_some_and(|own| BEFORE_RELATIONS.contains(&own));
    let is_index = tokens.first().is_some_and(|own| own == "create")
        && tokens.iter().any(|own| own == "index")
        && last == "on";
    if last == "index" {
        return names.indexes.iter().map(|name| identifier(name)).collect();
    }
    if matches!(last, "role" | "user" | "owner") {
        return names.roles.iter().map(|name| identifier(name)).collect();
    }
    if is_index || (wants_relation && (BEFORE_RELATIONS.contains(&last) || last == ",")) {
        let schemas = names.schemas().into_iter().map(|name| format!("{}.", identifier(name)));
        return names.visible().map(identifier).chain(schemas).collect();
    }
    let is_upper = word.starts_with(|c: char| c.is_uppercase());
    let keyword = |own: &&str| if is_upper { own.to_uppercase() } else { (*own).to_owned() };
    let mut words: Vec<String> = KEYWORDS.iter().map(keyword).collect();
    // Behind a table comes no column but in parentheses: `insert into t (`.
    if tokens.is_empty() || (wants_relation && last != "(") {
        return words;
    }
    let named: Vec<&str> = names.visible().filter(|own| whole.iter().any(|t| t == own)).collect();
    let columns = names.columns.iter();
    let columns = columns.filter(|own| match named.is_empty() {
        true => names.visible().any(|visible| visible == own.0),
        false => named.contains(&own.0.as_str()),
    });
    words.extend(columns.map(|own| identifier(&own.1)));
    words.extend(named.iter().map(|name| identifier(name)));
    if !word.is_empty() {
        words.extend(names.functions.iter().map(|name| format!("{name}(")));
    }
    words
}

/// Columns of a table or an alias, or relations of a schema.
fn qualified(owner: &str, whole: &[String], names: &Names) -> Vec<String> {
    let owner = owner.rsplit('.').next().unwrap_or(owner).trim_matches('"');
    let is_relation = |name: &str| names.relations.iter().any(|own| own.1 == name);
    let bare = |token: &str| token.rsplit('.').next().unwrap_or(token).to_owned();
    let mut table = owner.to_owned();
    if !is_relation(owner) {
        for (at, token) in whole.iter().enumerate().filter(|(_, token)| is_relation(&bare(token))) {
            let mut behind = whole.iter().skip(at + 1).skip_while(|own| *own == "as");
            if behind.next().is_some_and(|alias| alias == owner && !is_keyword(alias)) {
                table = bare(token);
            }
        }
    }
    let columns = names.columns_of(&table).map(identifier);
    let relations = names.relations.iter().filter(|own| own.0 == owner);
    columns.chain(relations.map(|own| identifier(&own.1))).collect()
}

fn in_command(command: &str, names: &Names) -> Candidates {
    let Some((name, rest)) = command.split_once(char::is_whitespace) else {
        let all = KNOWN.iter().map(|known| format!("\\{}", known.name));
        let words = all.filter(|own| own.starts_with(command)).collect();
        return Candidates { replaced: command.len(), words, are_files: false };
    };
    let Ok(typed) = Typed::of(name) else { return Candidates::default() };
    let formats = Format::names();
    let switch = || ["on", "off"].map(str::to_owned).to_vec();
    let words: Vec<String> = match typed.verb {
        Verb::Include | Verb::Output => {
            return Candidates { are_files: true, ..Candidates::default() };
        }
        Verb::Explain | Verb::Copy => return candidates("", rest, "", names),
        Verb::Describe => {
            let indexes = names.indexes.iter().map(String::as_str);
            names.visible().chain(indexes).map(identifier).collect()
        }
        Verb::Relations("i") => names.indexes.iter().map(|name| identifier(name)).collect(),
        Verb::Relations(_) | Verb::Privileges => names.visible().map(identifier).collect(),
        Verb::Functions => names.functions.clone(),
        Verb::Roles => names.roles.iter().map(|name| identifier(name)).collect(),
        Verb::Format => formats,
        Verb::Expanded => [switch(), vec!["auto".to_owned()]].concat(),
        Verb::Timing => switch(),
        Verb::Set => vec!["null".to_owned()],
        Verb::Statements => {
            let known = all_statements().map(|own| own.0.to_lowercase());
            let typed = rest.trim_start().to_lowercase();
            let words = known.filter(|own| own.starts_with(&typed)).collect();
            let replaced = rest.trim_start().len();
            return Candidates { replaced, words, are_files: false };
        }
        _ => Vec::new(),
    };
    let word = rest.rsplit(char::is_whitespace).next().unwrap_or_default();
    let words = words.into_iter().filter(|own| own.starts_with(word)).collect();
    Candidates { replaced: word.len(), words, are_files: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        let owned = |list: &[(&str, &str)]| {
            list.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect()
        };
        Names {
            relations: owned(&[("public", "item"), ("public", "Shop"), ("pg_catalog", "pg_class")]),
            indexes: vec!["item_pkey".to_owned()],
            columns: owned(&[
                ("item", "price"),
                ("item", "number"),
                ("Shop", "city"),
                ("pg_class", "relname"),
            ]),
            functions: vec!["pg_sleep".to_owned(), "upper".to_owned()],
            roles: vec!["admin".to_owned()],
        }
    }

    #[track_caller]
    fn gives(line: &str, behind: &str, expected: &[&str]) {
        assert_eq!(candidates("", line, behind, &names()).words, expected, "{line}");
    }

    #[test]
    fn a_keyword_is_completed_as_it_was_begun() {
        gives("sel", "", &["select"]);
        gives("SEL", "", &["SELECT"]);
        gives("select 1; upd", "", &["update"]);
        let candidates = candidates("select *\n", "fro", "", &names());
        assert_eq!((candidates.replaced, &candidates.words[..]), (3, &["from".to_owned()][..]));
    }

    #[test]
    fn tables_come_where_a_table_is_named() {
        gives("select * from ", "", &["\"Shop\"", "item", "pg_catalog.", "public."]);
        gives("select * from item, S", "", &["\"Shop\""]);
        gives("create index i on it", "", &["item"]);
        gives("insert into it", "", &["item"]);
        gives("drop index ", "", &["item_pkey"]);
        gives("alter role a", "", &["admin"]);
        gives("select * from pg_catalog.pg", "", &["pg_class"]);
    }

    #[test]
    fn columns_are_those_of_the_tables_that_are_named() {
        gives(
            "select pr",
            " from item",
            &["precision", "prepare", "price", "primary", "privileges"],
        );
        gives("select * from item i where i.", "", &["number", "price"]);
        gives("select * from item as i where i.p", "", &["price"]);
        gives("select item.n", " from item", &["number"]);
        gives("select * from item where up", "", &["update", "upper("]);
        assert!(
            !candidates("", "select ci", " from item", &names()).words.contains(&"city".into())
        );
        assert!(
            candidates("", "insert into item (pri", "", &names()).words.contains(&"price".into())
        );
    }

    #[test]
    fn commands_are_completed_with_what_they_take() {
        gives("\\ti", "", &["\\timing"]);
        gives("\\timing o", "", &["on", "off"]);
        gives("\\d it", "", &["item", "item_pkey"]);
        gives("\\dt it", "", &["item"]);
        gives("\\format e", "", &["expanded"]);
        gives("\\explain select * from it", "", &["item"]);
        assert!(candidates("", "\\i /tm", "", &names()).are_files);
        assert!(candidates("", "\\h cre", "", &names()).words.contains(&"create table".into()));
    }
}
