//! The sender of a request.

use std::ops::Deref;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;

use crate::http::problem::Problem;
use lapsed_core::access::{Denied, Masks, Principal};

/// The sender of a request: a [`Principal`], and how it is connected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    principal: Arc<Principal>,
    address: String,
    /// True if a browser is logged in by a cookie.
    has_session: bool,
}

/// What the access gate found out about the sender of a request.
#[derive(Clone)]
pub(super) struct Identified(pub Result<Caller, Problem>);

impl Deref for Caller {
    type Target = Principal;

    fn deref(&self) -> &Principal {
        &self.principal
    }
}

impl Caller {
    /// A caller that may do everything.
    pub fn anonymous(masks: Masks) -> Self {
        Self::of(&Arc::new(Principal::anonymous("anonymous", masks)))
    }

    /// A configured client.
    pub(super) fn of(client: &Arc<Principal>) -> Self {
        Self {
            principal: Arc::clone(client),
            address: String::new(),
            has_session: false,
        }
    }

    /// Names a user whom a proxy has authenticated.
    pub(super) fn named(mut self, user: &str) -> Self {
        let principal = Principal {
            name: user.to_owned(),
            ..Principal::clone(&self.principal)
        };
        self.principal = Arc::new(principal);
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

    /// The address from which it is connected, for the audit log; empty if that is not known.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// True if it is logged in by a cookie, so that it can log out.
    pub fn has_session(&self) -> bool {
        self.has_session
    }
}

impl From<Denied> for Problem {
    fn from(denied: Denied) -> Self {
        Self::forbidden(denied.to_string())
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
