//! `lapsed hash-password`: the hash of a password, for the configuration.

use std::io::Read;
use std::process::ExitCode;

use anyhow::{Context, bail};

use super::log::stderr_line;

/// Longest password, in bytes.
const PASSWORD_BYTES_MAX: u64 = 1024;

/// A shorter password can be guessed.
const PASSWORD_BYTES_LONG: usize = 16;

/// Reads a password from stdin, without its last line break, and prints its hash.
pub fn run() -> anyhow::Result<ExitCode> {
    let mut password = Vec::new();
    std::io::stdin()
        .take(PASSWORD_BYTES_MAX + 2)
        .read_to_end(&mut password)
        .context("read the password from stdin")?;
    for line_break in [b'\n', b'\r'] {
        if password.last() == Some(&line_break) {
            password.pop();
        }
    }
    if password.is_empty() || password.len() as u64 > PASSWORD_BYTES_MAX {
        bail!("expected a password of 1 to {PASSWORD_BYTES_MAX} bytes on stdin");
    }
    if password.len() < PASSWORD_BYTES_LONG {
        stderr_line!(
            "warning: a password of fewer than {PASSWORD_BYTES_LONG} bytes can be guessed; `lapsed token` prints a long one"
        );
    }
    let hash = lapsed_server::resp::hash_password(&password).map_err(anyhow::Error::msg)?;
    super::output::say(&hash)?;
    Ok(ExitCode::SUCCESS)
}
