//! Room: the memory that all clients of a server may use together.
//!
//! What a connection holds is counted when it exceeds [`FREE_BYTES`]: a command or a body that has arrived in part, commands
//! of an open transaction, replies that the client has not taken. When there is no room, a connection waits; after a moment
//! the one that has held some for the longest is closed. So a client that takes all room and keeps it does not keep others
//! out.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

/// Bytes that every connection may hold without being counted.
pub const FREE_BYTES: usize = 8 * 1024;

/// How long a connection may hold room without progress while another one waits for it.
const HELD_FOR: Duration = Duration::from_millis(250);

/// The same for a connection whose commands are carried out meanwhile.
const USED_FOR: Duration = Duration::from_secs(5);

/// Time for a connection that is closed to free what it holds, before more are closed.
const CLOSED_WITHIN: Duration = Duration::from_secs(1);

/// The unit in which room is counted.
const UNIT_BYTES: usize = 1024;

/// The room of a server.
pub struct Room {
    free: Arc<Semaphore>,
    units: u32,
    holders: Mutex<Holders>,
}

/// The connections that hold room, by the order in which they began to.
#[derive(Default)]
struct Holders {
    next: u64,
    by_age: BTreeMap<u64, Holder>,
}

struct Holder {
    since: Instant,
    /// When a command was carried out last.
    progress: Instant,
    held: OwnedSemaphorePermit,
    closed: CancellationToken,
    /// When it was told to close.
    closing: Option<Instant>,
}

/// There is no room for this connection: it is to be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("clients hold all the memory that they may use together")]
pub struct NoRoom;

impl Room {
    /// Room for this number of bytes.
    pub fn new(bytes: usize) -> Arc<Self> {
        let units = u32::try_from(bytes / UNIT_BYTES).unwrap_or(u32::MAX);
        Arc::new(Self {
            free: Arc::new(Semaphore::new(units as usize)),
            units,
            holders: Mutex::default(),
        })
    }

    /// The share of a new connection.
    pub fn share(self: &Arc<Self>) -> Share {
        Share {
            room: Arc::clone(self),
            place: None,
            units: 0,
            closed: CancellationToken::new(),
        }
    }

    /// Closes the connections that have held room for the longest, until this number of units is given back. What they hold
    /// is free once they have freed it.
    fn close_oldest(&self, units: u32, except: Option<u64>) {
        let mut holders = self.holders();
        let is_closing = |holder: &&Holder| {
            let closing = holder.closing;
            closing.is_some_and(|since| since.elapsed() < CLOSED_WITHIN)
        };
        let closing = holders.by_age.values().filter(is_closing);
        let mut freed: usize = closing.map(|holder| holder.held.num_permits()).sum();
        while freed < units as usize {
            let idle =
                |holder: &Holder| holder.closing.is_none() && holder.progress.elapsed() >= HELD_FOR;
            let old =
                |holder: &Holder| holder.closing.is_none() && holder.since.elapsed() >= USED_FOR;
            let first = |may_close: &dyn Fn(&Holder) -> bool| {
                let mut others = holders
                    .by_age
                    .iter()
                    .filter(|(place, _)| Some(**place) != except);
                let found = others.find(|(_, holder)| may_close(holder));
                found.map(|(place, _)| *place)
            };
            let Some(place) = first(&idle).or_else(|| first(&old)) else {
                return;
            };
            if let Some(holder) = holders.by_age.get_mut(&place) {
                holder.closed.cancel();
                holder.closing = Some(Instant::now());
                freed += holder.held.num_permits();
            }
        }
    }

    fn holders(&self) -> MutexGuard<'_, Holders> {
        self.holders
            .lock()
            .expect("nothing panics while holding it")
    }
}

/// What one connection holds of the room. Dropping it gives everything back.
pub struct Share {
    room: Arc<Room>,
    place: Option<u64>,
    units: u32,
    closed: CancellationToken,
}

impl Share {
    /// Sets the number of bytes that the connection holds. Waits if that is more than before and there is no room.
    ///
    /// # Errors
    /// [`NoRoom`]: the connection must be closed, since others need what it holds, or because it asks for more than there is.
    ///
    /// # Cancel safety
    /// Cancel safe: it holds what it held before.
    pub async fn hold(&mut self, bytes: usize) -> Result<(), NoRoom> {
        let units = units_of(bytes);
        if units == self.units && !self.closed.is_cancelled() {
            return Ok(());
        }
        if self.closed.is_cancelled() || units > self.room.units {
            return Err(NoRoom);
        }
        match units.checked_sub(self.units) {
            None => self.give_back(self.units - units),
            Some(more) => {
                let permit = self.acquire(more).await?;
                self.take(permit);
            }
        }
        self.units = units;
        Ok(())
    }

    /// Gives everything back, of a connection that has freed what it held and holds nothing more.
    pub fn leave(&mut self) {
        self.closed.cancel();
        self.give_back(self.units);
        self.units = 0;
    }

    /// Notes that a command was carried out.
    pub fn progressed(&self) {
        let Some(place) = self.place else {
            return;
        };
        if let Some(holder) = self.room.holders().by_age.get_mut(&place) {
            holder.progress = Instant::now();
        }
    }

    /// Resolves when the connection must be closed.
    pub async fn closed(&self) {
        self.closed.cancelled().await;
    }

    async fn acquire(&self, units: u32) -> Result<OwnedSemaphorePermit, NoRoom> {
        let free = &self.room.free;
        if let Ok(permit) = Arc::clone(free).try_acquire_many_owned(units) {
            return Ok(permit);
        }
        let acquired = Arc::clone(free).acquire_many_owned(units);
        tokio::pin!(acquired);
        loop {
            tokio::select! {
                biased;
                () = self.closed.cancelled() => return Err(NoRoom),
                permit = &mut acquired => return permit.map_err(|_| NoRoom),
                () = sleep(HELD_FOR) => self.room.close_oldest(units, self.place),
            }
        }
    }

