//! The key by which a table is read.

use super::expr::{Comparison, Expr};
use super::node::{Access, KeyBound, KeyExpr, Scan};

/// What conditions say of a column.
#[derive(Default)]
struct ColumnConditions {
    /// Its value, and the condition that says so.
    equal: Option<(KeyExpr, usize)>,
    low: Option<(KeyBound, usize)>,
    high: Option<(KeyBound, usize)>,
    /// One of these values.
    one_of: Option<(Vec<KeyExpr>, usize)>,
}

/// Whether a value is known before a row of the table is read.
pub(super) fn is_key_expr(expr: &Expr) -> bool {
    expr.columns().is_empty()
}

impl Access {
    /// Whether it reads less than all.
    pub(super) fn is_keyed(&self) -> bool {
        match self {
            Self::Range { prefix, low, high, .. } => {
                !prefix.is_empty() || low.is_some() || high.is_some()
            }
            Self::Each { .. } => true,
        }
    }
}

/// Chooses the key that leaves least to read, and takes out of `conditions` what it sees to. How
/// good that key is, 0 if none is used.
pub(super) fn choose_access(scan: &mut Scan, conditions: &mut Vec<Expr>) -> usize {
    if scan.access.is_keyed() {
        return 0;
    }
    let known = known_columns(scan, conditions);
    let keys = std::iter::once(None).chain((0..scan.table.indexes.len()).map(Some));
    let mut best: Option<(usize, Option<usize>)> = None;
    for index in keys {
        let Some((columns, _)) = scan.table.key(index) else { continue };
        let is_unique = match index {
            None => true,
            Some(index) => scan.table.indexes.get(index).is_some_and(|own| own.unique),
        };
        let score = score(columns, is_unique, index.is_none(), &known);
        if score > 0 && best.is_none_or(|(most, _)| score > most) {
            best = Some((score, index));
        }
    }
    let Some((score, index)) = best else { return 0 };
    let Some((columns, _)) = scan.table.key(index) else { return 0 };
    let columns = columns.to_vec();
    let mut used = Vec::new();
    let (mut prefix, mut low, mut high) = (Vec::new(), None, None);
    let mut known = known;
    for column in columns {
        let Some(own) = known.get_mut(column) else { break };
        if let Some((value, at)) = own.equal.take() {
            prefix.push(value);
            used.push(at);
            continue;
        }
        if prefix.is_empty()
            && let Some((values, at)) = own.one_of.take()
        {
            scan.access = Access::Each { index, values };
            used.push(at);
            take_out(conditions, &used);
            return score;
        }
        for (from, to) in [(own.low.take(), &mut low), (own.high.take(), &mut high)] {
            if let Some((bound, at)) = from {
                *to = Some(bound);
                used.push(at);
            }
        }
        break;
    }
    scan.access = Access::Range { index, prefix, low, high, descending: false };
    take_out(conditions, &used);
    score
}

fn take_out(conditions: &mut Vec<Expr>, used: &[usize]) {
    let mut at = 0;
    conditions.retain(|_| {
        at += 1;
        !used.contains(&(at - 1))
    });
}

/// How good a key is: the whole of a unique one is best, then as many columns as are known.
fn score(
    columns: &[usize],
    is_unique: bool,
    is_primary: bool,
    known: &[ColumnConditions],
) -> usize {
    let equal = |column: &&usize| known.get(**column).is_some_and(|own| own.equal.is_some());
    let prefix = columns.iter().take_while(equal).count();
    let next = columns.get(prefix).and_then(|column| known.get(*column));
    let range = next.map_or(0, |own| {
        let one_of = usize::from(own.one_of.is_some() && prefix == 0) * 3;
        one_of.max(usize::from(own.low.is_some()) + usize::from(own.high.is_some()))
    });
    if prefix == 0 && range == 0 {
        return 0;
    }
    let whole = usize::from(is_unique && prefix == columns.len());
    whole * 100_000 + prefix * 1_000 + range * 10 + usize::from(is_primary)
}

fn known_columns(scan: &Scan, conditions: &[Expr]) -> Vec<ColumnConditions> {
    let mut known: Vec<ColumnConditions> =
        scan.table.columns.iter().map(|_| ColumnConditions::default()).collect();
    for (at, condition) in conditions.iter().enumerate() {
        match condition {
            Expr::Call { arguments, comparison: Some(comparison), .. } => {
                let [first, second] = &**arguments else { continue };
                let (column, value, comparison) = match (first, second) {
                    (Expr::Column(column), value) if is_key_expr(value) => {
                        (*column, value, *comparison)
                    }
                    (value, Expr::Column(column)) if is_key_expr(value) => {
                        (*column, value, comparison.turned())
                    }
                    _ => continue,
                };
                let Some(own) = known.get_mut(column) else { continue };
                let is_array = scan.table.columns.get(column).is_none_or(|own| own.ty.is_array);
                // Keys have arrays in another order than they are compared in.
                if is_array && comparison != Comparison::Equal {
                    continue;
                }
                let bound = |inclusive| Some((KeyBound { value: value.clone(), inclusive }, at));
                match comparison {
                    Comparison::Equal if own.equal.is_none() => {
                        own.equal = Some((value.clone(), at));
                    }
                    Comparison::Greater if own.low.is_none() => own.low = bound(false),
                    Comparison::GreaterEqual if own.low.is_none() => own.low = bound(true),
                    Comparison::Less if own.high.is_none() => own.high = bound(false),
                    Comparison::LessEqual if own.high.is_none() => own.high = bound(true),
                    _ => {}
                }
            }
            Expr::InList { operand, list, negated: false, .. } => {
                let Expr::Column(column) = &**operand else { continue };
                let Some(own) = known.get_mut(*column) else { continue };
                if own.one_of.is_none() && list.iter().all(is_key_expr) {
                    own.one_of = Some((list.clone(), at));
                }
            }
            _ => {}
        }
    }
    known
}
