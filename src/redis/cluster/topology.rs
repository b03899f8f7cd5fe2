//! Which master of a cluster has which slot, as the nodes say it.
//!
//! Each node has its own view, and it is late after a failover, during a partition, and while slots move. A claim to
//! slots has an epoch that grows with each change, so of all views the claim with the highest epoch counts.

use std::collections::{HashMap, HashSet};

use tokio::time::Instant;

use super::slots::SLOTS;
use crate::Address;

/// A master of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Master {
    /// Its id, which stays through restarts.
    pub id: String,
    /// Where it is.
    pub address: Address,
}

/// The masters of a cluster and their slots.
#[derive(Debug)]
pub struct Topology {
    /// The masters that serve clients, with or without slots, ordered by their ids.
    pub masters: Vec<Master>,
    /// All nodes, replicas too.
    pub nodes: Vec<Address>,
    /// Where a node is reached that announces a host name, by what redirections may call it instead.
    names: HashMap<Address, Address>,
    slots: Vec<Slot>,
    /// Slots without a master, by the id of the one that had them last.
    former: HashMap<usize, String>,
    /// When the nodes were asked.
    pub read_at: Instant,
}

/// A slot.
#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    /// Index of its master.
    owner: Option<u16>,
    /// When another master was first seen to have it.
    moved_at: Option<Instant>,
}

/// What one node says about the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View(Vec<Seen>);

/// What a node says about a node.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Seen {
    id: String,
    address: Address,
    /// The same with its IP and with its host name.
    names: Vec<Address>,
    is_master: bool,
    /// It answers, as far as the other one knows.
    is_well: bool,
    is_self: bool,
    epoch: u64,
    slots: Vec<(u16, u16)>,
    /// Slots that it is handing over or taking over. Told by itself alone.
    moving: Vec<(u16, Move)>,
}

/// A slot that moves by `MIGRATE`, as one of both nodes says it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Move {
    /// To the node with this id.
    To(String),
    /// From it.
    From(String),
}

impl View {
    /// Parses the reply to `CLUSTER NODES` of the node at `asked`. Lines that are not understood, and nodes without an
    /// address, are left out. `by_name` prefers announced host names to addresses.
    pub fn parse(reply: &str, asked: &Address, by_name: bool) -> Self {
        let lines = reply.lines();
        Self(
            lines
                .filter_map(|line| Seen::parse(line, asked, by_name))
                .collect(),
        )
    }

    /// True if this node says of itself that it has the slot, and neither hands it over nor takes it over.
    pub fn has_settled(&self, slot: u16) -> bool {
        self.owns(slot) && self.own().all(|node| node.move_of(slot).is_none())
    }

    /// How this node says that the slot moves: from itself, which has it, or to itself, which has it not yet. `None` also of a
    /// node that has lost the slot to another meanwhile.
    pub fn move_of(&self, slot: u16) -> Option<&Move> {
        let found = self.own().find_map(|node| node.move_of(slot))?;
        (self.owns(slot) == matches!(found, Move::To(_))).then_some(found)
    }

    /// True if this node says of itself that it is a master and has the slot.
    fn owns(&self, slot: u16) -> bool {
        self.own().any(|node| {
            let mut ranges = node.slots.iter();
            node.is_master && ranges.any(|(first, last)| (*first..=*last).contains(&slot))
        })
    }

    /// What it says of itself.
    fn own(&self) -> impl Iterator<Item = &Seen> {
        self.0.iter().filter(|node| node.is_self)
    }
}

