//! Progress on stderr, only on a terminal.

use indicatif::{ProgressBar, ProgressStyle};

/// A progress bar.
pub fn bar(what: &'static str, count: u64) -> ProgressBar {
    let template = "{msg:10} {bar:40} {human_pos}/{human_len} {per_sec} {eta}";
    let style = ProgressStyle::with_template(template).expect("the template is constant");
    ProgressBar::new(count).with_style(style).with_message(what)
}

/// A spinner.
pub fn spinner(what: String) -> ProgressBar {
    let spinner = ProgressBar::new_spinner().with_message(what);
    spinner.enable_steady_tick(std::time::Duration::from_millis(200));
    spinner
}
