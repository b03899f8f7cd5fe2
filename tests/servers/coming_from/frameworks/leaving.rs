//! A team leaves the queue of its framework, as the page says: its string jobs become tasks, which run its classes. The import is
//! killed when the tasks are committed and no job is removed yet, and done again after some tasks have run.

use std::path::Path;
use std::process::Stdio;

use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;

use super::follow::PACKAGES;
use super::{Fate, Framework, LARAVEL, PAGE, Shop, THINK_QUEUE};
use crate::coming_from::owner::{tasks, window};
use crate::support::not_tried::not_tried;
use crate::support::process::{Process, config_file};
use crate::support::program::{lapsed, said};
use crate::support::tcp_proxy::in_front_of;
use crate::support::wait::until;

/// Jobs that are serialized objects.
const OBJECTS: usize = 2;

/// The class of the team's jobs, and what its application needs beside the classes of the framework.
const APPLICATION: &str = r#"<?php
namespace {NAMESPACE} {
    class Shop
    {
        public function run($job, array $data): void
        {
            $line = ['name' => $data['name'], 'attempt' => $job->attempts(), 'at_ms' => (int) (microtime(true) * 1000)];
            file_put_contents(__DIR__ . '/../ran', json_encode($line) . "\n", FILE_APPEND | LOCK_EX);
            if (str_starts_with($data['name'], 'fail-') && $job->attempts() === 1) {
                $job->release(2);
            } else {
                $job->delete();
            }
        }
    }
}
"#;

const LARAVEL_ITSELF: &str = "namespace { require_once 'Illuminate/Queue/autoload.php'; }\n";

const BOOTSTRAP: &str = r"<?php
$app = new Illuminate\Container\Container();
$app->instance(Illuminate\Contracts\Console\Kernel::class, new class {
    public function bootstrap(): void
    {
    }
});
return $app;
";

const APP_OF_THINK: &str = r"namespace think {
    class App
    {
        public function initialize(): void
        {
        }

        public function getNamespace(): string
        {
            return 'app';
        }

        public function make(string $class)
        {
            return new $class();
        }
    }
}
namespace think\helper {
    class Arr
    {
        public static function get($array, $key, $default = null)
        {
            return $array[$key] ?? $default;
        }
    }
}
";

/// `think\queue\Job`, if there is no checkout.
const JOB_OF_THINK: &str = r"namespace think\queue {
    abstract class Job
    {
        private bool $released = false;

        public function fire()
        {
            [$class, $method] = explode('@', json_decode($this->getRawBody(), true)['job']);
            $this->app->make($class)->$method($this, json_decode($this->getRawBody(), true)['data']);
        }

        public function delete()
        {
        }

        public function release($delay = 0)
        {
            $this->released = true;
        }

        public function isReleased()
        {
            return $this->released;
        }

        public function hasFailed()
        {
            return false;
        }
    }
}
";

/// The application in a directory, with the program of the page.
fn install(framework: &Framework, section: &str, directory: &Path) {
    let page = section.split("```php\n").nth(1).unwrap();
    let mut program = page.split("```").next().unwrap().to_owned();
    let mut application = APPLICATION.replace("{NAMESPACE}", "App\\Jobs");
    let write = |name: &str, text: &str| {
        let path = directory.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    if framework.name == "think-queue" {
        application = APPLICATION.replace("{NAMESPACE}", "app\\job");
        application += APP_OF_THINK;
        application += &match std::env::var(PACKAGES) {
            Ok(packages) => {
                format!("namespace {{ require '{packages}/think-queue/src/queue/Job.php'; }}\n")
            }
            Err(_) => JOB_OF_THINK.to_owned(),
        };
        // The three differences that the page names.
        let begin = program.find("   $app = ").unwrap();
        let end = program.find("->bootstrap();").unwrap() + "->bootstrap();".len();
        let created = section
            .split('`')
            .find(|code| code.starts_with("$app = new think"));
        program.replace_range(begin..end, created.unwrap());
        let differs = [
            (
                "extends Illuminate\\Queue\\Jobs\\Job implements Illuminate\\Contracts\\Queue\\Job",
                "extends think\\queue\\Job",
            ),
            ("protected $container,", "protected $app,"),
        ];
        for (laravel, think) in differs {
            assert!(program.contains(laravel), "{program}");
            program = program.replace(laravel, think);
        }
    } else {
        application += LARAVEL_ITSELF;
        write("bootstrap/app.php", BOOTSTRAP);
    }
    write("vendor/autoload.php", &application);
    write("run-job.php", program.trim_start());
}

/// Forwards until a script that removes entries is sent, which is never answered.
async fn hold_removal(client: TcpStream, server: TcpStream, held: watch::Sender<bool>) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let there = async {
        let mut buffer = [0; 64 * 1024];
        while let Ok(count @ 1..) = from_client.read(&mut buffer).await {
            let bytes = &buffer[..count];
            if bytes.windows(6).any(|part| part == b"'ZREM'") {
                held.send_replace(true);
                std::future::pending::<()>().await;
            }
            to_server.write_all(bytes).await.unwrap();
        }
    };
    let back = tokio::io::copy(&mut from_server, &mut to_client);
    tokio::select! {
        () = there => {}
        _ = back => {}
    }
}

impl Shop {
    async fn rows(&self) -> i64 {
        self.rig
            .number("SELECT COUNT(*) FROM tb_time_limit_task")
            .await
    }

    async fn waiting(&self) -> i64 {
        self.rig.redis_says(&["ZCARD", self.framework.set]).await
    }

