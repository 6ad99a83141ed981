//! What `\?` and `\h` show.

use super::meta::KNOWN;

/// Statements of SQL: a line with the name, and then how they are written.
const STATEMENTS: &str = include_str!("statements.txt");

/// The names of statements, and how they are written in short.
pub(super) fn all_statements() -> impl Iterator<Item = (&'static str, &'static str)> {
    let parts = STATEMENTS.split("# ").filter_map(|part| part.split_once('\n'));
    parts.map(|(name, text)| (name, text.trim_end()))
}

/// The commands of the shell.
pub(super) fn commands() -> String {
    let left = |known: &super::meta::Known| match known.takes {
        "" => format!("\\{}", known.name),
        takes => format!("\\{} {takes}", known.name),
    };
    let width = KNOWN.iter().map(|known| left(known).len()).max().unwrap_or_default();
    let lines = KNOWN.iter().map(|known| format!("  {:width$}  {}\n", left(known), known.does));
    let list: String = lines.collect();
    format!(
        "{list}\nA name may be a pattern: * is any text, ? any character. + behind a command that\n\
         describes shows more. What is typed up to a semicolon is a statement of SQL.\n"
    )
}

/// How statements are written whose names begin with a text; all names for none. `None` if there
/// are no such statements.
pub(super) fn statements(name: &str) -> Option<String> {
    let name = name.to_uppercase();
    let name = name.split_whitespace().collect::<Vec<_>>().join(" ");
    if name.is_empty() {
        let names = all_statements().map(|(name, _)| format!("  {name}\n"));
        return Some(names.collect::<String>() + "\\h STATEMENT shows how one is written.\n");
    }
    let begins = |own: &str, with: &str| own == with || own.starts_with(&format!("{with} "));
    let found = all_statements().filter(|own| begins(own.0, &name) || begins(&name, own.0));
    let found: Vec<&str> = found.map(|own| own.1).collect();
    (!found.is_empty()).then(|| found.join("\n\n") + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_listed_and_statements_are_found_by_their_beginning() {
        let list = commands();
        assert!(KNOWN.iter().all(|known| list.contains(known.does)));
        let all = statements("").unwrap();
        assert!(all_statements().all(|(name, _)| all.contains(name)));
        assert_eq!(all_statements().count(), 26);
        let create = statements("create  ").unwrap();
        assert!(create.contains("CREATE TABLE") && create.contains("REPLACE] VIEW"));
        assert!(!statements("create view").unwrap().contains("CREATE TABLE"));
        assert!(statements("drop table").unwrap().contains("DROP {TABLE"));
        assert_eq!(statements("selec"), None);
    }
}
