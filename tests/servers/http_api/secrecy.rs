//! A walk over every endpoint and every page: a caller that is limited to some classes learns nothing about the others.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use futures_util::FutureExt as _;
use lapsed::config::hash_token;
use regex::Regex;
use serde_json::{Value, json};

use super::rig::{Answer, Api, json as with_json};
use crate::support::wait::until;

/// In every name, tag, error, reason and worker of the classes that the caller may not touch.
const MARK: &str = "bravo";

/// What is about all classes.
const ABOUT_ALL_CLASSES: [&str; 10] = [
    "/metrics",
    "/panels/ahead",
    "/panels/history",
    "/panels/parts",
    "/panels/queues",
    "/panels/daemons",
    "/panels/doctor",
    "/panels/audit",
    "/v1/tasks/Bravo@later@bravo-1",
    "/v1/tasks/Bravo@later@bravo-1/why",
];

const ROUTES: &str = "
[[routes]]
match = '^Bravo@die'
exec = ['sh', '-c', 'echo bravo-error >&2; exit 65']
[[routes]]
match = '^Bravo@pull'
pull = { queue = 'bravo-queue' }
[[routes]]
match = '^Alpha@die'
exec = ['sh', '-c', 'echo alpha-error >&2; exit 65']
";

fn settings() -> String {
    let client = |name: &str, more: &str| {
        let hash = hash_token(&format!("{name}-token"));
        let hash: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("[[http.clients]]\nname = '{name}'\ntoken_sha256 = '{hash}'\n{more}\n")
    };
    let limited = "scopes = ['read', 'schedule', 'operate', 'work']\nclasses = ['Alpha']";
    let all = "scopes = 'admin'";
    [ROUTES, &client("alpha", limited), &client("root", all)].concat()
}

async fn send(api: &Api, who: &str, method: &str, path: &str, body: &Value) -> Answer {
    let request = api.request(method, path);
    let request = request.header("authorization", format!("Bearer {who}-token"));
    match (method, body) {
        ("GET" | "DELETE", _) | (_, Value::Null) => Answer::of(request).await,
        _ => Answer::of(with_json(request, body)).await,
    }
}

async fn get(api: &Api, who: &str, path: &str) -> Answer {
    send(api, who, "GET", path, &Value::Null).await
}

/// Creates a task as the unlimited caller, and returns its id.
async fn create(api: &Api, task: Value) -> String {
    let created = send(api, "root", "POST", "/v1/tasks", &task).await;
    assert_eq!(created.status, 201, "{}", created.text);
    created.text_of("id")
}