    fn take(&mut self, permit: OwnedSemaphorePermit) {
        let mut holders = self.room.holders();
        let place = match self.place {
            Some(place) => place,
            None => {
                holders.next += 1;
                holders.next
            }
        };
        self.place = Some(place);
        match holders.by_age.get_mut(&place) {
            Some(holder) => holder.held.merge(permit),
            None => {
                let now = Instant::now();
                let holder = Holder {
                    since: now,
                    progress: now,
                    held: permit,
                    closed: self.closed.clone(),
                    closing: None,
                };
                holders.by_age.insert(place, holder);
            }
        }
    }

    fn give_back(&mut self, units: u32) {
        let Some(place) = self.place else {
            return;
        };
        let mut holders = self.room.holders();
        if units == self.units {
            holders.by_age.remove(&place);
            drop(holders);
            // A connection that holds nothing is the youngest when it holds something again.
            self.place = None;
        } else if let Some(holder) = holders.by_age.get_mut(&place) {
            drop(holder.held.split(units as usize));
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.give_back(self.units);
    }
}

fn units_of(bytes: usize) -> u32 {
    match bytes {
        ..=FREE_BYTES => 0,
        more => u32::try_from(more.div_ceil(UNIT_BYTES)).unwrap_or(u32::MAX),
    }
}

#[cfg(test)]
mod tests {
    use tokio::task::JoinSet;

    use super::*;

    const KIB: usize = 1024;

    #[tokio::test(start_paused = true)]
    async fn what_is_small_is_not_counted_and_what_is_given_back_can_be_taken() {
        let room = Room::new(100 * KIB);
        let (mut one, mut other) = (room.share(), room.share());
        assert_eq!(one.hold(FREE_BYTES).await, Ok(()));
        assert_eq!(room.free.available_permits(), 100);
        assert_eq!(one.hold(60 * KIB).await, Ok(()));
        assert_eq!(one.hold(70 * KIB).await, Ok(()));
        assert_eq!(one.hold(20 * KIB).await, Ok(()));
        assert_eq!(other.hold(80 * KIB).await, Ok(()));
        assert_eq!(room.free.available_permits(), 0);
        drop(other);
        assert_eq!(one.hold(0).await, Ok(()));
        assert_eq!(room.free.available_permits(), 100);
        assert_eq!(one.hold(101 * KIB).await, Err(NoRoom));
    }

    #[tokio::test(start_paused = true)]
    async fn the_connection_that_has_held_room_for_the_longest_is_closed_when_another_one_needs_it()
    {
        let room = Room::new(100 * KIB);
        let (mut held, mut closed) = (JoinSet::new(), Vec::new());
        for _ in 0..10 {
            let mut share = room.share();
            share.hold(10 * KIB).await.unwrap();
            closed.push(share.closed.clone());
            held.spawn(async move {
                share.closed().await;
                assert_eq!(share.hold(0).await, Err(NoRoom));
            });
            tokio::time::advance(Duration::from_millis(50)).await;
        }
        let mut late = room.share();
        let begun = Instant::now();
        assert_eq!(late.hold(30 * KIB).await, Ok(()));
        assert!(begun.elapsed() <= 2 * HELD_FOR, "{:?}", begun.elapsed());
        let closed: Vec<bool> = closed.iter().map(CancellationToken::is_cancelled).collect();
        assert_eq!(closed[..4], [true, true, true, false]);
        held.abort_all();
        while held.join_next().await.is_some() {}
        drop(late);
        assert_eq!(room.free.available_permits(), 100);
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_whose_commands_are_carried_out_may_hold_room_for_longer() {
        let room = Room::new(100 * KIB);
        let (mut busy, mut idle) = (room.share(), room.share());
        busy.hold(50 * KIB).await.unwrap();
        idle.hold(50 * KIB).await.unwrap();
        tokio::time::advance(2 * HELD_FOR).await;
        let mut late = room.share();
        let waiting = tokio::spawn(async move { late.hold(50 * KIB).await });
        tokio::time::sleep(HELD_FOR / 2).await;
        busy.progressed();
        idle.closed().await;
        assert_eq!(idle.hold(50 * KIB).await, Err(NoRoom));
        idle.leave();
        assert_eq!(waiting.await.unwrap(), Ok(()));
        assert_eq!(busy.hold(50 * KIB).await, Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_closed_connection_holds_is_given_to_others_once_it_is_freed() {
        let room = Room::new(100 * KIB);
        let (mut oldest, mut next) = (room.share(), room.share());
        oldest.hold(60 * KIB).await.unwrap();
        next.hold(40 * KIB).await.unwrap();
        let mut late = room.share();
        let waiting = tokio::spawn(async move { late.hold(50 * KIB).await });
        oldest.closed().await;
        tokio::time::sleep(CLOSED_WITHIN / 2).await;
        assert!(!waiting.is_finished(), "it still holds everything");
        assert!(!next.closed.is_cancelled(), "what is freed is enough");
        // One that does not free it is not waited for.
        next.closed().await;
        drop(oldest);
        assert_eq!(waiting.await.unwrap(), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_holds_room_for_a_moment_is_waited_for() {
        let room = Room::new(100 * KIB);
        let mut short = room.share();
        short.hold(90 * KIB).await.unwrap();
        let waiting = tokio::spawn({
            let mut share = room.share();
            async move { share.hold(50 * KIB).await }
        });
        tokio::time::sleep(HELD_FOR / 2).await;
        assert_eq!(short.hold(0).await, Ok(()));
        assert_eq!(waiting.await.unwrap(), Ok(()));
    }
}
