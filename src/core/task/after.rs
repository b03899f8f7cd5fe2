//! A task that starts after all tasks with a tag.

use serde::{Deserialize, Serialize};

use super::State;
use super::tag::tag_problem;

/// A condition of a task: it starts when every task with a tag has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct After {
    /// The tag of the tasks that must have ended: done, cancelled, or no longer in the ledger.
    #[cfg_attr(feature = "openapi", schema(example = "import-7"))]
    pub tag: String,
    /// What happens while one of them is dead.
    #[serde(default, skip_serializing_if = "is_default")]
    pub if_dead: IfDead,
}

/// Policy of [`After`] for a dead task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(
    feature = "openapi",
    derive(utoipa::ToSchema),
    schema(description = "Policy for a dead task with the tag.")
)]
#[serde(rename_all = "lowercase")]
pub enum IfDead {
    /// The task waits until the dead one has been redriven and has ended, or has been discarded.
    #[default]
    Wait,
    /// A dead task has ended.
    Ignore,
}

impl IfDead {
    /// All policies.
    pub const ALL: [Self; 2] = [Self::Wait, Self::Ignore];

    /// The name of the policy.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Wait => "wait",
            Self::Ignore => "ignore",
        }
    }
}

impl std::str::FromStr for IfDead {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|policy| policy.as_str() == text);
        found.ok_or_else(|| format!("`{text}` is neither `wait` nor `ignore`"))
    }
}

impl After {
    /// Returns why a task with this tag of its own cannot have the condition; `None` if it can.
    pub fn problem(&self, own_tag: Option<&str>) -> Option<String> {
        if own_tag == Some(&self.tag) {
            let tag = &self.tag;
            return Some(format!(
                "the task has the tag `{tag}` itself and would wait for itself, expected another tag"
            ));
        }
        tag_problem(&self.tag).map(|problem| format!("`after`: {problem}"))
    }

    /// Returns what a task waits for: one in this state. Names no key, which a reader of this task may not be allowed to see.
    pub fn waits_for(&self, state: State) -> String {
        format!("a task with tag `{}` is {state}", self.tag)
    }

    /// Returns the condition in words: the tag, and the policy unless it is the default.
    pub fn summary(&self) -> String {
        match self.if_dead {
            IfDead::Wait => format!("all tasks with tag {}", self.tag),
            IfDead::Ignore => format!("all tasks with tag {}, done or dead", self.tag),
        }
    }
}

fn is_default(policy: &IfDead) -> bool {
    *policy == IfDead::default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(if_dead: IfDead) -> After {
        After {
            tag: "eu".into(),
            if_dead,
        }
    }

    #[test]
    fn a_condition_is_described_and_stored_with_the_policy_unless_that_is_the_default() {
        for (if_dead, summary, stored) in [
            (IfDead::Wait, "all tasks with tag eu", r#"{"tag":"eu"}"#),
            (
                IfDead::Ignore,
                "all tasks with tag eu, done or dead",
                r#"{"tag":"eu","if_dead":"ignore"}"#,
            ),
        ] {
            let after = after(if_dead);
            assert_eq!(after.summary(), summary);
            assert_eq!(serde_json::to_string(&after).unwrap(), stored);
            assert_eq!(serde_json::from_str::<After>(stored).unwrap(), after);
            assert_eq!(if_dead.as_str().parse(), Ok(if_dead));
        }
        let error = "no".parse::<IfDead>().unwrap_err();
        assert_eq!(error, "`no` is neither `wait` nor `ignore`");
        let waits = after(IfDead::Wait).waits_for(State::Dead);
        assert_eq!(waits, "a task with tag `eu` is dead");
    }

    #[test]
    fn a_task_does_not_wait_for_itself() {
        let wait = after(IfDead::Wait);
        assert_eq!(wait.problem(None), None);
        assert_eq!(wait.problem(Some("us")), None);
        let problem = wait.problem(Some("eu")).unwrap();
        assert!(problem.contains("would wait for itself"), "{problem}");
        let no_tag = After {
            tag: String::new(),
            ..wait
        };
        let problem = no_tag.problem(Some("eu")).unwrap();
        assert!(problem.starts_with("`after`: tag is empty"), "{problem}");
    }
}
