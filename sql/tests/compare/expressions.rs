//! Random expressions over the columns of what is in scope.
//!
//! None of them fails for a value, as it depends on the plan which values are looked at: divisors
//! are never 0, factors are small, texts that become numbers are numbers. What fails does so in
//! the binder.

use super::parts::{Part, Sort, part};
use super::random::Random;

/// What has columns: its name, and theirs with their sorts.
#[derive(Clone)]
pub(crate) struct Relation {
    pub(crate) name: String,
    pub(crate) columns: Vec<(String, Sort)>,
}

pub(crate) struct Generator {
    pub(crate) random: Random,
    /// Whether SQLite is to understand it, too, as PostgreSQL does.
    pub(crate) is_common: bool,
    pub(crate) tables: usize,
    /// Number of the next alias.
    pub(crate) next: usize,
    /// All that columns can be taken of, the innermost last.
    pub(crate) scope: Vec<Relation>,
}

impl Generator {
    pub(crate) fn sort(&mut self) -> Sort {
        let sorts = [Sort::Int, Sort::Text, Sort::Bool, Sort::Int, Sort::Date, Sort::Num];
        sorts[self.random.below(if self.is_common { 4 } else { 6 })]
    }

    fn column(&mut self, sort: Sort) -> Option<Part> {
        let names: Vec<_> = self
            .scope
            .iter()
            .flat_map(|relation| relation.columns.iter().map(move |own| (&relation.name, own)))
            .filter(|(_, (_, own))| *own == sort)
            .map(|(relation, (column, _))| format!("{relation}.{column}"))
            .collect();
        if names.is_empty() {
            return None;
        }
        // Inner ones are more likely: most subqueries should not depend on all there is.
        let (one, other) = (self.random.below(names.len()), self.random.below(names.len()));
        let pieces = vec![names[one.max(other)].as_str().into()];
        Some(Part { sort, pieces, is_optional: false })
    }

    fn literal(&mut self, sort: Sort) -> Part {
        let is_null = self.random.one_in(8);
        match sort {
            Sort::Int if is_null => part!(Int; "cast(null as integer)"),
            Sort::Int => part!(Int; self.random.below(7).to_string()),
            Sort::Text if is_null => part!(Text; "cast(null as text)"),
            Sort::Text => part!(Text; self.random.of(&["''", "'a'", "'b'", "'Ab'", "'a%'", "'7'"])),
            Sort::Date => {
                part!(Date; "date '2024-02-", (10 + self.random.below(20)).to_string(), "'")
            }
            Sort::Num => part!(Num; self.random.of(&["0.0", "1.50", "-2.25", "100"]), "::numeric"),
            _ if is_null => part!(Bool; "cast(null as boolean)"),
            _ => part!(Bool; self.random.of(&["true", "false"])),
        }
    }

    pub(crate) fn expression(&mut self, sort: Sort, depth: usize) -> Part {
        if depth == 0 || self.random.one_in(4) {
            return match self.random.one_in(5) {
                true => self.literal(sort),
                false => self.column(sort).unwrap_or_else(|| self.literal(sort)),
            };
        }
        let depth = depth - 1;
        if self.random.one_in(5) {
            return self.of_any_sort(sort, depth);
        }
        match sort {
            Sort::Int => self.integer(depth),
            Sort::Text => self.text(depth),
            Sort::Date => self.date(depth),
            Sort::Num => self.numeric(depth),
            _ => self.condition(depth),
        }
    }

    fn of_any_sort(&mut self, sort: Sort, depth: usize) -> Part {
        let (one, other) = (self.expression(sort, depth), self.expression(sort, depth));
        let pieces = match self.random.below(4) {
            0 => vec!["coalesce(".into(), one.into(), ", ".into(), other.into(), ")".into()],
            1 => vec!["nullif(".into(), one.into(), ", ".into(), other.into(), ")".into()],
            2 => {
                let when = self.expression(Sort::Bool, depth);
                vec![
                    "case when ".into(),
                    when.into(),
                    " then ".into(),
                    one.into(),
                    part!(Clause; " else ", other).optional().into(),
                    " end".into(),
                ]
            }
            _ => {
                let (ty, wanted) = (self.sort(), self.literal(sort));
                let (of, same) = (self.expression(ty, depth), self.expression(ty, depth));
                vec![
                    "case ".into(),
                    of.into(),
                    " when ".into(),
                    same.into(),
                    " then ".into(),
                    one.into(),
                    " else ".into(),
                    wanted.into(),
                    " end".into(),
                ]
            }
        };
        Part { sort, pieces, is_optional: false }
    }

