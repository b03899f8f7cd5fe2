//! A program as the target of a route. Its arguments are those of the configuration, without a shell. It receives the task
//! as JSON on stdin, and the environment variables that the configuration names. It starts in the directory of the
//! configuration, and runs in a process group of its own, which is killed at the end of the run.
//!
//! Exit code 0 is success, 65 is a permanent failure. With any other code, the last line on stdout may give advice:
//! `lapsed: retry-after 30s`, `lapsed: snooze 10m` or `lapsed: permanent`. Without it the retry policy of the route
//! decides.

use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use async_trait::async_trait;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};
use tokio_util::task::AbortOnDropHandle;

use super::output::Output;
use super::{Handler, HandlerError, TaskContext};
use crate::config::{ExecArg, ExecConfig};
use crate::task::{TaskKey, Traceparent, on_one_line};

/// Maximum number of bytes kept of each output stream.
const OUTPUT_BYTES_MAX: usize = 64 * 1024;

/// Maximum number of bytes of stderr in the error of the task.
const ERROR_TAIL_BYTES: usize = 500;

/// Maximum wait for the end of the output after the program has ended: a process that it left behind may keep the pipe
/// open.
const OUTPUT_GRACE: Duration = Duration::from_secs(1);

/// `EX_DATAERR` of sysexits.h.
const EXIT_PERMANENT: i32 = 65;

/// Runs a program for each task.
#[derive(Debug)]
pub struct Exec {
    config: ExecConfig,
}

impl Exec {
    /// Creates a target from its configuration.
    pub fn new(config: ExecConfig) -> Self {
        Self { config }
    }

    /// Returns the arguments for a task.
    fn args(&self, context: &TaskContext) -> Result<Vec<String>, HandlerError> {
        let key = context.key();
        let mut args = Vec::with_capacity(self.config.args.len());
        for arg in &self.config.args {
            match arg {
                ExecArg::Key => args.push(key.to_string()),
                ExecArg::Class => args.push(key.class().to_owned()),
                ExecArg::Method => args.push(key.method().to_owned()),
                ExecArg::Id => args.push(context.id()),
                ExecArg::Args => {
                    self.check_dashes(key)?;
                    args.extend(key.args().map(str::to_owned));
                }
                ExecArg::Text(text) => args.push(text.clone()),
            }
        }
        Ok(args)
    }

    /// Refuses arguments of the key that a program would take for options.
    fn check_dashes(&self, key: &TaskKey) -> Result<(), HandlerError> {
        match key.args().find(|arg| arg.starts_with('-')) {
            Some(arg) if !self.config.allow_dash => Err(HandlerError::permanent(format!(
                "argument `{}` begins with `-`, which the route does not allow (`allow_dash`)",
                arg.escape_debug()
            ))),
            _ => Ok(()),
        }
    }

