//! The order of inner joins, by how many rows they are supposed to give.
//!
//! The inputs of joins that stand directly in each other are joined one after the other: first the
//! two that give the fewest rows together, then the one that gives the fewest with those. One that
//! no condition links to those is left for the end. Equal estimates leave the order as written.
//! Of two sides the smaller one is the right, which a hash join keeps, unless the other is read by
//! a key for few rows.
//!
//! Outer joins and lateral ones, and what reads rows to change them, are inputs as a whole. Where
//! nothing is known of a table, all stays as it is written.

use super::conditions::{conjuncts, equal_sides, shifted};
use super::estimate::Statistics;
use super::expr::Expr;
use super::key_conditions::key_column;
use super::node::{Join, JoinKind, Plan, Scan};
use super::walk::inputs;

/// Most inputs that are put in order: with more it would take longer than it is worth.
const MOST_INPUTS: usize = 32;

/// How many rows are read one after the other in the time in which one is found by its key.
const ROWS_FOR_A_KEY: f64 = 8.0;

/// How much less an order has to give to be taken for a better one.
const LESS: f64 = 0.999;

/// Joins in order.
pub(super) struct Ordered {
    /// Without conditions; within it stand the others.
    pub(super) join: Join,
    /// Over its columns.
    pub(super) conditions: Vec<Expr>,
    /// The columns as they were; `None` if they are so.
    pub(super) columns: Option<Vec<Expr>>,
}

/// Whether a join may be exchanged with others.
pub(super) fn is_free(join: &Join) -> bool {
    join.kind == JoinKind::Inner && !join.is_lateral && join.equal.is_empty() && !join.keeps_order
}

/// Whether it is better to find rows of a table by a key for each row of the left than to read all;
/// `None` if nothing is known of them.
pub(super) fn is_by_key(left: &Plan, scan: &Scan, statistics: &Statistics) -> Option<bool> {
    Some(is_worth_keys(statistics.rows(left)?, statistics.rows_of_table(scan)?))
}

/// Whether it is better to find so many rows by their keys than to read so many. Of one row it
/// always is: the table may have grown since it was analyzed.
fn is_worth_keys(found: f64, all: f64) -> bool {
    found <= 1.0 || found * ROWS_FOR_A_KEY <= all
}

/// A join and those in it in order, for rows for which these hold.
pub(super) fn ordered(
    join: &Join,
    conditions: &[Expr],
    statistics: &Statistics,
) -> Option<Ordered> {
    if statistics.is_empty() || !is_free(join) {
        return None;
    }
    let mut parts = Parts::default();
    parts.take_apart_join(join, 0);
    parts.conditions.extend(conditions.iter().cloned());
    if parts.inputs.len() > MOST_INPUTS {
        return None;
    }
    if parts.conditions.iter().any(Expr::is_volatile) {
        return None;
    }
    if parts.inputs.iter().any(|(plan, _)| is_for_update(plan)) {
        return None;
    }
    Order::new(&parts, statistics)?.found()
}

/// The inputs of joins that stand in each other.
#[derive(Default)]
struct Parts<'p> {
    /// With the first column of each.
    inputs: Vec<(&'p Plan, usize)>,
    /// Over the columns of all.
    conditions: Vec<Expr>,
}

impl<'p> Parts<'p> {
    fn take_apart_join(&mut self, join: &'p Join, first: usize) {
        self.take_apart(&join.left, first);
        self.take_apart(&join.right, first + join.left_width);
        self.add(join.condition.as_ref(), first);
    }

    #[recursive::recursive]
    fn take_apart(&mut self, plan: &'p Plan, first: usize) {
        match plan {
            Plan::Join(join) if is_free(join) => self.take_apart_join(join, first),
            Plan::Filter { input, condition } if is_of_join(input) => {
                self.take_apart(input, first);
                self.add(Some(condition), first);
            }
            plan => self.inputs.push((plan, first)),
        }
    }

    fn add(&mut self, condition: Option<&Expr>, first: usize) {
        let Some(mut condition) = condition.cloned() else { return };
        condition.visit_mut(&mut |own| {
            if let Expr::Column(column) = own {
                *column += first;
            }
        });
        conjuncts(condition, &mut self.conditions);
    }
}

/// Whether a plan is joins that may be exchanged.
fn is_of_join(plan: &Plan) -> bool {
    matches!(plan, Plan::Join(join) if is_free(join))
}

#[recursive::recursive]
fn is_for_update(plan: &Plan) -> bool {
    let mut found = matches!(plan, Plan::Scan(scan) if scan.for_update);
    inputs(plan, &mut |input, _| found = found || is_for_update(input));
    found
}

