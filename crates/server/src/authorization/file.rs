//! Reads an `AuthorizationConfiguration` of `apiserver.config.k8s.io`.
//!
//! A field that is unknown, missing or wrong is an error with its path: a file that is not understood must not open anything.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use machinery::json::Value;
use machinery::names;
use machinery::yaml::with_line;

use super::modes::{AuthorizerConfig, Mode, ReviewVersion, WebhookConfig};

/// Versions of the file that have the same fields.
const VERSIONS: [&str; 3] =
    ["apiserver.config.k8s.io/v1", "apiserver.config.k8s.io/v1beta1", "apiserver.config.k8s.io/v1alpha1"];
const CONDITIONS_MAX: usize = 64;
const TIMEOUT_MAX: Duration = Duration::from_secs(30);
const ALLOWED_TTL: Duration = Duration::from_secs(300);
const REFUSED_TTL: Duration = Duration::from_secs(30);
const WEBHOOK_FIELDS: [&str; 10] = [
    "authorizedTTL",
    "cacheAuthorizedRequests",
    "unauthorizedTTL",
    "cacheUnauthorizedRequests",
    "timeout",
    "subjectAccessReviewVersion",
    "matchConditionSubjectAccessReviewVersion",
    "failurePolicy",
    "connectionInfo",
    "matchConditions",
];

/// Reads a file. The error is one sentence that begins with the file and the line.
pub fn read(path: &Path) -> Result<Vec<AuthorizerConfig>, String> {
    let bytes = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
    parse(&bytes).map_err(|why| format!("{}: {}", path.display(), with_line(&bytes, &why)))
}

/// Parses the text of a file. The error begins with the field, or with the line of a text that is no YAML.
pub fn parse(text: &[u8]) -> Result<Vec<AuthorizerConfig>, String> {
    let document = machinery::yaml::read(text)?;
    if let Some(duplicate) = document.duplicates.first() {
        return Err(duplicate.clone());
    }
    let root = Field { path: String::new(), value: &document.value };
    root.only(&["apiVersion", "kind", "metadata", "authorizers"])?;
    if root.text("kind") != Some("AuthorizationConfiguration") {
        return Err("kind must be AuthorizationConfiguration".to_owned());
    }
    if !root.text("apiVersion").is_some_and(|version| VERSIONS.contains(&version)) {
        return Err(format!("apiVersion must be {}", VERSIONS[0]));
    }
    let mut found: Vec<AuthorizerConfig> = Vec::new();
    for field in root.get("authorizers").items()? {
        let authorizer = authorizer(&field)?;
        if authorizer.mode != Mode::Webhook && found.iter().any(|held| held.mode == authorizer.mode) {
            return Err(field.get("type").because(format_args!("{} is there twice", authorizer.mode.as_str())));
        }
        if found.iter().any(|held| held.name == authorizer.name) {
            return Err(field.get("name").because(format_args!("{:?} is there twice", authorizer.name)));
        }
        found.push(authorizer);
    }
    if found.is_empty() {
        return Err("authorizers: at least one authorization mode must be defined".to_owned());
    }
    Ok(found)
}

fn authorizer(field: &Field<'_>) -> Result<AuthorizerConfig, String> {
    field.only(&["type", "name", "webhook"])?;
    let word = field.get("type").required()?;
    let mode = Mode::parse(word).ok_or_else(|| {
        field.get("type").because(format_args!("{word:?} is not a type; types are {}", Mode::words()))
    })?;
    let name = field.get("name").required()?;
    if let Some(why) = names::dns1123_subdomain(name).first() {
        return Err(field.get("name").because(format_args!("{name:?} is invalid: {why}")));
    }
    let webhook = field.get("webhook");
    let webhook = match (mode == Mode::Webhook, webhook.value.is_null()) {
        (true, true) => return Err(webhook.because("required when type is Webhook")),
        (true, false) => Some(read_webhook(&webhook)?),
        (false, false) => return Err(webhook.because("may only be specified when type is Webhook")),
        (false, true) => None,
    };
    Ok(AuthorizerConfig { mode, name: name.to_owned(), webhook })
}

