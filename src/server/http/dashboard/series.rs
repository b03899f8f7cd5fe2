//! A recurrence in words, in the language and the time zone of the reader; and what became of its latest occurrence.

use super::frame::Frame;
use super::moment::Moment;
use super::texts::texts;
use lapsed::ledger::{LatestOccurrence, TaskRecord};
use lapsed::task::{OccurrenceOutcome, Recurrence, Repeats};

texts! {
    /// Words of recurrences.
    SeriesTexts {
        every: "every {}", "每 {}";
        cron: "cron {}", "cron {}";
        minutes: "every {} minutes", "每 {} 分钟";
        minute: "every minute", "每分钟";
        hourly: "every hour at minute {}", "每小时的第 {} 分钟";
        hours: "every {} hours at minute {}", "每 {} 小时的第 {} 分钟";
        daily: "every day at {}", "每天 {}";
        weekly: "on {} at {}", "每{} {}";
        monthly: "on day {} of the month at {}", "每月 {} 日 {}";
        last_day: "on the last day of the month at {}", "每月最后一天 {}";
        weekdays: "weekdays", "周一至周五";
        sunday: "Sunday", "周日";
        monday: "Monday", "周一";
        tuesday: "Tuesday", "周二";
        wednesday: "Wednesday", "周三";
        thursday: "Thursday", "周四";
        friday: "Friday", "周五";
        saturday: "Saturday", "周六";
        in_zone: "{} ({})", "{}（{}）";
        from: "{}, from {}", "{}，起始 {}";
        until: "{}, until {}", "{}，截止 {}";
    }
}

/// Says when a series occurs.
pub fn words(recurrence: &Recurrence, f: &Frame) -> String {
    let t = SeriesTexts::of(f.language());
    let mut said = match recurrence.repeats() {
        Repeats::Every(period) => {
            let ms = u64::try_from(period.as_millis()).unwrap_or(u64::MAX);
            f.fill(t.every, &[&f.took(&ms)])
        }
        Repeats::Cron { text, zone } => {
            let said = cron(text, t).unwrap_or_else(|| f.fill(t.cron, &[text]));
            f.fill(t.in_zone, &[&said, zone])
        }
    };
    if let Some(from) = recurrence.start().filter(|from| *from > f.now) {
        said = f.fill(t.from, &[&said, &f.clock_text(&from)]);
    }
    if let Some(until) = recurrence.end() {
        said = f.fill(t.until, &[&said, &f.clock_text(&until)]);
    }
    said
}

/// What became of the latest occurrence, as it is shown.
pub struct Latest {
    /// Class of the mark before its outcome.
    pub mark: &'static str,
    /// Its outcome; if it failed, why.
    pub outcome: String,
    /// When it was due.
    pub due: Moment,
}

/// Shows the latest occurrence of a series that has ended, if it is known.
pub fn latest(task: &TaskRecord, f: &Frame) -> Option<Latest> {
    let LatestOccurrence {
        due,
        outcome,
        reason,
        error: _,
    } = task.latest_occurrence.as_ref()?;
    let mut said = f.state(outcome.as_str()).to_owned();
    if let Some(reason) = reason {
        said = format!("{said}: {}", f.state(reason.as_str()));
    }
    Some(Latest {
        mark: match outcome {
            OccurrenceOutcome::Succeeded => "done",
            OccurrenceOutcome::Failed(_) => "dead",
            OccurrenceOutcome::Skipped => "cancelled",
            OccurrenceOutcome::HandedOn => "handed-on",
        },
        outcome: said,
        due: f.relative(due),
    })
}

/// Says when a cron expression of a common form occurs; `None` for others.
fn cron(text: &str, t: &SeriesTexts) -> Option<String> {
    use super::texts::fill;
    let fields: Vec<&str> = text.split_whitespace().collect();
    let [minute, hour, day, "*", weekday] = fields[..] else {
        return None;
    };
    let number = |text: &str| text.parse::<u8>().ok();
    let step = |text: &str| text.strip_prefix("*/").and_then(number);
    let is_daily = (day, weekday) == ("*", "*");
    match (minute, hour) {
        ("*", "*") if is_daily => return Some(t.minute.to_owned()),
        (minute, "*") if is_daily => {
            return match step(minute) {
                Some(minutes) => Some(fill(t.minutes, &[&minutes.to_string()])),
                None => Some(fill(t.hourly, &[&number(minute)?.to_string()])),
            };
        }
        (minute, hour) if is_daily && hour.starts_with('*') => {
            let values = [step(hour)?, number(minute)?].map(|value| value.to_string());
            return Some(fill(t.hours, &[&values[0], &values[1]]));
        }
        _ => {}
    }
    let at = format!("{:02}:{:02}", number(hour)?, number(minute)?);
    match (day, weekday) {
        ("*", "*") => Some(fill(t.daily, &[&at])),
        ("L", "*") => Some(fill(t.last_day, &[&at])),
        (day, "*") => Some(fill(t.monthly, &[&number(day)?.to_string(), &at])),
        ("*", weekday) => Some(fill(t.weekly, &[name_of(weekday, t)?, &at])),
        _ => None,
    }
}

/// The name of a day of the week, or of all days of work.
fn name_of(weekday: &str, t: &SeriesTexts) -> Option<&'static str> {
    Some(match weekday.to_ascii_lowercase().as_str() {
        "mon-fri" | "1-5" => t.weekdays,
        "sun" | "0" | "7" => t.sunday,
        "mon" | "1" => t.monday,
        "tue" | "2" => t.tuesday,
        "wed" | "3" => t.wednesday,
        "thu" | "4" => t.thursday,
        "fri" | "5" => t.friday,
        "sat" | "6" => t.saturday,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::dashboard::texts::Language;

    #[test]
    fn cron_expressions_of_common_forms_are_said_in_words() {
        for (text, english) in [
            ("* * * * *", Some("every minute")),
            ("*/15 * * * *", Some("every 15 minutes")),
            ("5 * * * *", Some("every hour at minute 5")),
            ("0 */6 * * *", Some("every 6 hours at minute 0")),
            ("30 3 * * *", Some("every day at 03:30")),
            ("0 9 * * Mon-Fri", Some("on weekdays at 09:00")),
            ("0 9 * * 0", Some("on Sunday at 09:00")),
            ("30 3 L * *", Some("on the last day of the month at 03:30")),
            ("30 3 1 * *", Some("on day 1 of the month at 03:30")),
            ("30 3 1 1 *", None),
            ("30 3 1 * Mon", None),
            ("0,30 9-17 * * *", None),
            ("*/15 9 * * *", None),
            ("0 30 3 * * *", None),
        ] {
            let said = cron(text, SeriesTexts::of(Language::English));
            assert_eq!(said.as_deref(), english, "{text}");
        }
        let chinese = cron("0 9 * * Mon-Fri", SeriesTexts::of(Language::Chinese));
        assert_eq!(chinese.as_deref(), Some("每周一至周五 09:00"));
    }
}
