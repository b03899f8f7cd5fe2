//! Principals.

use super::denied::Denied;
use super::masks::Masks;
use super::proof::Proof;
use super::scope::AccessScope;
use crate::task::{ClassGlob, Pause, TaskKey};

/// A client of the HTTP API, people who use the dashboard, or a user of the RESP server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    /// Its name, for the audit log.
    pub name: String,
    /// How it proves who it is.
    pub proof: Proof,
    /// What it may do.
    pub scopes: Vec<AccessScope>,
    /// The classes that it may touch; none: all.
    pub classes: Vec<ClassGlob>,
    /// What of a task it is not shown.
    pub masks: Masks,
}

impl Principal {
    /// A principal that may do everything and proves nothing.
    pub fn anonymous(name: &str, masks: Masks) -> Self {
        Self {
            name: name.to_owned(),
            proof: Proof::None,
            scopes: vec![AccessScope::Admin],
            classes: Vec::new(),
            masks,
        }
    }

    /// The hash of its token, if it has one.
    pub fn token_hash(&self) -> Option<&[u8; 32]> {
        match &self.proof {
            Proof::Token(hash) => Some(hash),
            _ => None,
        }
    }

    /// The hash of its password, if it has one.
    pub fn password_hash(&self) -> Option<&str> {
        match &self.proof {
            Proof::Password(hash) => Some(hash),
            _ => None,
        }
    }

    /// True if it stands for this user of a proxy.
    pub fn is_proxy_user(&self, user: &str) -> bool {
        match &self.proof {
            Proof::ProxyUser(glob) => crate::task::matches(glob, user),
            _ => false,
        }
    }

    /// True if it has a scope.
    pub fn has(&self, scope: AccessScope) -> bool {
        self.scopes.contains(&scope) || self.scopes.contains(&AccessScope::Admin)
    }

    /// True if it may touch some classes only: lists must leave out tasks that it may not [touch](Self::may_touch).
    pub fn is_restricted(&self) -> bool {
        !self.classes.is_empty()
    }

    /// True if it may touch the class of this task.
    pub fn may_touch(&self, key: &TaskKey) -> bool {
        !self.is_restricted() || self.classes.iter().any(|glob| glob.has(key))
    }

    /// Rejects a principal without a scope.
    ///
    /// # Errors
    /// [`Denied::Scope`]
    pub fn require(&self, scope: AccessScope) -> Result<(), Denied> {
        match self.has(scope) {
            true => Ok(()),
            false => Err(Denied::Scope(scope)),
        }
    }

    /// Rejects a principal that may not touch the class of this task.
    ///
    /// # Errors
    /// [`Denied::Classes`]
    pub fn require_key(&self, key: &TaskKey) -> Result<(), Denied> {
        match self.may_touch(key) {
            true => Ok(()),
            false => Err(Denied::Classes(self.classes.clone())),
        }
    }

    /// Rejects a principal that may not touch every task of this class; `None` is every class.
    ///
    /// # Errors
    /// [`Denied::Classes`]
    pub fn require_class(&self, class: Option<&str>) -> Result<(), Denied> {
        let touches = |class| self.classes.iter().any(|glob| glob.has_all(class, None));
        match !self.is_restricted() || class.is_some_and(touches) {
            true => Ok(()),
            false => Err(Denied::Classes(self.classes.clone())),
        }
    }

    /// Rejects a class-restricted principal.
    ///
    /// # Errors
    /// [`Denied::AllClasses`]
    pub fn require_unrestricted(&self) -> Result<(), Denied> {
        match self.is_restricted() {
            false => Ok(()),
            true => Err(Denied::AllClasses),
        }
    }

    /// A pause as the principal may see it; `None` if it is of other classes. Of a pause that reaches further than the classes
    /// of the principal, who set it and why is left out.
    pub fn visible_pause(&self, pause: &Pause) -> Option<Pause> {
        let (class, method) = (pause.scope.class_name(), pause.scope.method_name());
        let Some(class) = class.filter(|_| self.is_restricted()) else {
            return Some(match self.is_restricted() {
                true => without_reason(pause),
                false => pause.clone(),
            });
        };
        let of_all = |glob: &ClassGlob| glob.has_all(class, method);
        let of_some = |glob: &ClassGlob| method.is_none() && glob.has_some(class);
        match () {
            () if self.classes.iter().any(of_all) => Some(pause.clone()),
            () if self.classes.iter().any(of_some) => Some(without_reason(pause)),
            () => None,
        }
    }

