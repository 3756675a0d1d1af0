//! The last user of the file, and detection of lost acknowledged writes.
//!
//! With full durability no acknowledged write can be lost. With relaxed durability a power failure may lose the last ones;
//! clients that have seen them must not see their revisions again with other content. So after such an end the revision
//! counter skips ahead and all history is closed: a client that resumes has to list again.

use machinery::Revision;
use rusqlite::{Connection, OptionalExtension};

use super::Durability;
use super::fault::Fault;
use super::ledger::State;

/// More revisions than any store gives out between two syncs of the system.
pub(super) const SKIPPED_REVISIONS: u64 = 1_000_000_000;

struct Session {
    boot: String,
    durability: String,
    clean: bool,
}

/// Records that the file is in use, and skips ahead if its last user may have lost writes.
pub(super) fn begin(connection: &Connection, durability: Durability) -> Result<(), Fault> {
    let boot = boot();
    let last = connection
        .query_row("SELECT boot, durability, clean FROM session WHERE id = 1", (), |row| {
            Ok(Session { boot: row.get(0)?, durability: row.get(1)?, clean: row.get(2)? })
        })
        .optional()?;
    // This commit is synced at any durability: it must be on disk before any write that could be lost.
    connection.pragma_update(None, "synchronous", "FULL")?;
    let transaction = connection.unchecked_transaction()?;
    if last.is_some_and(|last| last.may_have_lost(&boot)) {
        skip_ahead(&transaction)?;
    }
    transaction.execute(
        "INSERT OR REPLACE INTO session (id, boot, durability, clean) VALUES (1, ?1, ?2, 0)",
        (&boot, durability.synchronous()),
    )?;
    transaction.commit()?;
    connection.pragma_update(None, "synchronous", durability.synchronous())?;
    Ok(())
}

impl Session {
    fn may_have_lost(&self, boot: &str) -> bool {
        // Unless the machine was restarted, the system still has the writes of a killed process.
        let same_boot = !boot.is_empty() && self.boot == boot;
        !self.clean && !same_boot && self.durability != Durability::Full.synchronous()
    }
}

/// Leaves a wide gap of revisions and closes all history before it.
pub(super) fn skip_ahead(connection: &Connection) -> Result<Revision, Fault> {
    let mut state = State::read(connection)?;
    state.revision = Revision(state.revision.0 + SKIPPED_REVISIONS);
    state.floor = state.revision;
    connection.execute(
        "UPDATE state SET revision = ?1, floor = ?2, sum = ?3 WHERE id = 1",
        (state.revision.0 as i64, state.floor.0 as i64, state.sum()),
    )?;
    tracing::warn!(revision = state.revision.0, "revisions skip ahead; clients will list again");
    Ok(state.revision)
}

/// Identifier of the machine's current boot, where the system has one.
fn boot() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").map(|id| id.trim().to_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_relaxed_writes_can_be_lost_and_only_with_the_machine() {
        let session = |durability: Durability, clean| Session {
            boot: "first".to_owned(),
            durability: durability.synchronous().to_owned(),
            clean,
        };
        assert!(session(Durability::Relaxed, false).may_have_lost("second"));
        assert!(session(Durability::Relaxed, false).may_have_lost(""), "not knowing is not being sure");
        assert!(!session(Durability::Relaxed, false).may_have_lost("first"), "the process ended, the machine did not");
        assert!(!session(Durability::Relaxed, true).may_have_lost("second"));
        assert!(!session(Durability::Full, false).may_have_lost("second"));
    }
}
