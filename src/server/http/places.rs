//! Places: the connections that may be open at the same time.
//!
//! A connection that waits for a request can be closed at any time. So when all places are taken, a new connection gets the
//! place of the one that has waited for the longest: connections that send nothing keep no others out.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use axum::response::Response;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

/// All places.
pub struct Places {
    room: Arc<Semaphore>,
    /// Further places, for probes.
    kept: Arc<Semaphore>,
    waiting: Mutex<Waiting>,
}

/// The connections that wait for a request, by the order in which they began to.
#[derive(Default)]
struct Waiting {
    next: u64,
    by_age: BTreeMap<u64, Waiter>,
}

struct Waiter {
    permit: Permit,
    closed: CancellationToken,
}

struct Permit {
    _permit: OwnedSemaphorePermit,
    only_probes: bool,
}

/// The place of a connection.
pub struct Place {
    places: Arc<Places>,
    /// What may be asked on it: probes, when all other places are taken.
    pub only_probes: bool,
    closed: CancellationToken,
    had_request: AtomicBool,
    state: Mutex<State>,
}

enum State {
    /// The permit is among those that wait, under this number.
    Waits(u64),
    /// The connection has a request.
    Busy(Option<Permit>),
}

/// While it lives, the connection has a request.
struct Busy(Arc<Place>);

impl Places {
    /// This number of places, and more for probes.
    pub fn new(places: usize, kept: usize) -> Arc<Self> {
        Arc::new(Self {
            room: Arc::new(Semaphore::new(places)),
            kept: Arc::new(Semaphore::new(kept)),
            waiting: Mutex::default(),
        })
    }

    /// The place of a new connection; `None` if all connections have requests.
    pub fn take(self: &Arc<Self>) -> Option<Arc<Place>> {
        let of = |room: &Arc<Semaphore>, only_probes| {
            let permit = Arc::clone(room).try_acquire_owned().ok()?;
            Some(Permit {
                _permit: permit,
                only_probes,
            })
        };
        let permit = of(&self.room, false)
            .or_else(|| self.close_oldest())
            .or_else(|| of(&self.kept, true))?;
        let (only_probes, closed) = (permit.only_probes, CancellationToken::new());
        let number = self.waiting().add(permit, closed.clone());
        Some(Arc::new(Place {
            places: Arc::clone(self),
            only_probes,
            closed,
            had_request: AtomicBool::new(false),
            state: Mutex::new(State::Waits(number)),
        }))
    }

    fn close_oldest(&self) -> Option<Permit> {
        let (_, oldest) = self.waiting().by_age.pop_first()?;
        oldest.closed.cancel();
        Some(oldest.permit)
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting
            .lock()
            .expect("nothing panics while holding it")
    }
}

impl Waiting {
    fn add(&mut self, permit: Permit, closed: CancellationToken) -> u64 {
        self.next += 1;
        self.by_age.insert(self.next, Waiter { permit, closed });
        self.next
    }
}

impl Place {
    /// Resolves when the place has been given to another connection.
    pub async fn closed(&self) {
        self.closed.cancelled().await;
    }

    /// True if the connection has had a request.
    pub fn had_request(&self) -> bool {
        self.had_request.load(Ordering::Relaxed)
    }

    /// Answers a request. The connection waits for the next one when the body has been sent.
    pub async fn answer<E>(
        self: Arc<Self>,
        answer: impl Future<Output = Result<Response, E>>,
    ) -> Result<Response, E> {
        let busy = Busy::new(self);
        let response = answer.await?;
        Ok(response.map(|body| Body::new(Sent { body, _busy: busy })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while holding it")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let State::Waits(number) = *self.state() {
            self.places.waiting().by_age.remove(&number);
        }
    }
}

impl Busy {
    fn new(place: Arc<Place>) -> Self {
        place.had_request.store(true, Ordering::Relaxed);
        {
            let mut state = place.state();
            if let State::Waits(number) = *state {
                let waiter = place.places.waiting().by_age.remove(&number);
                *state = State::Busy(waiter.map(|waiter| waiter.permit));
            }
        }
        Self(place)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let mut state = self.0.state();
        if let State::Busy(permit) = &mut *state
            && let Some(permit) = permit.take()
        {
            let closed = self.0.closed.clone();
            *state = State::Waits(self.0.places.waiting().add(permit, closed));
        }
    }
}

/// A body, until it has been sent.
struct Sent {
    body: Body,
    _busy: Busy,
}

impl HttpBody for Sent {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.get_mut().body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_new_connection_gets_the_place_of_the_one_that_has_waited_for_the_longest() {
        let places = Places::new(2, 1);
        let first = places.take().unwrap();
        let second = places.take().unwrap();
        let answered = async { Ok::<_, ()>(Response::new(Body::empty())) };
        let response = Arc::clone(&first).answer(answered).await.unwrap();
        let third = places.take().unwrap();
        assert!(second.closed.is_cancelled() && !first.closed.is_cancelled());
        drop(response);
        let fourth = places.take().unwrap();
        assert!(third.closed.is_cancelled(), "the first waits for less long");
        drop((second, third));
        drop((first, fourth));
        assert_eq!(places.room.available_permits(), 2);
    }

    #[tokio::test]
    async fn when_all_have_requests_there_are_places_for_probes() {
        let places = Places::new(1, 1);
        let busy = places.take().unwrap();
        let answered = async { Ok::<_, ()>(Response::new(Body::empty())) };
        let response = Arc::clone(&busy).answer(answered).await.unwrap();
        let probe = places.take().unwrap();
        assert!(!busy.only_probes && probe.only_probes);
        // One that sends nothing keeps no other probe out.
        let next = places.take().unwrap();
        assert!(next.only_probes && probe.closed.is_cancelled());
        let asked = Arc::clone(&next).answer(async { Ok::<_, ()>(Response::new(Body::empty())) });
        let _asked = asked.await.unwrap();
        assert!(places.take().is_none());
        drop(response);
        assert!(!places.take().unwrap().only_probes);
    }
}
