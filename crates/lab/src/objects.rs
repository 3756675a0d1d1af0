//! The kinds of the lab that are not stored: what was recorded, and questions that are answered.

use std::pin::Pin;
use std::sync::Arc;

use cache::{Item, Start};
use machinery::json::Value;
use machinery::{Revision, Status, fields};
use registry::computed::{Computed, ComputedWatch};

use crate::kinds::SETTLEMENTS;
use crate::recorder::Recorder;
use crate::settlements::Settlements;

/// Computes the objects of these kinds.
pub(crate) struct Objects {
    pub(crate) recorder: Arc<Recorder>,
    pub(crate) settlements: Arc<Settlements>,
}

impl Computed for Objects {
    fn has(&self, collection: &str) -> bool {
        collection == SETTLEMENTS || self.recorder.has(collection)
    }

    fn revision(&self) -> Revision {
        self.recorder.revision()
    }

    fn scan(&self, collection: &str, from: &str, fields: &fields::Selector, take: &mut dyn FnMut(Arc<Item>) -> bool) {
        self.recorder.scan(collection, from, fields, take);
    }

    fn get(&self, collection: &str, name: &str) -> Option<Arc<Item>> {
        self.recorder.get(collection, name)
    }

    fn watch(&self, collection: &str, start: Start) -> Box<dyn ComputedWatch> {
        self.recorder.watch(collection, start)
    }

    fn delete(&self, collection: &str, name: &str) -> bool {
        self.recorder.delete(collection, name)
    }

    fn create(&self, _: &str, object: Value) -> Pin<Box<dyn Future<Output = Result<Value, Status>> + Send>> {
        let settlements = Arc::clone(&self.settlements);
        Box::pin(async move { settlements.answer(object).await })
    }
}
