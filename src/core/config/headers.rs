//! Custom request headers of webhooks: `headers = { name = "value" }`.

use http::header::{HeaderMap, HeaderName, HeaderValue};
use toml::{Table, Value};

use super::reader::{Problems, Reader, read_file};
use crate::task::Traceparent;

/// `headers = { name = "value", other = { file = "path" } }`
pub(super) fn headers(section: &mut Reader, p: &mut Problems) -> Option<HeaderMap> {
    let Reader { table, path, .. } = section.section("headers", p);
    let mut headers = HeaderMap::new();
    let mut sound = true;
    for (name, value) in table {
        match header(&name, value) {
            Ok((name, value)) => _ = headers.append(name, value),
            Err(problem) => {
                sound = false;
                p.add(&format!("{path}.{name}"), problem);
            }
        }
    }
    sound.then_some(headers)
}

fn header(name: &str, value: Value) -> Result<(HeaderName, HeaderValue), String> {
    let name = HeaderName::from_bytes(name.as_bytes())
        .map_err(|_| "is not the name of a header".to_owned())?;
    if is_ours(name.as_str()) {
        return Err("is set by lapsed or by HTTP itself, expected another header".to_owned());
    }
    let text = match value {
        Value::String(text) => text,
        Value::Table(table) => read_file(file_of(&table)?)?,
        _ => return Err("expected a text, or { file = \"path\" }".to_owned()),
    };
    let mut value = HeaderValue::from_str(&text)
        .map_err(|_| "expected visible characters of ASCII".to_owned())?;
    value.set_sensitive(true);
    Ok((name, value))
}

fn file_of(table: &Table) -> Result<&str, String> {
    let file = table.get("file").and_then(Value::as_str);
    file.filter(|_| table.len() == 1)
        .ok_or_else(|| "expected a text, or { file = \"path\" }".to_owned())
}

/// Whether a header is set by lapsed or belongs to the connection.
fn is_ours(name: &str) -> bool {
    const OURS: [&str; 16] = [
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "expect",
        "host",
        "keep-alive",
        "proxy-authorization",
        "proxy-connection",
        "te",
        Traceparent::HEADER,
        "trailer",
        "transfer-encoding",
        "upgrade",
        "user-agent",
        "http2-settings",
    ];
    OURS.contains(&name) || name.starts_with("webhook-") || name.starts_with("lapsed-")
}
