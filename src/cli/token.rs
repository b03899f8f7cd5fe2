//! `lapsed token`: a random token for a client of the HTTP API, and its hash for the configuration.

use std::process::ExitCode;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64;
use clap::Args;
use lapsed::config::hash_token;
use lapsed_core::format::hex;
use serde_json::json;

use super::output::Output;

/// Beginning of every token, by which scanners for secrets find one.
const PREFIX: &str = "lapsed_";

#[derive(Args)]
pub struct Token {
    /// Name of the client, for the audit log
    #[arg(default_value = "ops", value_parser = name)]
    name: String,
    /// What it may do: read, schedule, work, operate, admin
    #[arg(long = "scope", value_name = "SCOPE", value_delimiter = ',', default_value = "read",
          value_parser = ["read", "schedule", "work", "operate", "admin"])]
    scopes: Vec<String>,
}

impl Token {
    /// Prints a token and its hash. Stores neither.
    pub fn run(self, output: Output) -> anyhow::Result<ExitCode> {
        let token = format!("{PREFIX}{}", BASE64.encode(rand::random::<[u8; 32]>()));
        let hash = hex(hash_token(&token));
        let Self { name, scopes } = self;
        let value = json!({ "token": token, "name": name, "token_sha256": hash, "scopes": scopes });
        let text = format!(
            "# the token, which is shown only now: {token}\n\
             [[http.clients]]\n\
             name = \"{name}\"\n\
             token_sha256 = \"{hash}\"\n\
             scopes = {scopes:?}"
        );
        output.print(&value, text)?;
        Ok(ExitCode::SUCCESS)
    }
}

fn name(text: &str) -> Result<String, String> {
    let fits = !text.is_empty()
        && text.len() <= 128
        && text
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && !b"\"\\".contains(&byte));
    match fits {
        true => Ok(text.to_owned()),
        false => Err("expected 1 to 128 visible ASCII characters".to_owned()),
    }
}
