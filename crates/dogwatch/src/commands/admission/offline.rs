//! A registry in memory for one request: the code that a server runs, without a server.

use std::sync::Arc;
use std::time::{Duration, Instant};

use access::authorizer::{Attributes, Decision, RuleList, Verdict};
use access::rbac::Rbac;
use access::{Authorizer, User};
use machinery::json::{Value, json};
use machinery::media::MediaType;
use machinery::options::{CreateOptions, DeleteOptions, UpdateOptions};
use machinery::{GroupVersion, Status};
use registry::{Annotations, Body, Context, Form, Outcome, Registry, Settings, Target, WriteRequest};
use store::Retention;
use store::memory::MemoryStore;

use crate::failure::Failure;

/// How long a definition may take until its kind is served.
const SERVED_MAX: Duration = Duration::from_secs(5);

/// Allows what roles in the files grant, and everything to system:masters.
struct Granted(Arc<Rbac>);

impl Authorizer for Granted {
    fn authorize<'a>(&'a self, attributes: &'a Attributes<'a>) -> Verdict<'a> {
        let is_master = attributes.user.is_master();
        Verdict::Now(if is_master { Decision::allow("") } else { self.0.decide(attributes) })
    }

    fn rules_for(&self, user: &User, namespace: &str) -> RuleList {
        if user.is_master() { RuleList::everything() } else { self.0.index().rules_for(user, namespace) }
    }
}

/// A registry in memory.
pub(super) struct Offline {
    registry: Arc<Registry>,
    /// The namespace of objects that name none.
    namespace: String,
}

/// The user that creates what a request needs.
fn master() -> User {
    User { name: "kubernetes-admin".to_owned(), groups: vec!["system:masters".to_owned()], ..User::default() }
        .authenticated()
}

impl Offline {
    pub(super) async fn start(namespace: &str) -> Result<Self, Failure> {
        let roles = Arc::new(Rbac::default());
        let authorizer = Arc::new(Granted(Arc::clone(&roles)));
        let settings = Settings { roles, authorizer, ..Settings::default() };
        let store = Arc::new(MemoryStore::new(Retention::default()));
        let registry = Registry::start(store, settings).await.map_err(Failure::new)?;
        Ok(Offline { registry, namespace: namespace.to_owned() })
    }

    /// Creates an object that the request needs, and its namespace.
    pub(super) async fn create(&self, object: &Value) -> Result<(), Failure> {
        let target = self.target(object)?;
        if let Some(namespace) = &target.namespace {
            self.create_namespace(namespace).await?;
        }
        let is_definition = target.kind.plural == "customresourcedefinitions";
        let ctx = Context { user: Arc::new(master()), ..Context::default() };
        let (options, body) = (CreateOptions::default(), body(object));
        let request = WriteRequest { target: &target, options: &options, ctx: &ctx };
        match self.registry.create(request, &body).await {
            Ok(_) => {}
            // Namespaces and roles that every cluster has may be among the files.
            Err(status) if status.is_already_exists() => {
                let update = UpdateOptions::default();
                let request = WriteRequest { target: &target, options: &update, ctx: &ctx };
                self.registry.update(request, &body).await.map_err(|status| refused(object, &status))?;
            }
            Err(status) => return Err(refused(object, &status)),
        }
        if is_definition { self.wait_until_served(object).await } else { Ok(()) }
    }

    async fn create_namespace(&self, name: &str) -> Result<(), Failure> {
        if self.registry.cached_object("core/namespaces", None, name).is_some() {
            return Ok(());
        }
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        Box::pin(self.create(&namespace)).await
    }

    async fn wait_until_served(&self, definition: &Value) -> Result<(), Failure> {
        let spec = &definition["spec"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (group, plural) = (text(&spec["group"]), text(&spec["names"]["plural"]));
        let version = text(&spec["versions"][0]["name"]);
        let began = Instant::now();
        while self.registry.kinds().get(&group, &version, &plural).is_none() {
            if began.elapsed() > SERVED_MAX {
                return Err(Failure::usage(format!("{plural}.{group} is defined, but not served")));
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }

    /// Makes the request as a dry run.
    pub(super) async fn request(
        &self,
        new: Option<&Value>,
        old: Option<&Value>,
        ctx: &Context,
    ) -> Result<Result<Value, Status>, Failure> {
        let Some(any) = new.or(old) else { return Err(Failure::usage("there is no object")) };
        let target = self.target(any)?;
        if let Some(namespace) = &target.namespace {
            self.create_namespace(namespace).await?;
        }
        let answer = match (new, old) {
            (Some(new), None) => {
                let options = CreateOptions { dry_run: true, ..CreateOptions::default() };
                let request = WriteRequest { target: &target, options: &options, ctx };
                self.registry.create(request, &body(new)).await
            }
            (Some(new), Some(_)) => {
                let options = UpdateOptions { dry_run: true, ..UpdateOptions::default() };
                let request = WriteRequest { target: &target, options: &options, ctx };
                self.registry.update(request, &body(new)).await
            }
            _ => {
                let options = DeleteOptions { dry_run: true, ..DeleteOptions::default() };
                self.registry.delete(WriteRequest { target: &target, options: &options, ctx }).await
            }
        };
        answer.map(|outcome| shown(&outcome)).map_or_else(|status| Ok(Err(status)), |shown| shown.map(Ok))
    }

    fn target(&self, object: &Value) -> Result<Target, Failure> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
        let parsed = GroupVersion::parse(&version).unwrap_or_default();
        let kinds = self.registry.kinds();
        let found = kinds.by_kind(&parsed.group, &parsed.version, &kind).cloned();
        let kind = found.ok_or_else(|| {
            Failure::usage(format!("the kind {kind} of {version} is not known"))
                .hint("put its CustomResourceDefinition before it with -f")
        })?;
        let metadata = &object["metadata"];
        let stated = Some(text(&metadata["namespace"])).filter(|namespace| !namespace.is_empty());
        let namespace = kind.namespaced.then(|| stated.unwrap_or_else(|| self.namespace.clone()));
        let name = Some(text(&metadata["name"])).filter(|name| !name.is_empty());
        Ok(Target { kind, namespace, name, subresource: None })
    }
}

/// The user of the request.
pub(super) fn user(name: Option<&str>, groups: &[String]) -> User {
    match name {
        None => master(),
        Some(name) => User { name: name.to_owned(), groups: groups.to_vec(), ..User::default() }.authenticated(),
    }
}

/// A request that is traced.
pub(super) fn traced(user: User) -> Context {
    Context {
        user: Arc::new(user),
        annotations: Annotations::recording(),
        trace: Some(Arc::default()),
        ..Context::default()
    }
}

fn body(object: &Value) -> Body {
    Body { bytes: object.to_string().into(), media: MediaType::Json }
}

fn shown(outcome: &Outcome) -> Result<Value, Failure> {
    let now = machinery::Clock::system().now();
    let segments = outcome.view.render(&Form::default(), now).map_err(|status| Failure::new(status.message))?;
    machinery::json::from_slice(&segments.concat()).map_err(Failure::new)
}

fn refused(object: &Value, status: &Status) -> Failure {
    let (kind, name) = (&object["kind"], &object["metadata"]["name"]);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    Failure::usage(format!("{} {} is refused: {}", text(kind), text(name), status.message))
}
