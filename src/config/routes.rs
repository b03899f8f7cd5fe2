//! `[[routes]]`: which program runs which task.

use std::time::Duration;

use regex::Regex;
use toml::Table;

use super::reader::{Problems, Reader};
use super::retry::RetryKeys;
use super::{EXEC_ENV, ExecArg, ExecConfig, RouteConfig, TargetConfig};

impl Reader {
    pub(super) fn routes(
        &mut self,
        retry: Option<&RetryKeys>,
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

    fn route(mut self, retry: Option<&RetryKeys>, p: &mut Problems) -> Option<RouteConfig> {
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
        let timeout = self
            .table
            .contains_key("timeout")
            .then(|| self.duration("timeout", p, Duration::from_millis(1)));
        let retry = match self.table.contains_key("retry") {
            true => {
                let keys = self.section("retry", p).route_retry(retry, p);
                keys.map(|keys| Some(keys.policy()))
            }
            false => Some(None),
        };
        let adopt = match self.table.contains_key("adopt") {
            true => self.take("adopt", p).map(Some),
            false => Some(None),
        };
        let expire_after = self
            .table
            .contains_key("expire_after")
            .then(|| self.duration("expire_after", p, Duration::from_millis(1)));
        let target = self.target(p);
        self.done(p);
        Some(RouteConfig {
            matches: matches?,
            target: target?,
            timeout: timeout.flatten(),
            retry: retry?,
            adopt: adopt?,
            expire_after: expire_after.flatten(),
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
        let keep_result = self.optional("keep_result", p).unwrap_or(false);
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
                keep_result,
                env,
            }),
            Err(problem) => {
                p.add(&self.at("exec"), problem);
                None
            }
        }
    }
}
