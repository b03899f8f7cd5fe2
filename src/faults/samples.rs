//! What the processes of a run need over time, and whether it grows.

use std::fmt::Write as _;
use std::path::PathBuf;

use crate::history::Ms;

/// What was measured at one time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    pub at: Ms,
    /// In the order of [`SERIES`].
    pub values: [u64; 5],
}

/// A quantity that must not grow.
pub struct Series {
    pub name: &'static str,
    /// Growth over the whole time that is none.
    least: f64,
    /// The same, as a share of the mean.
    share: f64,
}

/// What is measured of the daemon that no fault kills; rows and bytes are of all.
pub const SERIES: [Series; 5] = [
    series("rss_kib", 8_192.0, 0.1),
    series("descriptors", 10.0, 0.1),
    series("threads", 4.0, 0.1),
    series("unfinished_rows", 500.0, 0.3),
    series("log_bytes_per_sample", 20_000.0, 0.5),
];

/// The beginning that is left out: caches and pools fill.
const WARM_UP: f64 = 0.25;

const fn series(name: &'static str, least: f64, share: f64) -> Series {
    Series { name, least, share }
}

/// How a quantity has changed after the warm-up.
#[derive(Debug, Clone, PartialEq)]
pub struct Growth {
    pub name: &'static str,
    pub mean: f64,
    /// By the regression line, from the first sample to the last.
    pub growth: f64,
    pub allowed: f64,
}

impl Growth {
    pub fn is_flat(&self) -> bool {
        self.growth <= self.allowed
    }
}

/// Fits a line to each series.
pub fn growths(samples: &[Sample]) -> Vec<Growth> {
    let warm = (samples.len() as f64 * WARM_UP) as usize;
    let samples = &samples[warm..];
    let of = |(place, series): (usize, &Series)| {
        let points = samples
            .iter()
            .map(|it| (it.at as f64, it.values[place] as f64));
        let points: Vec<(f64, f64)> = points.collect();
        let (mean, growth) = line(&points);
        let allowed = series.least.max(series.share * mean);
        Growth {
            name: series.name,
            mean,
            growth,
            allowed,
        }
    };
    SERIES.iter().enumerate().map(of).collect()
}

/// The mean, and the growth of the least-squares line from the first point to the last.
fn line(points: &[(f64, f64)]) -> (f64, f64) {
    let count = points.len() as f64;
    let (Some(first), Some(last)) = (points.first(), points.last()) else {
        return (0.0, 0.0);
    };
    let mean_x = points.iter().map(|(x, _)| x).sum::<f64>() / count;
    let mean_y = points.iter().map(|(_, y)| y).sum::<f64>() / count;
    let covariance: f64 = points
        .iter()
        .map(|(x, y)| (x - mean_x) * (y - mean_y))
        .sum();
    let variance: f64 = points.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
    let slope = if variance == 0.0 {
        0.0
    } else {
        covariance / variance
    };
    (mean_y, slope * (last.0 - first.0))
}

/// The samples as CSV, with a header.
pub fn csv(samples: &[Sample]) -> String {
    let mut text = "unix_ms".to_owned();
    for series in &SERIES {
        let _ = write!(text, ",{}", series.name);
    }
    for sample in samples {
        let _ = write!(text, "\n{}", sample.at);
        for value in sample.values {
            let _ = write!(text, ",{value}");
        }
    }
    text + "\n"
}

/// Resident memory in KiB, descriptors and threads of a process; `None` if it is gone.
pub fn of_process(pid: u32) -> Option<[u64; 3]> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let number = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name))?;
        line.split_whitespace().nth(1)?.parse().ok()
    };
    let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count() as u64;
    Some([number("VmRSS:")?, descriptors, number("Threads:")?])
}

/// The bytes in all of these files.
pub fn bytes(files: &[PathBuf]) -> u64 {
    let sizes = files
        .iter()
        .filter_map(|file| Some(std::fs::metadata(file).ok()?.len()));
    sizes.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(rss: impl Fn(u64) -> u64) -> Vec<Sample> {
        let sample = |number: u64| Sample {
            at: number.cast_signed() * 5_000,
            values: [rss(number), 40, 7, 100, 900],
        };
        (0..200).map(sample).collect()
    }

    #[test]
    fn steady_growth_is_found_and_noise_and_a_warm_up_are_not() {
        let noisy = samples(|number| 60_000 + number % 7 * 500);
        assert!(growths(&noisy).iter().all(Growth::is_flat));
        let warm = samples(|number| 60_000.min(20_000 + number * 1_000));
        assert!(growths(&warm).iter().all(Growth::is_flat));
        let leaking = samples(|number| 60_000 + number * 100);
        let grown: Vec<&str> = growths(&leaking)
            .iter()
            .filter(|it| !it.is_flat())
            .map(|it| it.name)
            .collect();
        assert_eq!(grown, ["rss_kib"]);
    }

    #[test]
    fn a_line_is_fitted_exactly() {
        assert_eq!(line(&[(0.0, 1.0), (1.0, 3.0), (2.0, 5.0)]), (3.0, 4.0));
        assert_eq!(line(&[]), (0.0, 0.0));
    }

    #[test]
    fn this_process_can_be_measured() {
        let [rss, descriptors, threads] = of_process(std::process::id()).unwrap();
        assert!(rss > 0 && descriptors > 0 && threads > 0);
        assert_eq!(of_process(u32::MAX >> 1), None);
    }
}
