//! The files for Compose, Kubernetes and the release: they name what there is.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use lapsed::Config;
use serde_json::Value;

use crate::support::program::{lapsed, said};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The documents of a YAML file, as Ruby reads it.
fn yaml(file: &str) -> Vec<Value> {
    let mut ruby = Command::new("ruby");
    let program = "puts JSON.dump(YAML.load_stream(ARGF.read))";
    ruby.args(["-ryaml", "-rjson", "-e", program]);
    let output = ruby.arg(root().join(file)).output();
    let output = output.expect("`ruby` was not found; run `scripts/install-servers --tests`");
    let (code, text, errors) = said(output);
    assert_eq!(code, 0, "{file}: {errors}");
    serde_json::from_str(&text).unwrap()
}

/// Whether the program has this command with these options.
#[track_caller]
fn assert_command(words: &Value) {
    let words: Vec<&str> = words.as_array().unwrap().iter().map(text).collect();
    assert_eq!(words[0], "lapsed");
    let output = lapsed().args(&words[1..]).arg("--help").output().unwrap();
    assert_eq!(said(output).0, 0, "{words:?}");
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

fn image() -> String {
    format!("lapsed:{}", env!("CARGO_PKG_VERSION"))
}

#[test]
fn the_manifest_of_kubernetes_names_what_there_is() {
    let documents = yaml("deploy/kubernetes.yaml");
    let of = |kind: &str| {
        let mut found = documents.iter().filter(|it| it["kind"] == kind);
        let found = (found.next(), found.next());
        let (Some(document), None) = found else {
            panic!("expected one {kind}");
        };
        document
    };
    let settings = text(&of("ConfigMap")["data"]["lapsed.toml"]);
    // What the variable below brings.
    let here = settings.replace("[resp]", "[resp]\npassword = '$argon2id$x'");
    let config = Config::from_toml(&here).unwrap();
    assert_eq!(config.resp.listen.unwrap().port(), 6380);

    let set = of("StatefulSet");
    let pod = &set["spec"]["template"]["spec"];
    let grace = pod["terminationGracePeriodSeconds"].as_u64().unwrap();
    assert!(Duration::from_secs(grace) >= config.engine.drain_timeout + Duration::from_secs(5));
    let container = &pod["containers"][0];
    assert_eq!(text(&container["image"]), image());
    for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
        assert_command(&container[probe]["exec"]["command"]);
    }
    let password = &container["env"][0];
    assert_eq!(text(&password["name"]), "LAPSED__RESP__PASSWORD_FILE");
    let secret = Path::new(text(&password["value"])).parent().unwrap();
    let port = &of("Service")["spec"]["ports"][0]["port"];
    assert_eq!(port, &container["ports"][0]["containerPort"]);
    assert_eq!(port, 6380);
    // Each mount has its volume, and the ledger is on the claim.
    let volumes = pod["volumes"].as_array().unwrap();
    let claims = set["spec"]["volumeClaimTemplates"].as_array().unwrap();
    let claims = claims.iter().map(|claim| &claim["metadata"]["name"]);
    let names: Vec<&Value> = volumes.iter().map(|volume| &volume["name"]).collect();
    let names: Vec<&Value> = names.into_iter().chain(claims).collect();
    let mounts = container["volumeMounts"].as_array().unwrap();
    for mount in mounts {
        assert!(names.contains(&&mount["name"]), "{mount}");
    }
    let path = |name: &str| {
        let mount = mounts.iter().find(|mount| mount["name"] == name);
        Path::new(text(&mount.unwrap()["mountPath"]))
    };
    assert_eq!(secret, path("password"));
    let file = config.ledger.sqlite_file().expect("it is a file");
    assert!(file.starts_with(path("tasks")));
}

#[test]
fn the_compose_file_names_what_there_is() {
    let [compose] = &yaml("examples/compose/compose.yaml")[..] else {
        panic!("expected one document");
    };
    let services = compose["services"].as_object().unwrap();
    let daemon = &services["lapsed"];
    assert_eq!(text(&daemon["image"]), image());
    let test = daemon["healthcheck"]["test"].as_array().unwrap();
    assert_eq!(test[0], "CMD");
    assert_command(&test[1..].to_vec().into());
    let file = root().join("examples/compose/lapsed.toml");
    let config = Config::load(Some(&file)).unwrap();
    let grace = text(&daemon["stop_grace_period"]).trim_end_matches('s');
    let grace = Duration::from_secs(grace.parse().unwrap());
    assert!(grace >= config.engine.drain_timeout + Duration::from_secs(5));

    let socket = config.resp.socket.unwrap();
    let directory = socket.path.parent().unwrap().display().to_string();
    for (name, service) in services {
        for volume in service["volumes"].as_array().unwrap() {
            let source = text(volume).split(':').next().unwrap();
            let exists = match source.strip_prefix("./") {
                Some(file) => root().join("examples/compose").join(file).is_file(),
                None => compose["volumes"].get(source).is_some(),
            };
            assert!(exists, "{name}: {volume}");
        }
        let shares = format!("socket:{directory}");
        assert!(
            service["volumes"]
                .as_array()
                .unwrap()
                .contains(&shares.into()),
            "{name}"
        );
    }
    for name in ["php", "node"] {
        let of_service = text(&services[name]["environment"]["LAPSED_SOCKET"]);
        assert_eq!(Path::new(of_service), socket.path, "{name}");
    }
}

#[test]
fn the_release_packs_what_the_script_builds() {
    let [release] = &yaml(".github/workflows/release.yml")[..] else {
        panic!("expected one document");
    };
    let steps = release["jobs"]["package"]["steps"].as_array().unwrap();
    let runs: Vec<&str> = steps
        .iter()
        .filter_map(|step| step["run"].as_str())
        .collect();
    assert!(runs.contains(&"scripts/package"), "{runs:?}");
    let uploaded = steps.iter().find_map(|step| step["with"]["path"].as_str());
    assert_eq!(uploaded, Some("target/package"));
}
