use std::ffi::OsString;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::Ipv4Addr;
use std::process::{Child, Command, Stdio};

use rand::RngExt;

use super::SandboxError;
use super::process::{locate, run};

/// What `unshare` and `ip` say on a machine that allows no network of our own.
const REFUSALS: [&str; 4] = [
    "Operation not permitted",
    "Permission denied",
    "not supported",
    "Unknown device type",
];

/// The network between the machines and this one, and the one between the machines alone.
const CLIENTS: &str = "clients";
// Not `group`, which is a word of `ip`.
const GROUP: &str = "others";

/// First address of the network between the machines. No other machine sees it.
const GROUP_SUBNET: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 0);

/// First of the addresses that are reserved for tests of networks (RFC 2544): each network takes 16 of 131072.
const CLIENT_SUBNETS: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 0);
const CLIENT_SUBNET_COUNT: u32 = 8_192;
const SUBNET_SIZE: u32 = 16;

/// A private network of machines, whose links can be cut: packets then vanish, and no side is told.
///
/// Each machine has two links: one to this machine, and one to the other machines. It is a network namespace, which needs
/// root. The network ends with this value, and also when the whole process is killed.
#[derive(Debug)]
pub struct PrivateNetwork {
    switch: Namespace,
    machines: Vec<Machine>,
    uplink: String,
}

/// A machine of a network.
#[derive(Debug)]
pub(super) struct Machine {
    namespace: Namespace,
    /// Where this machine's programs reach it.
    pub address: Ipv4Addr,
    /// Where the other machines of the network reach it.
    pub group_address: Ipv4Addr,
}

impl PrivateNetwork {
    /// Makes a network of this many machines, at most 14.
    ///
    /// # Errors
    /// [`NoNetwork`](SandboxError::NoNetwork) if this machine does not allow it; or a program is missing.
    pub fn new(machines: usize) -> Result<Self, SandboxError> {
        assert!(
            machines <= 14,
            "a subnet has 14 addresses, one of them ours"
        );
        Self::build(machines).map_err(|error| match error {
            SandboxError::Ended { log, .. } if REFUSALS.iter().any(|it| log.contains(it)) => {
                SandboxError::NoNetwork {
                    reason: log.trim().replace('\n', "; "),
                }
            }
            error => error,
        })
    }

    /// Cuts both links of a machine.
    ///
    /// # Errors
    /// If `ip` fails.
    pub fn cut(&self, machine: usize) -> Result<(), SandboxError> {
        self.set(CLIENTS, machine, "down")?;
        self.set(GROUP, machine, "down")
    }

    /// Cuts the link of a machine to the other machines. The one to this machine stays.
    ///
    /// # Errors
    /// If `ip` fails.
    pub fn cut_from_others(&self, machine: usize) -> Result<(), SandboxError> {
        self.set(GROUP, machine, "down")
    }

    /// Ends a cut.
    ///
    /// # Errors
    /// If `ip` fails.
    pub fn heal(&self, machine: usize) -> Result<(), SandboxError> {
        self.set(CLIENTS, machine, "up")?;
        self.set(GROUP, machine, "up")
    }

    pub(super) fn machines(&self) -> &[Machine] {
        &self.machines
    }

