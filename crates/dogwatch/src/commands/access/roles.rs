//! `dogwatch access roles`: the smallest roles for what a user did.

use http::Method;
use machinery::Clock;
use machinery::json::Value;
use server::authorization::file::parse_duration;

use super::{documents, texts};
use crate::args::{Report, Roles};
use crate::commands::remote::Remote;
use crate::failure::Failure;

pub(super) async fn roles(args: Roles) -> Result<(), Failure> {
    let remote = Remote::connect(args.kubeconfig.as_deref()).await?;
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.append_pair("user", &args.user);
    if let Some(from) = &args.from {
        query.append_pair("from", &start(from)?);
    }
    if args.names {
        query.append_pair("names", "true");
    }
    let path = format!("/debug/access/roles?{}", query.finish());
    let found = remote.call_ok(Method::GET, &path, "application/json", None).await?.value()?;
    match args.output {
        Report::Json => println!("{found:#}"),
        Report::Text => print!("{}", report(&found, args.missing)),
    }
    Ok(())
}

/// A time, or how long ago it was.
fn start(text: &str) -> Result<String, Failure> {
    let Some(ago) = parse_duration(text) else { return Ok(text.to_owned()) };
    let now = Clock::system().now();
    let start = now.checked_sub(ago).map_err(|error| Failure::usage(format!("--from {text}: {error}")))?;
    Ok(start.to_string())
}

fn report(found: &Value, missing: bool) -> String {
    let user = super::text(found, "user");
    let objects = if missing { &found["missing"] } else { &found["least"] };
    let mut report = String::new();
    if objects.as_array().is_none_or(Vec::is_empty) {
        let nothing = if missing { "lacks nothing" } else { "did nothing that was recorded" };
        report.push_str(&format!("# {user} {nothing}\n"));
    }
    report.push_str(&documents(objects));
    if !missing {
        report.push_str(&comments("was refused", &found["refused"]));
        report.push_str(&comments("its present roles grant beyond that", &found["beyond"]));
    }
    if let Some(left_out) = found["leftOut"].as_u64() {
        report.push_str(&format!("# {left_out} requests were left out: too many different ones\n"));
    }
    report
}

/// Rules as comments, one on each line.
fn comments(title: &str, places: &Value) -> String {
    let mut lines = String::new();
    for place in places.as_array().into_iter().flatten() {
        let namespace = super::text(place, "namespace");
        let namespace = if namespace.is_empty() { "the cluster".to_owned() } else { format!("namespace {namespace}") };
        for rule in place["rules"].as_array().into_iter().flatten() {
            let (verbs, groups) = (texts(rule, "verbs").join(","), texts(rule, "apiGroups"));
            let mut what = [texts(rule, "resources"), texts(rule, "nonResourceURLs")].concat().join(",");
            if groups.iter().any(|group| !group.is_empty()) {
                what.push_str(&format!(" of {}", groups.join(",")));
            }
            let names = texts(rule, "resourceNames");
            if !names.is_empty() {
                what.push_str(&format!(" named {}", names.join(",")));
            }
            lines.push_str(&format!("# {title} in {namespace}: {verbs} {what}\n"));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use machinery::json::json;

    use super::*;

    #[test]
    fn ba_5_the_report_has_roles_and_comments() {
        let found = json!({
            "user": "op",
            "least": [{"kind": "Role"}],
            "missing": [],
            "refused": [{"namespace": "n", "rules": [
                {"verbs": ["patch"], "apiGroups": ["apps"], "resources": ["deployments/status"], "resourceNames": ["a", "b"]},
            ]}],
            "beyond": [{"namespace": "", "rules": [{"verbs": ["get"], "nonResourceURLs": ["/metrics"]}]}],
        });
        assert_eq!(
            report(&found, false),
            "---\nkind: Role\n\
             # was refused in namespace n: patch deployments/status of apps named a,b\n\
             # its present roles grant beyond that in the cluster: get /metrics\n"
        );
        assert_eq!(report(&found, true), "# op lacks nothing\n");
    }

    #[test]
    fn ba_5_a_start_is_a_time_or_how_long_ago() {
        assert_eq!(start("2006-01-02T15:04:05Z").unwrap(), "2006-01-02T15:04:05Z");
        assert!(start("10m").unwrap().ends_with('Z'));
    }
}
