//! A build without the feature `otel`: it exports nothing, and says so if it is asked to.

use std::sync::Arc;

use lapsed::ConfigError;
use lapsed::config::{OtelConfig, Problem};
use lapsed::engine::Metrics;
use lapsed::trace::Tracer;

/// There is no export.
pub enum Export {}

impl Export {
    /// Refuses a configuration with a collector. The variable of the environment may be meant for other programs.
    ///
    /// # Errors
    /// The configuration names a collector.
    pub fn start(config: &OtelConfig, _: &Arc<Metrics>) -> Result<Option<Self>, ConfigError> {
        const NEEDS: &str = "needs a build with the feature `otel`";
        const VARIABLE: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
        if config.endpoint.is_some() {
            let (path, message) = ("otel.endpoint".to_owned(), NEEDS.to_owned());
            let problems = vec![Problem { path, message }];
            return Err(ConfigError { problems });
        }
        if std::env::var_os(VARIABLE).is_some_and(|url| !url.is_empty()) {
            tracing::warn!("`{VARIABLE}` is set, but sending telemetry {NEEDS}");
        }
        Ok(None)
    }

    /// There is no recorder of spans.
    pub fn tracer(&self) -> Option<Arc<dyn Tracer>> {
        match *self {}
    }

    /// There is nothing to stop.
    pub async fn stop(self) {
        match self {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_without_opentelemetry_refuses_to_send_any() {
        let config = lapsed::Config::from_toml("otel.endpoint = 'http://127.0.0.1:4318'").unwrap();
        let error = Export::start(&config.otel, &Arc::default()).err().unwrap();
        let expected = "`otel.endpoint`: needs a build with the feature `otel`";
        assert!(error.to_string().contains(expected), "{error}");
    }
}