impl Seen {
    /// `id ip:port@bus[,host name] flags master ping pong epoch link slot..`
    fn parse(line: &str, asked: &Address, by_name: bool) -> Option<Self> {
        let mut words = line.split(' ');
        let id = words.next()?.to_owned();
        let (address, bus) = words.next()?.split_once('@')?;
        let (ip, port) = address.rsplit_once(':')?;
        let name = bus.split(',').nth(1).filter(|name| !name.is_empty());
        let flags: Vec<&str> = words.next()?.split(',').collect();
        let (_, _, _) = (words.next()?, words.next()?, words.next()?);
        let epoch = words.next()?.parse().ok()?;
        let _link = words.next()?;
        if flags.contains(&"handshake") || flags.contains(&"noaddr") {
            return None;
        }
        let ip = match ip {
            // A node that has not been spoken to does not know its address.
            "" => &asked.host,
            _ => ip,
        };
        let host = name.filter(|_| by_name).unwrap_or(ip);
        let port = port.parse().ok()?;
        let at = |host: &str| Address {
            host: host.to_owned(),
            port,
        };
        let (mut slots, mut moving) = (Vec::new(), Vec::new());
        for word in words {
            match word.strip_prefix('[') {
                Some(word) => moving.extend(Move::parse(word)),
                None => {
                    let (first, last) = word.split_once('-').unwrap_or((word, word));
                    slots.extend(first.parse().ok().zip(last.parse().ok()));
                }
            }
        }
        slots.retain(|(first, last)| first <= last && *last < SLOTS);
        Some(Self {
            id,
            address: at(host),
            names: name.into_iter().chain([ip]).map(at).collect(),
            is_master: flags.contains(&"master"),
            is_well: !flags.contains(&"fail"),
            is_self: flags.contains(&"myself"),
            epoch,
            slots,
            moving,
        })
    }
}

impl Seen {
    fn move_of(&self, slot: u16) -> Option<&Move> {
        let mut moving = self.moving.iter();
        moving.find_map(|(moves, how)| (*moves == slot).then_some(how))
    }
}

impl Move {
    /// `slot->-id]` or `slot-<-id]`.
    fn parse(word: &str) -> Option<(u16, Self)> {
        let (slot, rest) = word.split_once('-')?;
        let (way, id) = rest.strip_suffix(']')?.split_once('-')?;
        let id = id.to_owned();
        let how = match way {
            ">" => Self::To(id),
            "<" => Self::From(id),
            _ => return None,
        };
        Some((slot.parse().ok()?, how))
    }

    /// True if the other node says the same of the slot. This one, with the id, says `self`.
    pub fn is_confirmed_by(&self, other: &Self, id: &str) -> bool {
        match (self, other) {
            (Self::To(_), Self::From(this)) | (Self::From(_), Self::To(this)) => this == id,
            _ => false,
        }
    }

    /// The id of the other node.
    pub fn other(&self) -> &str {
        let (Self::To(id) | Self::From(id)) = self;
        id
    }
}

impl Topology {
    /// Merges views. A node counts if most of them have it: one that has left the cluster has a view of its own. `before`
    /// tells which slots have moved since.
    pub fn merge(views: &[View], before: Option<&Self>, read_at: Instant) -> Self {
        let mut latest: HashMap<&str, (usize, &Seen)> = HashMap::new();
        for seen in views.iter().flat_map(|view| &view.0) {
            let (count, known) = latest.entry(&seen.id).or_insert((0, seen));
            *count += 1;
            if (seen.epoch, seen.is_self) > (known.epoch, known.is_self) {
                *known = seen;
            }
        }
        latest.retain(|_, (count, _)| *count > views.len() / 2);
        let mut claims: Vec<Option<(u64, &str)>> = vec![None; usize::from(SLOTS)];
        for seen in views.iter().flat_map(|view| &view.0) {
            if !seen.is_master || !latest.contains_key(&seen.id[..]) {
                continue;
            }
            for (first, last) in &seen.slots {
                for claim in &mut claims[usize::from(*first)..=usize::from(*last)] {
                    if claim.is_none_or(|(epoch, _)| seen.epoch > epoch) {
                        *claim = Some((seen.epoch, &seen.id));
                    }
                }
            }
        }
        let has_slots: HashSet<&str> = claims.iter().flatten().map(|(_, id)| *id).collect();
        let mut masters: Vec<Master> = latest
            .values()
            .filter(|(_, seen)| {
                has_slots.contains(&seen.id[..]) || (seen.is_master && seen.is_well)
            })
            .map(|(_, seen)| Master {
                id: seen.id.clone(),
                address: seen.address.clone(),
            })
            .collect();
        masters.sort();
        let places: HashMap<&str, u16> = (0u16..)
            .zip(&masters)
            .map(|(place, master)| (&master.id[..], place))
            .collect();
        let owner_before = |slot: usize| {
            let before = before?;
            match before.slots[slot].owner {
                Some(owner) => Some(&before.masters[usize::from(owner)].id),
                None => before.former.get(&slot),
            }
        };
        let unowned = claims.iter().enumerate().filter(|(_, it)| it.is_none());
        let former = unowned
            .filter_map(|(slot, _)| Some((slot, owner_before(slot)?.clone())))
            .collect();
        let slots = claims.iter().enumerate().map(|(slot, claim)| {
            let owner = claim.and_then(|(_, id)| places.get(id).copied());
            let is_other = owner
                .zip(owner_before(slot))
                .is_some_and(|(owner, before)| masters[usize::from(owner)].id != *before);
            Slot {
                owner,
                moved_at: match is_other {
                    true => Some(read_at),
                    false => before.and_then(|before| before.slots[slot].moved_at),
                },
            }
        });
        Self {
            slots: slots.collect(),
            former,
            nodes: latest
                .values()
                .map(|(_, seen)| seen.address.clone())
                .collect(),
            names: latest
                .values()
                .flat_map(|(_, seen)| seen.names.iter().map(|name| (name, &seen.address)))
                .filter(|(name, address)| name != address)
                .map(|(name, address)| (name.clone(), address.clone()))
                .collect(),
            masters,
            read_at,
        }
    }

