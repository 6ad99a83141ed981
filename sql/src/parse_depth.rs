//! How deep the trees of a text are, told from its tokens before any tree is made.
//!
//! `1 + 1 + 1 ...` is no deeper than one operator for the parser, and a tree as deep as it is long
//! for all that comes after it; so are joins and set operations. Within parentheses another such
//! chain begins, which is below the first: it is the sum of both that counts. Not all that walks
//! trees can go on another stack where one gets full (to copy and to drop them is derived), so the
//! sum has a bound.
//!
//! ```text
//! a + (b * c - d) = e and f      chain of the outer level: a + ( = e, 5 words and signs
//!      ---------                 chain of the inner level: b * c - d, 5; in all 10
//! ```
//!
//! What stands in a list is not below what stands before it: a comma ends an item, and so do the
//! words of a clause and of CASE. Conditions between AND or OR are a list, too: long ones are made
//! trees of little depth ([`crate::parse_lists`]).

use std::mem;

use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::Token;

use crate::parse_lists::MAX_LEFT_DEEP;

/// Greatest depth, in words and signs: two of them are about one level of a tree.
pub(crate) const MAX_WORDS: usize = 600;

/// How many words a condition, a join, a part of a set operation or a subquery counts for: a tree
/// gets one level deeper by each.
const PART: usize = 2;

/// How many words a set operation counts for besides, unless it is UNION ALL, which is run as a
/// list.
const OPERATION: usize = 2;

/// Most entries of a list of SELECT or RETURNING, as in PostgreSQL.
pub(crate) const MAX_ENTRIES: usize = 1_664;

/// Longest list of conditions.
pub(crate) const MAX_CONDITIONS: usize = 10_000;

/// The depth of a list of conditions: it may be one of AND within one of OR.
const LIST: usize = 4 * MAX_LEFT_DEEP;

const _: () = assert!(PART * LIST < MAX_WORDS / 4);

/// What is too deep or too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TooComplex {
    Deep,
    Conditions,
    Entries,
}

/// What is between two parentheses, or between CASE and END.
#[derive(Default)]
struct Level {
    /// How far it is below the outermost.
    outside: usize,
    is_case: bool,
    /// Whether it is a query.
    is_query: bool,
    /// Whether commas are between tables.
    is_from: bool,
    /// The entries of the list of SELECT or RETURNING so far, if that is what is read.
    entries: usize,
    /// Since the last that ends an operand: words and signs.
    chain: usize,
    /// Of what is within that: the greatest depth.
    inner: usize,
    /// Of the operands before, in this part of a set operation: the greatest depth.
    before: usize,
    /// Of the parts before: the greatest depth.
    parts_before: usize,
    /// Conditions since the last that ends an item, and most of an item before.
    conditions: usize,
    most_conditions: usize,
    /// How many BETWEEN wait for their AND.
    betweens: usize,
    /// Joins and subqueries of this part of a set operation.
    joins: usize,
    subqueries: usize,
    /// What set operations count for.
    operations: usize,
}

impl Level {
    fn end_operand(&mut self) {
        self.before = self.before.max(self.chain + self.inner);
        (self.chain, self.inner) = (0, 0);
    }

    fn end_item(&mut self) {
        self.end_operand();
        self.most_conditions = self.most_conditions.max(self.conditions);
        (self.conditions, self.betweens) = (0, 0);
    }

    fn end_clause(&mut self) {
        self.end_item();
        (self.is_from, self.entries) = (false, 0);
    }

    /// Ends a part of a set operation.
    fn end_part(&mut self) {
        self.end_clause();
        self.parts_before = self.parts_before.max(self.parts() + self.before);
        (self.joins, self.subqueries, self.before) = (0, 0, 0);
        self.operations += PART + OPERATION;
    }

    fn parts(&self) -> usize {
        PART * (self.joins + self.subqueries)
    }

    /// How deep lists and set operations are.
    fn lists(&self) -> usize {
        let conditions = self.conditions.max(self.most_conditions).min(LIST);
        self.operations + PART * conditions
    }

