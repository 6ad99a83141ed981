//! The files of figures: numbers as CSV, plots, and one page of Markdown.

use std::error::Error;
use std::fmt::{self, Display, Write};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::catalogue;
use super::figure::{Figure, Settings};
use super::plot;
use super::point::{Claim, Expected, Measured};
use super::table::{Plot, Row, Table};

const INTRODUCTION: &str = "# Figures

Measured in virtual time on simulated networks: `paper` has 56 Gb/s adapters of 2013, `modern` such of 200 Gb/s. \
Unless a figure says otherwise: 8 compute nodes of 16 workers, 8 memory nodes, 65,536 pages of 2 KiB, caches of \
16 MiB, all pages shared.

";

/// Makes the folder if it is not there.
pub(super) fn make_folder(folder: &Path) -> Result<(), Unwritten> {
    fs::create_dir_all(folder).map_err(|error| failed(folder, error))
}

/// Writes everything into `folder`. Sections of the page that is there stay, but for those of what
/// was measured.
pub(super) fn write(
    folder: &Path,
    measured: &[Measured],
    settings: &Settings,
) -> Result<(), Unwritten> {
    let readme = folder.join("README.md");
    let before = match fs::read_to_string(&readme) {
        Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
        read => read.map_err(|error| failed(&readme, error))?,
    };
    let mut page = String::from(INTRODUCTION);
    for figure in Figure::ALL {
        match measured.iter().find(|measured| measured.figure == figure) {
            Some(measured) => {
                let mut tables = catalogue::tables(measured);
                if !measured.is_whole() {
                    // No run of these was finished.
                    tables.retain(|table| !table.rows.is_empty());
                }
                for table in &tables {
                    write_files(folder, table)?;
                }
                section(&mut page, measured, &tables, settings);
            }
            None => page.push_str(section_of(&before, figure).unwrap_or_default()),
        }
    }
    fs::write(&readme, page).map_err(|error| failed(&readme, error))
}

/// The section of a figure on a page.
fn section_of(page: &str, figure: Figure) -> Option<&str> {
    let from = page.find(&format!("## {}\n", figure.title()))?;
    let rest = page.get(from..)?;
    // The next heading, or the end.
    let to = rest.find("\n## ").map_or(rest.len(), |end| end + 1);
    rest.get(..to)
}

fn write_files(folder: &Path, table: &Table) -> Result<(), Unwritten> {
    let csv = folder.join(table.stem).with_extension("csv");
    fs::write(&csv, numbers(table)).map_err(|error| failed(&csv, error))?;
    if let Some(plot) = &table.plot {
        let svg = folder.join(table.stem).with_extension("svg");
        plot::draw(&svg, table.title, table.x_label, plot).map_err(|error| failed(&svg, error))?;
    }
    Ok(())
}

/// A file or folder that could not be written.
#[derive(Debug)]
pub(super) struct Unwritten {
    path: PathBuf,
    error: Box<dyn Error>,
}

impl Display for Unwritten {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.error)
    }
}

impl Error for Unwritten {}

fn failed(path: &Path, error: impl Into<Box<dyn Error>>) -> Unwritten {
    Unwritten { path: path.to_owned(), error: error.into() }
}

/// The rows, and in a last column what the plot shows; points of the plot that no row has follow.
fn numbers(table: &Table) -> String {
    let Table { columns, rows, plot, .. } = table;
    let mut csv = format!("series,x,{columns}");
    let mut points: Vec<(&str, String, f64)> = plot.iter().flat_map(Plot::points).collect();
    csv.push_str(if plot.is_some() { ",plotted\n" } else { "\n" });
    for Row { series, x, values, .. } in rows {
        let _ = write!(csv, "\"{series}\",{x},{values}");
        let own = points.iter().position(|(name, at, _)| name == series && at == x);
        match own.map(|own| points.remove(own)) {
            Some((.., y)) => {
                let _ = writeln!(csv, ",{}", rounded(y));
            }
            None => csv.push_str(if plot.is_some() { ",\n" } else { "\n" }),
        }
    }
    let none = ",".repeat(columns.split(',').count());
    for (series, x, y) in points {
        let _ = writeln!(csv, "\"{series}\",{x},{none}{}", rounded(y));
    }
    csv
}

