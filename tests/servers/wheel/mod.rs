//! The time wheel: entries of unchanged producers, entries of lapsed, and what happens to both when something fails.

mod entries;
mod failures;
mod restored;
mod rig;
mod turning;
