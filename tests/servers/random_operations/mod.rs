//! Random operations on real servers, by seed. They need a machine that keeps up: `make test` runs them after all others,
//! one at a time.

mod lateness;
mod model;