/// To six digits: more would be those of sums of floats.
fn rounded(value: f64) -> f64 {
    const DIGITS: i32 = 6;
    if value == 0.0 {
        return 0.0;
    }
    let scale = 10_f64.powi(DIGITS - 1 - value.abs().log10().floor() as i32);
    (value * scale).round() / scale
}

fn section(page: &mut String, measured: &Measured, tables: &[Table], settings: &Settings) {
    let figure = measured.figure;
    let _ = writeln!(page, "## {}\n\n{}\n", figure.title(), catalogue::setup(figure, settings));
    if !measured.is_whole() {
        let (finished, planned) = (measured.points.len(), measured.planned);
        let _ = writeln!(page, "**Not all of it: {finished} of {planned} runs were finished.**\n");
    }
    let mut claims = catalogue::claims(figure);
    for table in tables {
        if tables.len() > 1 {
            let _ = writeln!(page, "### {}\n", table.title);
        }
        if table.plot.is_some() {
            let _ = writeln!(page, "![{0}]({0}.svg)\n", table.stem);
        }
        compare(page, measured, &std::mem::take(&mut claims));
        cells(page, table);
    }
}

fn compare(page: &mut String, measured: &Measured, claims: &[Claim]) {
    if claims.is_empty() {
        return;
    }
    let published = |claim: &Claim| matches!(claim.expected, Expected::Published(_));
    let heading = match (claims.iter().all(published), claims.iter().any(published)) {
        (true, _) => "published",
        (_, false) => "aim",
        _ => "published, or the aim",
    };
    let _ = writeln!(page, "| what | {heading} | here | why |\n| --- | --- | --- | --- |");
    for Claim { what, expected, ours, why } in claims {
        let ours = ours(measured).map_or("not measured".into(), |ratio| format!("{ratio:.2}"));
        let _ = writeln!(page, "| {what} | {expected} | {ours} | {why} |");
    }
    page.push('\n');
}

