//! Reads an `AuthenticationConfiguration` of `apiserver.config.k8s.io`: other issuers of tokens, and anonymous requests.
//!
//! A field that is unknown, missing or wrong is an error with its path: a file that is not understood must not open anything.

use std::path::Path;

use machinery::json::Value;
use machinery::yaml::with_line;

use super::claims::{Expression, Variable};
use super::{Compile, IssuerSettings};
use crate::authorization::file::Field;
use crate::request::authentication::anonymous::Anonymous;
use crate::request::authentication::issuers::claims::{Claim, Mapping, Rule};

/// Versions of the file that have the same fields.
const VERSIONS: [&str; 3] =
    ["apiserver.config.k8s.io/v1", "apiserver.config.k8s.io/v1beta1", "apiserver.config.k8s.io/v1alpha1"];
const ISSUERS_MAX: usize = 64;

/// The content of a file.
#[derive(Debug, Default)]
pub struct Configuration {
    pub issuers: Vec<IssuerSettings>,
    /// None if the file does not say.
    pub anonymous: Option<Anonymous>,
}

/// Reads a file. The error is one sentence that begins with the file and the line. `disallowed` are the issuers of service account tokens.
pub fn read(path: &Path, compile: &Compile, disallowed: &[String]) -> Result<Configuration, String> {
    let bytes = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
    parse(&bytes, compile, disallowed).map_err(|why| format!("{}: {}", path.display(), with_line(&bytes, &why)))
}

/// Parses the text of a file. The error begins with the field, or with the line of a text that is no YAML.
pub fn parse(text: &[u8], compile: &Compile, disallowed: &[String]) -> Result<Configuration, String> {
    let document = machinery::yaml::read(text)?;
    if let Some(duplicate) = document.duplicates.first() {
        return Err(duplicate.clone());
    }
    let root = Field { path: String::new(), value: &document.value };
    root.only(&["apiVersion", "kind", "metadata", "jwt", "anonymous"])?;
    if root.text("kind") != Some("AuthenticationConfiguration") {
        return Err("kind must be AuthenticationConfiguration".to_owned());
    }
    if !root.text("apiVersion").is_some_and(|version| VERSIONS.contains(&version)) {
        return Err(format!("apiVersion must be {}", VERSIONS[0]));
    }
    let mut issuers: Vec<IssuerSettings> = Vec::new();
    let fields = root.get("jwt").items()?;
    if fields.len() > ISSUERS_MAX {
        return Err(root.get("jwt").because(format_args!("must have at most {ISSUERS_MAX} items")));
    }
    for field in fields {
        let issuer = issuer(&field, compile)?;
        let url = field.get("issuer").get("url");
        if issuers.iter().any(|held| held.url == issuer.url) {
            return Err(url.because(format_args!("{:?} is there twice", issuer.url)));
        }
        if disallowed.contains(&issuer.url) {
            return Err(url.because(format_args!("URL must not overlap with disallowed issuers: {disallowed:?}")));
        }
        if issuer.discovery_url.is_some() && issuers.iter().any(|held| held.discovery_url == issuer.discovery_url) {
            return Err(field.get("issuer").get("discoveryURL").because("is there twice"));
        }
        issuers.push(issuer);
    }
    Ok(Configuration { issuers, anonymous: anonymous(&root.get("anonymous"))? })
}

fn anonymous(field: &Field<'_>) -> Result<Option<Anonymous>, String> {
    if field.value.is_null() {
        return Ok(None);
    }
    field.only(&["enabled", "conditions"])?;
    let enabled = field.get("enabled").truth()?.unwrap_or_default();
    let mut paths = Vec::new();
    for condition in field.get("conditions").items()? {
        condition.only(&["path"])?;
        paths.push(condition.get("path").required()?.to_owned());
    }
    if !enabled && !paths.is_empty() {
        return Err(field.get("conditions").because("enabled should be set to true when conditions are defined"));
    }
    Ok(Some(if paths.is_empty() { Anonymous::allowed(enabled) } else { Anonymous::on_paths(paths) }))
}

