//! `[http]`: the HTTP API and the dashboard, and who may use them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;

use super::access::{exposed, globs, name, scope_names, scopes};
use super::http_proxy::ProxyConfig;
use super::reader::{Problems, Reader};
use super::rules::{address, any, at_least, no_key, section};
use crate::access::{AccessScope, Masks, Principal, Proof, hash_token};
use crate::format::from_hex;

section! {
    /// `[http]`
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct HttpConfig(masks: &Masks) {
        /// Address to listen on; `None`: HTTP is off.
        pub listen: Option<SocketAddr> = address("127.0.0.1:8787"),
        /// The proxies in front of the daemon.
        pub proxy: ProxyConfig = |section, key, p| ProxyConfig::read(section.section(key, p), p),
        /// Who may do what; none: every caller may do everything, on a loopback address only. `http.tokens` are clients, too.
        pub clients: Vec<Arc<Principal>> = clients(exposed(listen), proxy.as_ref(), masks),
        /// Path in front of every address, such as `/lapsed`; empty: none.
        pub base_path: String = base_path,
        /// Names by which browsers reach the daemon, besides `localhost` and addresses.
        pub hosts: Vec<String> = hosts,
        /// Refuses every change.
        pub read_only: bool = any,
        /// Whether the cookie of a session is sent over HTTPS only.
        pub secure_cookies: SecureCookies = any,
        /// How long a browser stays logged in.
        pub session_length: Duration = at_least(Duration::from_secs(60)),
        /// How long entries of the audit log are kept.
        pub audit_kept: Duration = at_least(Duration::from_secs(3_600)),
        /// `[access]`: what is not shown.
        pub masks: Masks = no_key(masks.clone()),
    }
}

/// Whether the cookie of a session is sent over HTTPS only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SecureCookies {
    /// If the request came over HTTPS, as a trusted proxy says. Without HTTPS, people log in on this machine only.
    Auto,
    /// Always: a proxy speaks HTTPS, and does not say so.
    Always,
    /// Never: people log in without HTTPS, and their tokens can be read on the way.
    Never,
}

/// Fewest characters of a token that cannot be guessed.
pub const TOKEN_CHARS_MIN: usize = 16;

/// `tokens` and `[[http.clients]]`
fn clients(
    exposed: Option<SocketAddr>,
    proxy: Option<&ProxyConfig>,
    masks: &Masks,
) -> impl FnOnce(&mut Reader, &str, &mut Problems) -> Option<Vec<Arc<Principal>>> {
    move |section, key, p| {
        let of_tokens = tokens(section, exposed, p);
        let named = section.named_entries(key, p, client, |client| &client.name);
        let mut clients = [of_tokens?, named].concat();
        for client in &mut clients {
            client.masks = masks.clone();
        }
        refuse_same_tokens(&clients, &section.at(key), p);
        if let Some(proxy) = proxy {
            check_users(&clients, proxy, section, p);
        }
        if let (Some(address), true) = (exposed, clients.is_empty()) {
            let expected = format!(
                "expected at least one, or `[[http.clients]]`, because `{address}` is not a loopback address"
            );
            p.add(&section.at("tokens"), expected);
        }
        Some(clients.into_iter().map(Arc::new).collect())
    }
}

/// `http.tokens`: clients that may do everything. On an address that others reach, no token is short.
fn tokens(
    section: &mut Reader,
    exposed: Option<SocketAddr>,
    p: &mut Problems,
) -> Option<Vec<Principal>> {
    let tokens: Vec<String> = section.take("tokens", p)?;
    let all_sendable = tokens
        .iter()
        .all(|token| !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic()));
    if !all_sendable {
        // What was found is a secret.
        let expected = "expected tokens of visible ASCII characters, such as `lapsed token` prints";
        p.add(&section.at("tokens"), expected.to_owned());
        return None;
    }
    if let Some(address) = exposed
        && tokens.iter().any(|token| token.len() < TOKEN_CHARS_MIN)
    {
        let expected = format!(
            "expected at least {TOKEN_CHARS_MIN} characters in each, because `{address}` is not a loopback address, found fewer"
        );
        p.add(&section.at("tokens"), expected);
    }
    let clients = tokens.iter().enumerate().map(|(index, token)| Principal {
        name: match index {
            0 => "token".to_owned(),
            _ => format!("token-{}", index + 1),
        },
        proof: Proof::Token(hash_token(token)),
        scopes: vec![AccessScope::Admin],
        classes: Vec::new(),
        masks: Masks::default(),
    });
    Some(clients.collect())
}

