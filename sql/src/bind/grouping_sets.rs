//! GROUPING SETS, ROLLUP and CUBE: groups by several lists of keys.
//!
//! Each list has a plan of its own that groups the same input, and gives NULL for the keys that it
//! has not. The rows of all come one behind the other. The last key says which keys are missing:
//! what GROUPING tells is computed of it.

use std::sync::Arc;

use sqlparser::ast::{
    self, Expr as Ast, FunctionArg, FunctionArgExpr, FunctionArguments, ObjectNamePart,
};

use super::groups::{GroupKey, grouped};
use super::select_list::Item;
use super::stage::Stage;
use super::{Binder, fold, refuse};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::functions::{Resolved, Volatility};
use crate::plan::{AggregateCall, Expr, Plan, Reuse, SetOperator, Typed, is_fixed};
use crate::types::{Datum, SqlType};

/// Most lists of keys: each reads the input.
const MAX_SETS: usize = 256;
/// Most keys of them all together: the last says by a bit of each whether it is missing.
const MAX_KEYS: usize = 62;
/// Most parts of CUBE, as in PostgreSQL.
const MAX_CUBE: usize = 12;

/// Lists of expressions.
type Lists<'a> = Vec<Vec<&'a Ast>>;

fn too_many(message: impl Into<String>) -> SqlError {
    SqlError::new(SqlState::STATEMENT_TOO_COMPLEX, message)
}

/// The lists of keys by which GROUP BY groups; `None` if it is one that is not written as such.
pub(super) fn lists_of(group_by: &[Ast]) -> SqlResult<Option<Lists<'_>>> {
    let is_several = |own: &Ast| match own {
        Ast::Rollup(_) | Ast::Cube(_) | Ast::GroupingSets(_) => true,
        Ast::Tuple(parts) => parts.is_empty(),
        _ => false,
    };
    if !group_by.iter().any(is_several) {
        return Ok(None);
    }
    let mut all: Lists<'_> = vec![Vec::new()];
    for own in group_by {
        let lists = lists_of_part(own)?;
        if all.len().saturating_mul(lists.len()) > MAX_SETS {
            return Err(too_many(format!("too many grouping sets present (maximum {MAX_SETS})")));
        }
        all = all
            .iter()
            .flat_map(|list| lists.iter().map(move |more| [&**list, &**more].concat()))
            .collect();
    }
    Ok(Some(all))
}

/// The lists that one part of GROUP BY stands for.
fn lists_of_part(part: &Ast) -> SqlResult<Lists<'_>> {
    let lists: Lists<'_> = match part {
        Ast::Tuple(parts) if parts.is_empty() => vec![Vec::new()],
        Ast::GroupingSets(lists) => lists.iter().map(|list| list.iter().collect()).collect(),
        Ast::Rollup(parts) => {
            (0..=parts.len()).rev().map(|most| joined(parts.iter().take(most))).collect()
        }
        Ast::Cube(parts) => {
            if parts.len() > MAX_CUBE {
                let message = format!("CUBE is limited to {MAX_CUBE} elements");
                return Err(SqlError::new(SqlState::TOO_MANY_COLUMNS, message));
            }
            // The list with all parts first, then those with fewer of the last ones.
            let masks = (0..1usize << parts.len()).rev();
            let is_in = |mask: usize, at: usize| (mask >> (parts.len() - 1 - at)) & 1 == 1;
            let of_mask = |mask: usize| {
                let chosen = parts.iter().enumerate().filter(|(at, _)| is_in(mask, *at));
                joined(chosen.map(|(_, part)| part))
            };
            masks.map(of_mask).collect()
        }
        plain => vec![vec![plain]],
    };
    refuse(
        lists.iter().flatten().any(|own| is_list(own)),
        "a list of grouping sets within another",
    )?;
    Ok(lists)
}

/// Whether an expression is written as a list of grouping sets: within another the parser takes it
/// for a call.
fn is_list(own: &Ast) -> bool {
    match own {
        Ast::Rollup(_) | Ast::Cube(_) | Ast::GroupingSets(_) => true,
        Ast::Function(call) => match &*call.name.0 {
            [ObjectNamePart::Identifier(name)] => matches!(&*fold(name), "rollup" | "cube"),
            _ => false,
        },
        _ => false,
    }
}

