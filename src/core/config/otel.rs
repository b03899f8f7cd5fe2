//! Export of traces and metrics: `[otel]`.

use url::Url;

use super::reader::{Problems, Reader};
use super::rules::section;

section! {
    /// `[otel]`
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct OtelConfig {
        /// Base URL of the collector, to which `/v1/traces` and `/v1/metrics` are appended; `None`: the environment decides.
        pub endpoint: Option<String> = endpoint,
    }
}

fn endpoint(section: &mut Reader, key: &str, p: &mut Problems) -> Option<Option<String>> {
    let holds = |url: &String| url.is_empty() || is_base_url(url);
    let expected = "http://host:4318 or https://, without a user or a query";
    let url = section.checked(key, p, holds, expected)?;
    Some(Some(url).filter(|url| !url.is_empty()))
}

fn is_base_url(text: &str) -> bool {
    Url::parse(text).is_ok_and(|url| {
        matches!(url.scheme(), "http" | "https")
            && url.has_host()
            && url.username().is_empty()
            && url.password().is_none()
            && url.query().is_none()
            && url.fragment().is_none()
    })
}

#[cfg(test)]
mod tests {
    use crate::config::Config;

    #[test]
    fn an_endpoint_is_a_base_url() {
        let read = |url: &str| Config::from_toml(&format!("otel.endpoint = '{url}'"));
        assert_eq!(read("").unwrap().otel.endpoint, None);
        let url = "https://collector.example/otlp";
        assert_eq!(read(url).unwrap().otel.endpoint.as_deref(), Some(url));
        for wrong in [
            "http://user:secret@a:4318",
            "collector:4318",
            "grpc://a:4317",
            "http://",
            "http://a:4318/?x",
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
