//! The time limit of a search, in a ledger that takes a millisecond for each row.

use std::ops::ControlFlow;
use std::pin::pin;
use std::task::{Context, Waker};

use super::*;
use crate::ledger::row::Row;
use crate::ledger::rows::store::{
    ArchiveStore, At, Columns, Count, DocumentStore, InArchive, PauseStore, ReverseRange,
    ScanRange, Scanned,
};
use crate::ledger::rows::{Length, RowLedger};
use crate::ledger::{Admin, Collection, Document, DocumentRange, ListPage, MethodTag, NewTask};
use crate::task::{Pause, PauseKind, Scope, TaskKey};

const NOW: UnixMs = UnixMs(1_800_000_000_000);

/// So many rows. Those from `wanted_from` on have the tag `wanted`.
#[derive(Clone, Copy)]
struct Slow {
    rows: u64,
    wanted_from: u64,
}

impl Slow {
    fn stored(&self, id: u64) -> Stored {
        let key = TaskKey::build("Order", "close", [id.to_string()]).unwrap();
        let mut task = NewTask::new(key, NOW);
        task.contents.tag = (id >= self.wanted_from).then(|| "wanted".to_owned());
        Stored {
            row: Row::new(id, &task, NOW),
            malformed: None,
            bytes: 0,
        }
    }

    async fn list(&self, cursor: Option<ListCursor>) -> ListPage {
        let filter = ListFilter {
            limit: 3,
            cursor,
            ..ListFilter::tag("wanted")
        };
        Admin::list(self, &filter).await.unwrap()
    }
}

impl RowLedger for Slow {
    async fn read<T, V>(&self, _: Length, verb: V) -> Result<T>
    where
        T: Send + 'static,
        V: FnOnce(&mut dyn Store) -> Result<T> + Send + 'static,
    {
        verb(&mut self.clone())
    }

    async fn write<T, V>(&self, _: Length, _: V) -> Result<T>
    where
        T: Send + 'static,
        V: FnOnce(&mut dyn Store) -> Result<T> + Send + 'static,
    {
        unreachable!("a list only walks")
    }

    fn identity(&self) -> Option<String> {
        None
    }
}

/// What a list does not do.
macro_rules! unused {
    ($(fn $name:ident(&mut self $(, $given:ty)*) -> $returned:ty;)*) => {
        $(fn $name(&mut self $(, _: $given)*) -> $returned {
            unreachable!("a list only walks")
        })*
    };
}

impl RowStore for Slow {
    fn now(&self) -> UnixMs {
        NOW
    }

    fn walk(
        &mut self,
        range: &Range,
        _: Parts,
        limit: usize,
        visit: &mut dyn FnMut(Stored) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>> {
        assert_eq!(limit, usize::MAX);
        let Range::Tagged { after, .. } = range else {
            panic!("expected a search by tag, found {range:?}");
        };
        for id in after + 1..=self.rows {
            // The clock moves in the first poll.
            let millisecond = pin!(tokio::time::advance(Duration::from_millis(1)));
            let _ = millisecond.poll(&mut Context::from_waker(Waker::noop()));
            if visit(self.stored(id)).is_break() {
                return Ok(Break(()));
            }
        }
        Ok(Continue(()))
    }

    unused! {
        fn row(&mut self, At<'_>, Parts) -> Result<Option<Stored>>;
        fn insert(&mut self, &Row) -> Result<Option<u64>>;
        fn save(&mut self, &Row, Columns) -> Result<()>;
        fn delete(&mut self, u64) -> Result<()>;
        fn scan(&mut self, &ScanRange, usize, &mut dyn FnMut(&Scanned<'_>) -> ControlFlow<()>) -> Result<ControlFlow<()>>;
        fn places(&mut self, DueRange, usize, &mut dyn FnMut(DuePlace) -> ControlFlow<()>) -> Result<ControlFlow<()>>;
        fn ids_before(&mut self, &ReverseRange, usize) -> Result<Vec<(u64, ListCursor)>>;
        fn count(&mut self, Count) -> Result<u64>;
        fn last_due(&mut self, u8, bool, u64) -> Result<Option<DuePlace>>;
        fn has_method_index(&mut self) -> bool;
        fn next_method(&mut self, &str) -> Result<Option<MethodTag>>;
    }
}

impl ArchiveStore for Slow {
    unused! {
        fn archive(&mut self, u64) -> Result<()>;
        fn in_archive(&mut self, InArchive<'_>) -> Result<()>;
    }
}

impl PauseStore for Slow {
    unused! {
        fn pauses(&mut self) -> Result<Vec<Pause>>;
        fn insert_pause(&mut self, &Pause) -> Result<()>;
        fn delete_pause(&mut self, PauseKind, &Scope) -> Result<()>;
        fn delete_holds(&mut self) -> Result<()>;
    }
}

impl DocumentStore for Slow {
    unused! {
        fn document(&mut self, Collection, &str) -> Result<Option<Document>>;
        fn insert_document(&mut self, Collection, &Document) -> Result<()>;
        fn replace_document(&mut self, Collection, &str, &str) -> Result<bool>;
        fn delete_document(&mut self, Collection, &str) -> Result<bool>;
        fn documents(&mut self, Collection, &DocumentRange) -> Result<Vec<Document>>;
        fn delete_documents(&mut self, Collection, UnixMs, u32) -> Result<u64>;
    }
}

#[tokio::test(start_paused = true)]
async fn a_search_that_finds_too_little_stops_after_its_time_and_says_where_it_goes_on() {
    let ledger = Slow {
        rows: 1_000,
        wanted_from: 900,
    };
    let page = ledger.list(None).await;
    // The first look at the clock that is later than 700 ms.
    assert_eq!((page.tasks.len(), page.searched), (0, Some(768)));
    assert_eq!(page.next, Some(ListCursor::Row(768)));
    let page = ledger.list(page.next).await;
    assert_eq!((page.tasks.len(), page.searched), (3, None));
    assert_eq!(page.next, Some(ListCursor::Row(902)));
}

#[tokio::test(start_paused = true)]
async fn a_search_that_ends_within_its_time_has_no_next_page() {
    let ledger = Slow {
        rows: 767,
        wanted_from: 768,
    };
    let page = ledger.list(None).await;
    assert_eq!(page, ListPage::default());
}
