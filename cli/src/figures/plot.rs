//! Plots of figures, as SVG.

use std::error::Error;
use std::path::Path;

use plotters::prelude::*;

use super::table::Plot;

const SIZE: (u32, u32) = (960, 540);
/// Room for the names of the series, right of the plot.
const LEGEND: u32 = 260;
/// Colours that are told apart on white paper, and by people who do not see all colours: those of
/// Okabe and Ito, without the yellow, which is too light.
const COLORS: [RGBColor; 7] = [
    RGBColor(0x00, 0x72, 0xB2),
    RGBColor(0xD5, 0x5E, 0x00),
    RGBColor(0x00, 0x9E, 0x73),
    RGBColor(0xCC, 0x79, 0xA7),
    RGBColor(0xE6, 0x9F, 0x00),
    RGBColor(0x56, 0xB4, 0xE9),
    RGBColor(0x00, 0x00, 0x00),
];
/// Lines across the plot.
const GRID: RGBColor = RGBColor(0xDD, 0xDD, 0xDD);
/// Values that far apart are drawn on a logarithmic scale.
const WIDE: f64 = 30.0;

/// Draws a plot into the file at `path`.
pub(crate) fn draw(
    path: &Path,
    title: &str,
    x_label: &str,
    plot: &Plot,
) -> Result<(), Box<dyn Error>> {
    let Plot { y_label: y_title, lines, labels } = plot;
    let all = || lines.iter().flat_map(|line| line.points.iter());
    let most_x = all().map(|(x, _)| *x).fold(1e-9, f64::max);
    let most_y = all().map(|(_, y)| *y).fold(1e-9, f64::max);
    // Zero has no place on a logarithmic scale: it is drawn at its lower end.
    let positive = all().map(|(_, y)| *y).filter(|y| *y > 0.0);
    let least_y = positive.fold(f64::INFINITY, f64::min).min(most_y);
    // On a logarithmic scale the axis counts decades.
    let wide = most_y / least_y > WIDE;
    let decades = least_y.log10().floor()..most_y.log10().ceil();
    let floor = 10f64.powf(decades.start);
    let (y_range, y_labels) = if wide {
        (decades.clone(), (decades.end - decades.start) as usize + 1)
    } else {
        (0.0..most_y * 1.05, 6)
    };
    let scaled = |y: f64| if wide { y.max(floor).log10() } else { y };
    let y_label = |y: &f64| if wide { format!("{}", 10f64.powf(*y)) } else { format!("{y:.1}") };
    let root = SVGBackend::new(path, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .caption(title, ("sans-serif", 18))
        .margin(12)
        .margin_right(LEGEND)
        .x_label_area_size(44)
        .y_label_area_size(72)
        .build_cartesian_2d(0.0..most_x, y_range)?;
    let at = |x: &f64| {
        let label = labels.get(x.round().max(0.0) as usize);
        let label = label.filter(|_| (x - x.round()).abs() < 1e-6);
        label.map(|label| part_in_words(label).to_owned()).unwrap_or_default()
    };
    let plain = |x: &f64| format!("{x:.1}");
    chart
        .configure_mesh()
        .x_desc(x_label)
        .y_desc(*y_title)
        .disable_x_mesh()
        .bold_line_style(GRID)
        .max_light_lines(0)
        .y_labels(y_labels)
        .y_label_formatter(&y_label)
        .x_labels(if labels.is_empty() { 10 } else { labels.len() })
        .x_label_formatter(if labels.is_empty() { &plain } else { &at })
        .draw()?;
    for (index, line) in lines.iter().enumerate() {
        let color = COLORS.get(index % COLORS.len()).copied().unwrap_or(BLACK);
        let points = || line.points.iter().map(|(x, y)| (*x, scaled(*y)));
        chart.draw_series(LineSeries::new(points(), color.stroke_width(2)))?;
        let y = 60 + 18 * index as i32;
        let x = (SIZE.0 - LEGEND) as i32 + 12;
        root.draw(&Rectangle::new([(x, y - 1), (x + 16, y + 1)], color.filled()))?;
        // Neighbours differ in shape, too, and so do lines of one colour.
        if (index + index / COLORS.len()).is_multiple_of(2) {
            chart.draw_series(points().map(|at| Circle::new(at, 3, color.filled())))?;
            root.draw(&Circle::new((x + 8, y), 3, color.filled()))?;
        } else {
            chart.draw_series(points().map(|at| TriangleMarker::new(at, 4, color.filled())))?;
            root.draw(&TriangleMarker::new((x + 8, y), 4, color.filled()))?;
        }
        root.draw(&Text::new(in_words(&line.name), (x + 22, y - 6), ("sans-serif", 12)))?;
    }
    root.present()?;
    Ok(())
}

/// The name of a series for people who do not know the names of options.
fn in_words(series: &str) -> String {
    let word = |part: &str| match part {
        "selcc" => "SELCC, pages cached".to_owned(),
        "sel" => "SEL, no cache".to_owned(),
        "rpc" => "directories at memory nodes".to_owned(),
        "2pl" => "two-phase locking".to_owned(),
        "to" => "timestamp ordering".to_owned(),
        "occ" => "optimistic".to_owned(),
        "plain" => "no redundancy".to_owned(),
        "r + 1 copies" => "as many copies + 1".to_owned(),
        "random" => "nodes at random".to_owned(),
        "two choices" => "better of two at random".to_owned(),
        "least loaded" => "least loaded nodes".to_owned(),
        part => match part.strip_prefix("l = ") {
            Some(spare) => format!("{spare} more in a set"),
            None => coding_in_words(part).unwrap_or_else(|| part.to_owned()),
        },
    };
    series.split(", ").map(word).collect::<Vec<_>>().join(", ")
}

/// `8 data + 2 parity` for `8+2`, and with `Δ1` behind it how many further splits are read.
fn coding_in_words(part: &str) -> Option<String> {
    let (coding, further) = part.split_once(" Δ").map_or((part, None), |(k, d)| (k, Some(d)));
    let (data, parity) = coding.split_once('+')?;
    let [data, parity] = [data.parse::<u16>().ok()?, parity.parse::<u16>().ok()?];
    let further = further.map_or_else(String::new, |further| format!(", {further} further read"));
    Some(format!("{data} data + {parity} parity{further}"))
}

/// The part of the protocol that is switched off, short enough for an axis; all else as it is.
fn part_in_words(label: &str) -> &str {
    match label {
        "gamma" => "local bound",
        "ageing" => "ageing",
        "batching" => "batches",
        "send-ring" => "send ring",
        "dirty-bounds" => "dirty part",
        "sticky-bits" => "kept bits",
        "looks" => "first look",
        "hold" => "holding",
        label => label,
    }
}

#[cfg(test)]
mod tests {
    use selkie_tpcc::micro::ProtocolFeature;

    use super::*;

    #[test]
    fn series_and_parts_are_named_in_words() {
        for (series, words) in [
            ("selcc, to", "SELCC, pages cached, timestamp ordering"),
            ("8+2 Δ0", "8 data + 2 parity, 0 further read"),
            ("8+2, random", "8 data + 2 parity, nodes at random"),
            ("CodingSets, l = 2", "CodingSets, 2 more in a set"),
            ("2 copies", "2 copies"),
            ("cn0 + cn1", "cn0 + cn1"),
        ] {
            assert_eq!(in_words(series), words);
        }
        let short = |part: ProtocolFeature| {
            let words = part_in_words(part.name());
            words.len() <= 11 && !words.contains('-') && words != "gamma"
        };
        assert!(ProtocolFeature::ALL.into_iter().all(short));
    }
}