    /// Where the node is reached that a redirection names: by its IP, which no certificate may have, or by its host name.
    pub fn reached_at(&self, named: Address) -> Address {
        self.names.get(&named).cloned().unwrap_or(named)
    }

    /// The master that has the slot.
    pub fn owner(&self, slot: u16) -> Option<&Master> {
        let owner = self.slots.get(usize::from(slot))?.owner?;
        self.masters.get(usize::from(owner))
    }

    /// When another master was first seen to have the slot.
    pub fn moved_at(&self, slot: u16) -> Option<Instant> {
        self.slots.get(usize::from(slot))?.moved_at
    }

    /// When a slot was last seen to have moved.
    pub fn latest_move(&self) -> Option<Instant> {
        self.slots.iter().filter_map(|slot| slot.moved_at).max()
    }

    /// The masters that have slots since this topology was read that others had before.
    pub fn gained(&self) -> HashSet<&Master> {
        let moved = self
            .slots
            .iter()
            .filter(|slot| slot.moved_at == Some(self.read_at));
        moved
            .filter_map(|slot| self.masters.get(usize::from(slot.owner?)))
            .collect()
    }

    /// Number of slots without a master.
    pub fn unowned(&self) -> usize {
        self.slots
            .iter()
            .filter(|slot| slot.owner.is_none())
            .count()
    }