    /// `lapsed import` with these words.
    fn import(&self, words: &[&str]) -> (i32, serde_json::Value, String) {
        let (code, stdout, stderr) = self.shell.run(&[&["--json", "import"], words].concat());
        let report = serde_json::from_str(&stdout).unwrap_or_else(|_| panic!("{stdout}{stderr}"));
        (code, report, stderr)
    }
}

async fn leave(framework: &'static Framework, words: &[&str], prefix: &str) {
    let page = std::fs::read_to_string(PAGE).unwrap();
    let section = page.split("\n## Leaving the queue\n").nth(1).unwrap();
    let directory = TempDir::new().unwrap();
    install(framework, section, directory.path());
    let settings = section.split("```toml\n").nth(1).unwrap();
    let settings = settings.split("```").next().unwrap();
    let path = directory.path().to_str().unwrap();
    let settings = settings.replace("/var/www/shop", path);
    let mut shop = Shop::with(framework, &settings, directory).await;
    let count = tasks();
    let job = |number: usize| match number % 10 {
        0 => (
            format!("run-cancelled-{number}"),
            Fate::Cancelled,
            80 + window(),
        ),
        3 => (
            format!("fail-once-{number}"),
            Fate::Fails,
            40 + number * window() / count,
        ),
        _ => (
            format!("run-plain-{number}"),
            Fate::Runs,
            40 + number * window() / count,
        ),
    };
    shop.delay((0..count).map(job).collect());
    let objects = (0..OBJECTS).map(|number| (format!("object-{number}"), Fate::Removed, 3_600));
    shop.delay(objects.collect());
    shop.jobs.truncate(count);

    // So far, `lapsed` has moved the jobs to the workers.
    let moves = config_file(&shop.rig);
    let of_framework = match framework.name {
        "laravel" => "prefix = 'shop_database_'",
        _ => "prefix = ''",
    };
    let entry = format!(
        "delayed_sets = [{{ profile = '{}', queue = 'default', {of_framework} }}]\n{}",
        framework.name,
        shop.rig.config_text()
    );
    std::fs::write(moves.path(), &entry).unwrap();
    let mut refused = lapsed();
    refused.arg("--config").arg(moves.path());
    refused.arg("import").args(words).arg("--take");
    let (code, _, stderr) = said(refused.output().unwrap());
    assert_eq!(code, 1, "{stderr}");
    let why = "daemons move its jobs to the workers of the framework";
    assert!(stderr.contains(why), "{stderr}");
    let mut daemon = Process::listen_with(moves, &[]);
    until("each job is a row", async || {
        shop.rows().await == (count + OBJECTS) as i64
    })
    .await;
    daemon.kill();
    let _daemon = Process::listen(&shop.rig, &[]);
    shop.shell.text(&["cancel", "--prefix", prefix]);
    assert_eq!(shop.rig.with_status(3).await, (count + OBJECTS) as i64);
    assert_eq!(shop.waiting().await, (count + OBJECTS) as i64);
    shop.rig.run_sql("DELETE FROM tb_time_limit_task").await;

    let (code, report, stderr) = shop.import(&[words, &["--dry-run"]].concat());
    assert_eq!((code, shop.rows().await), (1, 0), "{report}{stderr}");
    assert_eq!(report["created"], count);
    assert_eq!(
        stderr
            .matches("it is a serialized object of `SerializedJob`")
            .count(),
        OBJECTS
    );

    // It is killed between the commit and the removal.
    let held = watch::Sender::new(false);
    let of_proxy = held.clone();
    let hold = move |client, server| hold_removal(client, server, of_proxy.clone());
    let port = in_front_of(shop.rig.redis.port(), hold).await;
    let url = format!("redis://127.0.0.1:{port}/0");
    let interrupted = [words, &["--take", "--from-redis", &url]].concat();
    let mut command = shop
        .shell
        .command(&[&["import"], &interrupted[..]].concat());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    until("the jobs are about to be removed", async || *held.borrow()).await;
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(shop.rows().await, count as i64);
    assert_eq!(shop.waiting().await, (count + OBJECTS) as i64);
    until("some tasks have run", async || shop.ran().len() > 5).await;

    let (code, report, stderr) = shop.import(&[words, &["--take"]].concat());
    let counts = ["created", "known", "taken", "refused", "moved"].map(|name| &report[name]);
    assert_eq!(counts, [0, count, count, OBJECTS, 0], "{stderr}");
    assert_eq!((code, shop.rows().await), (1, count as i64));
    assert_eq!(shop.waiting().await, OBJECTS as i64);
    for job in shop.jobs.iter().filter(|job| job.fate == Fate::Cancelled) {
        let id = job.key.rsplit('@').next().unwrap();
        let class = match framework.name {
            "laravel" => "App\\Jobs\\Shop",
            _ => "app\\job\\Shop",
        };
        shop.shell.text(&["cancel", &format!("{class}@run@{id}")]);
    }
    shop.all_is_well().await;
}

#[tokio::test]
async fn each_string_job_of_laravel_becomes_one_task() {
    let words = ["laravel", "--prefix", "shop_database_"];
    leave(&LARAVEL, &words, "laravel@default@").await;
}

#[tokio::test]
async fn each_string_job_of_think_queue_becomes_one_task() {
    if std::env::var_os(PACKAGES).is_none() {
        let what = format!(
            "leaving the queue of the package itself; its commands are sent instead. {PACKAGES} names a directory with think-queue"
        );
        not_tried("think-queue", &what);
    }
    leave(&THINK_QUEUE, &["think-queue"], "think-queue@default@").await;
}
