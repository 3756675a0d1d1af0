//! Feeds the graph of the Node authorizer from pods, volumes, attachments and device slices.

use std::sync::Arc;

use access::node::Graph;
use access::node::graph::Source;
use access::node::references::{Pod, Volume};
use cache::{Collection, Collections, Event, Item, Observer};
use machinery::Revision;
use machinery::json::Value;

use crate::collections::{PERSISTENT_VOLUMES, PODS, RESOURCE_SLICES, VOLUME_ATTACHMENTS};
use crate::read::view;

/// Keeps the graph as new as the objects.
pub(crate) struct NodeGraph(pub(crate) Arc<Graph>);

fn source(collection: &str) -> Option<Source> {
    match collection {
        PODS => Some(Source::Pods),
        PERSISTENT_VOLUMES => Some(Source::Volumes),
        VOLUME_ATTACHMENTS => Some(Source::Attachments),
        RESOURCE_SLICES => Some(Source::Slices),
        _ => None,
    }
}

impl NodeGraph {
    /// Takes the state of an object. One that cannot be read leads nowhere.
    fn set(&self, source: Source, item: &Item, exists: bool) {
        let object = if exists { view::parse(item).unwrap_or_default() } else { Value::Null };
        let node = object["spec"]["nodeName"].as_str();
        match source {
            Source::Pods => self.0.set_pod(item.namespace(), item.name(), Pod::read(&object)),
            Source::Volumes => self.0.set_volume(item.name(), Volume::read(&object)),
            Source::Attachments => self.0.set_attachment(item.name(), node),
            Source::Slices => self.0.set_slice(item.name(), node),
        }
    }
}

impl Observer for NodeGraph {
    fn observes(&self, collection: &str) -> bool {
        source(collection).is_some()
    }

    fn loaded(&self, _: &Collections, collection: &Collection, _: Revision) {
        let Some(source) = source(collection.name()) else { return };
        self.0.clear(source);
        for item in collection.objects().scan(collection.name(), None, None) {
            self.set(source, item, true);
        }
    }

    fn changed(&self, _: &Collections, changes: &[Arc<Event>]) {
        for event in changes {
            let Some(source) = source(event.key().collection()) else { continue };
            match (event.current(), event.previous()) {
                (Some(item), _) => self.set(source, item, true),
                (None, Some(item)) => self.set(source, item, false),
                (None, None) => {}
            }
        }
    }
}