    fn build(machines: usize) -> Result<Self, SandboxError> {
        let mut rng = rand::rng();
        let subnet = rng.random_range(0..CLIENT_SUBNET_COUNT) * SUBNET_SIZE;
        let subnet = Ipv4Addr::from_bits(CLIENT_SUBNETS.to_bits() + subnet);
        // The only device on this machine that others see. Its name may have 15 bytes.
        let uplink = format!("lapsed-{:08x}", rng.random::<u32>());
        let switch = Namespace::new()?;
        for network in [CLIENTS, GROUP] {
            switch.ip(&format!("link add {network} type bridge"))?;
            switch.ip(&format!("link set {network} up"))?;
        }
        let peer = format!("type veth peer name uplink netns {}", switch.id());
        ip(&format!("link add {uplink} {peer}"))?;
        ip(&format!("addr add {}/28 dev {uplink}", nth(subnet, 1)))?;
        ip(&format!("link set {uplink} up"))?;
        switch.ip(&format!("link set uplink master {CLIENTS} up"))?;
        let mut network = Self {
            switch,
            machines: Vec::new(),
            uplink: uplink.clone(),
        };
        for number in 0..machines {
            let last = u32::try_from(number).expect("14 at most") + 2;
            let machine = Machine {
                namespace: Namespace::new()?,
                address: nth(subnet, last),
                group_address: nth(GROUP_SUBNET, last),
            };
            let hardware = format!("02:00:00:00:00:{last:02x}");
            let namespace = &machine.namespace;
            namespace.ip("link set lo up")?;
            for (name, address) in [(CLIENTS, machine.address), (GROUP, machine.group_address)] {
                let port = format!("{name}{number} netns {}", network.switch.id());
                namespace.ip(&format!(
                    "link add {name} address {hardware} type veth peer name {port}"
                ))?;
                namespace.ip(&format!("addr add {address}/28 dev {name}"))?;
                namespace.ip(&format!("link set {name} up"))?;
                let port = format!("link set {name}{number} master {name} up");
                network.switch.ip(&port)?;
            }
            // Otherwise a machine whose link is cut is soon "no route to host", as no machine behind a router is.
            let known = format!("lladdr {hardware} dev {uplink} nud permanent");
            ip(&format!("neigh add {} {known}", machine.address))?;
            network.machines.push(machine);
        }
        Ok(network)
    }

    /// Sets the socket of the switch that a machine's link leads to. The machine keeps its addresses and routes.
    fn set(&self, network: &str, machine: usize, state: &str) -> Result<(), SandboxError> {
        let port = format!("link set {network}{machine} {state}");
        self.switch.ip(&port).map(drop)
    }
}

impl Drop for PrivateNetwork {
    fn drop(&mut self) {
        // It would vanish with the namespaces, but a moment later.
        let _ = ip(&format!("link del {}", self.uplink));
    }
}

impl Machine {
    /// The words before a command that is to run there.
    pub fn enter(&self) -> Result<Vec<OsString>, SandboxError> {
        self.namespace.enter()
    }
}

/// A network namespace. It and its devices end with the process that holds it, which ends when its input does.
#[derive(Debug)]
struct Namespace {
    holder: Child,
}

impl Namespace {
    fn new() -> Result<Self, SandboxError> {
        let program = locate("unshare", "util-linux")?;
        let failed = |source| SandboxError::Io {
            action: "run `unshare`".to_owned(),
            source,
        };
        let holder = Command::new(program)
            .args(["--net", "cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let mut namespace = Self { holder };
        // An echo says that it is `cat` by now, in the namespace.
        let (input, output) = (&mut namespace.holder.stdin, &mut namespace.holder.stdout);
        let mut echo = String::new();
        // A refused `unshare` has closed its input: its errors say more.
        let _ = input.as_mut().expect("piped").write_all(b"\n");
        BufReader::new(output.as_mut().expect("piped"))
            .read_line(&mut echo)
            .map_err(failed)?;
        if !echo.is_empty() {
            return Ok(namespace);
        }
        let mut log = String::new();
        let errors = namespace.holder.stderr.as_mut().expect("piped");
        errors.read_to_string(&mut log).map_err(failed)?;
        Err(SandboxError::Ended {
            program: "unshare".to_owned(),
            status: namespace.holder.wait().map_err(failed)?,
            log,
        })
    }

    fn id(&self) -> u32 {
        self.holder.id()
    }

    fn enter(&self) -> Result<Vec<OsString>, SandboxError> {
        let program = locate("nsenter", "util-linux")?.into();
        Ok(vec![
            program,
            format!("--net=/proc/{}/ns/net", self.id()).into(),
            "--".into(),
        ])
    }

    /// Runs `ip` there.
    fn ip(&self, words: &str) -> Result<String, SandboxError> {
        let mut command = self.enter()?;
        let program = command.remove(0);
        command.push(locate("ip", "iproute2")?.into());
        command.extend(words.split(' ').map(OsString::from));
        run(program.as_ref(), &command)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // Both fail only for a process that is already reaped.
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// Runs `ip` on this machine.
fn ip(words: &str) -> Result<String, SandboxError> {
    let words: Vec<OsString> = words.split(' ').map(OsString::from).collect();
    run(&locate("ip", "iproute2")?, &words)
}

fn nth(subnet: Ipv4Addr, number: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(subnet.to_bits() + number)
}
