//! What is logged about a run: the slow log, and spans.

use super::*;

/// What is logged while it lives.
#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Log {
    pub fn listen(&self, level: tracing::Level) -> tracing::subscriber::DefaultGuard {
        // While there is one dispatcher only, `tracing` asks the thread that meets a line first whether anybody wants it,
        // and remembers a no for all threads. With a second one it asks each dispatcher.
        static SECOND: LazyLock<tracing::Dispatch> = LazyLock::new(|| {
            let all = tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE);
            tracing::Dispatch::new(all.with_writer(io::sink).finish())
        });
        LazyLock::force(&SECOND);
        let log = self.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(move || log.clone())
            .with_ansi(false)
            .with_max_level(level)
            .finish();
        tracing::subscriber::set_default(subscriber)
    }

    pub fn lines_with(&self, text: &str) -> Vec<String> {
        let bytes = self.0.lock().unwrap();
        let log = String::from_utf8_lossy(&bytes);
        let lines = log.lines().filter(|line| line.contains(text));
        lines.map(str::to_owned).collect()
    }
}

#[tokio::test]
async fn a_slow_run_is_warned_about_while_it_goes_on() {
    let log = Log::default();
    let _listening = log.listen(tracing::Level::WARN);
    let (seen, slow) = (log.clone(), Duration::from_millis(20));
    let mut handlers = Handlers::new();
    handlers.on(("Job", "slow"), move || {
        let seen = seen.clone();
        async move {
            let told = async {
                while seen.lines_with("run is slow, and still running").is_empty() {
                    tokio::task::yield_now().await;
                }
            };
            tokio::time::timeout(Duration::from_secs(30), told).await?;
            Ok(())
        }
    });
    handlers.on(("Job", "quick"), || async { Ok(()) });
    handlers.wrap(SlowLog::after(slow));
    let mut kit = TestKit::new(handlers);
    create(&kit, "Job@slow").await;
    create(&kit, "Job@quick").await;
    kit.advance(Duration::ZERO).await;
    kit.assert_ran(("Job", "slow", [""; 0])).succeeded();
    let lines = log.lines_with("slow");
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].contains("slow_after_ms=20"), "{lines:?}");
    assert!(lines[1].contains("slow run is over"), "{lines:?}");
}

#[tokio::test]
async fn the_span_of_a_run_names_its_trace_and_keeps_arguments_to_itself() {
    let mut handlers = Handlers::new();
    handlers.on(("Job", "log"), |_: Vec<String>| async {
        tracing::info!("the handler speaks");
        Ok(())
    });
    for (level, shows_args) in [(tracing::Level::INFO, false), (tracing::Level::DEBUG, true)] {
        let log = Log::default();
        let _listening = log.listen(level);
        let mut kit = TestKit::new(handlers.clone());
        let task = Task::new("Job", "log", ["s3cret"]).unwrap();
        let task = task.traceparent(TRACE).unwrap();
        kit.tasks().create(task, Due::NOW).await.unwrap();
        kit.advance(Duration::ZERO).await;
        let lines = log.lines_with("the handler speaks");
        let [line] = &lines[..] else {
            panic!("{lines:?}")
        };
        assert!(line.contains(&format!("trace_id=\"{TRACE_ID}\"")), "{line}");
        assert!(line.contains("run{") && line.contains("Job@log"), "{line}");
        assert_eq!(line.contains("s3cret"), shows_args, "{line}");
    }
}

#[tokio::test]
async fn each_run_has_a_span_in_the_trace_of_its_creator() {
    let task = Task::new("Job", "trace", [1]).unwrap();
    let untraced = TestRun::of(task.clone().payload("[1]")).context().await;
    assert_eq!(untraced.traceparent(), None);
    assert!(untraced.to_json().get("traceparent").is_none());

    let run = TestRun::of(task.payload("[1]").traceparent(TRACE).unwrap());
    let (one, other) = (run.context().await, run.context().await);
    assert_eq!(one.creator_traceparent().unwrap().to_string(), TRACE);
    assert_eq!(one.payload_json(), Some("[1]"));
    let (own, others) = (one.traceparent().unwrap(), other.traceparent().unwrap());
    assert_eq!(own.trace_id(), TRACE_ID);
    assert_ne!(own.span_id(), "b7ad6b7169203331");
    assert_ne!(own.span_id(), others.span_id());
    let json = one.to_json();
    assert_eq!(json["traceparent"], own.to_string());
    assert_eq!(json["payload"], serde_json::json!([1]));
}