/// `[[http.clients]]`
fn client(mut section: Reader, p: &mut Problems) -> Option<Principal> {
    let name = name(&mut section, p);
    let hash = section.text_or_file("token_sha256", p);
    let user: Option<String> = section.optional("user", p);
    let proof = match (hash?, user) {
        (Some(hash), None) => {
            // What was found may be a token.
            let hash = from_hex(hash.as_bytes()).map(Proof::Token).ok_or_else(|| {
                let found = hash.chars().count();
                format!("expected the 64 hexadecimal digits that `lapsed token` prints, found {found} characters")
            });
            section.parsed("token_sha256", hash, p)
        }
        (None, Some(user)) if !user.is_empty() => Some(Proof::ProxyUser(user)),
        _ => {
            let expected = "expected one of `token_sha256`, `token_sha256_file` and `user`";
            p.add(&section.path, expected.to_owned());
            None
        }
    };
    let scopes = scopes(&mut section, p);
    if scopes.as_ref().is_some_and(Vec::is_empty) {
        let expected = format!("expected some of {}", scope_names());
        p.add(&section.at("scopes"), expected);
    }
    let classes = globs(&mut section, "classes", p);
    section.done(p);
    Some(Principal {
        name: name?,
        proof: proof?,
        scopes: scopes?,
        classes: classes?,
        masks: Masks::default(),
    })
}

fn base_path(section: &mut Reader, key: &str, p: &mut Problems) -> Option<String> {
    let expected = "\"\" or a path of letters, digits, `-`, `_`, `.` and `/` that begins with `/` and does not end with it, such as \"/lapsed\"";
    let is_path = |path: &String| {
        path.is_empty()
            || path.starts_with('/')
                && path[1..].split('/').all(|part| {
                    !part.is_empty()
                        && !matches!(part, "." | "..")
                        && part
                            .bytes()
                            .all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
                })
    };
    section.shown(key, p, is_path, expected)
}

fn hosts(section: &mut Reader, key: &str, p: &mut Problems) -> Option<Vec<String>> {
    let names = section.texts(key, p)?;
    let names = names.into_iter().map(|name| {
        let is_name = !name.is_empty()
            && name
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
        match is_name {
            true => Ok(name.to_ascii_lowercase()),
            false => Err(format!(
                "`{name}` is not the name of a host, expected such as `lapsed.example.com`, without a port"
            )),
        }
    });
    section.parsed(key, names.collect(), p)
}

/// Refuses two clients with one token: only one of them would ever be found.
fn refuse_same_tokens(clients: &[Principal], path: &str, p: &mut Problems) {
    for (index, client) in clients.iter().enumerate() {
        let same = clients[..index].iter().find(|other| {
            client.token_hash().is_some() && other.token_hash() == client.token_hash()
        });
        if let Some(other) = same {
            let message = format!("`{}` and `{}` have the same token", other.name, client.name);
            p.add(path, message);
        }
    }
}

fn check_users(clients: &[Principal], proxy: &ProxyConfig, section: &Reader, p: &mut Problems) {
    let user = clients
        .iter()
        .find(|client| matches!(client.proof, Proof::ProxyUser(_)));
    match (user, &proxy.user_header) {
        (Some(client), None) => p.add(
            &section.at("proxy.user_header"),
            format!(
                "expected a header, because the client `{}` is a `user`",
                client.name
            ),
        ),
        (None, Some(_)) => p.add(
            &section.at("clients"),
            "expected an entry with `user`, because `http.proxy.user_header` is set".to_owned(),
        ),
        _ => {}
    }
}