fn read_webhook(field: &Field<'_>) -> Result<WebhookConfig, String> {
    field.only(&WEBHOOK_FIELDS)?;
    let timeout = field.get("timeout").duration()?.ok_or_else(|| field.get("timeout").because("required"))?;
    if timeout.is_zero() || timeout > TIMEOUT_MAX {
        return Err(field.get("timeout").because("must be more than 0s and at most 30s"));
    }
    let ttl = |ttl: &str, cached: &str, default: Duration| match field.get(cached).truth()? {
        Some(false) => Ok(Duration::ZERO),
        _ => Ok::<Duration, String>(field.get(ttl).duration()?.unwrap_or(default)),
    };
    let version = field.get("subjectAccessReviewVersion").required()?;
    let version = ReviewVersion::parse(version)
        .ok_or_else(|| field.get("subjectAccessReviewVersion").because("must be v1 or v1beta1"))?;
    let deny_on_failure = match field.get("failurePolicy").required()? {
        "NoOpinion" => false,
        "Deny" => true,
        _ => return Err(field.get("failurePolicy").because("must be NoOpinion or Deny")),
    };
    let conditions = conditions(field)?;
    Ok(WebhookConfig {
        kubeconfig: kubeconfig(&field.get("connectionInfo"))?,
        version,
        timeout,
        allowed_ttl: ttl("authorizedTTL", "cacheAuthorizedRequests", ALLOWED_TTL)?,
        refused_ttl: ttl("unauthorizedTTL", "cacheUnauthorizedRequests", REFUSED_TTL)?,
        deny_on_failure,
        conditions,
    })
}

fn kubeconfig(field: &Field<'_>) -> Result<PathBuf, String> {
    field.only(&["type", "kubeConfigFile"])?;
    match field.get("type").required()? {
        "KubeConfigFile" => {}
        "InClusterConfig" => return Err(field.get("type").because("InClusterConfig is for servers inside a cluster")),
        _ => return Err(field.get("type").because("must be KubeConfigFile")),
    }
    let path = PathBuf::from(field.get("kubeConfigFile").required()?);
    if !path.is_absolute() {
        return Err(field.get("kubeConfigFile").because("must be an absolute path"));
    }
    Ok(path)
}

fn conditions(webhook: &Field<'_>) -> Result<Vec<String>, String> {
    let field = webhook.get("matchConditions");
    let all = field.items()?;
    if all.len() > CONDITIONS_MAX {
        return Err(field.because(format_args!("at most {CONDITIONS_MAX} conditions are allowed")));
    }
    let version = webhook.get("matchConditionSubjectAccessReviewVersion");
    match version.value.as_str() {
        Some("v1") => {}
        None | Some("") if all.is_empty() => {}
        None | Some("") => return Err(version.because("required if match conditions are specified")),
        Some(_) => return Err(version.because("must be v1")),
    }
    let mut seen = HashSet::new();
    for condition in &all {
        condition.only(&["expression"])?;
        let expression = condition.get("expression");
        if !seen.insert(expression.required()?) {
            return Err(expression.because("is there twice"));
        }
    }
    all.iter().map(|condition| Ok(condition.get("expression").required()?.to_owned())).collect()
}

/// A value of a configuration file with its path.
pub(crate) struct Field<'v> {
    pub(crate) path: String,
    pub(crate) value: &'v Value,
}

