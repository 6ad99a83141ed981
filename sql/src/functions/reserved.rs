//! Words that cannot be names without quotes.

/// In alphabetical order.
const WORDS: [&str; 40] = [
    "ALL",
    "AND",
    "ANY",
    "ARRAY",
    "AS",
    "ASC",
    "BETWEEN",
    "BOOLEAN",
    "CASE",
    "CAST",
    "CHECK",
    "COLUMN",
    "CONSTRAINT",
    "CREATE",
    "DEFAULT",
    "DESC",
    "DISTINCT",
    "DO",
    "ELSE",
    "END",
    "FALSE",
    "FOR",
    "FOREIGN",
    "IN",
    "INTEGER",
    "NOT",
    "NULL",
    "OR",
    "PRIMARY",
    "REFERENCES",
    "SELECT",
    "SOME",
    "TABLE",
    "THEN",
    "TO",
    "TRUE",
    "UNIQUE",
    "USER",
    "USING",
    "WHEN",
];

/// Whether a name is such a word.
pub(super) fn is_reserved(name: &str) -> bool {
    WORDS.binary_search(&&*name.to_ascii_uppercase()).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found() {
        assert!(WORDS.is_sorted());
        assert!(is_reserved("select") && is_reserved("Primary") && !is_reserved("name"));
    }
}
