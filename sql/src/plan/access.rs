//! The key by which a table is read.

use super::expr::Expr;
use super::key_conditions::{ColumnConditions, known_columns};
use super::node::{Access, KeyItem, Scan};

/// Whether a value is known before a row of the table is read, and is the same for all of them.
pub(super) fn is_key_expr(expr: &Expr) -> bool {
    expr.columns().is_empty() && !expr.is_volatile()
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

    /// Calls `visit` for the expressions that it evaluates.
    pub(crate) fn each_expr<'p>(&'p self, visit: &mut dyn FnMut(&'p Expr)) {
        match self {
            Self::Range { prefix, low, high, .. } => {
                prefix.iter().for_each(&mut *visit);
                low.iter().chain(high).for_each(|bound| visit(&bound.value));
            }
            Self::Each { prefix, values, suffix, .. } => {
                let values = values.iter().map(KeyItem::expr);
                prefix.iter().chain(values).chain(suffix).for_each(visit);
            }
        }
    }
}

/// Chooses the key that leaves least to read, and takes out of `conditions` what it sees to. How
/// good that key is, 0 if none is used.
pub(super) fn choose_access(scan: &mut Scan, conditions: &mut Vec<Expr>) -> usize {
    if scan.access.is_keyed() {
        return 0;
    }
    let known = known_columns(&scan.table, conditions);
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
    let mut used = Vec::new();
    scan.access = access_by(index, columns, known, &mut used);
    take_out(conditions, &used);
    score
}

/// The access by a key with these columns, as far as conditions bind them. Adds to `used` those
/// that it sees to.
fn access_by(
    index: Option<usize>,
    columns: &[usize],
    mut known: Vec<ColumnConditions>,
    used: &mut Vec<usize>,
) -> Access {
    let (mut prefix, mut low, mut high) = (Vec::new(), None, None);
    let mut columns = columns.iter();
    while let Some(own) = columns.next().and_then(|column| known.get_mut(*column)) {
        if let Some((value, at)) = own.equal.take() {
            prefix.push(value);
            used.extend(at);
            continue;
        }
        if let Some((values, at)) = own.one_of.take() {
            used.extend(at);
            let mut suffix = Vec::new();
            let equal = |column: &usize| known.get_mut(*column).and_then(|own| own.equal.take());
            for (value, at) in columns.map_while(equal) {
                suffix.push(value);
                used.extend(at);
            }
            return Access::Each { index, prefix, values, suffix };
        }
        for (from, to) in [(own.low.take(), &mut low), (own.high.take(), &mut high)] {
            if let Some((bound, at)) = from {
                *to = Some(bound);
                used.extend(at);
            }
        }
        break;
    }
    Access::Range { index, prefix, low, high, descending: false }
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
    let range = next.map_or(0, |own| match own.one_of {
        Some(_) => {
            let suffix = columns.iter().skip(prefix + 1).take_while(equal).count();
            // Some whole keys of rows.
            let is_whole = is_unique && prefix + 1 + suffix == columns.len();
            3 + suffix + 5 * usize::from(is_whole)
        }
        None => usize::from(own.low.is_some()) + usize::from(own.high.is_some()),
    });
    if prefix == 0 && range == 0 {
        return 0;
    }
    let whole = usize::from(is_unique && prefix == columns.len());
    whole * 100_000 + prefix * 1_000 + range * 10 + usize::from(is_primary)
}
