//! What this daemon can run and adopt, and whether it hears of keys.

use crate::handler::{Router, Skills};
use crate::membership::Capabilities;
use crate::timer::Timer;

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

/// True if keys that programs arm are adopted when they are heard of. Entries of other timers stay until they are read.
pub fn hears_keys(timer: &dyn Timer, router: &Router) -> bool {
    let has_keys = timer.is_listening().is_some() && !timer.keeps_entries();
    has_keys && router.adopts_any()
}
