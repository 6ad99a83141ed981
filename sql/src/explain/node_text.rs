//! Nodes of plans, for people.

use std::time::Duration;

use super::expr_text::{Names, list, order, sign, text};
use crate::plan::{
    Access, ApplyKind, Comparison, Expr, Join, JoinKind, KeyBound, KeyItem, Modify, Plan, Scan,
    SetOperator, Statistics,
};

/// What a node did.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counted {
    pub(crate) rows: u64,
    /// How often it was begun.
    pub(crate) loops: u64,
    /// With what its inputs took.
    pub(crate) took: Duration,
}

/// What is known of the nodes of a plan.
#[derive(Clone, Copy)]
struct Known<'k> {
    counted: &'k [Counted],
    statistics: &'k Statistics,
}

/// The plan as lines, with the rows that its nodes are supposed to give where that is known, and
/// what they did if they were measured.
pub(crate) fn lines(plan: &Plan, counted: &[Counted], statistics: &Statistics) -> Vec<String> {
    let mut lines = Vec::new();
    node(plan, Known { counted, statistics }, 0, &mut Vec::new(), &mut lines);
    lines
}

/// A node as it is shown.
struct Shown<'p> {
    title: String,
    details: Vec<(&'static str, String)>,
    inputs: Vec<&'p Plan>,
    /// Whether the last input sees the row of the first.
    is_lateral: bool,
}

#[recursive::recursive]
fn node(
    plan: &Plan,
    known: Known<'_>,
    depth: usize,
    outer: &mut Vec<Vec<String>>,
    lines: &mut Vec<String>,
) {
    let (plan, counted_here) = match plan {
        Plan::Measured { number, input } => (&**input, known.counted.get(*number)),
        plan => (plan, None),
    };
    // It does no more than to choose columns.
    if let Plan::Project { input, .. } = plan {
        return node(input, known, depth, outer, lines);
    }
    // A change locks its rows; that is no step of its own.
    if let Plan::Lock(lock) = plan
        && lock.is_for_change
    {
        return node(&lock.input, known, depth, outer, lines);
    }
    let Shown { title, details, inputs, is_lateral } = shown(plan, outer);
    let (indent, arrow) = match depth {
        0 => (String::new(), ""),
        depth => (" ".repeat(depth * 6 - 4), "->  "),
    };
    let did = match counted_here {
        None => String::new(),
        Some(Counted { loops: 0, .. }) => "  (never executed)".to_owned(),
        Some(Counted { rows, loops, took }) => {
            let ms = took.as_secs_f64() * 1e3;
            format!("  (actual time={ms:.3} ms, rows={rows}, loops={loops})")
        }
    };
    let estimated = match known.statistics.rows(plan) {
        Some(rows) if !known.statistics.is_empty() => format!("  (rows={:.0})", rows.max(1.0)),
        _ => String::new(),
    };
    lines.push(format!("{indent}{arrow}{title}{estimated}{did}"));
    let inner = " ".repeat(depth * 6 + 2);
    lines.extend(details.iter().map(|(name, value)| format!("{inner}{name}: {value}")));
    for (at, input) in inputs.iter().enumerate() {
        let sees_first = is_lateral && at > 0;
        if sees_first && let Some(first) = inputs.first() {
            outer.push(names(first, outer));
        }
        node(input, known, depth + 1, outer, lines);
        if sees_first {
            outer.pop();
        }
    }
}

