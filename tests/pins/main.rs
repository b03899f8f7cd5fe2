//! What others rely on by name: metrics, the command line, the exports of the library. A change shows as a changed
//! file in `tests/snapshots`.

mod command_line;
mod exports;
mod metrics;
mod snapshot;
