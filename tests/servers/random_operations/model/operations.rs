//! Carries out operations, and checks their answers.

use lapsed::Due;
use lapsed::ledger::{CancelAnswer, RescheduleAnswer, RunNowAnswer};
use lapsed::task::State;

use super::Trial;
use super::task::{Change, Effect, Op, Row};
use crate::support::tasks::key;

impl Trial {
    /// The due time, where it is told.
    pub(super) async fn carry_out(
        &self,
        name: &str,
        op: Op,
        effect: Effect,
        row: Row,
    ) -> Option<i64> {
        let task_key = key(name);
        let after = |ms: i64| Due::after_ms(ms).unwrap();
        match op {
            Op::Create(ms) => {
                let made = self.client.create(task_key, after(ms)).await;
                Some(made.unwrap().due().0)
            }
            Op::Reschedule(ms) => {
                let answer = self.client.reschedule(&task_key, after(ms)).await.unwrap();
                let moved = match answer {
                    RescheduleAnswer::Moved(arming) => Some(arming.due.0),
                    _ => None,
                };
                let wanted = match row {
                    Row::None => answer == RescheduleAnswer::Unknown,
                    Row::Pending { .. } => moved.is_some(),
                    Row::Done => answer == RescheduleAnswer::Finished(State::Done),
                    Row::Cancelled => answer == RescheduleAnswer::Finished(State::Cancelled),
                };
                self.check(name, wanted, || {
                    format!("rescheduling `{name}` {row:?}: {answer:?}")
                });
                moved
            }
            Op::Cancel => {
                let answer = self.client.cancel(&task_key).await.unwrap();
                let wanted = match row {
                    Row::None => CancelAnswer::Unknown,
                    Row::Pending { .. } => CancelAnswer::Cancelled,
                    Row::Done => CancelAnswer::Finished(State::Done),
                    Row::Cancelled => CancelAnswer::Cancelled,
                };
                self.check(name, answer == wanted, || {
                    format!("cancelling `{name}` {row:?}: {answer:?}")
                });
                None
            }
            Op::RunNow => {
                let answer = self.adapters.ledger.run_now(&task_key).await.unwrap();
                let due = match answer {
                    RunNowAnswer::Due(arming) => {
                        self.client.arm_again(&task_key, arming).await;
                        Some(arming.due.0)
                    }
                    _ => None,
                };
                let is_pending = effect.change != Change::Nothing;
                self.check(name, due.is_some() == is_pending, || {
                    format!("running `{name}` {row:?}: {answer:?}")
                });
                due
            }
            Op::Arm(ms) => {
                let ms = ms.to_string();
                let () = self
                    .rig
                    .read()
                    .await
                    .redis_says(&["PSETEX", name, &ms, ""])
                    .await;
                None
            }
            Op::Expire(ms) => {
                let ms = ms.to_string();
                self.answered(&["PEXPIRE", name, &ms], effect).await
            }
            Op::Persist => self.answered(&["PERSIST", name], effect).await,
            Op::Delete => self.answered(&["DEL", name], effect).await,
            Op::Set => {
                let () = self.rig.read().await.redis_says(&["SET", name, ""]).await;
                None
            }
        }
    }

    async fn answered(&self, words: &[&str], effect: Effect) -> Option<i64> {
        let answer: i64 = self.rig.read().await.redis_says(words).await;
        self.check(words[1], Some(answer) == effect.answer, || {
            format!("{words:?}: {answer}, {effect:?}")
        });
        None
    }

    /// An answer; the others go on.
    fn check(&self, name: &str, is_right: bool, otherwise: impl FnOnce() -> String) {
        if !is_right {
            let at = self.now() - self.began.0;
            let mut wrong = self.wrong_answers.borrow_mut();
            let first = wrong.entry(name.to_owned());
            first.or_insert_with(|| format!("at {at} {}", otherwise()));
        }
    }
}
