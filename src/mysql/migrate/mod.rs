//! Creates the ledger's table, or adopts one of an older program.
//!
//! ```text
//! introspect: information_schema -> TableSchema     compare: TableSchema -> [Step]     apply: one statement a step
//! ```
//!
//! - The table itself records how far a migration got. Each step is complete in itself, so running an interrupted migration
//!   again finishes it.
//! - No row is lost: surplus rows of a duplicated key move to `<table>_duplicates`.
//! - Programs that know only the first six columns keep working during and after it.
//! - It does not know how the ledger uses the table. To add a column, add it to `migrations/tb_time_limit_task.sql` and to
//!   `column_rules`.

mod apply;
mod archive;
mod column_rules;
mod compare;
mod definition;
mod duplicates;
mod error;
mod identity;
mod introspect;
mod month;
mod options;
mod partitions;
mod plan;
mod session;
mod side_tables;
mod step;
mod version;

pub use apply::{Progress, apply};
pub use archive::maintain as maintain_archive;
pub use definition::Index;
pub use error::MigrateError;
pub use identity::identity;
pub use month::Month;
pub use options::Options;
pub use plan::{Plan, check, check_optional, check_tasks, plan, plan_with};
pub use step::{Method, Step};
pub use version::generated_index_bug;
