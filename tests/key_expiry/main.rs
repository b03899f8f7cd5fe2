//! The key-expiry timer against a real Redis: what it hears, what it notices, what it mends.

mod events;
mod flags;
mod harness;
mod links;
mod nudges;
mod proxy;
mod sentinels;
mod servers;
