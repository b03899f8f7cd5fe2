//! The sender of a request.

use axum::extract::FromRequestParts;
use axum::http::request::Parts;

use crate::http::problem::Problem;
use crate::http::site::Site;
use crate::task::TaskKey;

/// What a caller may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Look at tasks and figures.
    Read,
    /// Create, move and cancel single tasks.
    Schedule,
    /// Take tasks of pull queues and settle them.
    Work,
    /// Run now, redrive, discard, pause, and change many tasks at once.
    Operate,
    /// Everything.
    Admin,
}

impl Scope {
    /// The name in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Schedule => "schedule",
            Self::Work => "work",
            Self::Operate => "operate",
            Self::Admin => "admin",
        }
    }
}

/// The sender of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    name: String,
    address: String,
    scopes: Vec<Scope>,
}

impl Caller {
    /// A caller that may do everything.
    pub fn everything() -> Self {
        Self {
            name: "anonymous".to_owned(),
            address: String::new(),
            scopes: vec![Scope::Admin],
        }
    }

    /// Its name, for the audit log.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The address from which it is connected, for the audit log; empty if that is not known.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// True if the caller has a scope.
    pub fn has(&self, scope: Scope) -> bool {
        self.scopes.contains(&scope) || self.scopes.contains(&Scope::Admin)
    }

    /// Refuses a caller without a scope.
    ///
    /// # Errors
    /// The caller lacks it.
    pub fn require(&self, scope: Scope) -> Result<(), Problem> {
        match self.has(scope) {
            true => Ok(()),
            false => Err(Problem::forbidden(format!(
                "expected a token with the scope `{}`",
                scope.as_str()
            ))),
        }
    }

    /// Refuses a caller that may not touch the class of this task.
    ///
    /// # Errors
    /// The caller may touch other classes only.
    pub fn require_key(&self, key: &TaskKey) -> Result<(), Problem> {
        self.require_class(Some(key.class()))
    }

    /// Refuses a caller that may not touch every task of this class; `None` is every class.
    ///
    /// # Errors
    /// The caller may touch other classes only.
    pub fn require_class(&self, _: Option<&str>) -> Result<(), Problem> {
        Ok(())
    }
}

impl FromRequestParts<Site> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, site: &Site) -> Result<Self, Problem> {
        let caller = site.access.caller(&parts.headers);
        caller.ok_or_else(Problem::unauthenticated)
    }
}
