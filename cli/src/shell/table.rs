//! Tables for people, as psql draws them: aligned, or a line a column.
//!
//! The widths of the columns are those of the first rows. Further rows are written as they come,
//! so a table of any length takes little memory; a cell that is wider moves its own line only.

use super::view::{Cells, Column, Kind};
use super::words::{cells, cells_of};

/// Rows of which the widths are found.
const FIRST_ROWS: usize = 1_000;
/// The widths are found of fewer rows if these have so many bytes.
const FIRST_BYTES: usize = 4 << 20;
/// As many columns as a tab goes to the next multiple of.
const TAB: usize = 8;

/// How a table is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Aligned,
    /// A line a column.
    Expanded,
    /// Expanded if it is wider than so many columns of the terminal.
    Fitting(usize),
}

/// A table that is drawn row by row.
pub(super) struct Drawing {
    shape: Shape,
    title: Option<String>,
    columns: Vec<Column>,
    null: String,
    /// The first rows, until they are drawn.
    kept: Vec<Vec<Cell>>,
    kept_bytes: usize,
    widths: Vec<usize>,
    has_begun: bool,
    count: usize,
}

/// The lines of a cell.
type Cell = Vec<String>;

impl Drawing {
    pub(super) fn new(shape: Shape, columns: Vec<Column>, null: &str) -> Self {
        Self {
            shape,
            title: None,
            columns,
            null: null.to_owned(),
            kept: Vec::new(),
            kept_bytes: 0,
            widths: Vec::new(),
            has_begun: false,
            count: 0,
        }
    }

    /// The same below a title.
    pub(super) fn titled(self, title: &str) -> Self {
        Self { title: Some(printable(title)), ..self }
    }

    /// Whether something of it is drawn already.
    pub(super) fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Adds a row; draws what is known well enough.
    pub(super) fn row(&mut self, row: &Cells, out: &mut String) {
        let null = &self.null;
        let lines = |cell: &Option<String>| lines_of(cell.as_deref().unwrap_or(null));
        let row: Vec<Cell> = row.iter().map(lines).collect();
        if self.has_begun {
            self.draw(&row, out);
        } else {
            self.kept_bytes += row.iter().flatten().map(String::len).sum::<usize>();
            self.kept.push(row);
            if self.kept.len() >= FIRST_ROWS || self.kept_bytes >= FIRST_BYTES {
                self.begin(out);
            }
        }
    }

    /// Draws what is left, and how many rows there were.
    pub(super) fn end(&mut self, out: &mut String) {
        self.body(out);
        if self.shape == Shape::Aligned || self.count == 0 {
            let rows = if self.count == 1 { "row" } else { "rows" };
            out.push_str(&format!("({} {rows})\n", self.count));
        }
        out.push('\n');
    }

    /// Draws what is left, and these lines below.
    pub(super) fn end_with(&mut self, footers: &[String], out: &mut String) {
        self.body(out);
        for footer in footers {
            out.push_str(&printable(footer));
            out.push('\n');
        }
        out.push('\n');
    }

    fn body(&mut self, out: &mut String) {
        if !self.has_begun {
            self.begin(out);
        }
    }

    /// Finds the widths and draws the first rows.
    fn begin(&mut self, out: &mut String) {
        self.has_begun = true;
        let rows = std::mem::take(&mut self.kept);
        let widest = |at: usize| rows.iter().filter_map(move |row| row.get(at)).map(width_of).max();
        let names = self.columns.iter().map(|column| width_of(&lines_of(&column.name)));
        let names: Vec<usize> = names.collect();
        let values = (0..names.len()).map(|at| widest(at).unwrap_or_default());
        let aligned: Vec<usize> =
            names.iter().zip(values.clone()).map(|(a, b)| *a.max(&b)).collect();
        if let Shape::Fitting(columns) = self.shape {
            let whole = aligned.iter().map(|width| width + 3).sum::<usize>().saturating_sub(1);
            self.shape = if whole > columns { Shape::Expanded } else { Shape::Aligned };
        }
        if self.shape == Shape::Expanded {
            let widest_value = values.max().unwrap_or_default();
            self.widths = vec![names.iter().copied().max().unwrap_or_default(), widest_value];
            if let Some(title) = self.title.as_deref().filter(|_| !rows.is_empty()) {
                out.push_str(&format!("{title}\n"));
            }
        } else {
            self.widths = aligned;
            self.head(out);
        }
        for row in &rows {
            self.draw(row, out);
        }
    }

