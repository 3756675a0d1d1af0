//! `dogwatch wait`: returns once objects are in a state, or fails after a time.

use std::sync::Arc;
use std::time::Duration;

use client::list_watch::{ApiListWatch, WatchItem};
use client::retry_watcher::RetryWatcher;
use http::Method;
use kube::core::DynamicObject;
use machinery::json::Value;

use super::remote::{Remote, Resource};
use crate::args::{State, Wait};
use crate::failure::Failure;

pub(super) async fn wait(args: Wait) -> Result<(), Failure> {
    let remote = Remote::connect(args.scope.kubeconfig.as_deref()).await?;
    let namespace = args.scope.namespace(&remote.namespace).unwrap_or(&remote.namespace).to_owned();
    for (resource, name) in objects(&remote, &args, &namespace).await? {
        let object = Object { remote: &remote, resource: &resource, namespace: &namespace, name: &name };
        let waiting = object.wait(&args.state);
        // The first look is not limited: `--timeout 0` is a question about now.
        match tokio::time::timeout(args.timeout.max(FIRST_LOOK), waiting).await {
            Ok(done) => done?,
            Err(_) => {
                let shown = format!("{}/{name}", resource.plural);
                return Err(Failure::new(format!("timed out waiting for the condition on {shown}")));
            }
        }
        println!("{} condition met", resource.display(&name));
    }
    Ok(())
}

/// Time for the first look at an object, however short the time-out is.
const FIRST_LOOK: Duration = Duration::from_secs(1);

/// The objects of the command line: `pod/a deployment/b`, `pods a b`, or all with a label.
async fn objects(remote: &Remote, args: &Wait, namespace: &str) -> Result<Vec<(Resource, String)>, Failure> {
    let mut found = Vec::new();
    if args.objects[0].contains('/') {
        for word in &args.objects {
            let (resource, name) =
                word.split_once('/').ok_or_else(|| Failure::usage(format!("{word} is not like pod/a")))?;
            found.push((remote.resource(resource).await?, name.to_owned()));
        }
        return Ok(found);
    }
    let resource = remote.resource(&args.objects[0]).await?;
    if args.objects.len() > 1 {
        return Ok(args.objects[1..].iter().map(|name| (resource.clone(), name.clone())).collect());
    }
    let Some(query) = args.scope.query() else {
        return Err(
            Failure::usage("the name of the object is missing").hint("dogwatch wait pod/a --for=condition=Ready")
        );
    };
    let path = format!("{}?{query}", resource.path(Some(namespace), None));
    let list = remote.call_ok(Method::GET, &path, "application/json", None).await?.value()?;
    for item in list["items"].as_array().into_iter().flatten() {
        found.push((resource.clone(), item["metadata"]["name"].as_str().unwrap_or_default().to_owned()));
    }
    if found.is_empty() && args.state != State::Deleted {
        return Err(Failure::new("no matching resources found"));
    }
    Ok(found)
}

struct Object<'a> {
    remote: &'a Remote,
    resource: &'a Resource,
    namespace: &'a str,
    name: &'a str,
}

impl Object<'_> {
    async fn wait(&self, state: &State) -> Result<(), Failure> {
        // The list has the revision that the watch starts from, so that nothing between the two is missed.
        let list = self.list().await?;
        match list["items"].as_array().and_then(|items| items.first()) {
            Some(object) if is_reached(state, object) => return Ok(()),
            None if *state == State::Deleted => return Ok(()),
            None if *state != State::Created => {
                let path = self.resource.path(Some(self.namespace), Some(self.name));
                self.remote.call_ok(Method::GET, &path, "application/json", None).await?;
            }
            _ => {}
        }
        let revision = list["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
        let mut watcher = RetryWatcher::new(Arc::new(self.source()), revision.into()).map_err(Failure::new)?;
        while let Some(item) = watcher.next().await {
            match item {
                WatchItem::Added(object) | WatchItem::Modified(object) => {
                    let value: Value = serde_json::from_slice(&object.body).map_err(Failure::new)?;
                    if is_reached(state, &value) {
                        return Ok(());
                    }
                }
                WatchItem::Deleted(_) if *state == State::Deleted => return Ok(()),
                WatchItem::Error(error) => return Err(Failure::new(error)),
                WatchItem::Deleted(_) | WatchItem::Bookmark(_) | WatchItem::Unknown { .. } => {}
            }
        }
        Err(Failure::new("the watch ended"))
    }

    /// A list with the object, if it exists.
    async fn list(&self) -> Result<Value, Failure> {
        let query = form_urlencoded::Serializer::new(String::new())
            .append_pair("fieldSelector", &format!("metadata.name={}", self.name))
            .finish();
        let path = format!("{}?{query}", self.resource.path(Some(self.namespace), None));
        self.remote.call_ok(Method::GET, &path, "application/json", None).await?.value()
    }

    fn source(&self) -> ApiListWatch {
        let resource = self.resource;
        let namespace = Some(self.namespace).filter(|_| resource.namespaced);
        ApiListWatch::new::<DynamicObject>(self.remote.client(), &resource.described(), namespace)
            .fields(format!("metadata.name={}", self.name))
    }
}

/// Whether an object that exists is in a state.
fn is_reached(state: &State, object: &Value) -> bool {
    match state {
        State::Created => true,
        State::Deleted => false,
        State::Condition { name, value } => {
            // A condition about an older spec does not count.
            let generation = object["metadata"]["generation"].as_i64();
            let is_current = |condition: &Value| match (condition["observedGeneration"].as_i64(), generation) {
                (Some(observed), Some(generation)) => observed >= generation,
                _ => true,
            };
            object["status"]["conditions"].as_array().into_iter().flatten().any(|condition| {
                condition["type"].as_str().is_some_and(|found| found.eq_ignore_ascii_case(name))
                    && condition["status"].as_str().is_some_and(|found| found.eq_ignore_ascii_case(value))
                    && is_current(condition)
            })
        }
        State::Path { members, value } => {
            let found = members.iter().try_fold(object, |at, member| match member.parse::<usize>() {
                Ok(index) if at.is_array() => at.as_array().and_then(|list| list.get(index)),
                _ => at.get(member),
            });
            match (found, value) {
                (None | Some(Value::Null), _) => false,
                (Some(_), None) => true,
                (Some(Value::String(text)), Some(value)) => **text == **value,
                (Some(other), Some(value)) => {
                    let text = other.to_string();
                    text == *value
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use machinery::json::json;

    use super::*;

    #[test]
    fn a_state_is_looked_up_in_the_object() {
        let object = json!({
            "metadata": {"generation": 2},
            "spec": {"replicas": 3, "containers": [{"name": "c"}]},
            "status": {"phase": "Running", "conditions": [
                {"type": "Ready", "status": "True"}, {"type": "Old", "status": "True", "observedGeneration": 1}]},
        });
        let reached = |text: &str| is_reached(&text.parse().unwrap(), &object);
        for state in [
            "create",
            "condition=ready",
            "jsonpath={.status.phase}=Running",
            "jsonpath={.spec.replicas}=3",
            "jsonpath={.spec.containers[0].name}=c",
            "jsonpath={.status}",
        ] {
            assert!(reached(state), "{state}");
        }
        for state in [
            "delete",
            "condition=Ready=False",
            "condition=Old",
            "condition=None",
            "jsonpath={.status.none}",
            "jsonpath={.status.phase}=Pending",
        ] {
            assert!(!reached(state), "{state}");
        }
    }
}