    /// A pause that covers a task of the principal's, as it may see it. See [`visible_pause`](Self::visible_pause).
    pub fn covering_pause(&self, pause: &Pause) -> Pause {
        let visible = self.visible_pause(pause);
        visible.unwrap_or_else(|| without_reason(pause))
    }
}

fn without_reason(pause: &Pause) -> Pause {
    Pause {
        by: String::new(),
        reason: String::new(),
        ..pause.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::task::{PauseKind, Scope, UnixMs};

    /// A principal of each server with these settings, TOML: `['Order']`, `'read'`.
    fn principals(classes: &str, scopes: &str) -> [Principal; 2] {
        let settings = format!("name = 'shop'\nscopes = {scopes}\nclasses = {classes}");
        let text = format!(
            "[[http.clients]]\n{settings}\ntoken_sha256 = '{}'\n[[resp.users]]\n{settings}\npassword = '$argon2'",
            "0".repeat(64)
        );
        let config = Config::from_toml(&text).unwrap();
        let [client, user] = [&config.http.clients[0], &config.resp.users[0]];
        assert_eq!(client.scopes, user.scopes);
        assert_eq!(client.classes, user.classes);
        [Principal::clone(client), Principal::clone(user)]
    }

    #[test]
    fn a_scope_allows_only_itself_and_admin_allows_all() {
        for reader in principals("[]", "['read', 'work']") {
            assert!(reader.has(AccessScope::Read) && reader.has(AccessScope::Work));
            for scope in [
                AccessScope::Schedule,
                AccessScope::Operate,
                AccessScope::Admin,
            ] {
                assert_eq!(reader.require(scope), Err(Denied::Scope(scope)));
            }
        }
        for admin in principals("[]", "'admin'") {
            assert!(AccessScope::ALL.into_iter().all(|scope| admin.has(scope)));
        }
    }

    #[test]
    fn a_principal_of_some_classes_may_touch_no_others() {
        let key = |text| TaskKey::parse(text).unwrap();
        for shop in principals("['Order', 'Mail@send*']", "'schedule'") {
            assert!(shop.require_key(&key("Order@close@1")).is_ok());
            assert!(shop.require_key(&key("Mail@send@1")).is_ok());
            let denied = shop.require_key(&key("Mail@read@1")).unwrap_err();
            let text = "this caller may touch tasks of `Order`, `Mail@send*` only";
            assert_eq!(denied.to_string(), text);
            assert!(shop.require_key(&key("Orders@close@1")).is_err());
            assert!(shop.require_class(Some("Order")).is_ok());
            assert!(shop.require_class(Some("Mail")).is_err(), "not all of it");
            assert!(shop.require_class(None).is_err());
            assert_eq!(shop.require_unrestricted(), Err(Denied::AllClasses));
        }
        for all in principals("[]", "'read'") {
            assert!(all.require_class(None).is_ok() && all.require_unrestricted().is_ok());
        }
    }

    #[test]
    fn a_pause_of_other_classes_is_not_seen_and_one_of_more_classes_without_reason() {
        let seen = |classes: &str, scope: Scope| {
            let pause = Pause {
                kind: PauseKind::Pause,
                scope,
                since: UnixMs(0),
                due_before: None,
                until: None,
                by: "ops".to_owned(),
                reason: "repair".to_owned(),
            };
            let [client, _] = principals(classes, "'read'");
            let seen = client.visible_pause(&pause);
            seen.map(|pause| pause.by + &pause.reason)
        };
        let class = |name: &str| Scope::class(name).unwrap();
        let method = |name: &str| Scope::method("Mail", name).unwrap();
        let (all, none) = (Some("opsrepair".to_owned()), Some(String::new()));
        let some = "['Order', 'Mail@send*']";
        assert_eq!(seen("[]", class("Other")), all);
        assert_eq!(seen(some, class("Order")), all);
        assert_eq!(seen(some, method("sendNow")), all);
        assert_eq!(seen(some, class("Mail")), none);
        assert_eq!(seen(some, Scope::EVERYTHING), none);
        assert_eq!(seen(some, method("read")), None);
        assert_eq!(seen(some, class("Other")), None);
    }
}