    /// How far what is being read is below what the level is in.
    fn above(&self) -> usize {
        self.lists() + self.parts()
    }

    fn depth(&self) -> usize {
        let part = self.parts() + self.before.max(self.chain + self.inner);
        self.lists() + part.max(self.parts_before)
    }
}

/// What tokens say about the depth of trees.
#[derive(Default)]
pub(crate) struct Depth {
    /// The innermost level, and those that it is in.
    top: Level,
    outer: Vec<Level>,
    /// The keywords before, the last first.
    last: [Option<Keyword>; 2],
    /// Whether there is a list of conditions that has to be made less deep.
    pub(crate) has_long_lists: bool,
}

impl Depth {
    /// Goes on with a token.
    pub(crate) fn add(&mut self, token: &Token) -> Result<(), TooComplex> {
        let mut keyword = None;
        match token {
            Token::Whitespace(_) => return Ok(()),
            Token::SemiColon => {
                self.outer.clear();
                self.top = Level::default();
            }
            Token::LParen | Token::LBracket => self.open(false),
            Token::RParen | Token::RBracket => {
                while self.top.is_case {
                    self.close();
                }
                self.close();
            }
            Token::Comma => {
                self.top.end_item();
                self.top.joins += usize::from(self.top.is_from);
                self.top.entries += usize::from(self.top.entries > 0);
            }
            Token::Word(word) => {
                self.word(word.keyword);
                keyword = Some(word.keyword);
            }
            _ => self.top.chain += 1,
        }
        self.last = [keyword, self.last[0]];
        self.has_long_lists |= self.top.conditions > 2 * MAX_LEFT_DEEP;
        if self.top.conditions > MAX_CONDITIONS {
            return Err(TooComplex::Conditions);
        }
        if self.top.entries > MAX_ENTRIES {
            return Err(TooComplex::Entries);
        }
        match self.top.outside + self.top.depth() {
            0..=MAX_WORDS => Ok(()),
            _ => Err(TooComplex::Deep),
        }
    }

    fn word(&mut self, word: Keyword) {
        let is_distinct =
            matches!(self.last, [Some(Keyword::DISTINCT), Some(Keyword::IS | Keyword::NOT)]);
        let top = &mut self.top;
        match word {
            Keyword::BETWEEN => {
                top.betweens += 1;
                top.chain += 1;
            }
            Keyword::AND if top.betweens > 0 => {
                top.betweens -= 1;
                top.chain += 1;
            }
            Keyword::AND | Keyword::OR => {
                top.end_operand();
                top.conditions += 1;
            }
            Keyword::CASE => self.open(true),
            Keyword::END if top.is_case => self.close(),
            Keyword::WHEN | Keyword::THEN | Keyword::ELSE if top.is_case => top.end_item(),
            Keyword::SELECT => {
                top.end_clause();
                (top.is_query, top.entries) = (true, 1);
            }
            Keyword::RETURNING => {
                top.end_clause();
                top.entries = 1;
            }
            // IS DISTINCT FROM is an operator.
            Keyword::FROM if is_distinct => top.chain += 1,
            Keyword::FROM | Keyword::USING => {
                top.end_clause();
                top.is_from = true;
            }
            Keyword::JOIN => {
                top.end_item();
                top.joins += 1;
            }
            Keyword::ON => top.end_item(),
            Keyword::WHERE
            | Keyword::GROUP
            | Keyword::ORDER
            | Keyword::HAVING
            | Keyword::WINDOW
            | Keyword::LIMIT => top.end_clause(),
            Keyword::ALL if matches!(self.last, [Some(Keyword::UNION), _]) => {
                top.operations -= OPERATION;
            }
            Keyword::UNION | Keyword::INTERSECT | Keyword::EXCEPT => top.end_part(),
            _ => top.chain += 1,
        }
    }

    fn open(&mut self, is_case: bool) {
        self.top.chain += 1;
        let outside = self.top.outside + self.top.above() + self.top.chain;
        let inner = Level { is_case, outside, ..Level::default() };
        self.outer.push(mem::replace(&mut self.top, inner));
    }

