//! How far a command is that works through many tasks.

use std::io::IsTerminal as _;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use tokio::task::AbortHandle;
use tokio::time::Instant;

/// How often a log hears how far it is.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// How often the bar of a terminal moves.
const BAR_EVERY: Duration = Duration::from_millis(100);

/// How far it is: a bar on stderr for a person, a line now and then for a log. Ctrl-C stops the work after a batch.
pub struct Progress {
    bar: ProgressBar,
    /// Of how many; `None`: that is not known.
    total: Option<u64>,
    count: AtomicU64,
    /// Somebody wants it to stop where it is.
    interrupted: Arc<AtomicBool>,
    watch: AbortHandle,
    /// When a line was last written, if there is no bar.
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

    /// What was shown last.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Whether somebody has pressed Ctrl-C.
    pub fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }

    /// Shows it; says whether to go on.
    pub fn show(&self, count: u64) -> ControlFlow<()> {
        self.count.store(count, Ordering::Relaxed);
        self.bar.set_position(count);
        let mut said = self.said.lock().expect("nothing panics while holding it");
        if self.bar.is_hidden() && said.elapsed() >= LINE_EVERY {
            match self.total {
                Some(total) => eprintln!("{count} of {total}"),
                None => eprintln!("{count}"),
            }
            *said = Instant::now();
        }
        match self.is_interrupted() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }

    /// The work is over: the bar goes, and Ctrl-C is not watched any more.
    pub fn finish(&self) {
        self.watch.abort();
        self.bar.finish_and_clear();
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("the template is constant")
}
