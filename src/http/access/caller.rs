//! The sender of a request.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;

use crate::config::HttpClient;
pub use crate::config::HttpScope as Scope;
use crate::http::problem::Problem;
use crate::task::{ClassGlob, Pause, TaskKey};

/// The sender of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    name: Arc<str>,
    address: String,
    scopes: Arc<[Scope]>,
    /// Classes that it may touch; empty: all.
    classes: Arc<[ClassGlob]>,
    /// True if a browser is logged in by a cookie.
    has_session: bool,
}

/// What the access gate found out about the sender of a request.
#[derive(Clone)]
pub(super) struct Identified(pub Result<Caller, Problem>);

impl Caller {
    /// A caller that may do everything.
    pub fn everything() -> Self {
        Self {
            name: "anonymous".into(),
            address: String::new(),
            scopes: [Scope::Admin].into(),
            classes: [].into(),
            has_session: false,
        }
    }

    /// A configured client.
    pub(super) fn of(client: &HttpClient) -> Self {
        Self {
            name: client.name.as_str().into(),
            address: String::new(),
            scopes: client.scopes.as_slice().into(),
            classes: client.classes.as_slice().into(),
            has_session: false,
        }
    }

    /// Names a user whom a proxy has authenticated.
    pub(super) fn named(mut self, user: &str) -> Self {
        self.name = user.into();
        self
    }

    /// Sets the address from which it is connected.
    pub(super) fn at(mut self, address: String) -> Self {
        self.address = address;
        self
    }

    /// Notes that it is logged in by a cookie.
    pub(super) fn with_session(mut self) -> Self {
        self.has_session = true;
        self
    }

    /// Its name, for the audit log.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The address from which it is connected, for the audit log; empty if that is not known.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// True if it is logged in by a cookie, so that it can log out.
    pub fn has_session(&self) -> bool {
        self.has_session
    }

    /// True if the caller has a scope.
    pub fn has(&self, scope: Scope) -> bool {
        self.scopes.contains(&scope) || self.scopes.contains(&Scope::Admin)
    }

    /// True if the caller may touch some classes only: lists must leave out tasks that it may not [touch](Self::may_touch).
    pub fn is_limited(&self) -> bool {
        !self.classes.is_empty()
    }

    /// Classes that it may touch; empty: all.
    pub fn classes(&self) -> &[ClassGlob] {
        &self.classes
    }

    /// True if the caller may touch the class of this task.
    pub fn may_touch(&self, key: &TaskKey) -> bool {
        !self.is_limited() || self.classes.iter().any(|glob| glob.has(key))
    }

    /// Refuses a caller without a scope.
    ///
    /// # Errors
    /// The caller lacks it.
    pub fn require(&self, scope: Scope) -> Result<(), Problem> {
        match self.has(scope) {
            true => Ok(()),
            false => Err(Problem::forbidden(format!(
                "expected a caller with the scope `{}`",
                scope.as_str()
            ))),
        }
    }

    /// Refuses a caller that may not touch the class of this task.
    ///
    /// # Errors
    /// The caller may touch other classes only.
    pub fn require_key(&self, key: &TaskKey) -> Result<(), Problem> {
        match self.may_touch(key) {
            true => Ok(()),
            false => Err(self.other_classes()),
        }
    }

    /// Refuses a caller that may not touch every task of this class; `None` is every class.
    ///
    /// # Errors
    /// The caller may touch other classes only.
    pub fn require_class(&self, class: Option<&str>) -> Result<(), Problem> {
        let touches = |class| self.classes.iter().any(|glob| glob.has_all(class, None));
        match !self.is_limited() || class.is_some_and(touches) {
            true => Ok(()),
            false => Err(self.other_classes()),
        }
    }

    /// Refuses a caller that may touch some classes only, for figures that are not divided by class.
    ///
    /// # Errors
    /// It may.
    pub fn require_unlimited(&self) -> Result<(), Problem> {
        match self.is_limited() {
            false => Ok(()),
            true => Err(Problem::forbidden(
                "this is about all classes: expected a caller without `classes`",
            )),
        }
    }

