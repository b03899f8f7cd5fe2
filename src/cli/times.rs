//! Times in the output for people: in UTC, or in the time zone of this machine. JSON is in UTC.

use std::sync::OnceLock;

use anyhow::Context as _;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use lapsed::task::UnixMs;

/// The zone of this machine, if the output is in it. Set once, before the command runs.
static ZONE: OnceLock<TimeZone> = OnceLock::new();

/// From now on, times are in the time zone of this machine.
///
/// # Errors
/// It is not known.
pub fn use_zone_of_machine() -> anyhow::Result<()> {
    let zone = TimeZone::try_system()
        .context("find the time zone of this machine; the variable TZ names one")?;
    ZONE.get_or_init(|| zone);
    Ok(())
}

/// Formats a time. Commands take it as it is.
pub fn shown(at: UnixMs) -> String {
    shown_in(at, ZONE.get())
}

fn shown_in(at: UnixMs, zone: Option<&TimeZone>) -> String {
    let stamp = Timestamp::from_millisecond(at.0);
    match (stamp, zone) {
        (Ok(stamp), Some(zone)) => {
            let zoned = stamp.to_zoned(zone.clone());
            zoned.strftime("%Y-%m-%dT%H:%M:%S%.3f%:z").to_string()
        }
        _ => at.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_in_a_zone_has_its_offset_and_is_read_as_the_same_time() {
        let at = UnixMs(1_795_291_200_250);
        assert_eq!(shown_in(at, None), "2026-11-21T20:00:00.250Z");
        let shanghai = TimeZone::get("Asia/Shanghai").unwrap();
        let shown = shown_in(at, Some(&shanghai));
        assert_eq!(shown, "2026-11-22T04:00:00.250+08:00");
        let read: Timestamp = shown.parse().unwrap();
        assert_eq!(read.as_millisecond(), at.0);
        let never = UnixMs(i64::MAX);
        assert_eq!(shown_in(never, Some(&shanghai)), never.to_string());
    }
}
