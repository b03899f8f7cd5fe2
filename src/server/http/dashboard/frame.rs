//! What every page has: who looks at it, in which language, and how it is laid out.

use askama::Template;
use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{Html, IntoResponse, Response};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::assets;
use super::login;
use super::moment::{self, Moment};
use super::phrases;
use super::preferences::{Preferences, Theme};
use super::texts::{self, FrameTexts, Language, ScriptTexts, fill};
use crate::http::access::{Caller, Scope};
use crate::http::app_state::AppState;
use crate::http::problem::Problem;
use lapsed::diagnosis::{LedgerState, Message, Phrase, Value};
use lapsed::engine::Handle;
use lapsed::ledger::TaskRecord;
use lapsed::task::{TaskKey, UnixMs, is_invisible};
use lapsed_core::format;

/// A page of the navigation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Is it on time?
    Overview,
    /// What falls due next.
    Upcoming,
    /// All tasks.
    Tasks,
    /// Dead tasks by error.
    Dead,
    /// Recurring tasks.
    Recurring,
    /// The form that schedules a task.
    Schedule,
    /// Pauses and the hold.
    Pauses,
    /// Pull queues and their workers.
    Queues,
    /// The daemons, and what each runs.
    Daemons,
    /// Findings about the installation.
    Doctor,
    /// Who changed what.
    Audit,
}

/// A page of the navigation: its path below the base, and its name.
type NavigationLink = (Place, &'static str, fn(&FrameTexts) -> &'static str);

/// The navigation.
const NAVIGATION: &[NavigationLink] = &[
    (Place::Overview, "/", |texts| texts.overview),
    (Place::Upcoming, "/upcoming", |texts| texts.upcoming),
    (
        Place::Tasks,
        "/tasks?state=overdue,pending,waiting,running",
        |texts| texts.tasks,
    ),
    (Place::Dead, "/dead", |texts| texts.dead),
    (Place::Recurring, "/recurring", |texts| {
        texts.recurring_tasks
    }),
    (Place::Pauses, "/pauses", |texts| texts.pauses),
    (Place::Queues, "/queues", |texts| texts.queues),
    (Place::Daemons, "/daemons", |texts| texts.daemons),
    (Place::Doctor, "/doctor", |texts| texts.doctor),
    (Place::Audit, "/audit", |texts| texts.audit),
    (Place::Schedule, "/schedule", |texts| texts.schedule),
];

/// An entry of the navigation.
pub struct Entry {
    /// Address
    pub href: String,
    /// Name
    pub name: &'static str,
    /// True if it is this page.
    pub is_here: bool,
}

/// What every page has. Its templates call it `f`. To take it as an argument of a handler is the check that the caller may
/// read.
#[derive(Clone)]
pub struct Frame {
    /// Path in front of every address.
    pub base: String,
    /// The texts of the frame.
    pub t: &'static FrameTexts,
    /// Path and query of this request, below the base.
    pub here: String,
    /// Now, by the ledger's clock.
    pub now: UnixMs,
    /// What the browser prefers.
    pub preferences: Preferences,
    /// The caller.
    pub caller: Caller,
    /// True if this daemon refuses every change.
    pub is_read_only: bool,
    engine: Handle,
    place: Option<Place>,
}

impl Frame {
    /// Marks an entry of the navigation as the current one.
    #[must_use]
    pub fn at(mut self, place: Place) -> Self {
        self.place = Some(place);
        self
    }

    /// The entries of the navigation.
    pub fn navigation(&self) -> Vec<Entry> {
        // What is about all classes is no use to a caller that sees some of them.
        let is_seen = |place: &Place| {
            const ABOUT_ALL: [Place; 4] =
                [Place::Queues, Place::Daemons, Place::Doctor, Place::Audit];
            !self.caller.is_restricted() || !ABOUT_ALL.contains(place)
        };
        let entries = NAVIGATION.iter().filter(|(place, ..)| is_seen(place));
        let entries = entries.map(|(place, path, name)| Entry {
            href: format!("{}{path}", self.base),
            name: name(self.t),
            is_here: self.place == Some(*place),
        });
        entries.collect()
    }

