//! Random statements.

use super::expressions::{Generator, Relation};
use super::parts::{Part, Piece, Sort, part};

/// Name and sort of the columns of each table.
pub(crate) const COLUMNS: [(&str, Sort); 7] = [
    ("id", Sort::Int),
    ("i", Sort::Int),
    ("j", Sort::Int),
    ("s", Sort::Text),
    ("b", Sort::Bool),
    ("d", Sort::Date),
    ("n", Sort::Num),
];

/// What is done with the tables `t0`, `t1`, ...
pub(crate) struct Statement {
    pub(crate) part: Part,
    /// Whether it is ordered, then by all columns that it has.
    pub(crate) is_ordered: bool,
    /// The table that it changes.
    pub(crate) changes: Option<String>,
}

impl Generator {
    /// The statements that make the tables and their rows.
    pub(crate) fn tables(&mut self) -> Vec<String> {
        let mut all = Vec::new();
        for table in 0..self.tables {
            all.push(format!(
                "create table t{table} (id integer primary key, i integer, j integer, s text, \
                 b boolean, d date, n numeric(8, 2))"
            ));
            for index in 0..self.random.below(4) {
                let kinds =
                    ["i", "s", "j, i", "i, b", "d", "i desc", "s, i desc", "j desc, s", "n, i"];
                let columns = self.random.of(&kinds);
                all.push(format!("create index t{table}_{index} on t{table} ({columns})"));
            }
            // An empty table is a case of its own. What is known of a table may be of a part of it.
            let most = if table == 0 && self.random.one_in(4) { 14 } else { 9 };
            let (rows, analyzed) = (self.random.below(most), self.random.below(2 * most));
            for id in 0..rows {
                if id == analyzed {
                    all.push(format!("analyze t{table}"));
                }
                let mut value = |choices: &[&str]| match self.random.one_in(5) {
                    true => "null".to_owned(),
                    false => self.random.of(choices).to_owned(),
                };
                let i = value(&["0", "1", "2", "3", "-4"]);
                let j = value(&["1", "1", "2", "5"]);
                let s = value(&["''", "'a'", "'b'", "'ab'", "'B'", "'a b'"]);
                let b = value(&["true", "false"]);
                let d = value(&["'2024-01-31'", "'2024-02-29'", "'2023-12-31'"]);
                let n = value(&["0", "1.50", "-2.25", "100.00"]);
                all.push(format!(
                    "insert into t{table} values ({id}, {i}, {j}, {s}, {b}, {d}, {n})"
                ));
            }
            if analyzed >= most {
                all.push(format!("analyze t{table}"));
            }
        }
        all
    }

    fn alias(&mut self) -> String {
        self.next += 1;
        format!("a{}", self.next)
    }

    fn columns(&self) -> Vec<(String, Sort)> {
        let known = COLUMNS.iter().take(if self.is_common { 5 } else { 7 });
        known.map(|(name, sort)| ((*name).to_owned(), *sort)).collect()
    }

    /// Something in FROM, which comes into scope.
    fn source(&mut self, depth: usize, ctes: &[Relation]) -> Part {
        let name = self.alias();
        if !ctes.is_empty() && self.random.one_in(2) {
            let cte = ctes[self.random.below(ctes.len())].clone();
            self.scope.push(Relation { name: name.clone(), columns: cte.columns });
            return part!(Source; cte.name, " ", name);
        }
        if depth > 0 && self.random.one_in(4) {
            let outer = std::mem::take(&mut self.scope);
            let sorts: Vec<_> = (0..1 + self.random.below(3)).map(|_| self.sort()).collect();
            let query = self.query(&sorts, depth - 1, &[]);
            let query = self.first_of(query, &sorts);
            self.scope = outer;
            let list: Vec<_> = (0..sorts.len()).map(|at| format!("c{at}")).collect();
            let columns = list.iter().cloned().zip(sorts).collect();
            self.scope.push(Relation { name: name.clone(), columns });
            // SQLite has no names of columns behind an alias: the query gives them.
            return part!(Source; "(", query, ") ", name);
        }
        let columns = self.columns();
        self.scope.push(Relation { name: name.clone(), columns });
        part!(Source; format!("t{} {name}", self.random.below(self.tables)))
    }