    fn command(&self, args: Vec<String>, trace: Option<Traceparent>) -> Command {
        let mut command = Command::new(&self.config.program);
        command.args(args).env_clear();
        if let Some(directory) = &self.config.cwd {
            command.current_dir(directory);
        }
        for name in &self.config.env {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        if let Some(trace) = trace {
            command.env("TRACEPARENT", trace.to_string());
        }
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command.process_group(0).kill_on_drop(true);
        command
    }
}

#[async_trait]
impl Handler for Exec {
    async fn run(&self, context: TaskContext) -> Result<(), HandlerError> {
        let program = &self.config.program;
        let spawned = self
            .command(self.args(&context)?, context.traceparent())
            .spawn();
        let mut child = spawned.map_err(|error| match &self.config.cwd {
            Some(directory) => HandlerError::new(format!(
                "start `{program}` in `{}`: {error}",
                directory.display()
            )),
            None => HandlerError::new(format!("start `{program}`: {error}")),
        })?;
        let group = ProcessGroup::of(&child);
        let input = context.to_json_line();
        let waited = wait(&mut child, input).await;
        let (status, stdout, stderr) =
            waited.map_err(|error| HandlerError::new(format!("wait for `{program}`: {error}")))?;
        group.ended();
        tracing::debug!(task.key = %context.key(), %status, stdout = %show(stdout.head()), stderr = %show(stderr.head()), "program ended");
        if status.success() && self.config.keep_result {
            context.keep_output(stdout.head());
        }
        verdict(program, status, &stdout, stderr.head())
    }
}

/// Feeds the program and reads it until it ends.
async fn wait(child: &mut Child, input: String) -> std::io::Result<(ExitStatus, Output, Output)> {
    let stdin = child.stdin.take();
    let _feed = AbortOnDropHandle::new(tokio::spawn(async move {
        if let Some(mut stdin) = stdin {
            // A program need not read its input.
            let _ = stdin.write_all(input.as_bytes()).await;
        }
    }));
    // A process that the program left behind may keep its pipes open: stop reading when this function returns.
    let stdout = AbortOnDropHandle::new(tokio::spawn(read(child.stdout.take())));
    let stderr = AbortOnDropHandle::new(tokio::spawn(read(child.stderr.take())));
    let status = child.wait().await?;
    let output = tokio::time::timeout(OUTPUT_GRACE, async { (stdout.await, stderr.await) }).await;
    let (stdout, stderr) = output
        .map(|(out, err)| (out.unwrap_or_default(), err.unwrap_or_default()))
        .unwrap_or_default();
    Ok((status, stdout, stderr))
}

/// Reads a stream to its end, also beyond the bytes that are kept, so that the program does not block.
async fn read(stream: Option<impl AsyncRead + Unpin>) -> Output {
    let mut output = Output::default();
    let Some(mut stream) = stream else {
        return output;
    };
    let mut chunk = vec![0; 8 * 1024];
    while let Ok(read @ 1..) = stream.read(&mut chunk).await {
        output.push(&chunk[..read], OUTPUT_BYTES_MAX);
    }
    output
}

fn verdict(
    program: &str,
    status: ExitStatus,
    stdout: &Output,
    stderr: &[u8],
) -> Result<(), HandlerError> {
    if status.success() {
        return Ok(());
    }
    // Some programs report errors on stdout: PHP does for a script that is not there.
    let said = match (show(stderr), stdout.advice()) {
        (said, None) if said.is_empty() => show(stdout.tail()),
        (said, _) => said,
    };
    let said = match said {
        said if said.is_empty() => String::new(),
        said => format!(
            ": {}",
            &said[said.ceil_char_boundary(said.len().saturating_sub(ERROR_TAIL_BYTES))..]
        ),
    };
    let message = format!("`{program}` ended with {status}{said}");
    Err(match (status.code(), stdout.advice()) {
        (Some(EXIT_PERMANENT), _) => HandlerError::permanent(message),
        // The last line of a killed program is not advice.
        (Some(_), Some(Ok(advice))) => advice.into_error(message),
        (Some(_), Some(Err(problem))) => HandlerError::new(format!("{message}; its {problem}")),
        _ => HandlerError::new(message),
    })
}

/// Returns output as one line of text.
fn show(output: &[u8]) -> String {
    on_one_line(String::from_utf8_lossy(output).trim()).into_owned()
}

/// Kills the process group of the program on drop, unless the program has ended.
struct ProcessGroup(Option<Pid>);

impl ProcessGroup {
    fn of(child: &Child) -> Self {
        Self(child.id().and_then(|id| Pid::from_raw(id.cast_signed())))
    }

    fn ended(mut self) {
        self.0 = None;
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            // It may have ended meanwhile.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;

    #[test]
    fn a_program_that_reports_its_error_on_stdout_is_heard() {
        let failed = |stdout: &str, stderr: &[u8]| {
            let mut output = Output::default();
            output.push(stdout.as_bytes(), OUTPUT_BYTES_MAX);
            let ended = verdict("php", ExitStatus::from_raw(1 << 8), &output, stderr);
            ended.unwrap_err().to_string()
        };
        let missing = "Could not open input file: nosuch.php\n";
        assert_eq!(
            failed(missing, b""),
            "`php` ended with exit status: 1: Could not open input file: nosuch.php"
        );
        assert_eq!(
            failed(missing, b"broken\n"),
            "`php` ended with exit status: 1: broken"
        );
        // A last line that gives advice is no error.
        let advised = failed("work\nlapsed: retry-after 1s\n", b"");
        assert!(!advised.contains("work"), "{advised}");
    }

    #[test]
    fn output_is_shown_as_it_was_said_on_one_line_that_moves_no_cursor() {
        let said = b" Table 'app.x' doesn't exist: \"App\\Order\"\n\x1b[31m\xff\xc3\xbc\r\n";
        assert_eq!(
            show(said),
            "Table 'app.x' doesn't exist: \"App\\Order\"\\n\\u{1b}[31m\u{fffd}\u{fc}"
        );
    }
}
