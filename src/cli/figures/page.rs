//! The files of figures: numbers as CSV, plots, and one page of Markdown.

use std::error::Error;
use std::fmt::{self, Display, Write};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::measure::Measured;
use super::plot;

/// Makes the folder if it is not there.
pub(super) fn make_folder(folder: &Path) -> Result<(), Unwritten> {
    fs::create_dir_all(folder).map_err(|error| failed(folder, error))
}

/// Writes everything into `folder`.
pub(super) fn write(
    folder: &Path,
    measured: &[Measured],
    duration: Duration,
    seed: u64,
) -> Result<(), Unwritten> {
    let mut page = String::from("# Figures\n\n");
    let _ = writeln!(
        page,
        "Measured in virtual time on the simulated network `paper` (56 Gb/s adapters of 2013), {} ms a \
         point after as many to warm up, seed {seed}. Unless a figure says otherwise: 8 compute nodes \
         of 16 workers, 8 memory nodes, 65,536 pages of 2 KiB, caches of 16 MiB, all pages shared.\n",
        duration.as_millis()
    );
    for figure in measured {
        let name = figure.figure.name();
        let csv = folder.join(name).with_extension("csv");
        fs::write(&csv, numbers(figure)).map_err(|error| failed(&csv, error))?;
        let svg = folder.join(name).with_extension("svg");
        plot::draw(&svg, figure).map_err(|error| failed(&svg, error))?;
        section(&mut page, figure);
    }
    let readme = folder.join("README.md");
    fs::write(&readme, page).map_err(|error| failed(&readme, error))
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

fn numbers(measured: &Measured) -> String {
    let mut csv = String::from(
        "series,x,ops_per_second,hit_ratio,round_trips_per_op,atomics_per_op,invalidations_per_op,\
         messages_per_op,busiest_atomics,busiest_mail,busiest_sending,busiest_receiving\n",
    );
    for (point, report) in &measured.points {
        let load = report.load.map(|load| [load.atomics, load.mail, load.sends, load.receives]);
        let load: Vec<String> =
            load.unwrap_or_default().iter().map(|l| format!("{l:.3}")).collect();
        let _ = writeln!(
            csv,
            "\"{}\",{},{:.0},{:.4},{:.3},{:.3},{:.3},{:.3},{}",
            point.series,
            point.x,
            report.ops_per_second(),
            report.hit_ratio(),
            report.per_op(report.traffic.chains),
            report.per_op(report.traffic.atomics),
            report.per_op(report.sum(|stats| stats.invalidations)),
            report.per_op(report.sum(|stats| stats.messages)),
            load.join(",")
        );
    }
    csv
}

fn section(page: &mut String, measured: &Measured) {
    let figure = measured.figure;
    let _ = writeln!(page, "## {}\n\n![{}]({1}.svg)\n", figure.title(), figure.name());
    let claims = figure.claims();
    if !claims.is_empty() {
        page.push_str("| | published | here | |\n| --- | --- | --- | --- |\n");
        for claim in claims {
            let ours = (claim.ours)(measured).map_or("not measured".into(), |r| format!("{r:.2}"));
            let published = claim.published;
            let _ = writeln!(page, "| {} | {published} | {ours} | {} |", claim.what, claim.why);
        }
        page.push('\n');
    }
    let mut xs: Vec<&str> = Vec::new();
    let mut series: Vec<&str> = Vec::new();
    for (point, _) in &measured.points {
        if !xs.contains(&point.x.as_str()) {
            xs.push(&point.x);
        }
        if !series.contains(&point.series.as_str()) {
            series.push(&point.series);
        }
    }
    let _ =
        writeln!(page, "Million accesses a second, and what the busiest adapter was busy with:\n");
    let _ = writeln!(page, "| {} | {} |", figure.x_label(), xs.join(" | "));
    let _ = writeln!(page, "| --- |{}", " --- |".repeat(xs.len()));
    for name in series {
        let _ = write!(page, "| {name} |");
        for x in &xs {
            let found = measured.points.iter().find(|(p, _)| p.series == name && p.x == *x);
            let cell = found.map_or(String::new(), |(_, report)| {
                let busiest = report.load.map_or(String::new(), |load| {
                    let kinds = [
                        ("atomics", load.atomics),
                        ("mail", load.mail),
                        ("sending", load.sends),
                        ("receiving", load.receives),
                    ];
                    let most = kinds.into_iter().max_by(|a, b| a.1.total_cmp(&b.1));
                    most.map_or(String::new(), |(kind, share)| {
                        format!(" ({kind} {:.0} %)", 100.0 * share)
                    })
                });
                format!("{:.2}{busiest}", report.ops_per_second() / 1e6)
            });
            let _ = write!(page, " {cell} |");
        }
        page.push('\n');
    }
    page.push('\n');
}
