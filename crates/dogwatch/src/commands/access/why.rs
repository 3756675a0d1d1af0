//! `dogwatch access why`: asks the server for the reasons of a decision.

use http::Method;
use machinery::json::Value;

use super::{documents, text, texts};
use crate::args::{Report, Why};
use crate::commands::remote::Remote;
use crate::failure::Failure;

pub(super) async fn why(args: Why) -> Result<(), Failure> {
    let remote = Remote::connect(args.kubeconfig.as_deref()).await?;
    let query = query(&remote, &args).await?;
    let response = remote.call_ok(Method::GET, &format!("/debug/access?{query}"), "application/json", None).await?;
    let explained = response.value()?;
    match args.output {
        Report::Json => println!("{explained:#}"),
        Report::Text => print!("{}", report(&args.user, &explained)),
    }
    Ok(())
}

async fn query(remote: &Remote, args: &Why) -> Result<String, Failure> {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.append_pair("as", &args.user).append_pair("verb", &args.verb);
    for group in &args.groups {
        query.append_pair("as-group", group);
    }
    if args.resource.starts_with('/') {
        return Ok(query.append_pair("path", &args.resource).finish());
    }
    let (word, subresource) = args.resource.split_once('/').unwrap_or((&args.resource, ""));
    let (group, resource, namespaced) = match remote.resource(word).await {
        Ok(found) => (found.group, found.plural, found.namespaced),
        // Rights may name what is not served.
        Err(_) => {
            let (resource, group) = word.split_once('.').unwrap_or((word, ""));
            (group.to_owned(), resource.to_owned(), true)
        }
    };
    query.append_pair("apiGroup", &group).append_pair("resource", &resource).append_pair("subresource", subresource);
    if namespaced && !args.all_namespaces {
        query.append_pair("namespace", args.namespace.as_deref().unwrap_or(&remote.namespace));
    }
    if let Some(name) = &args.name {
        query.append_pair("name", name);
    }
    Ok(query.finish())
}

fn report(user: &str, explained: &Value) -> String {
    let mut report = String::new();
    let sentences = texts(explained, "sentences");
    if explained["allowed"] == true {
        report.push_str(&format!("allowed for {user}\n"));
        let reason = text(explained, "reason");
        if !reason.is_empty() {
            report.push_str(&format!("  {reason}\n"));
        }
        for binding in explained["bindings"].as_array().into_iter().flatten() {
            let (name, role, subject) = (text(binding, "binding"), text(binding, "role"), text(binding, "subject"));
            report.push_str(&format!("  {name} of {role} to {subject} by this rule:\n"));
            let rule = machinery::yaml::to_yaml(&binding["rule"]);
            rule.lines().for_each(|line| report.push_str(&format!("    {line}\n")));
        }
        return report;
    }
    report.push_str(&format!("refused: {}\n", text(explained, "message")));
    if sentences.is_empty() {
        report.push_str(&format!("no binding names {user} or one of its groups\n"));
    } else {
        report.push_str("bindings, the nearest first:\n");
        sentences.iter().for_each(|sentence| report.push_str(&format!("  {sentence}\n")));
    }
    if let Some(left_out) = explained["leftOut"].as_u64() {
        report.push_str(&format!("  and {left_out} more\n"));
    }
    report.push_str("the smallest role that allows it:\n");
    report.push_str(&documents(&explained["remedy"]));
    report
}

#[cfg(test)]
mod tests {
    use machinery::json::json;

    #[test]
    fn ba_1_the_report_names_the_nearest_binding_and_the_remedy() {
        let refused = json!({
            "allowed": false,
            "message": "pods is forbidden: User \"alice\" cannot list …",
            "sentences": ["RoleBinding \"b\" of Role \"r\": verb \"list\" is not among \"get\""],
            "remedy": [{"kind": "Role", "metadata": {"name": "list-pods"}}],
        });
        let report = super::report("alice", &refused);
        assert!(report.starts_with("refused: pods is forbidden"), "{report}");
        assert!(report.contains("  RoleBinding \"b\" of Role \"r\": verb \"list\" is not among \"get\"\n"), "{report}");
        assert!(report.contains("---\nkind: Role\n"), "{report}");
        let allowed = json!({"allowed": true, "reason": "RBAC: allowed by …", "bindings": [
            {"binding": "RoleBinding \"b\"", "role": "Role \"r\"", "subject": "User \"alice\"", "rule": {"verbs": ["get"]}},
        ]});
        let report = super::report("alice", &allowed);
        assert!(
            report.contains("RoleBinding \"b\" of Role \"r\" to User \"alice\" by this rule:\n    verbs:\n"),
            "{report}"
        );
        assert!(super::report("eve", &json!({"allowed": false})).contains("no binding names eve"));
    }
}