    fn head(&self, out: &mut String) {
        let whole = self.widths.iter().map(|width| width + 3).sum::<usize>().saturating_sub(1);
        if let Some(title) = &self.title {
            let indent = whole.saturating_sub(cells(title)) / 2;
            out.push_str(&format!("{}{title}\n", " ".repeat(indent)));
        }
        let names: Vec<Cell> = self.columns.iter().map(|column| lines_of(&column.name)).collect();
        self.lines(&names, true, out);
        let rules: Vec<String> = self.widths.iter().map(|width| "-".repeat(width + 2)).collect();
        out.push_str(&rules.join("+"));
        out.push('\n');
    }

    fn draw(&mut self, row: &[Cell], out: &mut String) {
        self.count += 1;
        if self.shape == Shape::Expanded {
            self.record(row, out);
            return;
        }
        self.lines(row, false, out);
    }

    /// Draws the lines of a row side by side. Names stand in the middle, numbers at the right; the
    /// last column is filled up in the head only.
    fn lines(&self, row: &[Cell], is_head: bool, out: &mut String) {
        let height = row.iter().map(Vec::len).max().unwrap_or(1).max(1);
        let columns = || row.iter().zip(&self.columns).zip(&self.widths).enumerate();
        for number in 0..height {
            for (at, ((cell, column), width)) in columns() {
                let text = cell.get(number).map_or("", String::as_str);
                let room = width.saturating_sub(cells(text));
                let left = match column.kind {
                    _ if is_head => room / 2,
                    Kind::Number => room,
                    _ => 0,
                };
                out.push_str(if at == 0 { " " } else { "| " });
                out.push_str(&" ".repeat(left));
                out.push_str(text);
                let goes_on = number + 1 < cell.len();
                let is_open = at + 1 == row.len() && !is_head;
                if !is_open || goes_on {
                    out.push_str(&" ".repeat(room - left));
                    out.push(if goes_on { '+' } else { ' ' });
                }
            }
            out.push('\n');
        }
    }

    /// Draws a row with a line for each column.
    fn record(&self, row: &[Cell], out: &mut String) {
        let [name_width, value_width] = self.widths[..] else { return };
        let mut rule = format!("-[ RECORD {} ]", self.count);
        let before = cells(&rule);
        if before < name_width + 1 {
            rule.push_str(&"-".repeat(name_width + 1 - before));
        }
        if before <= name_width + 1 {
            rule.push('+');
        }
        let whole = name_width + 3 + value_width;
        rule.push_str(&"-".repeat(whole.saturating_sub(cells(&rule))));
        out.push_str(&rule);
        out.push('\n');
        for (column, cell) in self.columns.iter().zip(row) {
            let names = lines_of(&column.name);
            for number in 0..cell.len().max(names.len()) {
                let name = names.get(number).map_or("", String::as_str);
                let value = cell.get(number).map_or("", String::as_str);
                let fill = " ".repeat(name_width.saturating_sub(cells(name)));
                let mark = |has_more| if has_more { '+' } else { ' ' };
                out.push_str(&format!("{name}{fill}{}| {value}", mark(number + 1 < names.len())));
                if number + 1 < cell.len() {
                    out.push_str(&" ".repeat(value_width.saturating_sub(cells(value))));
                    out.push('+');
                }
                out.push('\n');
            }
        }
    }
}

/// A text with nothing in it that moves a terminal's cursor, but to the next line.
pub(super) fn printable(text: &str) -> String {
    lines_of(text).join("\n")
}

