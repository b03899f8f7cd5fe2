//! A model of Redis 7 in this process, for tests and simulations: commands, expiry, keyspace events, scripts and faults.
//!
//! The real timers, membership and limiter of lapsed talk to it over streams in memory:
//!
//! ```ignore
//! let redis = ModelRedis::new(Options { start, ..Options::default() });  // in a runtime
//! let link = Link::new(&redis, "daemon-1");                              // one for each program
//! let endpoint = Endpoint::over(&config.redis, link.clone())?;           // of `lapsed_redis`
//! let timer = KeyExpiry::on(endpoint, &config.redis, ..);                // also SortedSet, Wheel,
//!                                                                        // RedisMembership, RedisLimiter
//! redis.execute(0, &["SETEX", "Job@run@1", "30", ""]);                   // a producer
//! link.hold_replies(true);                                               // a fault of one link
//! redis.flush_all();                                                     // a fault of the server
//! ```
//!
//! Time is the time of tokio, which may be paused, and an offset: see [`ModelRedis::step_clock`]. A key that nobody uses
//! is deleted by cycles as in Redis: see [`Options::hz`] and [`Options::keys_per_batch`]. The same seed and the same calls
//! give the same replies, events and [history](ModelRedis::take_history).
//!
//! What it is not: RESP3, clusters, ACLs, blocking commands, memory limits, modules.
#![forbid(unsafe_code)]

mod commands;
mod connection;
mod events;
mod glob;
mod history;
mod keyspace;
mod link;
mod lua;
mod model;
mod options;
mod pubsub;
mod reply;
mod request;
mod server;
mod shared;
mod way;

pub use events::{Delivery, Fate, Judge};
pub use history::Change;
pub use link::Link;
pub use model::{Keep, ModelRedis};
pub use options::Options;
pub use reply::Reply;
pub use request::Words;
