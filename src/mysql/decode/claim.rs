//! Rows of scans, claims, leases and settlements.

use std::sync::Arc;

use sqlx::Row;
use sqlx::mysql::MySqlRow;
use tokio::time::Instant;

use super::{arming, flag, id, key, ms, narrow, owner};
use lapsed_core::ledger::{Claim, DuePage, FoundLease, Lease, Owner, Upcoming};
use lapsed_core::task::{Arming, Attempt, AttemptError, UnixMs};

pub fn due_page(rows: &[MySqlRow], limit: u32) -> sqlx::Result<DuePage> {
    let mut page = DuePage::default();
    for row in rows {
        let (arming, due_at) = (arming(row)?, ms(row, "due_ms")?);
        page.next = Some((due_at, arming.row));
        match key(row)? {
            Some(key) => page.rows.push(Upcoming {
                key,
                arming,
                due_at,
            }),
            None => page.foreign += 1,
        }
    }
    if rows.len() < limit as usize {
        page.next = None;
    }
    Ok(page)
}

/// True if a row of `CANCELLED_RUNS` has a lease that has run out.
pub fn has_run_out(row: &MySqlRow) -> sqlx::Result<bool> {
    flag(row, "ran_out")
}

/// True if a row of `CLAIMED` was armed anew between its claim and now.
pub fn is_anew(row: &MySqlRow) -> sqlx::Result<bool> {
    flag(row, "anew")
}

/// Reads a row of `CLAIMED`. `None` if its key is not a task key; the engine does not claim such rows.
pub fn claim(row: &MySqlRow, owner: Owner, claimed: Instant) -> sqlx::Result<Option<Claim>> {
    let Some(key) = key(row)? else {
        return Ok(None);
    };
    let (arming, created) = (arming(row)?, ms(row, "start_ms")?);
    let snoozed: Option<String> = row.try_get("snoozed")?;
    let snoozed = snoozed.map(|text| AttemptError::read_lines(&text));
    let attempt = Attempt {
        number: narrow(row.try_get("attempt")?),
        crashes: narrow(row.try_get("crashes")?),
        max_attempts: row.try_get::<Option<i64>, _>("max_attempts")?.map(narrow),
        since: arming.due.max(created),
        snoozes: snoozed
            .and_then(|entries| Some(entries.first()?.snoozes))
            .unwrap_or(0),
    };
    Ok(Some(Claim {
        lease: Lease { arming, owner },
        key,
        attempt,
        created,
        due_at: ms(row, "due_ms")?,
        payload: row.try_get("payload")?,
        oversize: row
            .try_get::<Option<i64>, _>("oversize")?
            .map(i64::unsigned_abs),
        tag: row.try_get("tag")?,
        recurrence: row
            .try_get::<Option<String>, _>("recurrence")?
            .map(|text| Arc::new(text.parse())),
        claimed,
        progress: Arc::default(),
    }))
}

/// Reads a row of `RENEWED`.
pub fn held(row: &MySqlRow) -> sqlx::Result<Option<(u64, Owner)>> {
    match owner(row)? {
        Some(owner) => Ok(Some((id(row)?, owner))),
        None => Ok(None),
    }
}

/// Reads a row of `LEASES`. `None` without an owner, which no claim leaves behind.
pub fn found_lease(row: &MySqlRow) -> sqlx::Result<Option<FoundLease>> {
    let Some(owner) = owner(row)? else {
        return Ok(None);
    };
    Ok(Some(FoundLease {
        row: id(row)?,
        owner,
        daemon: row.try_get("daemon")?,
        until: ms(row, "lease_ms")?,
    }))
}

/// A row of `SETTLED`.
pub struct SettledRow {
    pub arming: Arming,
    pub owner: Option<Owner>,
    pub status: i64,
    pub deleted: bool,
    /// 0 and below: no claim holds it.
    pub lease_until: UnixMs,
    pub recurring: bool,
}

impl SettledRow {
    /// True if another program has marked the row processed.
    pub fn marked(&self) -> bool {
        self.status == 1 && self.lease_left()
    }

    /// True if the claim has not been settled.
    pub fn lease_left(&self) -> bool {
        self.lease_until > UnixMs(0)
    }

    pub fn read(row: &MySqlRow) -> sqlx::Result<Self> {
        Ok(Self {
            arming: arming(row)?,
            owner: owner(row)?,
            status: row.try_get("status")?,
            deleted: flag(row, "sts")?,
            lease_until: ms(row, "lease_ms")?,
            recurring: flag(row, "recurring")?,
        })
    }
}
