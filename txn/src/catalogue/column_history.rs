//! The columns that a table has had: what its rows look like that were written before columns were
//! added or dropped.
//!
//! Each change of the columns begins a new layout, and rows are written in the last one. A row says
//! by number in which layout it was written ([`row_layout`](crate::encoding::row_layout)). The
//! definition has all columns that were ever there, in the order in which they were added, each
//! with the layouts that have it, so it grows by one entry with a column, and not by a list of
//! columns with a layout.

use serde::{Deserialize, Serialize};

use crate::catalogue::column_type::ColumnType;
use crate::catalogue::default_value::DefaultValue;
use crate::catalogue::schema::TableSchema;
use crate::encoding::row_layout::{LAYOUT_NUMBERS, LayoutColumn, LayoutMark, RowLayout};

/// Most layouts of a table: most changes of its columns, and one. The definition has them all.
pub(crate) const MAX_LAYOUTS: u16 = 1024;
const _: () = assert!(MAX_LAYOUTS <= LAYOUT_NUMBERS);

/// The columns that a table has and has had.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ColumnHistory {
    /// The number of the last layout.
    last: u16,
    /// The first layout whose rows have a NULL bitmap.
    nulls_since: Option<u16>,
    /// In the order in which they were added, which is that of their bytes in rows.
    columns: Vec<ColumnLife>,
}

/// A column that a table has or has had.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct ColumnLife {
    /// The first layout that has it.
    #[serde(default, skip_serializing_if = "is_first")]
    added: u16,
    /// What it is in rows from before; `None`: NULL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    missing: Option<DefaultValue>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    dropped: Option<DroppedColumn>,
}

/// What is known of a column that was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct DroppedColumn {
    /// The first layout without it.
    since: u16,
    ty: ColumnType,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_first(layout: &u16) -> bool {
    *layout == 0
}

impl ColumnLife {
    fn is_in(&self, layout: u16) -> bool {
        self.added <= layout && self.dropped.is_none_or(|dropped| layout < dropped.since)
    }
}

impl ColumnHistory {
    /// Of a new table.
    pub(crate) fn new(schema: &TableSchema) -> Self {
        let nulls_since = schema.columns.iter().any(|column| column.nullable).then_some(0);
        Self { last: 0, nulls_since, columns: vec![ColumnLife::default(); schema.columns.len()] }
    }

    /// The number of the layout in which rows are written.
    pub(crate) fn last(&self) -> u16 {
        self.last
    }

    /// How many columns there are.
    pub(crate) fn len(&self) -> usize {
        self.columns.iter().filter(|column| column.dropped.is_none()).count()
    }

    /// Begins a layout with one more column, behind the others, which is `missing` in rows that are
    /// there. `None` if there are too many layouts; so for all changes.
    #[must_use]
    pub(crate) fn add(&mut self, nullable: bool, missing: Option<DefaultValue>) -> Option<()> {
        let added = self.begin_layout()?;
        self.columns.push(ColumnLife { added, missing, dropped: None });
        if nullable && self.nulls_since.is_none() {
            self.nulls_since = Some(added);
        }
        Some(())
    }

    /// Begins a layout without the column at this position, which has this type.
    #[must_use]
    pub(crate) fn drop(&mut self, position: usize, ty: ColumnType) -> Option<()> {
        let since = self.begin_layout()?;
        let mut there = self.columns.iter_mut().filter(|column| column.dropped.is_none());
        let column = there.nth(position)?;
        (column.dropped, column.missing) = (Some(DroppedColumn { since, ty }), None);
        Some(())
    }

    /// Begins a layout with a NULL bitmap, if the last one has none.
    #[must_use]
    pub(crate) fn allow_nulls(&mut self) -> Option<()> {
        if self.nulls_since.is_none() {
            self.nulls_since = Some(self.begin_layout()?);
        }
        Some(())
    }

    fn begin_layout(&mut self) -> Option<u16> {
        let next = self.last.checked_add(1).filter(|next| *next < MAX_LAYOUTS)?;
        self.last = next;
        Some(next)
    }

    /// Where the columns that the table has are in rows of this layout.
    pub(crate) fn layout(&self, schema: &TableSchema, number: u16) -> RowLayout {
        let mut now = schema.columns.iter().enumerate();
        let mut columns = Vec::with_capacity(self.columns.len());
        for life in &self.columns {
            let now = if life.dropped.is_some() { None } else { now.next() };
            let now_ty = now.map(|(_, column)| column.ty);
            let Some(ty) = life.dropped.map(|dropped| dropped.ty).or(now_ty) else { continue };
            let missing = life.missing.as_ref().map(DefaultValue::stored);
            columns.push(LayoutColumn { ty, is_stored: life.is_in(number), now, missing });
        }
        let has_nulls = self.nulls_since.is_some_and(|since| since <= number);
        RowLayout::of_columns(schema, LayoutMark::of(number), has_nulls, &columns)
    }
}
