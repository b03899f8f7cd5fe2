//! `[[routes]]`: which program runs which task.

use std::time::Duration;

use regex::Regex;
use toml::Table;

use super::reader::{Problems, Reader, Span};
use super::{EXEC_ENV, ExecArg, ExecConfig, RouteConfig, TargetConfig};
use crate::task::{Backoff, RetryPolicy};

impl Reader {
    pub(super) fn routes(
        &mut self,
        retry: Option<&RetryPolicy>,
        p: &mut Problems,
    ) -> Vec<RouteConfig> {
        let tables: Vec<Table> = self.optional("routes", p).unwrap_or_default();
        let readers = tables.into_iter().enumerate().map(|(index, table)| Self {
            table,
            path: format!("routes[{index}]"),
        });
        readers
            .filter_map(|reader| reader.route(retry, p))
            .collect()
    }

    fn route(mut self, retry: Option<&RetryPolicy>, p: &mut Problems) -> Option<RouteConfig> {
        let pattern: Option<String> = self.take("match", p);
        let matches = pattern.and_then(|pattern| match Regex::new(&pattern) {
            Ok(regex) => Some(regex),
            Err(error) => {
                p.add(
                    &self.at("match"),
                    format!("is not a regular expression: {error}"),
                );
                None
            }
        });
        let limits = self.limits(p);
        let retry = match self.table.contains_key("retry") {
            true => self.section("retry", p).route_retry(retry, p).map(Some),
            false => Some(None),
        };
        let adopt = match self.table.contains_key("adopt") {
            true => self.take("adopt", p).map(Some),
            false => Some(None),
        };
        let target = self.target(p);
        self.done(p);
        Some(RouteConfig {
            matches: matches?,
            target: target?,
            limits,
            retry: retry?,
            adopt: adopt?,
        })
    }

    fn target(&mut self, p: &mut Problems) -> Option<TargetConfig> {
        let has = |key| self.table.contains_key(key);
        match (has("exec"), has("log")) {
            (true, false) => self.exec(p).map(TargetConfig::Exec),
            (false, true) => {
                self.section("log", p).done(p);
                Some(TargetConfig::Log)
            }
            (false, false) => {
                p.add(
                    &self.path,
                    "has no target, expected `exec = [..]` or `log = {}`".to_owned(),
                );
                None
            }
            (true, true) => {
                p.add(
                    &self.path,
                    "has two targets, expected one of `exec` and `log`".to_owned(),
                );
                None
            }
        }
    }

    /// `exec = ["php", "task.php", "{args}"]` and the keys beside it.
    fn exec(&mut self, p: &mut Problems) -> Option<ExecConfig> {
        let is_program = |argv: &Vec<String>| {
            argv.first()
                .is_some_and(|program| !program.is_empty() && !program.contains('{'))
        };
        let argv = self.checked(
            "exec",
            p,
            is_program,
            "a program and its arguments, the program without placeholder",
        );
        let allow_dash = self.optional("allow_dash", p).unwrap_or(false);
        let env = self
            .optional("env", p)
            .unwrap_or_else(|| EXEC_ENV.map(str::to_owned).to_vec());
        let mut argv = argv?.into_iter();
        let program = argv.next()?;
        match argv.map(|arg| ExecArg::parse(&arg)).collect() {
            Ok(args) => Some(ExecConfig {
                program,
                args,
                allow_dash,
                env,
            }),
            Err(problem) => {
                p.add(&self.at("exec"), problem);
                None
            }
        }
    }

    /// `retry = { max_attempts = 5, backoff = "exponential", base = "2s", max = "1h" }`; what is not
    /// said is taken from `[retry]`.
    fn route_retry(mut self, below: Option<&RetryPolicy>, p: &mut Problems) -> Option<RetryPolicy> {
        let below = below.cloned().unwrap_or_default();
        let max_attempts = self
            .optional("max_attempts", p)
            .unwrap_or(below.max_attempts);
        let jitter = self.optional("jitter", p).unwrap_or(below.jitter);
        let kind: Option<String> = self.optional("backoff", p);
        let backoff = match kind.as_deref() {
            None | Some("ladder") if self.table.contains_key("ladder") => {
                let rungs: Vec<Span> = self.checked(
                    "ladder",
                    p,
                    |rungs: &Vec<Span>| !rungs.is_empty(),
                    "at least one rung",
                )?;
                Some(Backoff::Ladder(
                    rungs.into_iter().map(|span| span.0).collect(),
                ))
            }
            None | Some("ladder") => Some(below.backoff),
            Some("fixed") => self
                .duration("delay", p, Duration::ZERO)
                .map(Backoff::Fixed),
            Some("exponential") => {
                let base = self.duration("base", p, Duration::from_millis(1));
                let max = self.duration("max", p, Duration::from_millis(1));
                base.zip(max)
                    .map(|(base, max)| Backoff::Exponential { base, max })
            }
            Some(other) => {
                p.add(
                    &self.at("backoff"),
                    format!("`{other}` is none of `ladder`, `exponential`, `fixed`"),
                );
                None
            }
        };
        if max_attempts == 0 {
            p.add(&self.at("max_attempts"), "expected at least 1".to_owned());
        }
        if !(0.0..=1.0).contains(&jitter) {
            p.add(&self.at("jitter"), "expected 0 to 1".to_owned());
        }
        self.done(p);
        Some(RetryPolicy {
            backoff: backoff?,
            max_attempts,
            jitter,
        })
    }
}