impl<'v> Field<'v> {
    pub(crate) fn get(&self, member: &str) -> Field<'v> {
        let dot = if self.path.is_empty() { "" } else { "." };
        Field { path: format!("{}{dot}{member}", self.path), value: &self.value[member] }
    }

    pub(crate) fn because(&self, why: impl std::fmt::Display) -> String {
        format!("{}: {why}", self.path)
    }

    pub(crate) fn text(&self, member: &str) -> Option<&'v str> {
        self.value[member].as_str()
    }

    /// Refuses members other than these, and values that are no objects.
    pub(crate) fn only(&self, members: &[&str]) -> Result<(), String> {
        let Some(object) = self.value.as_object() else {
            return Err(if self.path.is_empty() {
                "not an object".to_owned()
            } else {
                self.because("must be an object")
            });
        };
        match object.iter().find(|(member, _)| !members.contains(&&***member)) {
            Some((unknown, _)) => Err(self.get(unknown).because("unknown field")),
            None => Ok(()),
        }
    }

    pub(crate) fn items(&self) -> Result<Vec<Field<'v>>, String> {
        match self.value {
            Value::Null => Ok(Vec::new()),
            Value::Array(items) => {
                let item = |(at, value)| Field { path: format!("{}[{at}]", self.path), value };
                Ok(items.iter().enumerate().map(item).collect())
            }
            _ => Err(self.because("must be a list")),
        }
    }

    /// A text that is not empty.
    pub(crate) fn required(&self) -> Result<&'v str, String> {
        match self.value {
            Value::Null => Err(self.because("required")),
            value => match value.as_str() {
                Some(text) if !text.trim().is_empty() => Ok(text),
                Some(_) => Err(self.because("required")),
                None => Err(self.because("must be a string")),
            },
        }
    }

    pub(crate) fn truth(&self) -> Result<Option<bool>, String> {
        match self.value {
            Value::Null => Ok(None),
            Value::Bool(truth) => Ok(Some(*truth)),
            _ => Err(self.because("must be true or false")),
        }
    }

    /// A duration as Go writes it; zero counts as absent.
    fn duration(&self) -> Result<Option<Duration>, String> {
        if self.value.is_null() {
            return Ok(None);
        }
        let wrong = || self.because("must be a duration such as 30s or 5m");
        let duration = parse_duration(self.value.as_str().ok_or_else(wrong)?).ok_or_else(wrong)?;
        Ok(Some(duration).filter(|duration| !duration.is_zero()))
    }
}