    /// A pause as the caller may see it; `None` if it is of other classes. Of a pause that reaches further than the classes of
    /// the caller, who set it and why is left out.
    pub fn pause_seen(&self, pause: &Pause) -> Option<Pause> {
        let (class, method) = (pause.scope.class_name(), pause.scope.method_name());
        let Some(class) = class.filter(|_| self.is_limited()) else {
            return Some(match self.is_limited() {
                true => without_words(pause),
                false => pause.clone(),
            });
        };
        let of_all = |glob: &ClassGlob| glob.has_all(class, method);
        let of_some = |glob: &ClassGlob| method.is_none() && glob.has_some(class);
        match () {
            () if self.classes.iter().any(of_all) => Some(pause.clone()),
            () if self.classes.iter().any(of_some) => Some(without_words(pause)),
            () => None,
        }
    }

    /// A pause that covers a task of the caller's, as it may be told. See [`pause_seen`](Self::pause_seen).
    pub fn pause_told(&self, pause: &Pause) -> Pause {
        let seen = self.pause_seen(pause);
        seen.unwrap_or_else(|| without_words(pause))
    }

    fn other_classes(&self) -> Problem {
        let classes: Vec<String> = self.classes.iter().map(ToString::to_string).collect();
        Problem::forbidden(format!(
            "this caller may touch tasks of `{}` only",
            classes.join("`, `")
        ))
    }
}

fn without_words(pause: &Pause) -> Pause {
    Pause {
        by: String::new(),
        reason: String::new(),
        ..pause.clone()
    }
}

impl<S: Sync> FromRequestParts<S> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        match parts.extensions.get::<Identified>() {
            Some(Identified(caller)) => caller.clone(),
            // Not reached through the gate.
            None => Err(Problem::unauthenticated()),
        }
    }
}

#[cfg(test)]
impl Caller {
    /// A client with these settings, TOML: `['Order']`, `'read'`.
    pub fn configured(classes: &str, scopes: &str) -> Self {
        let text = format!(
            "[[http.clients]]\nname = 'shop'\ntoken_sha256 = '{}'\nscopes = {scopes}\nclasses = {classes}",
            "0".repeat(64)
        );
        Self::of(&crate::Config::from_toml(&text).unwrap().http.clients[0])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(classes: &str, scopes: &str) -> Caller {
        Caller::configured(classes, scopes)
    }

    #[test]
    fn a_scope_allows_only_itself_and_admin_allows_all() {
        let reader = caller("[]", "['read', 'work']");
        assert!(reader.require(Scope::Read).is_ok() && reader.require(Scope::Work).is_ok());
        for scope in [Scope::Schedule, Scope::Operate, Scope::Admin] {
            assert!(reader.require(scope).is_err(), "{scope:?}");
            assert!(caller("[]", "'admin'").require(scope).is_ok(), "{scope:?}");
        }
    }

    #[test]
    fn a_caller_of_some_classes_may_touch_no_others() {
        let key = |text| TaskKey::parse(text).unwrap();
        let shop = caller("['Order', 'Mail@send*']", "'schedule'");
        assert!(shop.require_key(&key("Order@close@1")).is_ok());
        assert!(shop.require_key(&key("Mail@send@1")).is_ok());
        assert!(shop.require_key(&key("Mail@read@1")).is_err());
        assert!(shop.require_key(&key("Orders@close@1")).is_err());
        assert!(shop.require_class(Some("Order")).is_ok());
        assert!(shop.require_class(Some("Mail")).is_err(), "not all of it");
        assert!(shop.require_class(None).is_err());
        assert!(caller("[]", "'read'").require_class(None).is_ok());
    }

    #[test]
    fn a_pause_of_other_classes_is_not_seen_and_one_of_more_classes_without_words() {
        let seen = |classes: &str, scope: crate::task::Scope| {
            let pause = Pause {
                kind: crate::task::PauseKind::Pause,
                scope,
                since: crate::task::UnixMs(0),
                due_before: None,
                by: "ops".to_owned(),
                reason: "repair".to_owned(),
            };
            let seen = caller(classes, "'read'").pause_seen(&pause);
            seen.map(|pause| pause.by + &pause.reason)
        };
        let class = |name: &str| crate::task::Scope::class(name).unwrap();
        let method = |name: &str| crate::task::Scope::method("Mail", name).unwrap();
        let (all, none) = (Some("opsrepair".to_owned()), Some(String::new()));
        let some = "['Order', 'Mail@send*']";
        assert_eq!(seen("[]", class("Other")), all);
        assert_eq!(seen(some, class("Order")), all);
        assert_eq!(seen(some, method("sendNow")), all);
        assert_eq!(seen(some, class("Mail")), none);
        assert_eq!(seen(some, crate::task::Scope::EVERYTHING), none);
        assert_eq!(seen(some, method("read")), None);
        assert_eq!(seen(some, class("Other")), None);
    }
}
