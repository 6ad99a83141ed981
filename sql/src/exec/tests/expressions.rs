//! Three-valued logic and what is evaluated when.

use super::*;
use crate::exec::eval::{EvalContext, eval};
use crate::functions::Interrupts;
use crate::plan::{Branch, Quantifier};
use crate::types::{Array, Field};

fn null() -> Expr {
    Expr::Const(Datum::Null)
}

fn truth(value: Option<bool>) -> Expr {
    Expr::Const(value.map_or(Datum::Null, Datum::Bool))
}

fn fails() -> Expr {
    op("/", lit(1), lit(0))
}

/// The value of an expression, without a row.
fn value(expr: &Expr) -> SqlResult<Datum> {
    value_unless(expr, &Interrupts::default())
}

/// The same, unless it is ended.
fn value_unless(expr: &Expr, interrupts: &Interrupts) -> SqlResult<Datum> {
    let settings = FormatSettings::default();
    let call = CallContext {
        settings: &settings,
        transaction_start: 0,
        statement_start: 0,
        now: 0,
        user: "ada",
        session_user: "ada",
        is_superuser: true,
        session_number: 1,
        sessions: &crate::SessionList::default(),
        database: "test",
        search_path: &[],
        to_set: &crate::functions::ToSet::default(),
        random: &|| 0.5,
        interrupts,
        large_values: &crate::functions::LargeValues::default(),
    };
    let context = EvalContext {
        call: &call,
        parameters: &[int(11)],
        outer: &[vec![int(1), int(2)], vec![int(3), int(4)]],
    };
    eval(expr, &[int(5)], &context)
}

#[track_caller]
fn assert_value(expr: Expr, wanted: Datum) {
    assert_rows(&[vec![value(&expr).unwrap()]], &[vec![wanted]]);
}

#[track_caller]
fn assert_truth(expr: Expr, wanted: Option<bool>) {
    assert_value(expr, wanted.map_or(Datum::Null, Datum::Bool));
}

/// Few calls may take long by themselves.
#[test]
fn a_pass_over_a_long_array_counts() {
    let many = |count: usize| {
        let elements = vec![int(1); count];
        let array = Array { element: INT.scalar, dimensions: vec![(count, 1)], elements };
        Expr::Const(Datum::Array(Arc::new(array)))
    };
    let ask = || Err(SqlError::new(crate::error::SqlState::QUERY_CANCELED, "ended"));
    let interrupts = Interrupts::new(Box::new(ask), None);
    let ints = SqlType::array(INT.scalar);
    let is_same = |count: usize| Expr::Call {
        function: Box::new(resolve_operator("=", Some(ints), ints).unwrap()),
        arguments: vec![many(count), many(count)],
        comparison: None,
    };
    value_unless(&is_same(10), &interrupts).unwrap();
    assert_error(value_unless(&is_same(200_000), &interrupts), "57014", "ended");
}

#[test]
fn junctions_are_three_valued() {
    let (yes, no) = (Some(true), Some(false));
    // Left, right, AND, OR: table 9.2 of PostgreSQL's documentation.
    let table = [
        (yes, yes, yes, yes),
        (yes, no, no, yes),
        (yes, None, None, yes),
        (no, no, no, no),
        (no, None, no, None),
        (None, None, None, None),
    ];
    for (left, right, and, or) in table {
        for (a, b) in [(left, right), (right, left)] {
            assert_truth(Expr::And(vec![truth(a), truth(b)]), and);
            assert_truth(Expr::Or(vec![truth(a), truth(b)]), or);
        }
    }
    assert_truth(Expr::Not(Box::new(truth(yes))), no);
    assert_truth(Expr::Not(Box::new(truth(None))), None);
    assert_truth(Expr::And(vec![truth(no), op("=", fails(), lit(1))]), no);
    assert_truth(Expr::Or(vec![truth(yes), op("=", fails(), lit(1))]), yes);
}

#[test]
fn tests_of_null_are_never_null() {
    for (operand, is_null) in [(lit(1), false), (null(), true)] {
        let operand = Box::new(operand);
        assert_truth(Expr::IsNull { operand: operand.clone(), negated: false }, Some(is_null));
        assert_truth(Expr::IsNull { operand, negated: true }, Some(!is_null));
    }
    // Of a row with one NULL neither holds.
    let fields = Field::numbered([SqlType::INT4; 2]);
    let row = Expr::Row { values: vec![lit(1), null()], fields };
    for negated in [false, true] {
        let operand = Box::new(row.clone());
        assert_truth(Expr::IsNull { operand, negated }, Some(false));
    }
    for (operand, of_true, of_false) in
        [(Some(true), true, false), (Some(false), false, true), (None, false, false)]
    {
        let is =
            |value, negated| Expr::IsBool { operand: Box::new(truth(operand)), value, negated };
        assert_truth(is(true, false), Some(of_true));
        assert_truth(is(false, false), Some(of_false));
        assert_truth(is(true, true), Some(!of_true));
    }
    let distinct = |left, right, negated| Expr::IsDistinct {
        left: Box::new(left),
        right: Box::new(right),
        negated,
    };
    assert_truth(distinct(null(), null(), false), Some(false));
    assert_truth(distinct(lit(1), null(), false), Some(true));
    assert_truth(distinct(lit(1), lit(1), false), Some(false));
    assert_truth(distinct(lit(1), lit(2), true), Some(false));
}

