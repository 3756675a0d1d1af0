//! The authorizers of a server, from its flags or its file.

use std::path::PathBuf;
use std::sync::{Arc, LazyLock};

use access::Rbac;
use access::authorizer::Authorizer;
use access::node::{Graph, NodeAuthorizer};
use access::rbac::{bootstrap, objects};
use cel::{CompileError, Environment, Evaluation, Output, Program};
use machinery::json::{Value, json};
use outbound::{Client, ClientLimits};
use server::authorization::chain::{self, Parts, Reloading};
use server::authorization::file;
use server::authorization::metrics::DecisionCounts;
use server::authorization::modes::{AuthorizerConfig, Flags, Mode};
use server::authorization::webhook::{CompileCondition, Condition};

use crate::args;
use crate::failure::Failure;

/// Which authorizers a server has.
#[derive(Clone, Debug)]
pub struct Authorization {
    authorizers: Vec<AuthorizerConfig>,
    /// The file that they were read from.
    file: Option<PathBuf>,
    pub explain_forbidden: bool,
    pub recheck_watches: bool,
}

impl Default for Authorization {
    /// Roles and bindings alone.
    fn default() -> Self {
        Self::of_modes(&["RBAC"]).unwrap_or_else(|failure| panic!("{failure}"))
    }
}

impl Authorization {
    /// The authorizers of flags. A wrong flag or file is a usage error.
    pub fn from_args(args: &args::Authorization) -> Result<Self, Failure> {
        let authorizers = match &args.authorization_config {
            Some(path) => file::read(path).map_err(|why| Failure::usage(format!("--authorization-config {why}")))?,
            None => {
                let default = Flags::default();
                let flags = Flags {
                    modes: args.authorization_mode.clone().unwrap_or(default.modes),
                    webhook_kubeconfig: args.authorization_webhook_config_file.clone(),
                    webhook_version: args.authorization_webhook_version.clone(),
                    webhook_allowed_ttl: args.authorization_webhook_cache_authorized_ttl,
                    webhook_refused_ttl: args.authorization_webhook_cache_unauthorized_ttl,
                };
                flags.authorizers().map_err(Failure::usage)?
            }
        };
        Ok(Authorization {
            authorizers,
            file: args.authorization_config.clone(),
            explain_forbidden: args.explain_forbidden,
            recheck_watches: args.recheck_watches,
        })
    }

    /// The given modes, in their order: `&["Node", "RBAC"]`.
    pub fn of_modes(modes: &[&str]) -> Result<Self, Failure> {
        let flags = Flags { modes: modes.iter().map(|mode| (*mode).to_owned()).collect(), ..Flags::default() };
        let authorizers = flags.authorizers().map_err(Failure::usage)?;
        Ok(Authorization { authorizers, file: None, explain_forbidden: false, recheck_watches: false })
    }

    /// Adds the Node authorizer where roles decide and it is not listed: simulated nodes have no rights without it, since the role of
    /// nodes is bound to no user. A file decides for itself.
    #[must_use]
    pub fn with_nodes(mut self) -> Self {
        let roles = self.authorizers.iter().position(|config| config.mode == Mode::Rbac);
        if let (Some(at), None, false) = (roles, &self.file, self.restricts_nodes())
            && let Ok(node) = Self::of_modes(&["Node"])
        {
            self.authorizers.splice(at..at, node.authorizers);
        }
        self
    }

    /// Whether every authenticated user may do everything. Then a request without credentials is not served.
    #[must_use]
    pub fn always_allows(&self) -> bool {
        self.authorizers.iter().any(|config| config.mode == Mode::AlwaysAllow)
    }

    /// Whether nodes are held to what their pods lead to.
    #[must_use]
    pub fn restricts_nodes(&self) -> bool {
        self.authorizers.iter().any(|config| config.mode == Mode::Node)
    }

    /// Builds the authorizers. Their roles and their graph are empty until a registry fills them.
    pub fn build(&self) -> Result<Built, Failure> {
        let roles = Arc::new(Rbac::default());
        let graph = self.restricts_nodes().then(|| Arc::new(Graph::default()));
        let node = match &graph {
            Some(graph) => Some(Arc::new(NodeAuthorizer::new(Arc::clone(graph), node_rules()?)) as Arc<dyn Authorizer>),
            None => None,
        };
        let parts = Parts {
            rbac: Arc::clone(&roles) as _,
            node,
            client: Client::new(ClientLimits::default()),
            compile: condition_compiler(),
        };
        let Some(path) = &self.file else {
            let union = Arc::new(chain::build(&self.authorizers, &parts).map_err(Failure::usage)?);
            let counted = Arc::clone(&union);
            let counts = DecisionCounts::new(move || Arc::clone(&counted));
            return Ok(Built { roles, graph, authorizer: union, counts, reloading: None });
        };
        let reloading = Reloading::new(path, &self.authorizers, parts)
            .map_err(|why| Failure::usage(format!("--authorization-config {why}")))?;
        let reloading = Arc::new(reloading);
        let counted = Arc::clone(&reloading);
        let counts = DecisionCounts::new(move || counted.union());
        Ok(Built { roles, graph, authorizer: Arc::clone(&reloading) as _, counts, reloading: Some(reloading) })
    }
}

