//! Creates the ledger's table, or adopts one that an older program has filled.
//!
//! ```text
//! look: information_schema -> TableSchema        compare: TableSchema -> [Step]        act: one statement a step
//! ```
//!
//! - Nothing remembers how far a migration came: the table itself says so. Each step is complete in itself, so a
//!   migration that was interrupted, at whatever point, is finished by running it again.
//! - No row is lost: surplus rows of a duplicated key move to `<table>_duplicates`.
//! - Programs that know only the first six columns go on working while it runs and after it.
//! - What it does not know: how the ledger uses the table. Who wants another column adds it to
//!   `migrations/tb_time_limit_task.sql` and to `column_rules`.

mod apply;
mod column_rules;
mod compare;
mod definition;
mod duplicates;
mod error;
mod identity;
mod introspect;
mod options;
mod plan;
mod session;
mod side_tables;
mod step;
mod version;

pub use apply::{Progress, apply};
pub use definition::Index;
pub use error::MigrateError;
pub use identity::identity;
pub use options::Options;
pub use plan::{Plan, check, check_tasks, plan, plan_with};
pub use step::{Method, Step};
pub use version::generated_index_bug;