/// Several expressions in a list.
fn joined<'a>(parts: impl Iterator<Item = &'a Vec<Ast>>) -> Vec<&'a Ast> {
    parts.flatten().collect()
}

impl Binder<'_> {
    /// The keys of all lists, with one behind them that says which are missing; and which of them
    /// each list has.
    pub(super) fn keys_of_lists(
        &mut self,
        lists: &Lists<'_>,
        items: &[Item],
        stage: &mut Stage<'_>,
    ) -> SqlResult<(Vec<GroupKey>, Vec<Vec<usize>>)> {
        let (mut keys, mut sets) = (Vec::new(), Vec::new());
        for list in lists {
            let mut set = Vec::new();
            for own in list {
                let at = self.group_key_at(own, items, stage, &mut keys)?;
                if !set.contains(&at) {
                    set.push(at);
                }
            }
            sets.push(set);
        }
        if keys.len() > MAX_KEYS {
            return Err(too_many(format!("grouping sets have more than {MAX_KEYS} keys")));
        }
        let none = Typed::new(Expr::Const(Datum::Null), SqlType::INT8);
        keys.push(GroupKey::unnamed(none));
        Ok((keys, sets))
    }

    /// GROUPING: a bit for each argument, set where the group is not by it.
    pub(super) fn grouping_call(
        &mut self,
        function: &ast::Function,
        stage: &Stage<'_>,
    ) -> SqlResult<Typed> {
        let wrong = || {
            let message =
                "arguments to GROUPING must be grouping expressions of the associated query level";
            SqlError::new(SqlState::GROUPING_ERROR, message)
        };
        let Some(grouping) = &stage.grouping else {
            let message = format!("grouping operations are not allowed in {}", stage.clause);
            return Err(SqlError::new(SqlState::GROUPING_ERROR, message));
        };
        let FunctionArguments::List(list) = &function.args else { return Err(wrong()) };
        let is_plain = list.clauses.is_empty()
            && list.duplicate_treatment.is_none()
            && function.filter.is_none()
            && function.over.is_none();
        refuse(!is_plain, "a clause of GROUPING")?;
        let mut places = Vec::new();
        for arg in &list.args {
            let FunctionArg::Unnamed(FunctionArgExpr::Expr(arg)) = arg else { return Err(wrong()) };
            places.push(key_of(arg, stage).ok_or_else(wrong)?);
        }
        if places.is_empty() || places.len() > 31 {
            return Err(too_many("GROUPING must have fewer than 32 arguments"));
        }
        if grouping.sets.is_none() {
            return Ok(Typed::new(Expr::Const(Datum::I32(0)), SqlType::INT4));
        }
        let mask = Typed::new(Expr::Column(grouping.keys.len().saturating_sub(1)), SqlType::INT8);
        let eval = move |values: &[Datum], _: &crate::functions::CallContext<'_>| {
            let Some(Datum::I64(mask)) = values.first() else { return Ok(Datum::Null) };
            let bits = places.iter().fold(0i64, |bits, at| (bits << 1) | ((mask >> at) & 1));
            Ok(Datum::I32(i32::try_from(bits).unwrap_or(i32::MAX)))
        };
        let function = Resolved {
            name: "grouping".into(),
            arguments: vec![SqlType::INT8],
            returns: SqlType::INT4,
            is_strict: true,
            volatility: Volatility::Immutable,
            eval: Arc::new(eval),
        };
        self.call(function, vec![mask])
    }
}

/// The place of the key that an argument of GROUPING is.
fn key_of(arg: &Ast, stage: &Stage<'_>) -> Option<usize> {
    let own = |table, name: &str| {
        let found = stage.scope.find(table, name).ok()?;
        (found.level == 0).then_some(found.at)
    };
    match arg {
        Ast::Nested(inner) => key_of(inner, stage),
        Ast::Identifier(name) => own(None, &fold(name)),
        Ast::CompoundIdentifier(names) => match &*names.iter().map(fold).collect::<Vec<_>>() {
            [table, name] => own(Some((None, table)), name),
            [schema, table, name] => own(Some((Some(schema), table)), name),
            _ => None,
        },
        other => match grouped(other, stage)?.expr {
            Expr::Column(at) => Some(at),
            _ => None,
        },
    }
}

