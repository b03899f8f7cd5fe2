//! Where telemetry is sent: `[otel]`, and the standard environment variables.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use lapsed::ConfigError;
use lapsed::config::{OtelConfig, Problem};
use opentelemetry::{Key, KeyValue};
use opentelemetry_sdk::Resource;
use percent_encoding::percent_decode_str;

/// How long one request may take, if `OTEL_EXPORTER_OTLP_TIMEOUT` does not say otherwise.
const TIMEOUT: Duration = Duration::from_secs(10);

/// How often metrics are sent, if `OTEL_METRIC_EXPORT_INTERVAL` does not say otherwise.
const METRICS_EVERY: Duration = Duration::from_secs(60);

/// What is sent where. The exporter of spans reads further variables itself, such as `OTEL_BSP_MAX_QUEUE_SIZE`.
#[derive(Debug, PartialEq, Eq)]
pub struct Settings {
    pub traces: Option<Endpoint>,
    pub metrics: Option<Endpoint>,
    pub metrics_every: Duration,
}

/// Where one kind of telemetry is sent.
#[derive(Debug, PartialEq, Eq)]
pub struct Endpoint {
    pub url: String,
    pub timeout: Duration,
    /// Sent with each request, such as an API key.
    pub headers: HeaderMap,
}

impl Settings {
    /// Reads the settings. `None` if nothing is to be sent.
    ///
    /// # Errors
    /// [`ConfigError`] names the variable that is invalid.
    pub fn read(config: &OtelConfig) -> Result<Option<Self>, ConfigError> {
        Self::with(config, &|name| std::env::var(name).ok())
    }

    fn with(
        config: &OtelConfig,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>, ConfigError> {
        let env = Environment(env);
        if env.get("OTEL_SDK_DISABLED").as_deref() == Some("true") {
            return Ok(None);
        }
        let traces = env.endpoint(config, "traces")?;
        let metrics = env.endpoint(config, "metrics")?;
        if traces.is_none() && metrics.is_none() {
            return Ok(None);
        }
        let every = env.milliseconds("OTEL_METRIC_EXPORT_INTERVAL")?;
        Ok(Some(Self {
            traces,
            metrics,
            metrics_every: every.unwrap_or(METRICS_EVERY),
        }))
    }
}

/// The environment variables of this process, or those of a test.
struct Environment<'a>(&'a dyn Fn(&str) -> Option<String>);

