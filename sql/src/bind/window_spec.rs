//! The windows of window functions: those with names, and frames.

use sqlparser::ast::{
    self, Ident, NamedWindowDefinition, NamedWindowExpr, WindowFrameBound, WindowSpec,
};

use WindowFrameBound::{CurrentRow, Following, Preceding};

use super::stage::Stage;
use super::{Binder, fold};
use crate::error::{SqlError, SqlResult, SqlState};
use crate::plan::{Frame, FrameBound, FrameOffset, FrameUnits, SortKey, Typed};
use crate::types::SqlType;
use crate::types::cast::CastContext;

fn wrong(message: impl Into<String>) -> SqlError {
    SqlError::new(SqlState::WINDOWING_ERROR, message)
}

/// The window of a name, of those that come before its use.
pub(super) fn named(name: &Ident, known: &[NamedWindowDefinition]) -> SqlResult<WindowSpec> {
    let name = fold(name);
    let found = known.iter().rposition(|NamedWindowDefinition(own, _)| fold(own) == name);
    let found = found.and_then(|at| known.split_at_checked(at));
    let Some((before, [NamedWindowDefinition(_, window), ..])) = found else {
        let message = format!("window \"{name}\" does not exist");
        return Err(SqlError::new(SqlState::UNDEFINED_OBJECT, message));
    };
    match window {
        NamedWindowExpr::NamedWindow(other) => named(other, before),
        NamedWindowExpr::WindowSpec(spec) => whole(spec, before),
    }
}

/// A window with what it takes from the one that it names.
pub(super) fn whole(spec: &WindowSpec, known: &[NamedWindowDefinition]) -> SqlResult<WindowSpec> {
    let Some(name) = &spec.window_name else { return Ok(spec.clone()) };
    let base = named(name, known)?;
    let name = fold(name);
    if !spec.partition_by.is_empty() {
        return Err(wrong(format!("cannot override PARTITION BY clause of window \"{name}\"")));
    }
    if !spec.order_by.is_empty() && !base.order_by.is_empty() {
        return Err(wrong(format!("cannot override ORDER BY clause of window \"{name}\"")));
    }
    if base.window_frame.is_some() {
        let message = format!("cannot copy window \"{name}\" because it has a frame clause");
        return Err(wrong(message));
    }
    let order_by = if spec.order_by.is_empty() { base.order_by } else { spec.order_by.clone() };
    let (partition_by, window_frame) = (base.partition_by, spec.window_frame.clone());
    Ok(WindowSpec { window_name: None, partition_by, order_by, window_frame })
}

impl Binder<'_> {
    /// The frame of a window with such an order, whose expressions are of these types.
    pub(super) fn frame(
        &mut self,
        frame: &ast::WindowFrame,
        order: (&[SortKey], &[SqlType]),
        stage: &mut Stage<'_>,
    ) -> SqlResult<Frame> {
        let units = match frame.units {
            ast::WindowFrameUnits::Rows => FrameUnits::Rows,
            ast::WindowFrameUnits::Groups => FrameUnits::Groups,
            ast::WindowFrameUnits::Range => FrameUnits::Range,
        };
        if units == FrameUnits::Groups && order.0.is_empty() {
            return Err(wrong("GROUPS mode requires an ORDER BY clause"));
        }
        let last = frame.end_bound.as_ref().unwrap_or(&WindowFrameBound::CurrentRow);
        match (&frame.start_bound, last) {
            (Following(None), _) => return Err(wrong("frame start cannot be UNBOUNDED FOLLOWING")),
            (_, Preceding(None)) => return Err(wrong("frame end cannot be UNBOUNDED PRECEDING")),
            (CurrentRow, Preceding(_)) => {
                return Err(wrong("frame starting from current row cannot have preceding rows"));
            }
            (Following(_), Preceding(_)) => {
                return Err(wrong("frame starting from following row cannot have preceding rows"));
            }
            (Following(_), CurrentRow) => {
                return Err(wrong("frame starting from following row cannot end with current row"));
            }
            _ => {}
        }
        let start = self.frame_bound(&frame.start_bound, units, order, stage)?;
        let end = self.frame_bound(last, units, order, stage)?;
        Ok(Frame { units, start, end })
    }

    fn frame_bound(
        &mut self,
        bound: &WindowFrameBound,
        units: FrameUnits,
        (order, types): (&[SortKey], &[SqlType]),
        stage: &mut Stage<'_>,
    ) -> SqlResult<FrameBound> {
        let (offset, is_before) = match bound {
            WindowFrameBound::CurrentRow => return Ok(FrameBound::Current),
            WindowFrameBound::Preceding(None) | WindowFrameBound::Following(None) => {
                return Ok(FrameBound::Unbounded);
            }
            WindowFrameBound::Preceding(Some(offset)) => (offset, true),
            WindowFrameBound::Following(Some(offset)) => (offset, false),
        };
        let bound = self.expr(offset, stage)?;
        if !bound.expr.columns().is_empty() {
            let units = match units {
                FrameUnits::Rows => "ROWS",
                FrameUnits::Groups => "GROUPS",
                FrameUnits::Range => "RANGE",
            };
            let message = format!("argument of {units} must not contain variables");
            return Err(
                self.place(SqlError::new(SqlState::INVALID_COLUMN_REFERENCE, message), &**offset)
            );
        }
        let offset = match units {
            FrameUnits::Rows | FrameUnits::Groups => {
                let offset = self.coerce(bound, SqlType::INT8, CastContext::Implicit)?;
                FrameOffset { offset, limit: None }
            }
            FrameUnits::Range => {
                let ([key], [ty]) = (order, types) else {
                    let message = "RANGE with offset PRECEDING/FOLLOWING requires exactly one ORDER BY column";
                    return Err(wrong(message));
                };
                let operator = if is_before == key.descending { "+" } else { "-" };
                let value = Typed::new(key.expr.clone(), *ty);
                let limit = self.operator(operator, Some(value.clone()), bound.clone())?;
                // A date with an interval is a timestamp.
                let order = self.coerce(value, limit.ty, CastContext::Implicit)?;
                let offset = self.settle_type(bound)?.expr;
                FrameOffset { offset, limit: Some((order, limit.expr)) }
            }
        };
        Ok(if is_before { FrameBound::Preceding(offset) } else { FrameBound::Following(offset) })
    }
}
