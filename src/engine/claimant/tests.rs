use std::os::unix::fs::symlink;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use super::*;

const BOOT: &str = "0b5a3f8e-0d6c-4f0e-9a53-2f6b1f0a7c11\n";

/// A simulated `/proc` of process 70, with other processes.
struct Machine(TempDir);

impl Machine {
    fn new() -> Self {
        let machine = Self(tempfile::tempdir().unwrap());
        machine.write("sys/kernel/random/boot_id", BOOT);
        machine.write("self/status", "Name:\tlapsed\nPid:\t70\nNSpid:\t70\n");
        machine.write("self/stat", &stat("lapsed", 'R', 5_000));
        machine.namespace("pid", "pid:[4026531836]");
        machine.namespace("time", "time:[4026531834]");
        machine
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn namespace(&self, kind: &str, target: &str) {
        let path = self.0.path().join("self/ns").join(kind);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let _ = fs::remove_file(&path);
        symlink(target, path).unwrap();
    }

    /// Writes process 31, with additional threads in these states.
    fn claimer(&self, state: char, start: u64, others: &[char]) {
        self.write("31/stat", &stat("a) R 1", state, start));
        self.write("31/task/31/stat", &stat("a) R 1", state, start));
        for (number, state) in (32..).zip(others) {
            self.write(
                &format!("31/task/{number}/stat"),
                &stat("worker", *state, start + 1),
            );
        }
    }

    /// The processes as process 70 sees them; process 31 exists.
    fn seen(&self) -> Processes {
        self.seen_by(|_| true)
    }

    fn seen_by(&self, exists: fn(Pid) -> bool) -> Processes {
        Processes::of(self.0.path().to_owned(), exists, "host".into(), 70)
    }

    /// The name of process 31, started at `start`.
    fn name(&self, start: u64) -> String {
        let own = self.seen().own.expect("all facts are there");
        format!("host:31/{}.{start}", own.place)
    }
}

fn stat(program: &str, state: char, start: u64) -> String {
    format!("31 ({program}) {state} 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 {start} 20 21\n")
}

#[test]
fn a_name_identifies_the_process_and_fits_its_column() {
    let machine = Machine::new();
    let name = machine.seen().own_name();
    assert!(name.starts_with("host:70/"), "{name}");
    assert!(name.ends_with(".5000"), "{name}");
    let processes = machine.seen();
    assert_eq!(Claimer::parse(&name), processes.own);
    let long = Processes {
        host: "a".repeat(70) + "-b2c",
        ..processes
    };
    assert_eq!(long.own_name().len(), NAME_CHARS_MAX);
    assert!(long.own_name().contains("a-b2c:70/"));
    assert_eq!(Claimer::parse(&long.own_name()), long.own);
}

#[test]
fn nothing_is_known_about_the_process_of_a_name_without_proof() {
    let machine = Machine::new();
    let unknown = machine.seen_by(|_| false);
    let known = machine.name(7);
    assert!(unknown.is_gone(&known));
    let place = unknown.own.clone().unwrap().place;
    for name in [
        String::new(),
        "host:31".into(),
        "host:31/".into(),
        format!("host/{place}.7"),
        format!("host:0/{place}.7"),
        format!("host:031/{place}.7"),
        format!("host:-31/{place}.7"),
        format!("host:4294967327/{place}.7"),
        format!("host:31/{place}.+7"),
        format!("host:31/{place}."),
        format!("host:31/{place}0.7"),
        format!("host:31/{}.7", place.to_uppercase().replace('0', "G")),
        format!("host:31/{place}.7 "),
    ] {
        assert!(!unknown.is_gone(&name), "{name}");
    }
}

#[test]
fn a_process_is_gone_when_its_id_is_free_or_belongs_to_another() {
    let machine = Machine::new();
    let name = machine.name(7);
    assert!(machine.seen_by(|_| false).is_gone(&name));
    machine.claimer('S', 8, &[]);
    assert!(machine.seen().is_gone(&name), "the id was given to another");
}

#[test]
fn a_process_that_exists_is_not_gone_whatever_its_state() {
    let machine = Machine::new();
    let name = machine.name(7);
    assert!(!machine.seen().is_gone(&name), "`/proc` hides it");
    for state in ['R', 'S', 'D', 'T', 't', 'I'] {
        machine.claimer(state, 7, &[]);
        assert!(!machine.seen().is_gone(&name), "{state}");
    }
    machine.write("31/stat", "31 (a");
    assert!(!machine.seen().is_gone(&name), "it cannot be read");
}

#[test]
fn a_zombie_is_gone_when_all_of_its_threads_have_ended() {
    let machine = Machine::new();
    let name = machine.name(7);
    machine.claimer('Z', 7, &['Z', 'S']);
    assert!(!machine.seen().is_gone(&name), "a thread still runs");
    machine.claimer('Z', 7, &['Z', 'X']);
    assert!(machine.seen().is_gone(&name));
    fs::remove_file(machine.0.path().join("31/task/32/stat")).unwrap();
    assert!(!machine.seen().is_gone(&name), "a thread cannot be read");
    fs::remove_dir_all(machine.0.path().join("31/task")).unwrap();
    assert!(!machine.seen().is_gone(&name), "no thread can be read");
}

#[test]
fn nothing_is_known_about_processes_elsewhere() {
    let machine = Machine::new();
    let name = machine.name(7);
    assert!(machine.seen_by(|_| false).is_gone(&name));

    machine.namespace("pid", "pid:[4026532001]");
    assert!(!machine.seen_by(|_| false).is_gone(&name), "a container");
    machine.namespace("pid", "pid:[4026531836]");
    machine.namespace("time", "time:[4026532002]");
    assert!(
        !machine.seen_by(|_| false).is_gone(&name),
        "its clock differs"
    );
    machine.namespace("time", "time:[4026531834]");
    machine.write("sys/kernel/random/boot_id", "another\n");
    assert!(!machine.seen_by(|_| false).is_gone(&name), "another boot");
    machine.write("sys/kernel/random/boot_id", BOOT);
    let other_host = Processes::of(machine.0.path().to_owned(), |_| false, "other".into(), 70);
    assert!(!other_host.is_gone(&name));
    assert!(machine.seen_by(|_| false).is_gone(&name), "all as before");
}

#[test]
fn where_a_fact_is_missing_the_name_is_plain_and_nothing_is_known() {
    let known = Machine::new().name(7);
    for path in [
        "sys/kernel/random/boot_id",
        "self/status",
        "self/stat",
        "self/ns/pid",
    ] {
        let machine = Machine::new();
        fs::remove_file(machine.0.path().join(path)).unwrap();
        let unknown = machine.seen_by(|_| false);
        assert_eq!(unknown.own_name(), "host:70", "{path}");
        assert!(!unknown.is_gone(&known), "{path}");
    }
    for status in ["NSpid:\t4711\t70\n", "NSpid:\t71\n", "Pid:\t70\n"] {
        let machine = Machine::new();
        machine.write("self/status", status);
        assert_eq!(machine.seen().own_name(), "host:70", "{status}");
    }
    let machine = Machine::new();
    machine.write("sys/kernel/random/boot_id", "\n");
    assert_eq!(machine.seen().own_name(), "host:70");
    // Kernels before 5.6 have no time namespaces.
    let machine = Machine::new();
    fs::remove_file(machine.0.path().join("self/ns/time")).unwrap();
    assert!(machine.seen().own_name().starts_with("host:70/"));
}

/// Starts a process that waits until it is killed.
fn sleeper() -> Child {
    let mut sleep = Command::new("sleep");
    sleep.arg("600").stdin(Stdio::null()).spawn().unwrap()
}

fn name_of(here: &Processes, child: &Child) -> String {
    let own = here.own.as_ref().expect("this machine has a `/proc`");
    let stat = Stat::read(Path::new(&format!("/proc/{}/stat", child.id()))).unwrap();
    format!("any:{}/{}.{}", child.id(), own.place, stat.start)
}

#[test]
fn a_real_process_is_gone_from_its_death_on_reaped_or_not_and_not_while_it_is_frozen() {
    let here = Processes::here();
    assert!(!here.is_gone(&here.own_name()), "{}", here.own_name());
    let mut child = sleeper();
    let name = name_of(&here, &child);
    assert!(!here.is_gone(&name));
    let pid = Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    let directory = format!("/proc/{}/stat", child.id());
    let until_state = |wanted: char| {
        let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(30);
        while !fs::read_to_string(&directory)
            .unwrap()
            .contains(&format!(") {wanted} "))
        {
            assert!(tokio::time::Instant::now() < deadline, "never in {wanted}");
            std::thread::yield_now();
        }
    };
    until_state('T');
    assert!(!here.is_gone(&name), "it is frozen, and lives");
    child.kill().unwrap();
    until_state('Z');
    assert!(here.is_gone(&name), "a zombie does nothing any more");
    child.wait().unwrap();
    assert!(here.is_gone(&name));
}