#[test]
fn what_is_not_needed_is_not_evaluated() {
    let branch = |condition, result| Branch { condition, result };
    let branches = vec![
        branch(truth(None), fails()),
        branch(truth(Some(true)), lit(7)),
        branch(fails(), lit(1)),
    ];
    assert_value(Expr::Case { branches, otherwise: Some(Box::new(fails())) }, int(7));
    let branches = vec![branch(truth(Some(false)), lit(1))];
    assert_value(Expr::Case { branches, otherwise: None }, Datum::Null);
    assert_value(Expr::Coalesce(vec![null(), lit(2), fails()]), int(2));
    assert_value(Expr::Coalesce(vec![null()]), Datum::Null);
    // A strict function is not called with NULL.
    assert_value(op("/", null(), lit(0)), Datum::Null);
    assert_eq!(value(&fails()).unwrap_err().state().code(), "22012");
}

#[test]
fn columns_parameters_and_outer_rows() {
    assert_value(col(0), int(5));
    assert_value(Expr::Param(0), int(11));
    assert_eq!(value(&Expr::Param(1)).unwrap_err().state().code(), "42P02");
    assert_value(Expr::Outer { level: 0, column: 1 }, int(4));
    assert_value(Expr::Outer { level: 1, column: 0 }, int(1));
    for expr in [col(1), Expr::Outer { level: 2, column: 0 }, Expr::Outer { level: 0, column: 2 }] {
        assert_eq!(value(&expr).unwrap_err().state().code(), "XX000");
    }
}

#[test]
fn the_greatest_and_the_least_leave_out_nulls() {
    for (greatest, wanted) in [(true, 3), (false, 1)] {
        let operands = vec![null(), lit(2), lit(3), lit(1)];
        assert_value(Expr::Extreme { operands, greatest }, int(wanted));
        assert_value(Expr::Extreme { operands: vec![null()], greatest }, Datum::Null);
    }
}

#[test]
fn lists_and_arrays_with_nulls() {
    type Case = (Option<i32>, &'static [Option<i32>], Option<bool>);
    let cases: [Case; 6] = [
        (Some(1), &[Some(2), Some(1)], Some(true)),
        (Some(1), &[None, Some(1)], Some(true)),
        (Some(1), &[Some(2), None], None),
        (Some(1), &[Some(2)], Some(false)),
        (None, &[Some(1)], None),
        (None, &[], Some(false)),
    ];
    for (operand, list, wanted) in cases {
        let expr = |value: Option<i32>| value.map_or(null(), lit);
        let all: Vec<Expr> = list.iter().map(|value| expr(*value)).collect();
        for negated in [false, true] {
            let in_list = Expr::InList {
                operand: Box::new(expr(operand)),
                list: all.clone(),
                equal: operator("="),
                negated,
            };
            assert_truth(in_list, wanted.map(|wanted| wanted != negated));
        }
        let quantified = |name, quantifier| Expr::Quantified {
            operand: Box::new(expr(operand)),
            operator: operator(name),
            array: Box::new(Expr::Array { elements: all.clone(), element: INT }),
            quantifier,
        };
        assert_truth(quantified("=", Quantifier::Any), wanted);
        assert_truth(quantified("<>", Quantifier::All), wanted.map(|wanted| !wanted));
    }
    let of_null = Expr::Quantified {
        operand: Box::new(lit(1)),
        operator: operator("="),
        array: Box::new(null()),
        quantifier: Quantifier::Any,
    };
    assert_truth(of_null, None);
}

#[test]
fn arrays_and_their_elements() {
    let line = |values: &[i32]| Expr::Array {
        elements: values.iter().map(|value| lit(*value)).collect(),
        element: INT,
    };
    let square =
        |lines: Vec<Expr>| Expr::Array { elements: lines, element: SqlType::array(INT.scalar) };
    let at = |array: &Expr, indexes: &[i32]| Expr::Element {
        array: Box::new(array.clone()),
        indexes: indexes.iter().map(|index| lit(*index)).collect(),
    };
    let array = square(vec![line(&[1, 2, 3]), line(&[4, 5, 6])]);
    let Datum::Array(found) = value(&array).unwrap() else { panic!("no array") };
    assert_eq!(found.dimensions, [(2, 1), (3, 1)]);
    assert_value(at(&array, &[2, 1]), int(4));
    for outside in [&[0, 1][..], &[3, 1], &[1, 4], &[1], &[1, 1, 1]] {
        assert_value(at(&array, outside), Datum::Null);
    }
    let uneven = square(vec![line(&[1]), line(&[2, 3])]);
    assert_eq!(value(&uneven).unwrap_err().state().code(), "2202E");
    let empty = square(vec![line(&[]), line(&[])]);
    let Datum::Array(found) = value(&empty).unwrap() else { panic!("no array") };
    assert_eq!((found.dimensions.len(), found.elements.len()), (0, 0));
    // Indexes count from the first of the array.
    let shifted =
        Array { element: INT.scalar, dimensions: vec![(2, -1)], elements: vec![int(8), int(9)] };
    let shifted = Expr::Const(Datum::Array(Arc::new(shifted)));
    assert_value(at(&shifted, &[-1]), int(8));
    assert_value(at(&shifted, &[1]), Datum::Null);
}