    /// Of a query only the first rows, sometimes.
    fn first_of(&mut self, query: Part, sorts: &[Sort]) -> Part {
        if !self.random.one_in(4) {
            return query;
        }
        let order = |keys: &mut dyn Iterator<Item = usize>| {
            keys.map(|at| format!("{at} nulls first")).collect::<Vec<_>>().join(", ")
        };
        let all = order(&mut (1..=sorts.len()));
        // Equal numbers may have different scales, of which any may be kept.
        if !self.is_common && !sorts.contains(&Sort::Num) && self.random.one_in(2) {
            return part!(Query; "select distinct on (c0) * from (", query, ") u order by ", all);
        }
        let limit = self.random.of(&[" limit 2", " limit 3 offset 1", " limit 5"]);
        part!(Query; "select * from (", query, ") u order by ", all, limit)
    }

    fn from(&mut self, depth: usize, ctes: &[Relation]) -> Part {
        let mut all = part!(Source; self.source(depth, ctes));
        let outer = self.scope.len() - 1;
        for _ in 0..self.random.below(3) {
            // SQLite loses the rows of a right join behind a join whose condition is false.
            let kinds = [" join ", " left join ", " cross join ", " right join ", " full join "];
            let kinds = if self.is_common { &kinds[..3] } else { &kinds[..] };
            let kind = self.random.of(kinds);
            let right = self.source(depth, ctes);
            let mut pieces = vec![all.into(), kind.into(), Piece::from(right)];
            if kind != " cross join " {
                // A full join has to be one by equality; only what is joined here is in scope.
                let seen: Vec<_> = self.scope.drain(..outer).collect();
                let last = self.scope[self.scope.len() - 1].name.clone();
                let first = self.scope[0].name.clone();
                let sort = if self.random.one_in(4) { Sort::Text } else { Sort::Int };
                let mut key = |relation: &Relation| {
                    let columns = relation.columns.iter().filter(|own| own.1 == sort);
                    let names: Vec<_> = columns.map(|own| own.0.clone()).collect();
                    let at = self.random.below(names.len().max(1));
                    names.get(at).cloned()
                };
                let keys = key(&self.scope[0]).zip(key(&self.scope[self.scope.len() - 1]));
                let condition = match keys {
                    Some((left, right)) => format!("{first}.{left} = {last}.{right}"),
                    None => "true".to_owned(),
                };
                pieces.extend([" on ".into(), condition.into()]);
                if kind != " full join " && self.random.one_in(2) {
                    // An outer join takes no query in its condition: 0A000.
                    let depth = if kind == " join " { 1 } else { 0 };
                    let and = self.expression(Sort::Bool, depth);
                    pieces.push(part!(Clause; " and ", and).optional().into());
                }
                self.scope.splice(0..0, seen);
            }
            all = Part { sort: Sort::Source, pieces, is_optional: false };
        }
        all
    }

    /// A query that gives columns of sorts, named c0, c1, ... It may use what is in scope.
    pub(crate) fn query(&mut self, sorts: &[Sort], depth: usize, ctes: &[Relation]) -> Part {
        if depth > 0 && self.random.one_in(5) {
            let one = self.query(sorts, depth - 1, ctes);
            let other = self.query(sorts, depth - 1, ctes);
            let kinds = [
                " union all ",
                " union ",
                " intersect ",
                " except ",
                " intersect all ",
                " except all ",
            ];
            // Equal numbers may have different scales, of which any may be kept.
            let kinds = match sorts.contains(&Sort::Num) {
                true => &kinds[..1],
                false if self.is_common => &kinds[..4],
                false => &kinds[..],
            };
            // Of a set operation in one SQLite takes no parentheses.
            let (one, other) = (wrapped(one), wrapped(other));
            return part!(Query; one, self.random.of(kinds), other);
        }
        let outer = self.scope.len();
        let from = self.from(depth, ctes);
        let filter = match self.random.one_in(3) {
            true => part!(Clause;),
            false => part!(Clause; " where ", self.expression(Sort::Bool, 2)).optional(),
        };
        let (list, rest) = match self.random.below(4) {
            0 => self.grouped(sorts),
            _ => {
                let list: Vec<_> = sorts.iter().map(|sort| self.output(*sort)).collect();
                (list, part!(Clause;))
            }
        };
        self.scope.truncate(outer);
        let distinct =
            if !sorts.contains(&Sort::Num) && self.random.one_in(6) { "distinct " } else { "" };
        let mut pieces = vec!["select ".into(), part!(Clause; distinct).optional().into()];
        for (at, own) in list.into_iter().enumerate() {
            let comma = if at > 0 { ", " } else { "" };
            pieces.extend([comma.into(), own.into(), format!(" as c{at}").into()]);
        }
        pieces.extend([" from ".into(), from.into(), filter.into(), rest.into()]);
        Part { sort: Sort::Query, pieces, is_optional: false }
    }