fn shown<'p>(plan: &'p Plan, outer: &[Vec<String>]) -> Shown<'p> {
    let leaf = |title: String| {
        let (details, inputs, is_lateral) = (Vec::new(), Vec::new(), false);
        Shown { title, details, inputs, is_lateral }
    };
    let own = |input: &Plan| names(input, outer);
    let group_key =
        |keys: &[Expr], input: &Plan| ("Group Key", list(keys, Names { own: &own(input), outer }));
    let is_lateral = match plan {
        Plan::Join(join) => join.is_lateral,
        plan => matches!(plan, Plan::Apply { .. }),
    };
    let (title, details, inputs) = match plan {
        Plan::One | Plan::Nothing { .. } => return leaf("Result".to_owned()),
        Plan::Values { rows, .. } if rows.len() == 1 => return leaf("Result".to_owned()),
        Plan::Values { .. } => return leaf("Values Scan".to_owned()),
        Plan::CopyIn { table, .. } => return leaf(format!("Data for {table}")),
        Plan::Advisory(_) => return leaf("Advisory Lock".to_owned()),
        Plan::Sequence(_) => return leaf("Sequence".to_owned()),
        Plan::Scan(scan) => return of_scan(scan, outer),
        Plan::Rows { function, .. } => {
            let name = function.columns.first().map_or("a function", |(name, _)| name);
            return leaf(format!("Function Scan on {name}"));
        }
        Plan::Working { number, .. } => return leaf(format!("WorkTable Scan on {number}")),
        Plan::Shared { number, plan, .. } => {
            (format!("CTE Scan on {number}"), vec![], vec![&**plan])
        }
        Plan::Recursive { first, next, .. } => over("Recursive Union", vec![], vec![first, next]),
        Plan::Filter { input, condition } => {
            let filter = ("Filter", text(condition, Names { own: &own(input), outer }));
            over("Result", vec![filter], vec![input])
        }
        Plan::Project { input, .. } => over("Result", vec![], vec![input]),
        Plan::Measured { input, .. } => return shown(input, outer),
        Plan::Join(join) => of_join(join, false, outer),
        Plan::Merge(merge) => of_join(&merge.join, true, outer),
        Plan::Apply { input, query, kind, .. } => {
            over(name_of_apply(kind), vec![], vec![input, query])
        }
        Plan::Aggregate { input, keys, .. } if keys.is_empty() => {
            over("Aggregate", vec![], vec![input])
        }
        Plan::Aggregate { input, keys, .. } | Plan::Distinct { input, keys, is_sorted: false } => {
            over("HashAggregate", vec![group_key(keys, input)], vec![input])
        }
        Plan::Grouped { input, keys, .. } => {
            over("GroupAggregate", vec![group_key(keys, input)], vec![input])
        }
        Plan::Window { input, .. } => over("WindowAgg", vec![], vec![input]),
        Plan::Sort { input, keys, first } => {
            let title = if first.is_some() { "Top-N Sort" } else { "Sort" };
            let key = ("Sort Key", order(keys, Names { own: &own(input), outer }));
            over(title, vec![key], vec![input])
        }
        Plan::Limit { input, .. } => over("Limit", vec![], vec![input]),
        Plan::Distinct { input, is_sorted: true, .. } => over("Unique", vec![], vec![input]),
        Plan::Set { operator, all, left, right } => {
            over(name_of_set(*operator, *all), vec![], vec![left, right])
        }
        Plan::Lock(lock) => over("LockRows", vec![], vec![&lock.input]),
        Plan::Together { .. } | Plan::Insert(_) | Plan::Modify(_) => of_change(plan),
    };
    Shown { title, details, inputs, is_lateral }
}

/// What changes rows.
fn of_change(plan: &Plan) -> (String, Vec<(&'static str, String)>, Vec<&Plan>) {
    match plan {
        Plan::Insert(insert) => {
            (format!("Insert on {}", insert.table.name), vec![], vec![&insert.source])
        }
        Plan::Modify(modify) => {
            let Modify { table, assignments, source, .. } = &**modify;
            let word = if assignments.is_some() { "Update" } else { "Delete" };
            (format!("{word} on {}", table.name), vec![], vec![source])
        }
        Plan::Together { changes, main } => {
            let all = std::iter::once(&**main).chain(changes).collect();
            over("Changes Together", vec![], all)
        }
        _ => over("Result", vec![], vec![]),
    }
}

fn name_of_apply(kind: &ApplyKind) -> &'static str {
    match kind {
        ApplyKind::Scalar => "SubPlan (value)",
        ApplyKind::Exists => "SubPlan (exists)",
        ApplyKind::Compare { .. } => "SubPlan (comparison)",
        ApplyKind::Array { .. } => "SubPlan (array)",
    }
}

fn name_of_set(operator: SetOperator, all: bool) -> &'static str {
    match operator {
        SetOperator::Union if all => "Append",
        SetOperator::Union => "HashSetOp Union",
        SetOperator::Intersect => "HashSetOp Intersect",
        SetOperator::Except => "HashSetOp Except",
    }
}