    fn integer(&mut self, depth: usize) -> Part {
        let one = self.expression(Sort::Int, depth);
        match self.random.below(if self.is_common { 7 } else { 10 }) {
            0 => part!(Int; "(", one, " + ", self.expression(Sort::Int, depth), ")"),
            1 => part!(Int; "(", one, " - ", self.expression(Sort::Int, depth), ")"),
            2 => part!(Int; "(", one, " * ", self.random.of(&["0", "2", "-1", "3"]), ")"),
            3 => part!(Int; "(", one, " / nullif(", self.literal(Sort::Int), ", 0))"),
            4 => part!(Int; "(", one, " % nullif(", self.literal(Sort::Int), ", 0))"),
            5 => part!(Int; "length(", self.expression(Sort::Text, depth), ")"),
            6 => part!(Int; "abs(", one, ")"),
            7 => part!(Int; "extract(", self.random.of(&["day", "dow", "month"]), " from ",
                self.expression(Sort::Date, depth), ")::integer"),
            8 => part!(Int; "(", self.expression(Sort::Date, depth), " - ",
                self.expression(Sort::Date, depth), ")"),
            _ => part!(Int; "(", self.expression(Sort::Bool, depth), ")::integer"),
        }
    }

    fn text(&mut self, depth: usize) -> Part {
        let one = self.expression(Sort::Text, depth);
        match self.random.below(if self.is_common { 6 } else { 9 }) {
            0 | 1 => part!(Text; "(", one, " || ", self.expression(Sort::Text, depth), ")"),
            2 => part!(Text; "upper(", one, ")"),
            3 => part!(Text; "lower(", one, ")"),
            4 => part!(Text; "substr(", one, ", ", self.random.of(&["1", "2"]), ", 2)"),
            5 => part!(Text; "replace(", one, ", 'a', 'bb')"),
            6 => part!(Text; "lpad(", one, ", 3, '*')"),
            7 => part!(Text; "cast(", self.expression(Sort::Num, depth), " as text)"),
            _ => part!(Text; "to_char(", self.expression(Sort::Date, depth), ", 'YYYY-MM-DD')"),
        }
    }

    fn date(&mut self, depth: usize) -> Part {
        let one = self.expression(Sort::Date, depth);
        match self.random.below(3) {
            0 => part!(Date; "(", one, " + ", self.literal(Sort::Int), ")"),
            1 => part!(Date; "(", one, " + interval '1 month')::date"),
            _ => part!(Date; "date_trunc('month', ", one, "::timestamp)::date"),
        }
    }

    fn numeric(&mut self, depth: usize) -> Part {
        let one = self.expression(Sort::Num, depth);
        match self.random.below(5) {
            0 => part!(Num; "(", one, " + ", self.expression(Sort::Num, depth), ")"),
            1 => part!(Num; "(", one, " * ", self.literal(Sort::Num), ")"),
            2 => part!(Num; "round(", one, ", 1)"),
            3 => part!(Num; "(", one, " / nullif(", self.literal(Sort::Num), ", 0))"),
            _ => part!(Num; "cast(", self.expression(Sort::Int, depth), " as numeric)"),
        }
    }

    fn condition(&mut self, depth: usize) -> Part {
        let sort = self.sort();
        let (one, other) = (self.expression(sort, depth), self.expression(sort, depth));
        match self.random.below(13) {
            0..=2 => {
                let operator = self.random.of(&[" = ", " <> ", " < ", " <= ", " > ", " >= "]);
                part!(Bool; "(", one, operator, other, ")")
            }
            3 => part!(Bool; "(", one, " is null)"),
            4 => part!(Bool; "(", one, " is not null)"),
            5 => part!(Bool; "(", one, self.random.of(&[" in (", " not in ("]), other, ", ",
                self.literal(sort), "))"),
            6 => part!(Bool; "(", one, " between ", other, " and ", self.literal(sort), ")"),
            7 => part!(Bool; "(", self.expression(Sort::Bool, depth), " and ",
                self.expression(Sort::Bool, depth), ")"),
            8 => part!(Bool; "(", self.expression(Sort::Bool, depth), " or ",
                self.expression(Sort::Bool, depth), ")"),
            9 => part!(Bool; "(not ", self.expression(Sort::Bool, depth), ")"),
            10 => part!(Bool; "(", self.expression(Sort::Text, depth), " like ",
                self.random.of(&["'a%'", "'_'", "'%b%'"]), ")"),
            11 => part!(Bool; "(", one, " is distinct from ", other, ")"),
            _ => self.subquery_condition(sort, one, depth),
        }
    }
}