    /// Number of slots of a master.
    pub fn count_of(&self, master: &Master) -> usize {
        (0..SLOTS)
            .filter(|slot| self.owner(*slot) == Some(master))
            .count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(port: u16) -> Address {
        Address {
            host: "h".to_owned(),
            port,
        }
    }

    fn view(text: &str) -> View {
        View::parse(text, &address(1), false)
    }

    fn owner(topology: &Topology, slot: u16) -> Option<&str> {
        topology.owner(slot).map(|master| &master.id[..])
    }

    #[test]
    fn a_view_has_addresses_names_slots_and_moves() {
        let text = "a :7000@17000,n1 myself,master - 0 0 3 connected 0-2 7 [2->-b] [9-<-b]\n\
                    b 10.0.0.2:7001@17001 master - 0 1 2 connected 8-16383\n\
                    c 10.0.0.3:7002@17002,,shard-id=x slave b 0 1 2 connected\n\
                    d :0@0 master,noaddr - 0 0 0 disconnected\n\
                    garbage\n";
        let found = view(text);
        let told: Vec<String> = found
            .0
            .iter()
            .map(|node| node.address.to_string())
            .collect();
        assert_eq!(told, ["h:7000", "10.0.0.2:7001", "10.0.0.3:7002"]);
        let by_name = View::parse(text, &address(1), true);
        assert_eq!(by_name.0[0].address.host, "n1");
        let topology = Topology::merge(&[by_name], None, Instant::now());
        let reached = |host: &str, port| {
            let host = host.to_owned();
            topology.reached_at(Address { host, port }).to_string()
        };
        assert_eq!(reached("h", 7000), "n1:7000");
        assert_eq!(reached("10.0.0.2", 7001), "10.0.0.2:7001");
        assert_eq!(reached("10.0.0.9", 7009), "10.0.0.9:7009");
        let topology = Topology::merge(std::slice::from_ref(&found), None, Instant::now());
        let named = Address {
            host: "n1".to_owned(),
            port: 7000,
        };
        assert_eq!(topology.reached_at(named).to_string(), "h:7000");
        let moves = [2, 7, 9].map(|slot| found.move_of(slot).cloned());
        let [to, from] = [Move::To("b".to_owned()), Move::From("b".to_owned())];
        let confirmed = [
            (Move::From("a".to_owned()), true),
            (Move::From("c".to_owned()), false),
            (Move::To("a".to_owned()), false),
        ];
        for (other, is_confirmed) in confirmed {
            assert_eq!(to.is_confirmed_by(&other, "a"), is_confirmed, "{other:?}");
        }
        assert_eq!(moves, [Some(to), None, Some(from)]);
        let settled: Vec<bool> = [0, 2, 7, 8, 9].map(|slot| found.has_settled(slot)).into();
        assert_eq!(settled, [true, false, true, false, false]);
    }

    #[test]
    fn the_claim_with_the_highest_epoch_counts() {
        let old = view(
            "a h:1@1 myself,master - 0 0 1 connected 0-5\nb h:2@2 slave a 0 0 1 connected\nc h:3@3 master - 0 0 2 connected 6-16383",
        );
        let new = view(
            "a h:1@1 master,fail - 0 0 1 connected\nb h:2@2 myself,master - 0 0 3 connected 0-5\nc h:3@3 master - 0 0 2 connected 6-16383",
        );
        let start = Instant::now();
        let before = Topology::merge(std::slice::from_ref(&old), None, start);
        assert_eq!(
            (owner(&before, 0), owner(&before, 6)),
            (Some("a"), Some("c"))
        );
        assert_eq!(before.moved_at(0), None);
        let now = start + std::time::Duration::from_secs(1);
        let after = Topology::merge(&[old, new.clone(), new], Some(&before), now);
        assert_eq!((owner(&after, 5), owner(&after, 6)), (Some("b"), Some("c")));
        assert_eq!((after.moved_at(5), after.moved_at(6)), (Some(now), None));
        assert_eq!((after.unowned(), after.latest_move()), (0, Some(now)));
    }

    #[test]
    fn a_slot_that_had_no_master_for_a_while_has_moved_if_another_has_it_now() {
        let of = |first: &str, second: &str| {
            view(&format!(
                "a h:1@1 myself,master - 0 0 1 connected {first}\nb h:2@2 master - 0 0 2 connected {second}"
            ))
        };
        let start = Instant::now();
        let mut topology = Topology::merge(&[of("0-9", "10-16383")], None, start);
        for (step, first, second) in [(1, "0-7", "10-16383"), (2, "0-7", "10-16383")] {
            let at = start + std::time::Duration::from_secs(step);
            topology = Topology::merge(&[of(first, second)], Some(&topology), at);
            assert_eq!((topology.unowned(), topology.latest_move()), (2, None));
        }
        let now = start + std::time::Duration::from_secs(3);
        let after = Topology::merge(&[of("0-8", "9-16383")], Some(&topology), now);
        assert_eq!((after.moved_at(8), after.moved_at(9)), (None, Some(now)));
        assert_eq!(after.unowned(), 0);
    }

    #[test]
    fn a_node_that_has_left_does_not_count() {
        let cluster = view("a h:1@1 myself,master - 0 0 1 connected 0-16383");
        let left = view("z h:9@9 myself,master - 0 0 9 connected 0-5");
        let merged = Topology::merge(&[cluster.clone(), cluster, left], None, Instant::now());
        assert_eq!(owner(&merged, 0), Some("a"));
        assert_eq!(merged.masters.len(), 1);
    }

    #[test]
    fn a_slot_without_a_master_has_no_owner() {
        let merged = Topology::merge(
            &[view(
                "a h:1@1 myself,master - 0 0 1 connected 0-16382 99999",
            )],
            None,
            Instant::now(),
        );
        assert_eq!((owner(&merged, 16_383), merged.unowned()), (None, 1));
        assert_eq!(merged.count_of(&merged.masters[0]), 16_383);
    }
}