fn issuer(field: &Field<'_>, compile: &Compile) -> Result<IssuerSettings, String> {
    field.only(&["issuer", "claimValidationRules", "claimMappings", "userValidationRules"])?;
    let about = field.get("issuer");
    about.only(&[
        "url",
        "discoveryURL",
        "certificateAuthority",
        "audiences",
        "audienceMatchPolicy",
        "egressSelectorType",
    ])?;
    let url = https_url(&about.get("url"))?;
    let discovery_url = match about.get("discoveryURL").value {
        Value::Null => None,
        _ => Some(https_url(&about.get("discoveryURL"))?),
    };
    if discovery_url.as_deref().is_some_and(|given| given.trim_end_matches('/') == url.trim_end_matches('/')) {
        return Err(about.get("discoveryURL").because("must be different from URL"));
    }
    let mut audiences = Vec::new();
    for audience in about.get("audiences").items()? {
        audiences.push(audience.required()?.to_owned());
    }
    if audiences.is_empty() {
        return Err(about.get("audiences").because("required: at least one audience"));
    }
    match about.text("audienceMatchPolicy").unwrap_or_default() {
        "MatchAny" => {}
        "" if audiences.len() == 1 => {}
        "" => return Err(about.get("audienceMatchPolicy").because("must be MatchAny for multiple audiences")),
        other => return Err(about.get("audienceMatchPolicy").because(format_args!("{other:?} is not a policy"))),
    }
    if !about.get("egressSelectorType").value.is_null() {
        return Err(about.get("egressSelectorType").because("egress selectors are not supported"));
    }
    let ca_pem = match about.get("certificateAuthority").value {
        Value::Null => None,
        _ => Some(about.get("certificateAuthority").required()?.to_owned()),
    };
    let mappings = field.get("claimMappings");
    let mut rules = Vec::new();
    for rule in field.get("claimValidationRules").items()? {
        rules.push(claim_rule(&rule, compile)?);
    }
    let mut user_rules = Vec::new();
    for rule in field.get("userValidationRules").items()? {
        rule.only(&["expression", "message"])?;
        user_rules.push(checked(&rule, "expression", Variable::User, compile)?);
    }
    let mapping = mapping(&mappings, compile)?;
    verify_email(&mappings, &rules, &mapping)?;
    Ok(IssuerSettings { url, discovery_url, ca_pem, audiences, algorithms: None, mapping, rules, user_rules })
}

/// A name from the claim `email` needs a look at `email_verified`: the claim form does it, an expression must do it itself.
fn verify_email(mappings: &Field<'_>, rules: &[Rule], mapping: &Mapping) -> Result<(), String> {
    let Claim::Expression(expression) = &mapping.username else { return Ok(()) };
    if !expression.text.contains("claims.email") || expression.text.contains("claims.email_verified") {
        return Ok(());
    }
    let looks = |text: &str| text.contains("claims.email_verified");
    let by_rule = rules.iter().any(|rule| matches!(rule, Rule::Expression(rule, _) if looks(&rule.text)));
    let by_extra = mapping.extra.iter().any(|(_, extra)| looks(&extra.text));
    if by_rule || by_extra {
        return Ok(());
    }
    Err(mappings.get("username").get("expression").because(
        "claims.email_verified must be used in claimMappings.username.expression or claimMappings.extra[*].valueExpression or \
         claimValidationRules[*].expression when claims.email is used in claimMappings.username.expression",
    ))
}

fn mapping(field: &Field<'_>, compile: &Compile) -> Result<Mapping, String> {
    field.only(&["username", "groups", "uid", "extra"])?;
    let username = prefixed(&field.get("username"), compile)?;
    let username = username.ok_or_else(|| field.get("username").because("claim or expression is required"))?;
    let groups = prefixed(&field.get("groups"), compile)?;
    let uid = field.get("uid");
    let uid = match uid.value {
        Value::Null => None,
        _ => {
            uid.only(&["claim", "expression"])?;
            one_of(&uid, String::new(), compile)?
        }
    };
    let mut extra: Vec<(String, Expression)> = Vec::new();
    for item in field.get("extra").items()? {
        item.only(&["key", "valueExpression"])?;
        let key = item.get("key").required()?;
        let domain = key.split_once('/').map(|(domain, _)| domain);
        if domain.is_none_or(str::is_empty) || key.chars().any(char::is_uppercase) {
            return Err(item.get("key").because("must be a lower-case domain-prefixed path (such as \"acme.io/foo\")"));
        }
        let reserved = |domain: &str| {
            ["kubernetes.io", "k8s.io"].iter().any(|own| domain == *own || domain.ends_with(&format!(".{own}")))
        };
        if domain.is_some_and(reserved) {
            return Err(item.get("key").because("k8s.io, kubernetes.io and their subdomains are reserved"));
        }
        if extra.iter().any(|(held, _)| held == key) {
            return Err(item.get("key").because("is there twice"));
        }
        extra.push((key.to_owned(), checked_text(&item.get("valueExpression"), Variable::Claims, compile)?));
    }
    Ok(Mapping { username, groups, uid, extra })
}

