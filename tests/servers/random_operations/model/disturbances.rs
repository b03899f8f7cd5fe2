//! What happens to the servers and the daemons, and when.

/// Operations that need something keep so far away from what takes it away.
const DISTANCE: i64 = 1_500;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// Another daemon joins; later one stops.
    Join,
    /// The only daemon, or all of them, killed and started again.
    KillAll,
    /// One of the daemons killed, the others stay; it is started again.
    KillOne,
    /// The daemons stop gracefully, and start again.
    StopAll,
    Flush,
    /// Redis killed and started again; it may have its keys on disk.
    RedisKilled,
    /// Tasks that can be paused are.
    Pause,
}

/// What operations may need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Harm {
    /// Redis does not answer.
    Redis,
    /// Keys vanish without a word.
    Keys,
    /// A daemon is not there, or has just come.
    Daemons,
}

impl Event {
    fn harm(self) -> Option<Harm> {
        match self {
            // The others hear everything, and see at once that a killed one is gone.
            Self::Join | Self::Pause | Self::KillOne => None,
            Self::KillAll | Self::StopAll => Some(Harm::Daemons),
            Self::Flush => Some(Harm::Keys),
            Self::RedisKilled => Some(Harm::Redis),
        }
    }
}

/// One event and how long it lasts.
#[derive(Debug, Clone, Copy)]
pub struct Disturbance {
    pub event: Event,
    pub from: i64,
    /// As planned, until it is over.
    pub to: i64,
    pub begun: bool,
    pub over: bool,
}

#[derive(Debug, Clone)]
pub struct Disturbances {
    pub all: Vec<Disturbance>,
    /// Redis has its keys on disk.
    pub keeps_keys: bool,
}

impl Disturbances {
    /// Whether nothing of this kind is near.
    pub fn is_clear(&self, at: i64, harms: &[Harm]) -> bool {
        let is_near = |disturbance: &&Disturbance| {
            disturbance.from - DISTANCE <= at
                && (!disturbance.over || at <= disturbance.to + DISTANCE)
        };
        let mut near = self.all.iter().filter(is_near);
        !near.any(|disturbance| {
            disturbance
                .event
                .harm()
                .is_some_and(|harm| harms.contains(&harm))
        })
    }

    pub fn is_long_over(&self, disturbance: usize, at: i64) -> bool {
        let disturbance = &self.all[disturbance];
        disturbance.over && disturbance.to + DISTANCE <= at
    }

    /// The time without any daemon that this moment is well within, and until when it is to last.
    pub fn without_daemons(&self, at: i64) -> Option<(usize, i64)> {
        const WITHIN: i64 = 300;
        let without = |disturbance: &Disturbance| {
            matches!(disturbance.event, Event::KillAll | Event::StopAll)
                && disturbance.begun
                && (disturbance.from + WITHIN..disturbance.to - WITHIN).contains(&at)
        };
        let index = self.all.iter().position(without)?;
        Some((index, self.all[index].to))
    }

    /// Whether keys that were there at `since` may be lost by `at`.
    pub fn lost_keys_between(&self, since: i64, at: i64) -> bool {
        let loses = |disturbance: &Disturbance| match disturbance.event {
            Event::Flush => true,
            Event::RedisKilled => !self.keeps_keys,
            _ => false,
        };
        let is_begun = |disturbance: &&Disturbance| disturbance.begun && disturbance.from <= at;
        let mut begun = self.all.iter().filter(is_begun);
        begun
            .any(|disturbance| loses(disturbance) && (!disturbance.over || disturbance.to >= since))
    }

    /// Whether Redis may have been restarted by `at`, after what was written at `since`.
    pub fn restarted_between(&self, since: i64, at: i64) -> bool {
        // It counts in seconds for how long it has run.
        const COARSE: i64 = 2_500;
        let mut begun = self.all.iter().filter(|it| it.begun && it.from <= at);
        begun.any(|it| it.event == Event::RedisKilled && (!it.over || it.to + COARSE >= since))
    }

    /// Whether a task that fell due then has surely run by `at`, as planned.
    pub fn lets_run(&self, due: i64, at: i64) -> bool {
        let keeps_back = |disturbance: &Disturbance| {
            matches!(
                disturbance.event,
                Event::KillAll | Event::KillOne | Event::StopAll | Event::Pause
            ) && disturbance.from <= at
                && due <= disturbance.to + DISTANCE
        };
        due + DISTANCE <= at && !self.all.iter().any(keeps_back)
    }
}
