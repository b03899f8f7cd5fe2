//! Statements of rate limits without Redis.

/// `take_starts`: takes as many of the wanted starts as the bucket of a route has, by the generic cell rate algorithm
/// (ITU-T I.371), in whole nanoseconds. Returns the number as `LAST_INSERT_ID`. The bucket is one number: the time at which
/// it is full, between now and a burst from now. A statement that has waited for the lock of the row has an old `NOW`, and
/// takes less. Primary key.
///
/// Bound: nanoseconds of a burst; the starts wanted; nanoseconds of a burst, twice, and of one start, twice; the route.
pub const TAKE_STARTS: &str = "UPDATE `{t}_rates` SET full_at_ns = \
       LEAST(GREATEST(full_at_ns, {now_ns}), {now_ns} + CAST(? AS SIGNED)) + \
       CAST(LAST_INSERT_ID(LEAST(CAST(? AS SIGNED), ({now_ns} + CAST(? AS SIGNED) \
         - LEAST(GREATEST(full_at_ns, {now_ns}), {now_ns} + CAST(? AS SIGNED))) DIV CAST(? AS SIGNED))) AS SIGNED) * CAST(? AS SIGNED) \
     WHERE route = ?";

/// `take_starts`: nanoseconds until the next start. Primary key.
pub const NEXT_START: &str = "SELECT CAST(full_at_ns + CAST(? AS SIGNED) - CAST(? AS SIGNED) - {now_ns} AS SIGNED) AS next_ns \
     FROM `{t}_rates` WHERE route = ?";

/// `take_starts` of a route for the first time: a full bucket. First writer wins; duplicate key (1062) means that it exists
/// already.
pub const NEW_RATE: &str = "INSERT INTO `{t}_rates` (route) VALUES (?)";