/// The authorizers of a server with what a registry keeps up to date for them.
pub struct Built {
    pub roles: Arc<Rbac>,
    /// Of the Node authorizer, if there is one.
    pub graph: Option<Arc<Graph>>,
    pub authorizer: Arc<dyn Authorizer>,
    /// What they decided, for metrics.
    pub counts: DecisionCounts,
    /// The authorizers of a file, which follow it.
    pub reloading: Option<Arc<Reloading>>,
}

/// The rules of all nodes: those of the role `system:node`.
fn node_rules() -> Result<Vec<access::rbac::rule::Rule>, Failure> {
    let roles = bootstrap::objects().map_err(|error| Failure::new(format!("the roles of every cluster: {error}")))?;
    let role = roles.iter().find(|object| object.resource == "clusterroles" && object.name == "system:node");
    let role = role.ok_or_else(|| Failure::new("the role system:node is missing"))?;
    Ok(objects::rules(&role.value))
}

/// Compiles match conditions: expressions over `request`, the spec of a review. Each world has authorizers; few have conditions.
fn condition_compiler() -> CompileCondition {
    static ENVIRONMENT: LazyLock<Environment> =
        LazyLock::new(|| Environment::new().with("request", &review_schema(), false));
    Arc::new(|expression| {
        let program = ENVIRONMENT.compile(expression, Output::Bool).map_err(|error| match error {
            CompileError::Issues(issues) => format!("compilation failed: {}", issues.render(expression)),
            CompileError::Output => "must evaluate to bool".to_owned(),
            CompileError::Constant(why) => why,
        })?;
        Ok(Box::new(CompiledCondition(program)) as Box<dyn Condition>)
    })
}

struct CompiledCondition(Program);

impl Condition for CompiledCondition {
    fn matches(&self, spec: &Value) -> Result<bool, String> {
        match self.0.evaluate(&[Some(spec)]).0 {
            Evaluation::Bool(truth) => Ok(truth),
            Evaluation::Text(_) => Err("the result is not a bool".to_owned()),
            Evaluation::Error(why) => Err(why),
            Evaluation::Exceeded => Err("the evaluation takes too long".to_owned()),
        }
    }
}

/// The spec of a SubjectAccessReview.
fn review_schema() -> Value {
    let text = json!({"type": "string"});
    let texts = json!({"type": "array", "items": text});
    let selector = json!({"type": "object", "properties": {
        "rawSelector": text,
        "requirements": {"type": "array", "items": {"type": "object", "properties": {
            "key": text, "operator": text, "values": texts,
        }}},
    }});
    json!({"type": "object", "properties": {
        "resourceAttributes": {"type": "object", "properties": {
            "namespace": text, "verb": text, "group": text, "version": text, "resource": text, "subresource": text,
            "name": text, "fieldSelector": selector, "labelSelector": selector,
        }},
        "nonResourceAttributes": {"type": "object", "properties": {"path": text, "verb": text}},
        "user": text,
        "groups": texts,
        "extra": {"type": "object", "additionalProperties": texts},
        "uid": text,
    }})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn az_8_conditions_are_expressions_over_the_review() {
        let compile = condition_compiler();
        let spec = json!({
            "resourceAttributes": {"namespace": "shop", "verb": "get", "resource": "pods"},
            "user": "alice",
            "groups": ["devs"],
        });
        let matches = |expression: &str| compile(expression).unwrap().matches(&spec);
        assert_eq!(matches("has(request.resourceAttributes)"), Ok(true));
        assert_eq!(matches("has(request.nonResourceAttributes)"), Ok(false));
        assert_eq!(matches("request.resourceAttributes.namespace == 'shop' && 'devs' in request.groups"), Ok(true));
        assert_eq!(matches("request.user == 'bob'"), Ok(false));
        assert!(matches("request.nonResourceAttributes.path == '/x'").is_err());
        for wrong in ["request.nope", "request.user", "request.user ==", "1 + 1"] {
            assert!(compile(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn az_135_every_node_has_the_rules_of_its_role() {
        assert!(node_rules().unwrap().len() > 5);
        assert!(Authorization::of_modes(&["Node", "RBAC"]).unwrap().build().unwrap().graph.is_some());
        assert!(Authorization::default().build().unwrap().graph.is_none());
    }
}