/// Parses `1h2m3.5s`, `100ms`; nothing negative.
#[must_use]
pub fn parse_duration(text: &str) -> Option<Duration> {
    const UNITS: [(&str, f64); 6] = [("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9), ("h", 3600.0), ("m", 60.0), ("s", 1.0)];
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let (mut rest, mut seconds) = (text, 0.0);
    while !rest.is_empty() {
        let end = rest.find(|character: char| !character.is_ascii_digit() && character != '.')?;
        let number: f64 = rest.get(..end)?.parse().ok()?;
        rest = rest.get(end..)?;
        let (unit, factor) = UNITS.into_iter().find(|(unit, _)| rest.starts_with(unit))?;
        seconds += number * factor;
        rest = rest.get(unit.len()..)?;
    }
    (!text.is_empty()).then_some(())?;
    Duration::try_from_secs_f64(seconds).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: &str = "\
apiVersion: apiserver.config.k8s.io/v1
kind: AuthorizationConfiguration
authorizers:
- type: Webhook
  name: first.example.com
  webhook:
    authorizedTTL: 1m30s
    unauthorizedTTL: 3s
    timeout: 3s
    subjectAccessReviewVersion: v1
    matchConditionSubjectAccessReviewVersion: v1
    failurePolicy: Deny
    connectionInfo: {type: KubeConfigFile, kubeConfigFile: /etc/hook.yaml}
    matchConditions:
    - expression: has(request.resourceAttributes)
- type: Webhook
  name: second
  webhook:
    timeout: 500ms
    cacheAuthorizedRequests: false
    subjectAccessReviewVersion: v1beta1
    failurePolicy: NoOpinion
    connectionInfo: {type: KubeConfigFile, kubeConfigFile: /etc/other.yaml}
- type: Node
  name: node
- type: RBAC
  name: rbac
";

    #[test]
    fn az_7_a_file_names_authorizers_in_their_order() {
        let found = parse(FULL.as_bytes()).unwrap();
        let names: Vec<(&str, &str)> = found.iter().map(|found| (found.mode.as_str(), found.name.as_str())).collect();
        let expected = [("Webhook", "first.example.com"), ("Webhook", "second"), ("Node", "node"), ("RBAC", "rbac")];
        assert_eq!(names, expected);
        let first = found[0].webhook.as_ref().unwrap();
        assert_eq!(first.allowed_ttl, Duration::from_secs(90));
        assert_eq!(first.refused_ttl, Duration::from_secs(3));
        assert!(first.deny_on_failure);
        assert_eq!(first.conditions, ["has(request.resourceAttributes)"]);
        let second = found[1].webhook.as_ref().unwrap();
        assert_eq!((second.allowed_ttl, second.refused_ttl), (Duration::ZERO, Duration::from_secs(30)));
        assert_eq!(second.timeout, Duration::from_millis(500));
        assert_eq!(second.version, ReviewVersion::V1beta1);
    }

    #[test]
    fn az_7_a_wrong_file_is_refused_with_the_field() {
        for (from, to, expected) in [
            ("kind: AuthorizationConfiguration", "kind: X", "kind must be AuthorizationConfiguration"),
            ("k8s.io/v1\n", "k8s.io/v9\n", "apiVersion must be apiserver.config.k8s.io/v1"),
            ("type: Node", "type: Nod", "authorizers[2].type: \"Nod\" is not a type; types are "),
            ("type: Node", "type: RBAC", "authorizers[3].type: RBAC is there twice"),
            ("name: node", "name: rbac", "authorizers[3].name: \"rbac\" is there twice"),
            ("name: node", "name: \"\"", "authorizers[2].name: required"),
            ("name: node", "name: N ode", "authorizers[2].name: \"N ode\" is invalid: "),
            ("name: node", "name: node\n  webhook: {}", "authorizers[2].webhook: may only be specified when "),
            ("timeout: 3s", "timeout: 31s", "authorizers[0].webhook.timeout: must be more than 0s and at most 30s"),
            ("timeout: 3s", "timeout: soon", "authorizers[0].webhook.timeout: must be a duration"),
            ("timeout: 3s", "timeuot: 3s", "authorizers[0].webhook.timeuot: unknown field"),
            ("failurePolicy: Deny", "failurePolicy: Allow", "authorizers[0].webhook.failurePolicy: must be NoOpinion"),
            (
                "Version: v1\n    fail",
                "Version: v2\n    fail",
                "authorizers[0].webhook.matchConditionSubjectAccessReviewVersion: must be v1",
            ),
            (
                "/etc/hook.yaml",
                "hook.yaml",
                "authorizers[0].webhook.connectionInfo.kubeConfigFile: must be an absolute",
            ),
            (
                "type: KubeConfigFile, kubeConfigFile: /etc/hook.yaml",
                "type: InClusterConfig",
                "authorizers[0].webhook.connectionInfo.type: InClusterConfig is for",
            ),
            (
                "- expression: has(request.resourceAttributes)",
                "- expression: ' '",
                "authorizers[0].webhook.matchConditions[0].expression: required",
            ),
            ("kind: Auth", "kind: x\nkind: Auth", "line 3: key \"kind\" already set in map"),
            ("authorizers:", "authorizers: [", "yaml: "),
        ] {
            let text = FULL.replacen(from, to, 1);
            assert_ne!(text, FULL, "{from}");
            let refused = parse(text.as_bytes()).unwrap_err();
            assert!(refused.starts_with(expected), "{refused:?} does not begin with {expected:?}");
            // Every error of a file names its line.
            let shown = with_line(text.as_bytes(), &refused);
            assert!(shown.contains("line "), "{shown}");
        }
        let none = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers: []\n";
        assert!(parse(none.as_bytes()).unwrap_err().contains("at least one"));
        assert!(parse(b"").is_err());
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("authorization.yaml");
        std::fs::write(&file, FULL.replace("timeout: 500ms", "timeout: 500")).unwrap();
        let expected =
            "authorization.yaml: line 19: authorizers[1].webhook.timeout: must be a duration such as 30s or 5m";
        let refused = read(&file).unwrap_err();
        assert!(refused.ends_with(expected), "{refused}");
        assert!(read(Path::new("/nonexistent/file")).unwrap_err().starts_with("/nonexistent/file: "));
    }

    #[test]
    fn durations_of_go() {
        for (text, millis) in [("0", 0), ("3s", 3000), ("1m30s", 90_000), ("100ms", 100), ("1.5h", 5_400_000)] {
            assert_eq!(parse_duration(text), Some(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "3", "s", "-3s", "3 s", "3x", "1e999s"] {
            assert_eq!(parse_duration(text), None, "{text}");
        }
    }
}