fn over<'p>(
    title: &str,
    details: Vec<(&'static str, String)>,
    inputs: Vec<&'p Plan>,
) -> (String, Vec<(&'static str, String)>, Vec<&'p Plan>) {
    (title.to_owned(), details, inputs)
}

fn of_scan<'p>(scan: &Scan, outer: &[Vec<String>]) -> Shown<'p> {
    let table = &scan.table;
    let columns = names_of_table(scan);
    let key_name = |index: Option<usize>| match index {
        None => table.primary_key_name(),
        Some(at) => table.indexes.get(at).map(|own| own.name.clone()).unwrap_or_default(),
    };
    let key = |index| {
        let key = table.key(index).map_or(&[][..], |(columns, _)| columns);
        key.iter().filter_map(|at| columns.get(*at).cloned()).collect::<Vec<String>>()
    };
    let compared = |name: &str, comparison, value: &Expr| {
        format!("({name} {} {})", sign(comparison), text(value, Names { own: &[], outer }))
    };
    let mut conditions = Vec::new();
    let only = if scan.index_only { " Only" } else { "" };
    let title = match &scan.access {
        Access::Range { index, prefix, low, high, descending } => {
            let key = key(*index);
            for (name, value) in key.iter().zip(prefix) {
                conditions.push(compared(name, Comparison::Equal, value));
            }
            if let Some(name) = key.get(prefix.len()) {
                for (bound, open, closed) in [
                    (low, Comparison::Greater, Comparison::GreaterEqual),
                    (high, Comparison::Less, Comparison::LessEqual),
                ] {
                    if bound.as_ref().is_some_and(KeyBound::is_not_null) {
                        conditions.push(format!("({name} IS NOT NULL)"));
                    } else if let Some(bound) = bound {
                        let comparison = if bound.inclusive { closed } else { open };
                        conditions.push(compared(name, comparison, &bound.value));
                    }
                }
            }
            let backward = if *descending { " Backward" } else { "" };
            match (index, conditions.is_empty()) {
                (None, true) if !descending => format!("Seq Scan on {}", table.name),
                _ => format!(
                    "Index{only} Scan{backward} using {} on {}",
                    key_name(*index),
                    table.name
                ),
            }
        }
        Access::Each { index, prefix, values, suffix } => {
            let key = key(*index);
            let name = key.get(prefix.len()).map_or("", String::as_str);
            for (name, value) in key.iter().zip(prefix) {
                conditions.push(compared(name, Comparison::Equal, value));
            }
            conditions.push(one_of(name, values, Names { own: &[], outer }));
            for (name, value) in key.iter().skip(prefix.len() + 1).zip(suffix) {
                conditions.push(compared(name, Comparison::Equal, value));
            }
            format!("Index{only} Scan using {} on {}", key_name(*index), table.name)
        }
    };
    let mut details = Vec::new();
    if !conditions.is_empty() {
        let all = conditions.join(" AND ");
        let all = if conditions.len() > 1 { format!("({all})") } else { all };
        details.push(("Index Cond", all));
    }
    details.extend(
        scan.filter.iter().map(|filter| ("Filter", text(filter, Names { own: &columns, outer }))),
    );
    Shown { title, details, inputs: Vec::new(), is_lateral: false }
}

/// That a column is one of these values.
fn one_of(name: &str, values: &[KeyItem], names: Names<'_>) -> String {
    let of_list = |own: &KeyItem| match own {
        KeyItem::One(value) => Some(value.clone()),
        KeyItem::Elements(_) => None,
    };
    let of_array = |own: &KeyItem| match own {
        KeyItem::One(_) => None,
        KeyItem::Elements(array) => Some(format!("({name} = ANY ({}))", text(array, names))),
    };
    let listed: Vec<Expr> = values.iter().filter_map(of_list).collect();
    let mut all: Vec<String> = values.iter().filter_map(of_array).collect();
    if !listed.is_empty() {
        all.insert(0, format!("({name} IN ({}))", list(&listed, names)));
    }
    let joined = all.join(" OR ");
    if all.len() > 1 { format!("({joined})") } else { joined }
}

fn of_join<'p>(
    join: &'p Join,
    is_merge: bool,
    outer: &[Vec<String>],
) -> (String, Vec<(&'static str, String)>, Vec<&'p Plan>) {
    let (left, right) = (names(&join.left, outer), names(&join.right, outer));
    let kind = match join.kind {
        JoinKind::Inner => "",
        JoinKind::Left => " Left",
        JoinKind::Right => " Right",
        JoinKind::Full => " Full",
        JoinKind::Semi => " Semi",
        JoinKind::Anti => " Anti",
    };
    let mut details = Vec::new();
    let title = if join.equal.is_empty() {
        let word = if kind.is_empty() { "" } else { " Join" };
        format!("Nested Loop{kind}{word}")
    } else {
        let pair = |(a, b): &(Expr, Expr)| {
            let (left, right) = (Names { own: &left, outer }, Names { own: &right, outer });
            format!("({} = {})", text(a, left), text(b, right))
        };
        let pairs: Vec<_> = join.equal.iter().map(pair).collect();
        let all =
            if pairs.len() > 1 { format!("({})", pairs.join(" AND ")) } else { pairs.join("") };
        match is_merge {
            true => {
                details.push(("Merge Cond", all));
                format!("Merge{kind} Join")
            }
            false => {
                details.push(("Hash Cond", pairs.join(" AND ")));
                format!("Hash{kind} Join")
            }
        }
    };
    if let Some(condition) = &join.condition {
        let all: Vec<_> = left.into_iter().chain(right).collect();
        details.push(("Join Filter", text(condition, Names { own: &all, outer })));
    }
    (title, details, vec![&join.left, &join.right])
}

fn names_of_table(scan: &Scan) -> Vec<String> {
    scan.table.columns.iter().map(|column| column.name.clone()).collect()
}

/// What the columns of a plan are called.
#[recursive::recursive]
fn names(plan: &Plan, outer: &[Vec<String>]) -> Vec<String> {
    match plan {
        Plan::Scan(scan) => {
            let table = &scan.table;
            table.columns.iter().map(|own| format!("{}.{}", table.name, own.name)).collect()
        }
        Plan::Rows { function, .. } => function.columns.iter().map(|own| own.0.clone()).collect(),
        Plan::Measured { input, .. }
        | Plan::Filter { input, .. }
        | Plan::Sort { input, .. }
        | Plan::Limit { input, .. }
        | Plan::Distinct { input, .. } => names(input, outer),
        Plan::Lock(lock) => names(&lock.input, outer),
        Plan::Shared { plan, .. } => names(plan, outer),
        Plan::Project { input, exprs } => {
            let inner = names(input, outer);
            exprs.iter().map(|expr| text(expr, Names { own: &inner, outer })).collect()
        }
        Plan::Join(join) => names_of_join(join, outer),
        Plan::Merge(merge) => names_of_join(&merge.join, outer),
        Plan::Apply { input, .. } => {
            let mut all = names(input, outer);
            all.push("(SubPlan)".to_owned());
            all
        }
        Plan::Aggregate { input, keys, calls } | Plan::Grouped { input, keys, calls } => {
            let inner = names(input, outer);
            let keys = keys.iter().map(|key| text(key, Names { own: &inner, outer }));
            let calls = calls.iter().map(|call| {
                format!(
                    "{}({})",
                    call.function.name,
                    list(&call.arguments, Names { own: &inner, outer })
                )
            });
            keys.chain(calls).collect()
        }
        Plan::Window { input, calls } => {
            let mut all = names(input, outer);
            all.extend(calls.iter().map(|call| format!("{}() OVER (...)", call.name)));
            all
        }
        plan => (1..=plan.width()).map(|at| format!("column {at}")).collect(),
    }
}

fn names_of_join(join: &Join, outer: &[Vec<String>]) -> Vec<String> {
    let mut all = names(&join.left, outer);
    if !matches!(join.kind, JoinKind::Semi | JoinKind::Anti) {
        all.resize(join.left_width, String::new());
        all.extend(names(&join.right, outer));
    }
    all
}