    /// What a query gives for a row: a window function sometimes.
    fn output(&mut self, sort: Sort) -> Part {
        if sort != Sort::Int || !self.random.one_in(4) {
            return self.expression(sort, 2);
        }
        // Aggregates take all peers, so that it does not matter which of them is first.
        let by = self.expression(Sort::Int, 1);
        let order = part!(Clause; " order by ", by, " nulls first");
        let of = self.sort();
        let partition = part!(Clause; "partition by ", self.expression(of, 1)).optional();
        let call = match self.random.below(6) {
            0 => part!(Int; "rank()"),
            1 => part!(Int; "dense_rank()"),
            2 => part!(Int; "count(*)"),
            3 => part!(Int; "sum(", self.expression(Sort::Int, 1), ")"),
            4 => part!(Int; "min(", self.expression(Sort::Int, 1), ")"),
            _ => part!(Int; "max(", self.expression(Sort::Int, 1), ")"),
        };
        part!(Int; "cast(", call, " over (", partition, order, ") as integer)")
    }

    /// The columns of a query with groups, and its clauses.
    fn grouped(&mut self, sorts: &[Sort]) -> (Vec<Part>, Part) {
        let (mut list, mut keys) = (Vec::new(), Vec::new());
        for sort in sorts {
            if self.random.one_in(2) {
                let key = self.expression(*sort, 1);
                // A constant in GROUP BY would be the number of a column.
                if key.sql().contains('.') && key.sql().starts_with('a') {
                    keys.push(key.sql());
                    list.push(key);
                    continue;
                }
            }
            list.push(self.aggregate(*sort));
        }
        let mut rest = Vec::new();
        if !keys.is_empty() {
            let keys = keys.join(", ");
            let lists = ["rollup (@)", "cube (@)", "grouping sets ((@), ())"];
            let by = match !self.is_common && self.random.one_in(4) {
                true => self.random.of(&lists).replace('@', &keys),
                false => keys,
            };
            rest.push(Piece::from(format!(" group by {by}")));
        }
        if self.random.one_in(3) {
            let (one, least) = (self.aggregate(Sort::Int), self.random.below(3).to_string());
            rest.push(part!(Clause; " having ", one, " >= ", least).optional().into());
        }
        (list, Part { sort: Sort::Clause, pieces: rest, is_optional: false })
    }

    fn aggregate(&mut self, sort: Sort) -> Part {
        let depth = if self.random.one_in(2) { 0 } else { 1 };
        let of = self.expression(sort, depth);
        match (sort, self.random.below(5)) {
            (Sort::Int, 0) => part!(Int; "cast(count(*) as integer)"),
            (Sort::Int, 1) => part!(Int; "cast(count(distinct ", of, ") as integer)"),
            (Sort::Int, 2) => part!(Int; "cast(sum(", of, ") as integer)"),
            (Sort::Num, 0) => part!(Num; "sum(", of, ")"),
            (Sort::Num, 1) => part!(Num; "avg(", of, ")"),
            (Sort::Bool, 0) if !self.is_common => part!(Bool; "bool_and(", of, ")"),
            (Sort::Bool, _) if !self.is_common => part!(Bool; "bool_or(", of, ")"),
            (Sort::Bool, _) => part!(Bool; "(count(", of, ") > 1)"),
            (sort, at) => {
                let name = if at % 2 == 0 { "min(" } else { "max(" };
                let pieces = vec![name.into(), of.into(), ")".into()];
                Part { sort, pieces, is_optional: false }
            }
        }
    }

