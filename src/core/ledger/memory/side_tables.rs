//! The pauses and the documents.

use std::ops::DerefMut;

use super::table::{MemoryStore, Table};
use crate::ledger::rows::store::{DocumentStore, PauseStore, Result};
use crate::ledger::{Collection, Document, DocumentRange};
use crate::task::{Pause, PauseKind, Scope, UnixMs};

impl<T: DerefMut<Target = Table>> PauseStore for MemoryStore<T> {
    fn pauses(&mut self) -> Result<Vec<Pause>> {
        Ok(self.table.pauses.clone())
    }

    fn insert_pause(&mut self, pause: &Pause) -> Result<()> {
        self.table.pauses.push(pause.clone());
        self.table.pauses.sort_by_key(|pause| pause.since);
        Ok(())
    }

    fn delete_pause(&mut self, kind: PauseKind, scope: &Scope) -> Result<()> {
        let is_other = |pause: &Pause| pause.kind != kind || pause.scope != *scope;
        self.table.pauses.retain(is_other);
        Ok(())
    }

    fn delete_holds(&mut self) -> Result<()> {
        let is_pause = |pause: &Pause| pause.kind == PauseKind::Pause;
        self.table.pauses.retain(is_pause);
        Ok(())
    }
}

impl<T: DerefMut<Target = Table>> DocumentStore for MemoryStore<T> {
    fn document(&mut self, collection: Collection, name: &str) -> Result<Option<Document>> {
        let found = self.table.documents.get(&(collection, name.to_owned()));
        Ok(found.cloned())
    }

    fn insert_document(&mut self, collection: Collection, document: &Document) -> Result<()> {
        let place = (collection, document.name.clone());
        self.table.documents.insert(place, document.clone());
        Ok(())
    }

    fn replace_document(&mut self, collection: Collection, name: &str, body: &str) -> Result<bool> {
        let place = (collection, name.to_owned());
        let found = self.table.documents.get_mut(&place);
        Ok(found
            .map(|document| body.clone_into(&mut document.body))
            .is_some())
    }

    fn delete_document(&mut self, collection: Collection, name: &str) -> Result<bool> {
        let place = (collection, name.to_owned());
        Ok(self.table.documents.remove(&place).is_some())
    }

    fn documents(
        &mut self,
        collection: Collection,
        range: &DocumentRange,
    ) -> Result<Vec<Document>> {
        let mut found: Vec<&Document> = of_collection(&self.table, collection)
            .filter(|document| document.at >= range.since && document.place() < range.before)
            .collect();
        found.sort_by_key(|document| std::cmp::Reverse(document.place()));
        found.truncate(range.limit as usize);
        Ok(found.into_iter().cloned().collect())
    }

    fn delete_documents(
        &mut self,
        collection: Collection,
        before: UnixMs,
        limit: u32,
    ) -> Result<u64> {
        let documents = of_collection(&self.table, collection);
        let old = documents.filter(|document| document.at < before);
        let mut old: Vec<_> = old.map(Document::place).collect();
        old.sort();
        old.truncate(limit as usize);
        for place in &old {
            let place = (collection, place.name.clone());
            self.table.documents.remove(&place);
        }
        Ok(old.len() as u64)
    }
}

fn of_collection(table: &Table, of: Collection) -> impl Iterator<Item = &Document> {
    let documents = table.documents.iter();
    documents.filter_map(move |((collection, _), document)| (*collection == of).then_some(document))
}