/// What of an order is known.
struct Order<'p> {
    parts: &'p Parts<'p>,
    plans: Vec<&'p Plan>,
    statistics: &'p Statistics,
    /// Rows of each input for which what is said of that alone holds.
    rows: Vec<f64>,
    /// Conditions over several inputs, with those that they read and the fraction that they leave.
    links: Vec<Link<'p>>,
}

struct Link<'p> {
    condition: &'p Expr,
    inputs: Vec<usize>,
    fraction: f64,
}

/// Inputs that were joined.
struct Joined {
    plan: Plan,
    /// In the order of its columns.
    inputs: Vec<usize>,
    rows: f64,
}

impl<'p> Order<'p> {
    fn new(parts: &'p Parts<'p>, statistics: &'p Statistics) -> Option<Self> {
        let plans: Vec<&Plan> = parts.inputs.iter().map(|(plan, _)| *plan).collect();
        let input_of = |column: usize| {
            let after = parts.inputs.partition_point(|(_, first)| *first <= column);
            after.checked_sub(1)
        };
        let (mut links, mut alone) = (Vec::new(), vec![Vec::new(); plans.len()]);
        for condition in &parts.conditions {
            let columns = condition.columns();
            let mut inputs: Vec<usize> = columns.into_iter().filter_map(input_of).collect();
            inputs.sort_unstable();
            inputs.dedup();
            match &*inputs {
                [] => {}
                [own] => {
                    let (_, first) = parts.inputs.get(*own)?;
                    alone.get_mut(*own)?.push(shifted(condition.clone(), *first));
                }
                _ => {
                    let fraction = statistics.fraction(condition, &plans);
                    links.push(Link { condition, inputs, fraction });
                }
            }
        }
        let mut rows = Vec::new();
        for (&plan, conditions) in plans.iter().zip(&alone) {
            let fraction = statistics.fraction_of_all(conditions, &[plan]);
            rows.push((statistics.rows(plan)? * fraction).max(1.0));
        }
        Some(Self { parts, plans, statistics, rows, links })
    }

    /// The fraction of pairs that is left of these inputs and another; `None` if no condition links
    /// it to those.
    fn fraction(&self, joined: &[usize], other: usize) -> Option<f64> {
        let is_there = |own: &usize| *own == other || joined.contains(own);
        let new = self
            .links
            .iter()
            .filter(|link| link.inputs.contains(&other) && link.inputs.iter().all(is_there));
        new.map(|link| link.fraction).reduce(|all, own| all * own)
    }

    fn found(self) -> Option<Ordered> {
        let first = self.first()?;
        let mut joined =
            Joined { plan: self.plan(first)?, inputs: vec![first], rows: *self.rows.get(first)? };
        while joined.inputs.len() < self.plans.len() {
            joined = self.with_next(joined)?;
        }
        let Joined { plan: Plan::Join(join), inputs, .. } = joined else { return None };
        // Where each column went.
        let mut places =
            vec![0; inputs.iter().filter_map(|own| Some(self.plans.get(*own)?.width())).sum()];
        let mut next = 0;
        for own in &inputs {
            let (plan, first) = self.parts.inputs.get(*own)?;
            for place in places.iter_mut().skip(*first).take(plan.width()) {
                *place = next;
                next += 1;
            }
        }
        let mut conditions = self.parts.conditions.clone();
        for condition in &mut conditions {
            condition.visit_mut(&mut |own| {
                if let Expr::Column(column) = own
                    && let Some(place) = places.get(*column)
                {
                    *column = *place;
                }
            });
        }
        let is_same = places.iter().enumerate().all(|(at, place)| at == *place);
        let columns = (!is_same).then(|| places.into_iter().map(Expr::Column).collect());
        Some(Ordered { join: *join, conditions, columns })
    }

    fn plan(&self, input: usize) -> Option<Plan> {
        self.plans.get(input).map(|plan| Plan::clone(plan))
    }

    /// The input that others are joined with: one of the pair that gives the fewest rows.
    fn first(&self) -> Option<usize> {
        let mut best: Option<(usize, f64)> = None;
        for (left, of_left) in self.rows.iter().enumerate() {
            for (right, of_right) in self.rows.iter().enumerate().skip(left + 1) {
                let Some(fraction) = self.fraction(&[left], right) else { continue };
                let rows = of_left * of_right * fraction;
                if best.is_none_or(|(_, fewest)| rows < fewest * LESS) {
                    let own = if *of_right < of_left * LESS { right } else { left };
                    best = Some((own, rows));
                }
            }
        }
        best.or_else(|| self.fewest(&[])).map(|(own, _)| own)
    }

