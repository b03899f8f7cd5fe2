//! Costs by the size of the table: figures, a table and a plot.

mod curves;
mod plot;

pub use self::curves::{Curve, Point, table};
pub use self::plot::svg;
