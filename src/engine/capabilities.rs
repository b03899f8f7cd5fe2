//! What this daemon can run and adopt.

use crate::handler::{Router, Skills};
use crate::membership::Capabilities;

/// What this daemon can run and adopt, with these idle routes.
pub fn capabilities(router: &Router, idle: Vec<u16>) -> Capabilities {
    let Skills {
        handlers,
        routes,
        unadopted,
        adopts_for_handlers,
    } = router.skills();
    // More routes than that do not fit in a heartbeat.
    let unadopted = unadopted.into_iter().flat_map(u16::try_from);
    Capabilities {
        handlers_unadopted: !handlers.is_empty() && !adopts_for_handlers,
        handlers,
        routes,
        idle,
        unadopted: unadopted.collect(),
    }
}
