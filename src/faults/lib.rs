//! Runs several `lapsed` daemons on real servers, under load and faults, and checks what happened.
//!
//! Producers write down what was acknowledged, targets write down what ran, and `judge` compares the two with
//! what `docs/guarantees.md` promises. A seed decides the order of the faults and the load.

mod clients;
mod daemon;
mod file_rig;
mod history;
mod judge;
mod mysql_rig;
mod options;
mod plan;
mod plot;
mod proxy;
mod report;
mod run;
mod samples;
mod statements;
mod stories;
mod target;
mod workers;

pub use self::options::{Ledger, Options};
pub use self::plan::{Death, Fault, Net, Server, Who};
pub use self::proxy::Mode;
pub use self::report::Outcome;
pub use self::run::run;