    /// Ends the innermost level, if it is not the outermost.
    fn close(&mut self) {
        let Some(outer) = self.outer.pop() else {
            self.top.is_case = false;
            return;
        };
        let level = mem::replace(&mut self.top, outer);
        self.top.inner = self.top.inner.max(level.depth());
        // Those of an expression belong to the query that it is in.
        self.top.subqueries += if level.is_query { 1 } else { level.subqueries };
    }
}

#[cfg(test)]
mod tests {
    use sqlparser::dialect::PostgreSqlDialect;
    use sqlparser::tokenizer::Tokenizer;

    use super::*;

    fn check(sql: &str) -> Result<bool, TooComplex> {
        let tokens = Tokenizer::new(&PostgreSqlDialect {}, sql).tokenize().unwrap();
        let mut depth = Depth::default();
        tokens.iter().try_for_each(|token| depth.add(token))?;
        Ok(depth.has_long_lists)
    }

    #[test]
    fn chains_within_chains_count_together() {
        let chain = |links: usize| " + 1".repeat(links);
        let nested = |levels: usize, links: usize| {
            let (open, close) = ("(".repeat(levels), format!("){}", chain(links)).repeat(levels));
            format!("select {open}1{close}")
        };
        assert_eq!(check(&format!("select 1{}", chain(290))), Ok(false));
        assert_eq!(check(&nested(10, 20)), Ok(false));
        for (levels, links) in [(2, 200), (15, 290), (60, 290), (100, 20)] {
            assert_eq!(check(&nested(levels, links)), Err(TooComplex::Deep), "{levels} x {links}");
        }
        // The chain may also come before what is within it.
        let inside = format!("select {}1", "1 + (1 + ".repeat(150));
        assert_eq!(check(&inside), Err(TooComplex::Deep));
    }

    #[test]
    fn lists_are_as_deep_as_their_deepest_item() {
        let items = |item: &str, between: &str| vec![item; 5_000].join(between);
        for (sql, has_long_lists) in [
            (format!("select {}", vec!["1 + 2"; MAX_ENTRIES].join(", ")), false),
            (format!("select * from t where {}", items("a = 1", " or ")), true),
            (format!("select * from t where {}", items("a between 1 and 2", " and ")), true),
            (format!("select case {} end", items("when a = 1 then 2", " ")), false),
            (format!("insert into t values {}", items("(1, 2 + 3)", ", ")), false),
            (format!("select f(a is distinct from b, {})", items("1", ", ")), false),
            (items("select 1 + 1", "; "), false),
        ] {
            assert_eq!(check(&sql), Ok(has_long_lists), "{}", &sql[..80]);
        }
        let much = vec!["a"; MAX_CONDITIONS + 2].join(" or ");
        assert_eq!(check(&format!("select {much}")), Err(TooComplex::Conditions));
        for start in ["select ", "insert into t values (1, 2) returning "] {
            let much = format!("{start}{}", vec!["a"; MAX_ENTRIES + 1].join(", "));
            assert_eq!(check(&much), Err(TooComplex::Entries));
        }
    }

    #[test]
    fn what_makes_plans_deep_is_no_list() {
        for (link, fits) in [
            ("1, 2 union all select ", 290),
            ("a from t except select ", 140),
            ("(select 1), ", 290),
            ("coalesce((select 1), 2), ", 280),
            ("1) union all (select ", 290),
        ] {
            let sql = |links: usize| format!("select {}1", link.repeat(links));
            assert_eq!(check(&sql(fits)), Ok(false), "{link}");
            assert_eq!(check(&sql(2_000)), Err(TooComplex::Deep), "{link}");
        }
        for (start, link) in [
            ("select * from t", " join u on a = b"),
            ("select * from t", ", t"),
            ("select distinct from t", ", t"),
            ("delete from t using t", ", t"),
            ("select 1", " is distinct from 1"),
            ("select 1", " between 1 and 2"),
            ("select x", " is not null"),
        ] {
            let sql = format!("{start}{}", link.repeat(2_000));
            assert_eq!(check(&sql), Err(TooComplex::Deep), "{start}{link}");
        }
    }
}
