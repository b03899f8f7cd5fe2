//! Progress of commands that work through many tasks.

use std::io::IsTerminal as _;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::log::stderr_line;

/// Interval of progress lines if stderr is not a terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// Refresh interval of the bar on a terminal.
const BAR_EVERY: Duration = Duration::from_millis(100);

/// Progress on stderr: a bar on a terminal, else occasional lines. Ctrl-C stops the work after a batch.
pub struct Progress {
    bar: ProgressBar,
    /// Total number; `None`: unknown.
    total: Option<u64>,
    count: AtomicU64,
    /// Set by Ctrl-C.
    interrupted: Arc<AtomicBool>,
    watch: AbortHandle,
    /// Time of the last line, if there is no bar.
    said: Mutex<Instant>,
}

impl Progress {
    pub fn new(total: Option<u64>) -> Self {
        let bar = match (std::io::stderr().is_terminal(), total) {
            (false, _) => ProgressBar::hidden(),
            (true, Some(total)) => {
                ProgressBar::new(total).with_style(style("{bar:40} {human_pos}/{human_len} {eta}"))
            }
            (true, None) => ProgressBar::new_spinner().with_style(style("{spinner} {human_pos}")),
        };
        bar.enable_steady_tick(BAR_EVERY);
        let interrupted = Arc::<AtomicBool>::default();
        let asked = Arc::clone(&interrupted);
        let watch = tokio::spawn(async move {
            let is_asked = tokio::signal::ctrl_c().await.is_ok();
            asked.store(is_asked, Ordering::Relaxed);
        });
        Self {
            bar,
            total,
            count: AtomicU64::new(0),
            interrupted,
            watch: watch.abort_handle(),
            said: Mutex::new(Instant::now()),
        }
    }

    /// The last count shown.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Whether Ctrl-C was pressed.
    pub fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }

    /// Shows the count; returns whether to continue.
    pub fn show(&self, count: u64) -> ControlFlow<()> {
        self.count.store(count, Ordering::Relaxed);
        self.bar.set_position(count);
        let mut said = self.said.lock().expect("nothing panics while holding it");
        if self.bar.is_hidden() && said.elapsed() >= LINE_EVERY {
            match self.total {
                Some(total) => stderr_line!("{count} of {total}"),
                None => stderr_line!("{count}"),
            }
            *said = Instant::now();
        }
        match self.is_interrupted() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }

    /// Prints a line on stderr, above the bar.
    pub fn line(&self, text: &str) {
        self.bar.suspend(|| stderr_line!("{text}"));
    }

    /// Removes the bar and stops watching for Ctrl-C.
    pub fn finish(&self) {
        self.watch.abort();
        self.bar.finish_and_clear();
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("the template is constant")
}