/// The lines of a text, with nothing in them that moves a terminal's cursor.
fn lines_of(text: &str) -> Cell {
    let shown = |line: &str| {
        let (mut out, mut at) = (String::with_capacity(line.len()), 0);
        for c in line.chars() {
            let before = out.len();
            match c {
                '\t' => out.push_str(&" ".repeat(TAB - at % TAB)),
                '\r' => out.push_str("\\r"),
                c if c.is_control() => out.push_str(&format!("\\x{:02X}", u32::from(c))),
                c => {
                    out.push(c);
                    at += cells_of(c);
                    continue;
                }
            }
            at += out.len() - before;
        }
        out
    };
    text.split('\n').map(shown).collect()
}

fn width_of(cell: &Cell) -> usize {
    cell.iter().map(|line| cells(line)).max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns() -> Vec<Column> {
        let number = Column { name: "a".to_owned(), kind: Kind::Number };
        vec![number, Column::text("name"), Column::text("c")]
    }

    fn cell(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    fn drawn(mut drawing: Drawing, rows: &[Cells]) -> String {
        let mut out = String::new();
        rows.iter().for_each(|row| drawing.row(row, &mut out));
        drawing.end(&mut out);
        out
    }

    fn rows() -> Vec<Cells> {
        vec![
            vec![cell("1"), cell("one"), None],
            vec![cell("22222222"), cell("two\nlines\u{1b}[0m"), cell("\u{4e16}\t!")],
        ]
    }

    #[test]
    fn a_table_is_drawn_as_by_psql() {
        let drawing = Drawing::new(Shape::Aligned, columns(), "-").titled("List");
        let expected = "                List
    a     |     name     |     c     
----------+--------------+-----------
        1 | one          | -
 22222222 | two         +| \u{4e16}      !
          | lines\\x1B[0m | 
(2 rows)

";
        assert_eq!(drawn(drawing, &rows()), expected);
    }

    #[test]
    fn few_rows_are_kept_if_they_are_long() {
        let mut drawing =
            Drawing::new(Shape::Aligned, vec![Column::text("a")], "").titled("\u{1b}");
        let (row, mut out) = (vec![cell(&"x".repeat(FIRST_BYTES / 2))], String::new());
        drawing.row(&row, &mut out);
        assert!(out.is_empty());
        drawing.row(&row, &mut out);
        assert!(drawing.has_begun() && out.contains("\\x1B") && !out.contains('\u{1b}'));
    }

    #[test]
    fn a_row_is_drawn_with_a_line_for_each_column() {
        let expected = "\
-[ RECORD 1 ]------
a    | 1
name | one
c    | 
-[ RECORD 2 ]------
a    | 22222222
name | two         +
     | lines\\x1B[0m
c    | \u{4e16}      !

";
        assert_eq!(drawn(Drawing::new(Shape::Expanded, columns(), ""), &rows()), expected);
        assert_eq!(drawn(Drawing::new(Shape::Fitting(20), columns(), ""), &rows()), expected);
        let wide = drawn(Drawing::new(Shape::Fitting(80), columns(), ""), &rows());
        assert!(wide.ends_with("(2 rows)\n\n"), "{wide}");
        let none = drawn(Drawing::new(Shape::Expanded, columns(), ""), &[]);
        assert_eq!(none, "(0 rows)\n\n");
    }

    #[test]
    fn rows_of_a_long_table_are_drawn_as_they_come() {
        let mut drawing = Drawing::new(Shape::Aligned, vec![Column::text("n")], "");
        let mut out = String::new();
        for n in 0..FIRST_ROWS {
            assert!(out.is_empty() && !drawing.has_begun(), "{n}");
            drawing.row(&vec![cell("abc")], &mut out);
        }
        assert!(drawing.has_begun() && drawing.kept.is_empty());
        let before = out.len();
        drawing.row(&vec![cell("longer")], &mut out);
        assert_eq!(out.get(before..), Some(" longer\n"));
        drawing.end(&mut out);
        assert!(out.ends_with("(1001 rows)\n\n"));
    }
}