impl Environment<'_> {
    /// A variable. An empty one counts as unset, as OpenTelemetry has it.
    fn get(&self, name: &str) -> Option<String> {
        (self.0)(name).filter(|value| !value.is_empty())
    }

    /// The variable of a signal, else the one of all signals, with its name.
    fn of_signal(&self, signal: &str, name: &str) -> Option<(String, String)> {
        let signal = signal.to_uppercase();
        let names = [
            format!("OTEL_EXPORTER_OTLP_{signal}_{name}"),
            format!("OTEL_EXPORTER_OTLP_{name}"),
        ];
        let mut found = names.into_iter().filter_map(|name| {
            let value = self.get(&name)?;
            Some((name, value))
        });
        found.next()
    }

    /// Where a signal is sent; `None` if it is switched off, or no endpoint is named.
    fn endpoint(&self, config: &OtelConfig, signal: &str) -> Result<Option<Endpoint>, ConfigError> {
        let exporter = format!("OTEL_{}_EXPORTER", signal.to_uppercase());
        match self.get(&exporter).as_deref() {
            Some("none") => return Ok(None),
            Some("otlp") | None => {}
            Some(other) => {
                return Err(invalid(&exporter, other, "`otlp` or `none`"));
            }
        }
        let below = |base: &str| format!("{}/v1/{signal}", base.trim_end_matches('/'));
        let named = format!("OTEL_EXPORTER_OTLP_{}_ENDPOINT", signal.to_uppercase());
        let (name, url) = match (&config.endpoint, self.of_signal(signal, "ENDPOINT")) {
            (Some(base), _) => ("otel.endpoint".to_owned(), below(base)),
            // The variable of a signal is the whole URL, that of all signals is a base.
            (None, Some((name, url))) if name == named => (name, url),
            (None, Some((name, base))) => (name, below(&base)),
            (None, None) => return Ok(None),
        };
        let is_web = |url: &Uri| matches!(url.scheme_str(), Some("http" | "https"));
        if !url.parse().as_ref().is_ok_and(is_web) {
            return Err(invalid(&name, &url, "http://host:4318 or https://"));
        }
        if url.parse().is_ok_and(|url: Uri| has_user(&url)) {
            let message = "has a user: send an `Authorization` by `OTEL_EXPORTER_OTLP_HEADERS`";
            return Err(problem(&name, message.to_owned()));
        }
        if let Some((name, protocol)) = self.of_signal(signal, "PROTOCOL")
            && protocol != "http/protobuf"
        {
            return Err(invalid(&name, &protocol, "`http/protobuf`"));
        }
        let timeout = self.of_signal(signal, "TIMEOUT");
        let timeout = timeout.map(|(name, ms)| milliseconds(&name, &ms));
        Ok(Some(Endpoint {
            url,
            timeout: timeout.transpose()?.unwrap_or(TIMEOUT),
            headers: match self.of_signal(signal, "HEADERS") {
                Some((name, list)) => headers(&name, &list)?,
                None => HeaderMap::new(),
            },
        }))
    }

    fn milliseconds(&self, name: &str) -> Result<Option<Duration>, ConfigError> {
        let value = self.get(name);
        value.map(|ms| milliseconds(name, &ms)).transpose()
    }
}

fn has_user(url: &Uri) -> bool {
    url.authority()
        .is_some_and(|authority| authority.as_str().contains('@'))
}

fn milliseconds(name: &str, text: &str) -> Result<Duration, ConfigError> {
    let ms = text.trim().parse().ok().filter(|ms| *ms > 0);
    let ms = ms.ok_or_else(|| invalid(name, text, "a number of milliseconds"))?;
    Ok(Duration::from_millis(ms))
}

/// Reads `name=value,name=value`, where values are percent-encoded. A value may be a secret: errors do not show it.
fn headers(name: &str, list: &str) -> Result<HeaderMap, ConfigError> {
    let entry = |entry: &str| {
        let (key, value) = entry.split_once('=')?;
        let value = percent_decode_str(value.trim()).decode_utf8().ok()?;
        let mut value = HeaderValue::from_str(&value).ok()?;
        value.set_sensitive(true);
        Some((HeaderName::from_bytes(key.trim().as_bytes()).ok()?, value))
    };
    let entries = list.split(',').filter(|text| !text.trim().is_empty());
    let headers: Option<HeaderMap> = entries.map(entry).collect();
    headers.ok_or_else(|| {
        let expected = "expected `name=value`, separated by commas, with percent-encoded values";
        problem(name, expected.to_owned())
    })
}

fn invalid(name: &str, found: &str, expected: &str) -> ConfigError {
    problem(name, format!("is `{found}`, expected {expected}"))
}

fn problem(name: &str, message: String) -> ConfigError {
    let path = name.to_owned();
    ConfigError {
        problems: vec![Problem { path, message }],
    }
}

