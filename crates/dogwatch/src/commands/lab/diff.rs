//! `dogwatch lab diff`: the objects in which two worlds differ, or one world at two revisions.

use std::collections::BTreeMap;

use http::Method;
use machinery::json::{Value, json};
use server::worlds::MAIN;

use super::fields::{FieldChange, changes};
use crate::args::{LabDiff, Report};
use crate::commands::remote::Remote;
use crate::failure::Failure;

/// A world, now or at a revision.
#[derive(Debug, PartialEq, Eq)]
struct State<'a> {
    world: &'a str,
    revision: Option<&'a str>,
}

/// Objects by kind, namespace and name.
type Objects = BTreeMap<String, Value>;

pub(super) async fn diff(args: LabDiff) -> Result<(), Failure> {
    let (before, after) = (State::parse(&args.before)?, State::parse(&args.after)?);
    let remote = Remote::connect(args.kubeconfig.as_deref()).await?;
    let own = own_world(&remote)?;
    let own = own.as_deref();
    let (before, after) = (before.objects(&remote, own).await?, after.objects(&remote, own).await?);
    let difference = Difference::of(&before, &after);
    match args.output {
        Report::Json => println!("{:#}", difference.value()),
        Report::Text => print!("{}", difference.text()),
    }
    let count = difference.added.len() + difference.removed.len() + difference.changed.len();
    if count == 0 { Ok(()) } else { Err(Failure::new(format!("{count} objects differ"))) }
}

impl<'a> State<'a> {
    fn parse(text: &'a str) -> Result<Self, Failure> {
        let (world, revision) = text.split_once('@').map_or((text, None), |(world, at)| (world, Some(at)));
        let is_number = revision.is_none_or(|at| !at.is_empty() && at.bytes().all(|byte| byte.is_ascii_digit()));
        if world.is_empty() || !is_number {
            let wrong = Failure::usage(format!("{text:?} is not a state of a world"));
            return Err(wrong.hint("try main, main@1042 or my-world@1042"));
        }
        Ok(State { world, revision })
    }

    /// The path of the world below the server of a kubeconfig, which may be that of the world `own`.
    fn prefix(&self, own: Option<&str>) -> Result<String, Failure> {
        match own {
            None if self.world == MAIN => Ok(String::new()),
            None => Ok(format!("/worlds/{}", self.world)),
            Some(own) if own == self.world => Ok(String::new()),
            Some(own) => Err(Failure::usage(format!("the kubeconfig is that of world {own}, which sees no other"))
                .hint("use the kubeconfig of the server, or compare two revisions of that world")),
        }
    }

    /// Every object, without what each write changes.
    async fn objects(&self, remote: &Remote, own: Option<&str>) -> Result<Objects, Failure> {
        let prefix = self.prefix(own)?;
        let query = match self.revision {
            Some(revision) => format!("?resourceVersion={revision}&resourceVersionMatch=Exact"),
            None => String::new(),
        };
        let mut objects = Objects::new();
        for resource in remote.stored_resources(&prefix).await? {
            let path = format!("{prefix}{}{query}", resource.path(None, None));
            let listed = remote.call_ok(Method::GET, &path, "application/json", None).await?.value()?;
            for object in listed["items"].as_array().into_iter().flatten() {
                let name = object["metadata"]["name"].as_str().unwrap_or_default();
                let shown = match object["metadata"]["namespace"].as_str() {
                    Some(namespace) => format!("{} in {namespace}", resource.display(name)),
                    None => resource.display(name),
                };
                objects.insert(shown, comparable(object));
            }
        }
        Ok(objects)
    }
}

/// The world that a kubeconfig is for; none for that of a server.
fn own_world(remote: &Remote) -> Result<Option<String>, Failure> {
    let cluster = remote.cluster()?;
    let url = cluster["server"].as_str().unwrap_or_default().trim_end_matches('/');
    Ok(url.rsplit_once("/worlds/").map(|(_, name)| name.to_owned()))
}

/// An object without its version and its managers.
fn comparable(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("resourceVersion");
        metadata.remove("managedFields");
    }
    object
}

#[derive(Debug, Default)]
struct Difference {
    added: Vec<String>,
    removed: Vec<String>,
    changed: Vec<(String, Vec<FieldChange>)>,
}

impl Difference {
    fn of(before: &Objects, after: &Objects) -> Self {
        let mut difference = Difference {
            added: after.keys().filter(|name| !before.contains_key(*name)).cloned().collect(),
            ..Difference::default()
        };
        for (name, old) in before {
            match after.get(name) {
                None => difference.removed.push(name.clone()),
                Some(new) if new != old => difference.changed.push((name.clone(), changes(old, new))),
                Some(_) => {}
            }
        }
        difference
    }

    fn text(&self) -> String {
        let mut text = String::new();
        self.removed.iter().for_each(|name| text.push_str(&format!("- {name}\n")));
        self.added.iter().for_each(|name| text.push_str(&format!("+ {name}\n")));
        for (name, fields) in &self.changed {
            text.push_str(&format!("~ {name}\n"));
            fields.iter().for_each(|field| text.push_str(&format!("    {}\n", field.line())));
        }
        text
    }

    fn value(&self) -> Value {
        let changed: Vec<Value> = self
            .changed
            .iter()
            .map(|(name, fields)| {
                let fields: Vec<Value> = fields.iter().map(FieldChange::value).collect();
                json!({"object": name, "fields": fields})
            })
            .collect();
        json!({"added": self.added, "removed": self.removed, "changed": changed})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wld_10_a_state_is_a_world_with_or_without_a_revision() {
        assert_eq!(State::parse("main").unwrap(), State { world: "main", revision: None });
        assert_eq!(State::parse("a@12").unwrap(), State { world: "a", revision: Some("12") });
        for wrong in ["", "@1", "a@", "a@x", "a@-1"] {
            assert!(State::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn wld_10_a_world_compares_itself_only() {
        let prefix = |world: &str, own: Option<&str>| State { world, revision: None }.prefix(own).ok();
        assert_eq!(prefix("main", None).as_deref(), Some(""));
        assert_eq!(prefix("a", None).as_deref(), Some("/worlds/a"));
        assert_eq!(prefix("a", Some("a")).as_deref(), Some(""));
        assert!(prefix("main", Some("a")).is_none() && prefix("b", Some("a")).is_none());
    }

    #[test]
    fn wld_10_objects_are_added_removed_or_changed() {
        let map = |value: &str| {
            comparable(
                &json!({"metadata": {"name": "a", "resourceVersion": "7", "managedFields": []}, "data": {"v": value}}),
            )
        };
        let objects = |entries: &[(&str, &str)]| -> Objects {
            entries.iter().map(|(name, value)| ((*name).to_owned(), map(value))).collect()
        };
        let before = objects(&[("configmap/a", "1"), ("configmap/b", "1"), ("configmap/c", "1")]);
        let after = objects(&[("configmap/a", "1"), ("configmap/b", "2"), ("configmap/d", "1")]);
        let difference = Difference::of(&before, &after);
        assert_eq!(difference.text(), "- configmap/c\n+ configmap/d\n~ configmap/b\n    data.v: \"1\" -> \"2\"\n");
        assert_eq!(difference.value()["changed"][0]["fields"][0]["path"], "data.v");
        assert_eq!(Difference::of(&before, &before).text(), "");
    }
}