    /// A condition with a subquery, which may be a correlated one.
    pub(crate) fn subquery_condition(&mut self, sort: Sort, one: Part, depth: usize) -> Part {
        if sort == Sort::Int && self.random.one_in(3) {
            let (table, key) = (self.random.below(self.tables), self.random.of(&["i", "j", "id"]));
            let exists = self.random.of(&["exists", "not exists"]);
            let from = format!("({exists} (select 1 from t{table} x where x.{key} = ");
            return part!(Bool; from, one, "))");
        }
        let seen = self.scope.len();
        let kept = match self.random.one_in(2) {
            true => self.scope.clone(),
            false => std::mem::take(&mut self.scope),
        };
        let query = self.query(&[sort], depth.min(1), &[]);
        self.scope = kept;
        self.scope.truncate(seen);
        match self.random.below(3) {
            0 => part!(Bool; "exists (", query, ")"),
            1 => part!(Bool; "(", one, " in (", query, "))"),
            _ => part!(Bool; "(", one, " not in (", query, "))"),
        }
    }

    /// A statement that reads.
    pub(crate) fn select(&mut self) -> Statement {
        let sorts: Vec<_> = (0..1 + self.random.below(4)).map(|_| self.sort()).collect();
        let mut ctes = Vec::new();
        let mut with = part!(Clause;);
        if self.random.one_in(5) {
            let sorts: Vec<_> = (0..2).map(|_| self.sort()).collect();
            let query = self.query(&sorts, 1, &[]);
            let columns = sorts.iter().enumerate().map(|(at, own)| (format!("c{at}"), *own));
            ctes.push(Relation { name: "w".to_owned(), columns: columns.collect() });
            let query = self.first_of(query, &sorts);
            let kinds = ["", "materialized ", "not materialized "];
            let kind = if self.is_common { "" } else { self.random.of(&kinds) };
            with = part!(Clause; format!("with w as {kind}("), query, ") ");
        }
        let query = self.query(&sorts, 2, &ctes);
        // Equal numbers may have different scales, of which any may be the first.
        let is_ordered = self.random.one_in(2) && !sorts.contains(&Sort::Num);
        let mut order = part!(Clause;);
        if is_ordered {
            let nulls = self.random.of(&[" nulls first", " desc nulls last"]);
            let keys: Vec<_> = (1..=sorts.len()).map(|at| format!("{at}{nulls}")).collect();
            let limit = match self.random.one_in(3) {
                true => part!(Clause; " limit 3 offset 1").optional(),
                false => part!(Clause;),
            };
            order = part!(Clause; format!(" order by {}", keys.join(", ")), limit);
        }
        Statement { part: part!(Query; with, query, order), is_ordered, changes: None }
    }

    /// A statement that changes a table.
    pub(crate) fn change(&mut self) -> Statement {
        let table = format!("t{}", self.random.below(self.tables));
        let kind = self.random.below(3);
        let mut part = if kind == 0 {
            let query = self.query(&[Sort::Int, Sort::Int, Sort::Text], 1, &[]);
            let names = format!("insert into {table} (id, i, j, s) select ");
            // The keys are new; a row that is there already, sometimes.
            let key = self.random.of(&["100 + count(*)", "coalesce(min(c0), 50)"]);
            part!(Clause; names, key, ", max(c0), min(c1), max(c2) from (", query, ") q")
        } else {
            let columns = self.columns();
            self.scope.push(Relation { name: table.clone(), columns });
            let filter = part!(Clause; " where ", self.expression(Sort::Bool, 2)).optional();
            if kind == 1 {
                let (int, text) = (self.expression(Sort::Int, 2), self.expression(Sort::Text, 1));
                part!(Clause; format!("update {table} set i = "), int, ", s = ", text, filter)
            } else {
                part!(Clause; format!("delete from {table}"), filter)
            }
        };
        self.scope.clear();
        if self.random.one_in(2) {
            part.pieces.push(part!(Clause; " returning id, i, s").optional().into());
        }
        Statement { part, is_ordered: false, changes: Some(table) }
    }
}

/// A query as an operand of another, which all understand.
fn wrapped(query: Part) -> Part {
    part!(Query; "select * from (", query, ") u")
}
