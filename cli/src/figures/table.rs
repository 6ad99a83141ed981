//! What is written of a figure: rows of numbers as they stand in its CSV file, cells of its table
//! on the page, and lines of its plot.

/// One plot or table of a figure, with the files of that name.
pub(super) struct Table {
    /// Name of its files, without what tells CSV from SVG.
    pub(super) stem: &'static str,
    pub(super) title: &'static str,
    /// What the cells are.
    pub(super) caption: &'static str,
    pub(super) x_label: &'static str,
    /// Names of the values of each row.
    pub(super) columns: &'static str,
    pub(super) rows: Vec<Row>,
    pub(super) plot: Option<Plot>,
}

/// What was measured at one point.
pub(super) struct Row {
    pub(super) series: String,
    /// What stands at the axis.
    pub(super) x: String,
    /// For the CSV file, with commas between them.
    pub(super) values: String,
    /// For the table on the page, where the row is in that.
    pub(super) cell: Option<String>,
}

/// What is drawn.
pub(crate) struct Plot {
    pub(crate) y_label: &'static str,
    pub(crate) lines: Vec<PlotLine>,
    /// What stands at the places 0, 1, 2 of the axis if it is no scale of numbers.
    pub(crate) labels: Vec<String>,
}

/// One line of a plot.
pub(crate) struct PlotLine {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
}

impl Plot {
    /// A plot of (series, place on the axis, value), with a line for each series.
    pub(super) fn new<'p>(
        y_label: &'static str,
        points: impl IntoIterator<Item = (&'p str, &'p str, f64)>,
    ) -> Self {
        let mut labels: Vec<String> = Vec::new();
        let mut lines: Vec<PlotLine> = Vec::new();
        for (series, x, y) in points {
            let place = labels.iter().position(|label| label == x).unwrap_or_else(|| {
                labels.push(x.to_owned());
                labels.len() - 1
            });
            let at = (place as f64, y);
            match lines.iter_mut().find(|line| line.name == series) {
                Some(line) => line.points.push(at),
                None => lines.push(PlotLine { name: series.to_owned(), points: vec![at] }),
            }
        }
        Self { y_label, lines, labels }
    }

    /// Its points: series, place on the axis as it is written, value.
    pub(super) fn points(&self) -> impl Iterator<Item = (&str, String, f64)> {
        let place = |x: f64| {
            let label = self.labels.get(x.round().max(0.0) as usize);
            label.cloned().unwrap_or_else(|| x.to_string())
        };
        self.lines.iter().flat_map(move |line| {
            line.points.iter().map(move |(x, y)| (line.name.as_str(), place(*x), *y))
        })
    }
}
