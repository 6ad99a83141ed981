//! Plots of figures, as SVG.

use std::error::Error;
use std::path::Path;

use plotters::prelude::*;

use super::experiment::Figure;
use super::measure::Measured;

const SIZE: (u32, u32) = (960, 540);
/// Room for the names of the series, right of the plot.
const LEGEND: u32 = 260;
/// Values that far apart are drawn on a logarithmic scale.
const WIDE: f64 = 30.0;

/// One line of a plot.
struct Line {
    name: String,
    points: Vec<(f64, f64)>,
}

/// Draws `measured` into the file at `path`.
pub(super) fn draw(path: &Path, measured: &Measured) -> Result<(), Box<dyn Error>> {
    let (lines, labels) = lines(measured);
    let all = || lines.iter().flat_map(|line| line.points.iter());
    let most_x = all().map(|(x, _)| *x).fold(1e-9, f64::max);
    let most_y = all().map(|(_, y)| *y).fold(1e-9, f64::max);
    let least_y = all().map(|(_, y)| *y).fold(f64::INFINITY, f64::min).max(1e-3);
    // On a logarithmic scale the axis counts decades.
    let wide = most_y / least_y > WIDE;
    let decades = least_y.log10().floor()..most_y.log10().ceil();
    let (y_range, y_labels) = if wide {
        (decades.clone(), (decades.end - decades.start) as usize + 1)
    } else {
        (0.0..most_y * 1.05, 10)
    };
    let scaled = |y: f64| if wide { y.max(1e-3).log10() } else { y };
    let y_label = |y: &f64| if wide { format!("{}", 10f64.powf(*y)) } else { format!("{y:.1}") };
    let root = SVGBackend::new(path, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .caption(measured.figure.title(), ("sans-serif", 18))
        .margin(12)
        .margin_right(LEGEND)
        .x_label_area_size(44)
        .y_label_area_size(72)
        .build_cartesian_2d(0.0..most_x, y_range)?;
    let at = |x: &f64| {
        let label = labels.get(x.round().max(0.0) as usize);
        label.filter(|_| (x - x.round()).abs() < 1e-6).cloned().unwrap_or_default()
    };
    let plain = |x: &f64| format!("{x:.1}");
    chart
        .configure_mesh()
        .x_desc(measured.figure.x_label())
        .y_desc("million accesses a second")
        .y_labels(y_labels)
        .y_label_formatter(&y_label)
        .x_labels(if labels.is_empty() { 10 } else { labels.len() })
        .x_label_formatter(if labels.is_empty() { &plain } else { &at })
        .draw()?;
    for (index, line) in lines.iter().enumerate() {
        let color = Palette99::pick(index).to_rgba();
        let points = || line.points.iter().map(|(x, y)| (*x, scaled(*y)));
        chart.draw_series(LineSeries::new(points(), color.stroke_width(2)))?;
        chart.draw_series(points().map(|point| Circle::new(point, 3, color.filled())))?;
        let y = 60 + 18 * index as i32;
        let x = (SIZE.0 - LEGEND) as i32 + 12;
        root.draw(&Rectangle::new([(x, y - 1), (x + 16, y + 1)], color.filled()))?;
        root.draw(&Text::new(line.name.clone(), (x + 22, y - 6), ("sans-serif", 12)))?;
    }
    root.present()?;
    Ok(())
}

/// The lines, and what stands at the places 0, 1, 2 of the axis if it is no scale of numbers.
fn lines(measured: &Measured) -> (Vec<Line>, Vec<String>) {
    if measured.figure == Figure::Fairness {
        return (over_time(measured), Vec::new());
    }
    let mut labels: Vec<String> = Vec::new();
    let mut lines: Vec<Line> = Vec::new();
    for (point, report) in &measured.points {
        let x = labels.iter().position(|label| *label == point.x).unwrap_or_else(|| {
            labels.push(point.x.clone());
            labels.len() - 1
        });
        let at = (x as f64, report.ops_per_second() / 1e6);
        match lines.iter_mut().find(|line| line.name == point.series) {
            Some(line) => line.points.push(at),
            None => lines.push(Line { name: point.series.clone(), points: vec![at] }),
        }
    }
    (lines, labels)
}

/// The writer, and the mean of the readers, over time.
fn over_time(measured: &Measured) -> Vec<Line> {
    let mut lines = Vec::new();
    for (point, report) in &measured.points {
        let mut writer = Line { name: format!("{}, writer", point.series), points: Vec::new() };
        let mut readers = Line { name: format!("{}, a reader", point.series), points: Vec::new() };
        let mut last = 0.0;
        for sample in &report.samples {
            let end = sample.at.as_secs_f64();
            let rate = |accesses: f64| accesses / (end - last) / 1e6;
            if let Some((first, others)) = sample.accesses.split_first() {
                let mean = others.iter().sum::<u64>() as f64 / others.len().max(1) as f64;
                writer.points.push((end * 1e3, rate(*first as f64)));
                readers.points.push((end * 1e3, rate(mean)));
            }
            last = end;
        }
        lines.extend([writer, readers]);
    }
    lines
}
