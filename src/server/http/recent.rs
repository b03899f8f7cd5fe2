//! An answer of the ledger that requests share for a short time.

use std::future::Future;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

/// An answer that is asked for at most once at a time, and shared while it is fresh.
#[derive(Debug)]
pub struct Recent<T> {
    fresh_for: Duration,
    known: Mutex<Option<(Instant, T)>>,
}

impl<T: Clone> Recent<T> {
    /// An answer that is shared for this long.
    pub fn new(fresh_for: Duration) -> Self {
        Self {
            fresh_for,
            known: Mutex::new(None),
        }
    }

    /// Returns the answer, and asks for it if it is older. Errors are not kept.
    ///
    /// # Errors
    /// That of `ask`.
    ///
    /// # Cancel safety
    /// Cancel safe: the next caller asks again.
    pub async fn get<E>(&self, ask: impl Future<Output = Result<T, E>>) -> Result<T, E> {
        let mut known = self.known.lock().await;
        if let Some((at, answer)) = &*known
            && at.elapsed() < self.fresh_for
        {
            return Ok(answer.clone());
        }
        let asked = Instant::now();
        let answer = ask.await?;
        *known = Some((asked, answer.clone()));
        Ok(answer)
    }

    /// Forgets the answer, after a change.
    pub async fn forget(&self) {
        *self.known.lock().await = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_shared_while_it_is_fresh_and_an_error_is_not() {
        let recent = Recent::new(Duration::from_secs(1));
        let answer = |answer: Result<i32, &'static str>| recent.get(async move { answer });
        assert_eq!(answer(Err("refused")).await, Err("refused"));
        assert_eq!(answer(Ok(1)).await, Ok(1));
        assert_eq!(answer(Ok(2)).await, Ok(1));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(answer(Ok(3)).await, Ok(3));
        recent.forget().await;
        assert_eq!(answer(Ok(4)).await, Ok(4));
    }
}
