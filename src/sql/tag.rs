//! What a statement says that it has done.

/// The rows that a statement has changed, or given, by its tag: of `INSERT 0 3` and `UPDATE 3` the
/// number 3, of those that are not about rows 0.
pub(super) fn count(tag: &str) -> u64 {
    tag.rsplit(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    #[test]
    fn tags_say_how_many_rows_there_were() {
        let cases = [("INSERT 0 3", 3), ("UPDATE 0", 0), ("SELECT 12", 12), ("CREATE TABLE", 0)];
        for (tag, count) in cases {
            assert_eq!(super::count(tag), count, "{tag}");
        }
    }
}
