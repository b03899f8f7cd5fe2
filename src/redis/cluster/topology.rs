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
    slots: Vec<Slot>,
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
    is_master: bool,
    /// It answers, as far as the other one knows.
    is_well: bool,
    is_self: bool,
    epoch: u64,
    slots: Vec<(u16, u16)>,
    /// Slots that it is handing over or taking over. Told by itself alone.
    moving: Vec<u16>,
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
        let mut own = self.0.iter().filter(|node| node.is_self);
        own.any(|node| {
            let mut ranges = node.slots.iter();
            node.is_master
                && ranges.any(|(first, last)| (*first..=*last).contains(&slot))
                && !node.moving.contains(&slot)
        })
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
        let host = match (name, ip) {
            (Some(name), _) if by_name => name,
            // A node that has not been spoken to does not know its address.
            (_, "") => &asked.host,
            _ => ip,
        };
        let (mut slots, mut moving) = (Vec::new(), Vec::new());
        for word in words {
            match word.strip_prefix('[') {
                Some(word) => moving.extend(
                    word.split('-')
                        .next()
                        .and_then(|slot| slot.parse::<u16>().ok()),
                ),
                None => {
                    let (first, last) = word.split_once('-').unwrap_or((word, word));
                    slots.extend(first.parse().ok().zip(last.parse().ok()));
                }
            }
        }
        slots.retain(|(first, last)| first <= last && *last < SLOTS);
        Some(Self {
            id,
            address: Address {
                host: host.to_owned(),
                port: port.parse().ok()?,
            },
            is_master: flags.contains(&"master"),
            is_well: !flags.contains(&"fail"),
            is_self: flags.contains(&"myself"),
            epoch,
            slots,
            moving,
        })
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
            let owner = before.slots[slot].owner?;
            Some(&before.masters[usize::from(owner)].id)
        };
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
            nodes: latest
                .values()
                .map(|(_, seen)| seen.address.clone())
                .collect(),
            masters,
            read_at,
        }
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