    /// The input with the fewest rows that is none of these.
    fn fewest(&self, joined: &[usize]) -> Option<(usize, f64)> {
        let mut best: Option<(usize, f64)> = None;
        for (at, rows) in self.rows.iter().enumerate().filter(|(at, _)| !joined.contains(at)) {
            if best.is_none_or(|(_, fewest)| *rows < fewest * LESS) {
                best = Some((at, *rows));
            }
        }
        best
    }

    /// These with the input that gives the fewest rows with them.
    fn with_next(&self, joined: Joined) -> Option<Joined> {
        let mut best: Option<(usize, f64)> = None;
        for (at, rows) in self.rows.iter().enumerate() {
            if joined.inputs.contains(&at) {
                continue;
            }
            let Some(fraction) = self.fraction(&joined.inputs, at) else { continue };
            let rows = joined.rows * rows * fraction;
            if best.is_none_or(|(_, fewest)| rows < fewest * LESS) {
                best = Some((at, rows));
            }
        }
        let (other, rows) = match best {
            Some(found) => found,
            None => {
                let (at, rows) = self.fewest(&joined.inputs)?;
                (at, joined.rows * rows)
            }
        };
        let (plan, of_other) = (self.plan(other)?, *self.rows.get(other)?);
        let is_left = match joined.inputs.as_slice() {
            _ if self.is_found_by_key(&joined.inputs, joined.rows, other) => true,
            [own] if self.is_found_by_key(&[other], of_other, *own) => false,
            // The right side is the one that is kept.
            [own] if is_alike(joined.rows, of_other) => *own < other,
            _ => joined.rows >= of_other * LESS,
        };
        let other = Joined { plan, inputs: vec![other], rows: of_other };
        let (left, right) = if is_left { (joined, other) } else { (other, joined) };
        Some(both(left, right, rows))
    }

    /// Whether it is best to find the rows of an input by its key for so many rows of others.
    fn is_found_by_key(&self, joined: &[usize], rows: f64, other: usize) -> bool {
        let Some((plan, first)) = self.parts.inputs.get(other) else { return false };
        let Some(scan) = scan_of(plan) else { return false };
        let Some(all) = self.statistics.rows_of_table(scan) else { return false };
        let width = plan.width();
        let leads = |column: usize| {
            let keys = std::iter::once(None).chain((0..scan.table.indexes.len()).map(Some));
            let mut columns = keys.filter_map(|index| scan.table.key(index)?.0.first());
            columns.any(|own| *own == column)
        };
        let is_key = |side: &Expr| key_column(&scan.table, side).is_some_and(leads);
        let links = self.links.iter().filter(|link| {
            let is_there = |own: &usize| *own == other || joined.contains(own);
            link.inputs.contains(&other) && link.inputs.iter().all(is_there)
        });
        let by_key = |condition: &Expr| {
            // The columns of the input are behind those before it, and before those behind it.
            let mut own = condition.clone();
            own.visit_mut(&mut |own| {
                if let Expr::Column(column) = own {
                    *column = match column.checked_sub(*first) {
                        Some(at) if at < width => at,
                        _ => *column + first + width + 1,
                    };
                }
            });
            equal_sides(&own, width).is_some_and(|(side, _)| is_key(&side))
        };
        is_worth_keys(rows, all) && links.into_iter().any(|link| by_key(link.condition))
    }
}

/// Whether two numbers of rows are taken for the same.
fn is_alike(left: f64, right: f64) -> bool {
    left * LESS <= right && right * LESS <= left
}

fn both(left: Joined, right: Joined, rows: f64) -> Joined {
    let (left_width, right_width) = (left.plan.width(), right.plan.width());
    let inputs = left.inputs.into_iter().chain(right.inputs).collect();
    let join = Join {
        left: left.plan,
        right: right.plan,
        left_width,
        right_width,
        kind: JoinKind::Inner,
        equal: Vec::new(),
        condition: None,
        is_lateral: false,
        keeps_order: false,
    };
    Joined { plan: Plan::Join(Box::new(join)), inputs, rows }
}

/// The read of a table that is not more than that.
fn scan_of(plan: &Plan) -> Option<&Scan> {
    match plan {
        Plan::Scan(scan) if !scan.access.is_keyed() => Some(scan),
        Plan::Filter { input, .. } => scan_of(input),
        _ => None,
    }
}
