//! Delivery: posts messages one after the other, and tries again.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::sleep;

use super::message::Message;
use lapsed::config::AlertFormat;
use lapsed::handler::Poster;
use lapsed::task::RetryAdvice;

/// Maximum number of messages that wait. More are dropped: the receiver has not answered for a long time.
pub const WAITING_MAX: usize = 64;

/// Time limit of one attempt.
pub const ATTEMPT_MAX: Duration = Duration::from_secs(10);

/// Attempts for one message. Their delays add up to about six minutes.
const ATTEMPTS_MAX: u32 = 12;

/// Delay after the first failed attempt; it doubles up to the other one.
const DELAY_MIN: Duration = Duration::from_secs(1);
const DELAY_MAX: Duration = Duration::from_secs(60);

/// Delivers messages in their order until the sender is dropped. A message that fails for good is logged.
pub async fn deliver(poster: Poster, format: AlertFormat, mut messages: mpsc::Receiver<Message>) {
    while let Some(message) = messages.recv().await {
        deliver_one(&poster, format, &message).await;
    }
}

async fn deliver_one(poster: &Poster, format: AlertFormat, message: &Message) {
    let mut delay = DELAY_MIN;
    for attempt in 1..=ATTEMPTS_MAX {
        let Err(failure) = poster.post(&message.id, message.body(format)).await else {
            return;
        };
        let wait = match failure.advice {
            RetryAdvice::Never => None,
            _ if attempt == ATTEMPTS_MAX => None,
            RetryAdvice::After(wait) => Some(wait.min(DELAY_MAX)),
            RetryAdvice::ByPolicy => Some(delay),
        };
        let (alert, state, error) = (message.alert, message.state, &failure.message);
        let Some(wait) = wait else {
            tracing::error!(
                alert,
                state,
                attempt,
                error,
                "could not deliver a message about an alert"
            );
            return;
        };
        tracing::warn!(
            alert,
            state,
            attempt,
            error,
            "could not deliver a message about an alert; trying again"
        );
        sleep(wait).await;
        delay = (delay * 2).min(DELAY_MAX);
    }
}