/// What the telemetry is about: this daemon. `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES` come first.
pub fn resource() -> Resource {
    let detected = Resource::builder().build();
    let host = rustix::system::uname();
    let host = host.nodename().to_string_lossy();
    let named = detected.get(&Key::new("service.name"));
    let is_named = named.is_some_and(|name| !name.as_str().starts_with("unknown_service"));
    let mut own = vec![
        KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
        KeyValue::new(
            "service.instance.id",
            format!("{host}:{}", std::process::id()),
        ),
    ];
    own.retain(|attribute| detected.get(&attribute.key).is_none());
    if !is_named {
        own.push(KeyValue::new("service.name", "lapsed"));
    }
    Resource::builder().with_attributes(own).build()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(endpoint: Option<&str>, env: &[(&str, &str)]) -> Result<Option<Settings>, String> {
        let config = OtelConfig {
            endpoint: endpoint.map(str::to_owned),
        };
        let get = |name: &str| {
            let mut found = env.iter().filter(|(set, _)| *set == name);
            found.next().map(|(_, value)| (*value).to_owned())
        };
        Settings::with(&config, &get).map_err(|error| error.to_string())
    }

    fn urls(endpoint: Option<&str>, env: &[(&str, &str)]) -> [Option<String>; 2] {
        let settings = read(endpoint, env).unwrap().unwrap();
        [settings.traces, settings.metrics].map(|one| one.map(|one| one.url))
    }

    const BASE: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://env:4318/");

    #[test]
    fn nothing_is_sent_unless_an_endpoint_is_named() {
        assert_eq!(read(None, &[]), Ok(None));
        assert_eq!(read(None, &[("OTEL_EXPORTER_OTLP_ENDPOINT", "")]), Ok(None));
        let off = ("OTEL_SDK_DISABLED", "true");
        assert_eq!(read(Some("http://file:4318"), &[BASE, off]), Ok(None));
        let no_traces = ("OTEL_TRACES_EXPORTER", "none");
        let metrics = Some("http://env:4318/v1/metrics".to_owned());
        assert_eq!(urls(None, &[BASE, no_traces]), [None, metrics]);
    }

    #[test]
    fn the_configuration_comes_before_the_environment_and_a_signal_before_all() {
        let all = |host: &str| ["traces", "metrics"].map(|s| Some(format!("http://{host}/v1/{s}")));
        assert_eq!(urls(None, &[BASE]), all("env:4318"));
        assert_eq!(urls(Some("http://file:4318"), &[BASE]), all("file:4318"));
        let traces = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://t:1/x");
        let [_, metrics] = all("env:4318");
        assert_eq!(
            urls(None, &[BASE, traces]),
            [Some("http://t:1/x".to_owned()), metrics]
        );
    }

    #[test]
    fn times_and_headers_come_from_the_environment() {
        let settings = read(
            None,
            &[
                BASE,
                ("OTEL_EXPORTER_OTLP_TIMEOUT", "1500"),
                ("OTEL_METRIC_EXPORT_INTERVAL", "250"),
                ("OTEL_EXPORTER_OTLP_HEADERS", "api-key=a%20b, x-scope = c"),
            ],
        );
        let settings = settings.unwrap().unwrap();
        let metrics = settings.metrics.unwrap();
        assert_eq!(metrics.timeout, Duration::from_millis(1500));
        assert_eq!(settings.metrics_every, Duration::from_millis(250));
        assert_eq!(metrics.headers["api-key"], "a b");
        assert_eq!(metrics.headers["x-scope"], "c");
    }

    #[test]
    fn an_invalid_variable_is_named_and_a_secret_is_not_shown() {
        for (name, value) in [
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "10s"),
            ("OTEL_METRIC_EXPORT_INTERVAL", "0"),
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "collector:4317"),
            ("OTEL_METRICS_EXPORTER", "prometheus"),
        ] {
            let error = read(None, &[BASE, (name, value)]).unwrap_err();
            assert!(error.contains(name) && error.contains(value), "{error}");
        }
        for (name, value) in [
            ("OTEL_EXPORTER_OTLP_HEADERS", "a b=secret"),
            (
                "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
                "http://u:secret@a/v1/traces",
            ),
        ] {
            let error = read(None, &[BASE, (name, value)]).unwrap_err();
            assert!(error.contains(name) && !error.contains("secret"), "{error}");
        }
    }
}