/// The patterns of all routes: those of the description of the API, and those in the sources.
pub fn patterns() -> BTreeSet<(String, String)> {
    /// `routes` are expressions for a path, and what is put before it.
    fn read(directory: &Path, routes: &[(Regex, &str)], found: &mut BTreeSet<(String, String)>) {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                read(&path, routes, found);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                for (route, before) in routes {
                    let paths = route.captures_iter(&text);
                    let paths = paths.map(|path| format!("{before}{}", &path[1]));
                    found.extend(paths.map(|path| ("GET".to_owned(), path)));
                }
            }
        }
    }
    let mut found = BTreeSet::new();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../src/server/http");
    let routes = [
        (r#"\.route\(\s*"(/[^"]*)""#, ""),
        // The pages of the navigation, and the panels that have a name.
        (r#"\(Place::\w+, "(/[^"]*)""#, ""),
        (r#"const NAME: &'static str = "(\w+)""#, "/panels/"),
    ];
    let routes = routes.map(|(route, before)| (Regex::new(route).unwrap(), before));
    read(&source, &routes, &mut found);
    assert!(found.len() > 30, "the routes of the dashboard: {found:?}");
    let api = std::fs::read_to_string(source.join("api/openapi.json")).unwrap();
    let api: Value = serde_json::from_str(&api).unwrap();
    for (path, methods) in api["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys() {
            found.insert((method.to_ascii_uppercase(), path.clone()));
        }
    }
    found
}

/// The addresses to get for a pattern. Their answers must not change.
pub fn addresses(pattern: &str, rows: &[String]) -> Vec<String> {
    let with = |queries: &[&str]| -> Vec<String> {
        let queries = queries.iter().map(|query| format!("{pattern}{query}"));
        queries.collect()
    };
    match pattern {
        "/v1/events" => Vec::new(), // It does not end: it has a test of its own.
        "/v1/tasks" | "/panels/tasks" => with(&[
            "",
            "?state=pending,running,waiting",
            "?state=dead",
            "?state=overdue",
            "?class=Bravo",
            "?class=Bravo&state=pending",
            "?method=die",
            "?tag=bravo-tag",
            "?prefix=B",
            "?prefix=Bravo@die@bravo",
            "?error=error",
            "?recurring=true",
            "?due_after=2020-01-01T00:00:00Z",
        ]),
        "/v1/tasks/{key}" | "/v1/tasks/{key}/why" => {
            let rows = rows.iter().map(String::as_str);
            let named = ["Alpha@later@1", "Bravo@later@bravo-1"];
            let tasks = rows.chain(named);
            tasks.map(|task| pattern.replace("{key}", task)).collect()
        }
        "/panels/task" => {
            let rows = rows.iter().map(|row| format!("{pattern}?id={row}"));
            let named = with(&["", "?key=Alpha@later@1", "?key=Bravo@later@bravo-1"]);
            rows.chain(named).collect()
        }
        "/panels/upcoming" => with(&["", "?class=Bravo"]),
        "/panels/history" => with(&["?span=24h"]),
        "/v1/{*rest}" => vec!["/v1/none".to_owned()],
        "/problems/{kind}" => vec!["/problems/invalid".to_owned()],
        "/assets/{version}/{name}" => vec!["/assets/x/app.css".to_owned()],
        _ => {
            assert!(!pattern.contains('{'), "say how to walk `{pattern}`");
            with(&[""])
        }
    }
}

/// An answer without what changes by itself: times, and cursors, which are sealed.
fn lasting(answer: &Answer) -> String {
    let text = format!("{} {}", answer.status, answer.text);
    let varies = [
        (r"(?s)<time .*?</time>", "TIME"),
        (r"(?s)<svg .*?</svg>", "DRAWING"),
        (r"\d\d:\d\d:\d\d", "CLOCK"),
        (r#"data-(now|at)="\d+""#, "NOW"),
        (r"s1\.[\w-]+", "CURSOR"),
    ];
    varies.into_iter().fold(text, |text, (pattern, name)| {
        let pattern = Regex::new(pattern).unwrap();
        pattern.replace_all(&text, name).into_owned()
    })
}

/// Gets everything as the limited caller.
async fn walk(api: &Api, rows: &[String]) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let links = Regex::new(r#"<li><a href="/tasks\?[^"]*""#).unwrap();
    for (method, pattern) in patterns() {
        if method != "GET" {
            continue;
        }
        for address in addresses(&pattern, rows) {
            let answer = get(api, "alpha", &address).await;
            // Links to the same list of other states have what the caller has asked for.
            let text = links.replace_all(&answer.text, "").to_ascii_lowercase();
            assert!(!text.contains(MARK), "{address}: {text}");
            let path = address.split('?').next().unwrap();
            let names_another = address.starts_with("/panels/task?key=Bravo");
            let is_per_class = !ABOUT_ALL_CLASSES.contains(&path) && !names_another;
            assert_eq!(
                answer.status != 403,
                is_per_class,
                "{address}: {}",
                answer.text
            );
            found.insert(address, lasting(&answer));
        }
    }
    found
}

/// Follows the pages of a list, one task each. Returns the keys.
async fn pages(api: &Api, query: &str) -> Vec<String> {
    let (mut keys, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = get(api, "alpha", &format!("/v1/tasks?limit=1{query}{cursor}")).await;
        let page = page.json();
        let tasks = page["tasks"].as_array().unwrap().iter();
        keys.extend(tasks.map(|task| task["key"].as_str().unwrap().to_owned()));
        let Some(next) = page["next"].as_str() else {
            return keys;
        };
        assert!(next.starts_with("s1."), "{next}");
        assert_eq!(page["tasks"].as_array().unwrap().len(), 1, "a page is full");
        cursor = format!("&cursor={next}");
    }
}

/// Requests that change something, if the caller may. Each is refused, or finds nothing.
fn changes(method: &str, pattern: &str, row: &str) -> Vec<(String, Value)> {
    let on = |key: &str| pattern.replace("{key}", key);
    let both = |body: Value| {
        let keys = [row, "Bravo@later@bravo-1"];
        keys.map(|key| (on(key), body.clone())).to_vec()
    };
    let bulk = || {
        let filters = [
            json!({"all": true}),
            json!({"tag": "bravo-tag"}),
            json!({"class": "Bravo"}),
            json!({"prefix": "Bravo@"}),
            json!({"error": "bravo"}),
            json!({"class": "Alpha", "tag": "bravo-tag"}),
            json!({"class": "Alpha", "prefix": "Bravo@"}),
        ];
        let dry = filters.into_iter().map(|mut filter| {
            filter["dry_run"] = json!(true);
            (pattern.to_owned(), filter)
        });
        dry.collect()
    };
    let taken = |body: Value| vec![(pattern.to_owned(), body)];
    let pause = "/v1/pauses?class=Bravo".to_owned();
    let key = "Bravo@later@bravo-1";
    match (method, pattern) {
        ("PUT" | "PATCH", "/v1/tasks/{key}") => both(json!({"in": "1h"})),
        ("DELETE", "/v1/tasks/{key}") => both(Value::Null),
        ("POST", "/v1/tasks/{key}/run" | "/v1/tasks/{key}/redrive" | "/v1/tasks/{key}/discard") => {
            both(Value::Null)
        }
        ("POST", "/v1/tasks") => taken(json!({"key": key, "in": "1h", "if_pending": "refuse"})),
        ("POST", "/v1/tasks/batch") => taken(json!([{"key": key, "in": "1h"}])),
        ("POST", "/v1/cancel" | "/v1/redrive" | "/v1/discard") => bulk(),
        ("POST", "/v1/pauses") => taken(json!({"class": "Bravo"})),
        ("DELETE", "/v1/pauses") => vec![
            (pause.clone(), Value::Null),
            (pause + "&held=true", Value::Null),
        ],
        ("POST", "/v1/queues/{queue}/take") => {
            vec![("/v1/queues/bravo-queue/take".to_owned(), json!({}))]
        }
        ("POST", claims) if claims.starts_with("/v1/claims/{claim}/") => {
            let body = json!({"error": "x", "in": "1s"});
            vec![(pattern.replace("{claim}", "none"), body)]
        }
        _ => panic!("say how to walk `{method} {pattern}`"),
    }
}

/// Tasks of every state, a tag, a series, and a pause; of the caller's class, or of the other.
async fn fill(api: &Api, class: &str, mark: &str) -> Vec<String> {
    let mut ids = Vec::new();
    for task in [
        json!({"key": format!("{class}@later@{mark}1"), "in": "5h", "tag": format!("{mark}tag"), "payload": {"a": mark}}),
        json!({"key": format!("{class}@die@{mark}1"), "in": "0ms"}),
        json!({"key": format!("{class}@series@{mark}1"), "every": "6h"}),
        json!({"key": format!("{class}@month@{mark}1"), "in": "30d"}),
    ] {
        ids.push(create(api, task).await);
    }
    let dead = format!("/v1/tasks/{class}@die@{mark}1");
    until("it is dead", async || {
        get(api, "root", &dead).await.text_of("state") == "dead"
    })
    .await;
    let pause = json!({"class": class, "reason": format!("{mark}reason")});
    let paused = send(api, "root", "POST", "/v1/pauses", &pause).await;
    assert_eq!(paused.status, 201);
    ids
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_of_some_classes_learns_nothing_about_others() {
    let api = Api::start_with(&settings()).await;
    fill(&api, "Alpha", "").await;
    let counted = async |pending: u64| {
        let stats = get(&api, "root", "/v1/stats").await;
        stats.json()["pending"] == pending && stats.json()["pauses"].as_array().is_some()
    };
    until("they are counted", async || counted(3).await).await;
    // Rows that do not exist yet, and are those of the others later.
    let rows: Vec<String> = (5..=9).map(|row| row.to_string()).collect();
    let before = walk(&api, &rows).await;
    assert!(before["/v1/tasks"].contains("Alpha@later@1"));
    assert!(before["/v1/tasks?error=error"].contains("Alpha@die@1"));
    assert!(
        before["/v1/stats"].contains(r#""pending":3,"#),
        "{}",
        before["/v1/stats"]
    );
    assert!(before["/panels/dead"].contains("alpha-error"));
    assert!(before["/panels/upcoming"].contains("Alpha@later@1"));
    assert!(before["/panels/pauses"].contains("Alpha"));
    let pages_before = pages(&api, "").await;
    assert_eq!(pages_before.len(), 4);

    // Before the class is paused.
    create(&api, json!({"key": "Bravo@pull@bravo-1", "in": "0ms"})).await;
    let taken = json!({"worker": "bravo-worker", "wait": "20s"});
    let taken = send(&api, "root", "POST", "/v1/queues/bravo-queue/take", &taken).await;
    assert_eq!(taken.json()["tasks"].as_array().unwrap().len(), 1);
    let ids = fill(&api, "Bravo", "bravo-").await;
    until("they are counted", async || counted(6).await).await;
    assert!(
        ids.iter()
            .all(|id| rows.contains(&id.split('-').next().unwrap().to_owned()))
    );
    let after = walk(&api, &rows).await;
    for (address, answer) in &before {
        assert_eq!(&after[address], answer, "{address}");
    }
    assert_eq!(pages(&api, "").await, pages_before);
    assert_eq!(pages(&api, "&prefix=Bravo").await, Vec::<String>::new());

    let row = ids[0].split('-').next().unwrap();
    for (method, pattern) in patterns() {
        if method == "GET" {
            continue;
        }
        for (path, body) in changes(&method, &pattern, row) {
            let answer = send(&api, "alpha", &method, &path, &body).await;
            let text = answer.text.to_ascii_lowercase();
            assert!(!text.contains(MARK), "{method} {path}: {text}");
            let is_nothing = |tasks: &Value| *tasks == 0 || *tasks == json!([]);
            let found_nothing = answer.status == 200 && is_nothing(&answer.json()["tasks"]);
            let of_batch = answer.status == 200 && answer.json()["status"] == 403;
            let refused = answer.status.is_client_error();
            assert!(
                refused || found_nothing || of_batch,
                "{method} {path} {body}: {} {text}",
                answer.status
            );
        }
    }
    let all = json!({"everything": true, "reason": "bravo-reason"});
    send(&api, "root", "POST", "/v1/pauses", &all).await;
    let paused = walk(&api, &rows).await;
    assert_eq!(paused["/v1/pauses"].matches("\"kind\"").count(), 2);
    assert!(paused["/panels/pauses"].contains("Everything"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hints_for_a_caller_of_some_classes_do_not_depend_on_changes() {
    let api = Api::start_with(&settings()).await;
    let listen = async |who: &str| {
        let request = api.request("GET", "/v1/events");
        let request = request.header("authorization", format!("Bearer {who}-token"));
        let mut stream = request.send().await.unwrap();
        let first = stream.chunk().await.unwrap().unwrap();
        assert!(first.ends_with(b"\n\n"), "{first:?}");
        stream
    };
    let mut root = listen("root").await;
    // Ticks of the start may come first.
    while let Some(Ok(Some(_))) = root.chunk().now_or_never() {}
    let mut alpha = listen("alpha").await;
    create(&api, json!({"key": "Bravo@later@bravo-1", "in": "5h"})).await;
    let heard = root.chunk().await.unwrap().unwrap();
    assert!(String::from_utf8_lossy(&heard).contains("tasks"));
    assert!(alpha.chunk().now_or_never().is_none(), "nothing is heard");
    let later = alpha.chunk().await.unwrap().unwrap();
    let everything = r#"["stats","tasks","pauses","workers","audit"]"#;
    assert!(String::from_utf8_lossy(&later).contains(everything));
}
