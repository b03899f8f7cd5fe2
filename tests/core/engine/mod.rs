//! The engine's rules on the memory ledger: no server, and time moves only when nothing else can.

mod adoption;
mod background;
mod dead_daemons;
mod endings;
mod entries;
mod faults;
mod faulty;
mod faulty_documents;
mod groups;
mod history;
mod members;
mod outages;
mod outcomes;
mod pauses;
mod probing;
mod progress;
mod pull;
mod retention;
pub mod rig;
mod runs;
mod slots;
mod spans;
mod stopping;