fn cells(page: &mut String, table: &Table) {
    let rows: Vec<_> =
        table.rows.iter().filter_map(|row| Some((row, row.cell.as_ref()?))).collect();
    let mut xs: Vec<&str> = Vec::new();
    let mut series: Vec<&str> = Vec::new();
    for (row, _) in &rows {
        if !xs.contains(&row.x.as_str()) {
            xs.push(&row.x);
        }
        if !series.contains(&row.series.as_str()) {
            series.push(&row.series);
        }
    }
    if series.is_empty() {
        return;
    }
    let _ = writeln!(page, "{}\n", table.caption);
    // What a plot shows over time has one cell for all of it.
    let headings = xs.iter().map(|x| if x.is_empty() { "whole run" } else { *x });
    let headings: Vec<&str> = headings.collect();
    let _ = writeln!(page, "| {} | {} |", table.x_label, headings.join(" | "));
    let _ = writeln!(page, "| --- |{}", " --- |".repeat(xs.len()));
    for name in series {
        let _ = write!(page, "| {name} |");
        for x in &xs {
            let found = rows.iter().find(|(row, _)| row.series == name && row.x == *x);
            let _ = write!(page, " {} |", found.map_or("", |(_, cell)| cell));
        }
        page.push('\n');
    }
    page.push('\n');
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::figures::point::Point;
    use crate::figures::table::PlotLine;
    use crate::figures::work::experiment::ExperimentResult;

    fn measured(figure: Figure) -> Measured {
        // Without a point that was measured there is nothing but headings.
        Measured { figure, points: Vec::<(Point, ExperimentResult)>::new(), planned: 0 }
    }

    fn settings(trials: u64) -> Settings {
        Settings { duration: Duration::from_millis(7), seed: 1, trials }
    }

    #[test]
    fn sections_of_what_is_not_measured_again_stay() {
        let folder = tempfile::tempdir().unwrap();
        let page = |figures: &[Figure], trials| {
            let measured: Vec<_> = figures.iter().map(|figure| measured(*figure)).collect();
            write(folder.path(), &measured, &settings(trials)).unwrap();
            fs::read_to_string(folder.path().join("README.md")).unwrap()
        };
        let first = page(&[Figure::CodingFailures, Figure::CodingSets], 12_345);
        let at = |page: &str, figure: Figure| page.find(&format!("## {}\n", figure.title()));
        assert!(at(&first, Figure::CodingSets) < at(&first, Figure::CodingFailures), "{first}");
        assert!(first.contains("12345 failures drawn") && at(&first, Figure::Locality).is_none());
        assert_eq!(page(&[Figure::CodingFailures], 1), first, "nothing else is measured again");
        let again = page(&[Figure::CodingSets], 54_321);
        assert_eq!(again, first.replace("12345 failures", "54321 failures"));
        assert!(folder.path().join("coding-sets-balance.csv").exists());
        assert!(folder.path().join("coding-sets-balance.svg").exists());
        assert!(!folder.path().join("coding-failures.svg").exists(), "a table without a plot");
    }

    #[test]
    fn a_file_of_numbers_has_what_its_plot_shows() {
        let row = |series: &str, x: &str| {
            let (series, x) = (series.to_owned(), x.to_owned());
            Row { series, x, values: "1,2".to_owned(), cell: None }
        };
        let table = |plot| Table {
            stem: "a",
            title: "",
            caption: "",
            x_label: "",
            columns: "b,c",
            rows: vec![row("one", "x"), row("one", "y")],
            plot,
        };
        assert_eq!(numbers(&table(None)), "series,x,b,c\n\"one\",x,1,2\n\"one\",y,1,2\n");
        let labelled = Plot::new("y", [("one", "y", 0.1 + 0.2), ("two", "x", 7.0)]);
        assert_eq!(
            numbers(&table(Some(labelled))),
            "series,x,b,c,plotted\n\"one\",x,1,2,\n\"one\",y,1,2,0.3\n\"two\",x,,,7\n"
        );
        let line = PlotLine { name: "writer".to_owned(), points: vec![(0.5, 3.0)] };
        let scale = Plot { y_label: "y", lines: vec![line], labels: Vec::new() };
        assert!(numbers(&table(Some(scale))).ends_with("\n\"writer\",0.5,,,3\n"));
    }

    #[test]
    fn no_column_of_a_page_is_without_a_name() {
        let row = |x: &str| {
            let (series, cell) = ("one".to_owned(), Some("2".to_owned()));
            Row { series, x: x.to_owned(), values: "1".to_owned(), cell }
        };
        for (x, heading) in [("", "| time, ms | whole run |\n"), ("5", "| time, ms | 5 |\n")] {
            let table = Table {
                stem: "a",
                title: "",
                caption: "",
                x_label: "time, ms",
                columns: "b",
                rows: vec![row(x)],
                plot: None,
            };
            let mut page = String::new();
            cells(&mut page, &table);
            assert!(page.contains(heading), "{page}");
        }
    }

    #[test]
    fn a_plot_has_a_line_for_each_series_and_zero_at_the_end_of_a_logarithmic_scale() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.svg");
        let points = [
            ("one", "x", 0.0),
            ("one", "y", 1e-5),
            ("sel, occ", "x", 1.0),
            ("sel, occ", "y", 20.0),
        ];
        let plot = super::super::table::Plot::new("y", points);
        assert_eq!((plot.lines.len(), plot.labels.len()), (2, 2));
        plot::draw(&file, "title", "x", &plot).unwrap();
        let svg = fs::read_to_string(&file).unwrap();
        assert!(svg.contains("one") && svg.contains("0.00001"), "{svg}");
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        // On white, and told apart also without colour: one has circles, the other triangles.
        assert!(svg.contains("#0072B2") && svg.contains("#D55E00"), "{svg}");
        assert!(svg.contains("SEL, no cache, optimistic"), "{svg}");
        assert!(svg.contains("<circle") && svg.contains("<polygon"), "{svg}");
    }
}