    /// Says that the ledger does not answer, and since when; `None` if it does.
    pub fn ledger_gone(&self) -> Option<String> {
        match self.engine.ledger_state() {
            LedgerState::Answers => None,
            LedgerState::Fails {
                since: Some(since), ..
            } => Some(self.headline(&Message::new(
                Phrase::LedgerFailsSince,
                [Value::Time(since)],
            ))),
            LedgerState::Unread | LedgerState::Fails { .. } => Some(self.ledger_fails()),
        }
    }

    /// Says that the ledger does not answer.
    pub fn ledger_fails(&self) -> String {
        self.headline(&Phrase::LedgerFails.into())
    }

    /// Says what to do if the ledger does not answer.
    pub fn ledger_do(&self) -> String {
        self.sentences([&Phrase::LedgerDo.into()])
    }

    /// Says messages, each as a sentence.
    pub fn sentences<'a>(&self, messages: impl IntoIterator<Item = &'a Message>) -> String {
        let said = messages
            .into_iter()
            .map(|message| phrases::say(message, self.language(), |at| self.clock_text(at)));
        let said: Vec<String> = said.collect();
        let space = match self.language() {
            Language::English => " ",
            Language::Chinese => "",
        };
        said.join(space)
    }

    /// Says a message without a full stop.
    pub fn headline(&self, message: &Message) -> String {
        let said = self.sentences([message]);
        said.trim_end_matches(['.', '。']).to_owned()
    }

    /// True if the page has no banner, since its content says whether the ledger answers.
    pub fn says_ledger(&self) -> bool {
        self.place == Some(Place::Overview)
    }

    /// The language of texts.
    pub fn language(&self) -> Language {
        self.preferences.language
    }

    /// The tag of the language.
    pub fn lang(&self) -> &'static str {
        self.language().tag()
    }

    /// The name of the theme.
    pub fn theme(&self) -> &'static str {
        self.preferences.theme.as_str()
    }

    /// The name of the time zone.
    pub fn zone(&self) -> String {
        let zone = &self.preferences.zone;
        zone.iana_name().unwrap_or("UTC").to_owned()
    }

    /// The address of a file of the dashboard.
    pub fn asset(&self, name: &str) -> String {
        format!("{}{}", self.base, assets::path(name))
    }

    /// The address that changes a preference and returns to this page.
    pub fn prefer(&self, name: &str, value: &str) -> String {
        let back = encoded(&self.here);
        let value = encoded(value);
        format!("{}/preferences?{name}={value}&back={back}", self.base)
    }

    /// The theme after this one, to switch to.
    pub fn next_theme(&self) -> &'static str {
        match self.preferences.theme {
            Theme::Auto => "light",
            Theme::Light => "dark",
            Theme::Dark => "auto",
        }
    }

    /// The name of the theme, for people.
    pub fn theme_name(&self) -> &'static str {
        match self.preferences.theme {
            Theme::Auto => self.t.theme_auto,
            Theme::Light => self.t.theme_light,
            Theme::Dark => self.t.theme_dark,
        }
    }

    /// The texts that JavaScript shows, JSON.
    pub fn script_texts(&self) -> String {
        let texts = ScriptTexts::of(self.language());
        serde_json::to_string(texts).expect("texts are JSON")
    }

    /// True if the caller may create, move and cancel tasks.
    pub fn may_schedule(&self) -> bool {
        !self.is_read_only && self.caller.has(Scope::Schedule)
    }

    /// True if the caller may run, redrive, pause, and change many tasks.
    pub fn may_operate(&self) -> bool {
        !self.is_read_only && self.caller.has(Scope::Operate)
    }

    /// The page of a task of a list. If its arguments are masked, its address has the row instead of the key.
    pub fn task_href(&self, task: &TaskRecord) -> String {
        match self.hides_arguments(&task.key) {
            // A key may have several archived tasks.
            _ if task.archived => {
                format!("{}/task?id={}&archived=true", self.base, encoded(&task.id))
            }
            true => format!("{}/task?id={}", self.base, encoded(&task.id)),
            false => self.key_href(&task.key),
        }
    }

    /// The page of the task of a key.
    pub fn key_href(&self, key: &TaskKey) -> String {
        format!("{}/task?key={}", self.base, encoded(key.as_str()))
    }

    /// True if lists do not show the arguments of the task.
    pub fn hides_arguments(&self, key: &TaskKey) -> bool {
        self.caller.masks.hides_arguments(key)
    }

    /// The list of the tasks of a class and method, `Class@method`.
    pub fn method_href(&self, name: &str) -> String {
        let (class, method) = name.split_once('@').unwrap_or((name, ""));
        let (class, method) = (encoded(class), encoded(method));
        format!("{}/tasks?class={class}&method={method}", self.base)
    }

    /// The list of the unfinished tasks that fall due between these times.
    pub fn due_href(&self, from: &UnixMs, until: &UnixMs) -> String {
        let (from, until) = (encoded(&from.to_string()), encoded(&until.to_string()));
        let due = format!("due_after={from}&due_before={until}");
        format!("{}/tasks?state=pending,waiting&{due}", self.base)
    }

    /// The list of the tasks with a tag.
    pub fn tag_href(&self, tag: &str) -> String {
        format!("{}/tasks?tag={}", self.base, encoded(tag))
    }

    /// The list of the tasks whose key begins with a text.
    pub fn prefix_href(&self, prefix: &str) -> String {
        format!("{}/tasks?prefix={}", self.base, encoded(prefix))
    }

    /// The name of a state.
    pub fn state<'a>(&self, state: &'a str) -> &'a str {
        texts::state(self.language(), state)
    }

    /// A time relative to now.
    pub fn relative(&self, at: &UnixMs) -> Moment {
        Moment::relative(*at, self.now, &self.preferences.zone, self.language())
    }

    /// A time on the clock.
    pub fn clock(&self, at: &UnixMs) -> Moment {
        Moment::clock(*at, self.now, &self.preferences.zone, self.language())
    }

    /// A time on the clock, as text.
    pub fn clock_text(&self, at: &UnixMs) -> String {
        moment::clock_text(*at, self.now, &self.preferences.zone)
    }

    /// A measured time in milliseconds: `4 ms`, `1.25 s`.
    pub fn took(&self, ms: &u64) -> String {
        moment::duration(*ms, self.language())
    }

    /// A text with the characters that change the direction of others, or that are not seen, as they are written in programs.
    pub fn plain(&self, text: &str) -> String {
        let mut plain = String::with_capacity(text.len());
        for char in text.chars() {
            match is_invisible(char) {
                true => plain.extend(char.escape_unicode()),
                false => plain.push(char),
            }
        }
        plain
    }

    /// A number with its thousands apart.
    pub fn number(&self, number: &u64) -> String {
        format::count(*number)
    }

    /// A number of tasks of some classes: of all of them, or of a part that was looked at. Of a part, there are at least as many,
    /// and if none was found, nothing is known.
    pub fn counted(&self, number: &u64, is_part: &bool) -> String {
        match (is_part, number) {
            (false, _) => format::count(*number),
            (true, 0) => "–".to_owned(),
            (true, _) => format!("≥ {}", format::count(*number)),
        }
    }

    /// A text with values in its places.
    pub fn fill(&self, text: &str, values: &[&str]) -> String {
        fill(text, values)
    }

    /// Renders a page.
    pub fn page(&self, page: &impl Template) -> Response {
        match page.render() {
            Ok(html) => Html(html).into_response(),
            Err(error) => {
                tracing::error!(%error, "could not render a page");
                StatusCode::INTERNAL_SERVER_ERROR.into_response()
            }
        }
    }
}

impl FromRequestParts<AppState> for Frame {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, app: &AppState) -> Result<Self, Response> {
        let caller = reader(parts, app)
            .await
            .map_err(|problem| login::refuse(parts, app, problem))?;
        let preferences = Preferences::of(&parts.headers);
        let here = parts.uri.path_and_query();
        Ok(Self {
            base: app.config.base_path.clone(),
            t: FrameTexts::of(preferences.language),
            here: here.map_or("/", |here| here.as_str()).to_owned(),
            now: app.tasks.clock_now(),
            preferences,
            caller,
            is_read_only: app.config.read_only,
            engine: app.engine.clone(),
            place: None,
        })
    }
}

/// The caller, which must be allowed to read.
async fn reader(parts: &mut Parts, app: &AppState) -> Result<Caller, Problem> {
    let caller = Caller::from_request_parts(parts, app).await?;
    caller.require(Scope::Read)?;
    Ok(caller)
}

/// A value in the query of an address.
pub fn encoded(value: &str) -> String {
    utf8_percent_encode(value, NON_ALPHANUMERIC).to_string()
}
