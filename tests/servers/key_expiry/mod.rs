//! The key-expiry timer against a real Redis: what it hears, what it notices, what it mends.

#![allow(clippy::unwrap_used, reason = "in a test it stops where it went wrong")]

mod events;
mod flags;
mod harness;
mod late_events;
mod links;
mod nudges;
mod proxy;
mod sentinels;
mod servers;
