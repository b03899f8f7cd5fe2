//! What a command gives instead of drawing it.

/// The timer of the daemons and of the producers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum TimerKind {
    LedgerPoll,
    KeyExpiry,
    SortedSet,
    Wheel,
}

impl TimerKind {
    /// True if programs arm, move and remove tasks on its server. Into lists of a wheel they can only append.
    pub(super) fn has_programs(self) -> bool {
        matches!(self, Self::KeyExpiry | Self::SortedSet)
    }

    pub fn has_redis(self) -> bool {
        self != Self::LedgerPoll
    }

    /// As `timer` in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::LedgerPoll => "ledger_poll",
            Self::KeyExpiry => "key_expiry",
            Self::SortedSet => "sorted_set",
            Self::Wheel => "wheel",
        }
    }
}

/// What is given instead of drawn.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::Args)]
pub struct Given {
    /// Timer; drawn if it is not given
    #[arg(long)]
    pub(super) timer: Option<TimerKind>,
    /// Move tasks between two ledgers in each run
    #[arg(long, conflicts_with = "timer")]
    pub(super) moves: bool,
}

impl Given {
    /// The options of the program that give the same.
    pub fn options(self) -> Vec<&'static str> {
        let timer = self.timer.map(|timer| ["--timer", timer.name()]);
        let moves = self.moves.then_some("--moves");
        timer.into_iter().flatten().chain(moves).collect()
    }
}
