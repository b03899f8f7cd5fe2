//! `[access]`, and what clients of HTTP and users of RESP have in common.

use std::net::SocketAddr;

use super::reader::{Problems, Reader};
use crate::access::{AccessScope, Masks};
use crate::task::ClassGlob;

/// Reads `[access]`. The keys of the same names in `[http]`, where they were first, add to them.
pub(super) fn masks(mut section: Reader, http: &mut Reader, p: &mut Problems) -> Option<Masks> {
    let mut both = |key: &str| {
        let (own, of_http) = (globs(&mut section, key, p), globs(http, key, p));
        Some([own?, of_http?].concat())
    };
    let (payloads, arguments) = (both("mask_payloads"), both("mask_arguments"));
    section.done(p);
    Some(Masks::new(payloads?, arguments?))
}

/// The address on which a server listens, if it is reached from other machines.
pub(super) fn exposed(listen: Option<Option<SocketAddr>>) -> Option<SocketAddr> {
    let address = listen.flatten()?;
    (!address.ip().is_loopback()).then_some(address)
}

/// Reads the name of a principal.
pub(super) fn name(section: &mut Reader, p: &mut Problems) -> Option<String> {
    let is_name = |name: &String| {
        !name.is_empty()
            && name.len() <= 128
            && !name.contains(|c: char| c.is_whitespace() || c.is_control())
    };
    section.shown("name", p, is_name, "1 to 128 bytes without white space")
}

/// Reads scopes; none if there is no such key.
pub(super) fn scopes(section: &mut Reader, p: &mut Problems) -> Option<Vec<AccessScope>> {
    let names = section.texts("scopes", p)?;
    let scopes = names.iter().map(|name| {
        let mut all = AccessScope::ALL.into_iter();
        let found = all.find(|scope| scope.as_str() == name);
        found.ok_or_else(|| format!("`{name}` is none of {}", scope_names()))
    });
    section.parsed("scopes", scopes.collect(), p)
}

/// The names of all scopes, for errors.
pub(super) fn scope_names() -> String {
    let names = AccessScope::ALL.map(|scope| format!("`{}`", scope.as_str()));
    names.join(", ")
}

/// Reads globs of classes.
pub(super) fn globs(section: &mut Reader, key: &str, p: &mut Problems) -> Option<Vec<ClassGlob>> {
    let texts = section.texts(key, p)?;
    let globs = texts.iter().map(|text| ClassGlob::parse(text));
    section.parsed(key, globs.collect(), p)
}