/// A claim with a prefix, or an expression.
fn prefixed(field: &Field<'_>, compile: &Compile) -> Result<Option<Claim>, String> {
    if field.value.is_null() {
        return Ok(None);
    }
    field.only(&["claim", "prefix", "expression"])?;
    let prefix = field.text("prefix");
    match (field.text("claim"), prefix) {
        (Some(_), None) => return Err(field.get("prefix").because("is required when claim is set; it may be empty")),
        (None, Some(_)) => return Err(field.get("prefix").because("may only be set with a claim")),
        _ => {}
    }
    one_of(field, prefix.unwrap_or_default().to_owned(), compile)
}

fn one_of(field: &Field<'_>, prefix: String, compile: &Compile) -> Result<Option<Claim>, String> {
    match (
        field.text("claim").filter(|text| !text.is_empty()),
        field.text("expression").filter(|text| !text.is_empty()),
    ) {
        (Some(_), Some(_)) => Err(field.because("claim and expression cannot both be set")),
        (Some(name), None) => Ok(Some(Claim::Named { name: name.to_owned(), prefix })),
        (None, Some(_)) => {
            Ok(Some(Claim::Expression(checked_text(&field.get("expression"), Variable::Claims, compile)?)))
        }
        (None, None) => Ok(None),
    }
}

fn claim_rule(field: &Field<'_>, compile: &Compile) -> Result<Rule, String> {
    field.only(&["claim", "requiredValue", "expression", "message"])?;
    let given = |name: &str| field.text(name).is_some_and(|text| !text.is_empty());
    match (given("claim"), given("expression")) {
        (true, true) => Err(field.because("claim and expression cannot both be set")),
        (false, false) => Err(field.because("claim or expression is required")),
        (true, false) if given("message") => Err(field.get("message").because("may only be set with an expression")),
        (true, false) => {
            let text = |name: &str| field.text(name).unwrap_or_default().to_owned();
            Ok(Rule::Required { claim: text("claim"), value: text("requiredValue") })
        }
        (false, true) if given("requiredValue") => {
            Err(field.get("requiredValue").because("may only be set with a claim"))
        }
        (false, true) => checked(field, "expression", Variable::Claims, compile),
    }
}

/// A rule by expression with its message.
fn checked(field: &Field<'_>, name: &str, variable: Variable, compile: &Compile) -> Result<Rule, String> {
    let expression = checked_text(&field.get(name), variable, compile)?;
    Ok(Rule::Expression(expression, field.text("message").unwrap_or_default().to_owned()))
}

fn checked_text(field: &Field<'_>, variable: Variable, compile: &Compile) -> Result<Expression, String> {
    let text = field.required()?;
    let compiled = compile(variable, text).map_err(|why| field.because(why))?;
    Ok(Expression { text: text.to_owned(), compiled })
}

/// An https address without user, query and fragment.
fn https_url(field: &Field<'_>) -> Result<String, String> {
    let text = field.required()?;
    check_url(text).map_err(|why| field.because(why))?;
    Ok(text.to_owned())
}

/// Checks the address of an issuer.
pub fn check_url(text: &str) -> Result<(), String> {
    let Some(rest) = text.strip_prefix("https://") else { return Err("URL scheme must be https".to_owned()) };
    if rest.contains('?') {
        return Err("URL must not contain a query".to_owned());
    }
    if rest.contains('#') {
        return Err("URL must not contain a fragment".to_owned());
    }
    let host = rest.split('/').next().unwrap_or_default();
    if host.contains('@') {
        return Err("URL must not contain a username or password".to_owned());
    }
    if host.is_empty() || text.parse::<http::Uri>().is_err() {
        return Err(format!("{text:?} is not an address"));
    }
    Ok(())
}