/// The input of all lists, which is run once if its rows may be others the next time, or if that
/// has an effect. `shared` is the number of the next plan that several read.
pub(super) fn input_of_sets(input: Plan, shared: &mut usize) -> Plan {
    if is_fixed(&input) {
        return input;
    }
    let number = *shared;
    *shared += 1;
    Plan::Shared { number, plan: Arc::new(input), reuse: Reuse::Always }
}

/// The plan that groups an input by each of the lists of keys.
pub(super) fn plan_of_sets(
    input: Plan,
    keys: Vec<GroupKey>,
    sets: &[Vec<usize>],
    calls: &[AggregateCall],
) -> Plan {
    let mut keys: Vec<Expr> = keys.into_iter().map(|own| own.key.expr).collect();
    keys.pop();
    let mut plans: Vec<Plan> =
        sets.iter().map(|set| plan_of_set(&input, &keys, set, calls)).collect();
    // A tree of little depth.
    while plans.len() > 1 {
        let mut halves = Vec::with_capacity(plans.len().div_ceil(2));
        let mut rest = plans.into_iter();
        while let Some(left) = rest.next() {
            halves.push(match rest.next() {
                None => left,
                Some(right) => {
                    let (left, right) = (Box::new(left), Box::new(right));
                    Plan::Set { operator: SetOperator::Union, all: true, left, right }
                }
            });
        }
        plans = halves;
    }
    plans.pop().unwrap_or(Plan::Nothing { width: keys.len() + 1 + calls.len() })
}

/// Groups by some of the keys.
fn plan_of_set(input: &Plan, keys: &[Expr], set: &[usize], calls: &[AggregateCall]) -> Plan {
    let own: Vec<Expr> = set.iter().filter_map(|at| keys.get(*at).cloned()).collect();
    let width = own.len();
    let mut missing = 0i64;
    let mut exprs = Vec::with_capacity(keys.len() + 1 + calls.len());
    for at in 0..keys.len() {
        exprs.push(match set.iter().position(|own| *own == at) {
            Some(place) => Expr::Column(place),
            None => {
                missing |= 1 << at;
                Expr::Const(Datum::Null)
            }
        });
    }
    exprs.push(Expr::Const(Datum::I64(missing)));
    exprs.extend((width..width + calls.len()).map(Expr::Column));
    let input = Box::new(input.clone());
    let input = Plan::Aggregate { input, keys: own, calls: calls.to_vec() };
    Plan::Project { input: Box::new(input), exprs: exprs.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sqlparser::dialect::PostgreSqlDialect;
    use sqlparser::parser::Parser;

    fn lists(group_by: &str) -> SqlResult<String> {
        let sql = format!("select 1 group by {group_by}");
        let parsed = Parser::parse_sql(&PostgreSqlDialect {}, &sql).unwrap();
        let ast::Statement::Query(query) = &parsed[0] else { unreachable!() };
        let ast::SetExpr::Select(select) = &*query.body else { unreachable!() };
        let ast::GroupByExpr::Expressions(exprs, _) = &select.group_by else { unreachable!() };
        let Some(lists) = lists_of(exprs)? else { return Ok("plain".to_owned()) };
        let shown = |list: Vec<&Ast>| list.iter().map(ToString::to_string).collect::<String>();
        Ok(lists.into_iter().map(shown).collect::<Vec<_>>().join(","))
    }

    #[test]
    fn lists_are_those_of_the_standard() {
        for (group_by, wanted) in [
            ("a, b", "plain"),
            ("()", ""),
            ("rollup (a, b)", "ab,a,"),
            ("rollup (a, (b, c))", "abc,a,"),
            ("cube (a, b)", "ab,a,b,"),
            ("grouping sets ((a, b), (c), ())", "ab,c,"),
            ("x, rollup (a)", "xa,x"),
            ("rollup (a), cube (b)", "ab,a,b,"),
        ] {
            assert_eq!(lists(group_by).unwrap(), wanted, "{group_by}");
        }
        let state = |group_by: &str| lists(group_by).unwrap_err().state();
        assert_eq!(
            state("cube (a, b, c, d, e, f, g), rollup (h, i)"),
            SqlState::STATEMENT_TOO_COMPLEX
        );
        let thirteen = "cube (a, b, c, d, e, f, g, h, i, j, k, l, m)";
        assert_eq!(state(thirteen), SqlState::TOO_MANY_COLUMNS);
    }
}
