//! Checks of the programs that routes start: a program or a script that is not there fails each run.

use std::path::Path;

use lapsed::Config;
use lapsed::config::{ExecArg, ExecConfig, TargetConfig};
use lapsed::diagnosis::Finding;

const PROGRAMS: &str = "routes.programs";

/// Arguments that end like this are scripts. Relative ones are looked for in the route's `cwd`, or in the directory of this
/// process.
const SCRIPTS: [&str; 6] = [".php", ".py", ".js", ".mjs", ".rb", ".sh"];

/// The finding, if a route starts a program.
pub(super) fn examine(config: &Config) -> Option<Finding> {
    let mut routes = config.routes.iter();
    if !routes.any(|route| matches!(route.target, TargetConfig::Exec(_))) {
        return None;
    }
    let missing = missing_programs(config);
    Some(match missing.is_empty() {
        true => Finding::ok(PROGRAMS, "the programs of the routes are there"),
        false => Finding::warning(PROGRAMS, missing.join("; ")).remedy(
            "write the whole path of programs and scripts, or set the route's `cwd`: the daemon may run in another directory, and with another PATH",
        ),
    })
}

/// What routes start and is not found by this process, in sentences without a full stop. A daemon may run in another
/// directory, and with another `PATH`.
pub fn missing_programs(config: &Config) -> Vec<String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories: Vec<_> = std::env::split_paths(&path).collect();
    let is_there = |program: &str, cwd: &Path| match program.contains('/') {
        true => cwd.join(program).exists(),
        false => directories
            .iter()
            .any(|place| place.join(program).is_file()),
    };
    let mut missing = Vec::new();
    for (number, route) in config.routes.iter().enumerate() {
        let TargetConfig::Exec(exec) = &route.target else {
            continue;
        };
        let ExecConfig { program, args, .. } = exec;
        let place = format!("`routes[{number}]` (`{}`)", route.matches);
        let cwd = exec.cwd.as_deref().unwrap_or(Path::new(""));
        if exec.cwd.is_some() && !cwd.is_dir() {
            missing.push(format!(
                "{place} starts programs in `{}`, which is no directory",
                cwd.display()
            ));
            continue;
        }
        if !is_there(program, cwd) {
            let where_not = match program.contains('/') {
                true => "does not exist",
                false => "is in no directory of PATH",
            };
            missing.push(format!("{place} starts `{program}`, which {where_not}"));
        }
        let scripts = args.iter().filter_map(|arg| match arg {
            ExecArg::Text(text) if is_script(text) => Some(text),
            _ => None,
        });
        for script in scripts.filter(|script| !cwd.join(script).exists()) {
            let where_not = match &exec.cwd {
                _ if Path::new(script).is_absolute() => "does not exist".to_owned(),
                Some(cwd) => format!("does not exist in `{}`", cwd.display()),
                None => "does not exist in the current directory".to_owned(),
            };
            missing.push(format!("{place} runs `{script}`, which {where_not}"));
        }
    }
    missing
}

fn is_script(text: &str) -> bool {
    SCRIPTS.iter().any(|ending| text.ends_with(ending))
}

#[cfg(test)]
mod tests {
    use super::*;
    use lapsed::diagnosis::Severity;

    #[test]
    fn programs_and_scripts_that_are_not_there_are_named() {
        let directory = tempfile::tempdir().unwrap();
        let script = directory.path().join("task.php");
        let config = |exec: &str| {
            let text = format!("[[routes]]\nmatch = '^Order@'\nexec = [{exec}]");
            Config::from_toml(&text).unwrap()
        };
        let whole = format!("'sh', '{}', '{{key}}', 'secret'", script.display());
        let found = missing_programs(&config(&whole));
        let expected = format!(
            "`routes[0]` (`^Order@`) runs `{}`, which does not exist",
            script.display()
        );
        assert_eq!(found, [expected]);
        std::fs::write(&script, "").unwrap();
        assert_eq!(missing_programs(&config(&whole)), [""; 0]);
        assert_eq!(examine(&config(&whole)).unwrap().severity, Severity::Ok);
        let found = missing_programs(&config("'no-such-program', 'no-such.py'"));
        assert!(found[0].ends_with("starts `no-such-program`, which is in no directory of PATH"));
        assert!(
            found[1].ends_with("runs `no-such.py`, which does not exist in the current directory")
        );
        let cwd = |path: &str| {
            let text = "[[routes]]\nmatch = '^Order@'\nexec = ['sh', 'task.php']";
            Config::from_toml(&format!("{text}\ncwd = '{path}'")).unwrap()
        };
        let there = directory.path().to_str().unwrap();
        assert_eq!(missing_programs(&cwd(there)), [""; 0]);
        let found = missing_programs(&cwd("/no/such"));
        assert!(found[0].ends_with("starts programs in `/no/such`, which is no directory"));
        std::fs::remove_file(&script).unwrap();
        let found = missing_programs(&cwd(there));
        assert!(found[0].ends_with(&format!("does not exist in `{there}`")));
        assert!(
            examine(&Config::from_toml("[[routes]]\nmatch = '.'\nlog = {}").unwrap()).is_none()
        );
    }
}
