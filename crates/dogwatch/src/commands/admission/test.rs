//! `dogwatch admission test`: evaluates policies on an object, without a server.

use std::path::Path;

use machinery::json::{Value, json};

use super::offline::{Offline, traced, user};
use crate::args::AdmissionTest;
use crate::commands::documents;
use crate::failure::Failure;

pub(super) async fn test(args: AdmissionTest) -> Result<(), Failure> {
    let as_usage = |failure: Failure| Failure { is_usage: true, ..failure };
    let mut objects = Vec::new();
    for file in &args.files {
        objects.extend(documents::read(file).map_err(as_usage)?);
    }
    let one = |file: &Path| -> Result<Value, Failure> {
        let mut objects = documents::read(file).map_err(as_usage)?;
        match objects.len() {
            1 => Ok(objects.remove(0)),
            more => Err(Failure::usage(format!("{} has {more} objects, one is needed", file.display()))),
        }
    };
    let new = args.object.as_deref().map(one).transpose()?;
    let old = args.old.as_deref().map(one).transpose()?;
    let offline = Offline::start(&args.namespace).await?;
    // What is there before the policies are is not refused by them.
    let (policies, others): (Vec<Value>, Vec<Value>) = objects.into_iter().partition(is_policy);
    if policies.is_empty() {
        return Err(Failure::usage("the files have no admission policy"));
    }
    for object in others.iter().chain(&old).chain(&policies) {
        offline.create(object).await?;
    }
    let ctx = traced(user(args.user.as_deref(), &args.groups));
    let answer = offline.request(new.as_ref(), old.as_ref(), &ctx).await?;
    let steps = ctx.trace.as_ref().map(|trace| trace.to_value()).unwrap_or_default();
    let (warnings, annotations) = (ctx.warnings.take(), ctx.annotations.get());
    let refusal = answer.as_ref().err().map(|status| status.message.clone());
    if args.json {
        let annotations: machinery::json::Map =
            annotations.into_iter().map(|(name, text)| (name, Value::from(text))).collect();
        let report = json!({
            "admitted": refusal.is_none(),
            "message": refusal,
            "steps": of_policies(&steps).cloned().collect::<Vec<Value>>(),
            "warnings": warnings,
            "auditAnnotations": annotations,
        });
        println!("{report}");
    } else {
        of_policies(&steps).for_each(print_step);
        warnings.iter().for_each(|text| println!("warning: {text}"));
        annotations.iter().for_each(|(name, text)| println!("audit: {name}: {text}"));
        if refusal.is_none() {
            println!("admitted");
        }
    }
    match refusal {
        Some(message) => Err(Failure::new(format!("refused: {message}"))),
        None => Ok(()),
    }
}

fn is_policy(object: &Value) -> bool {
    let kind = object["kind"].as_str().unwrap_or_default();
    kind.ends_with("AdmissionPolicy") || kind.ends_with("AdmissionPolicyBinding")
}

/// The steps that policies took.
fn of_policies(steps: &Value) -> impl Iterator<Item = &Value> {
    steps.as_array().into_iter().flatten().filter(|step| step["policy"].is_string())
}

fn print_step(step: &Value) {
    let text = |member: &str| step[member].as_str().unwrap_or_default().to_owned();
    let mut line = format!("policy {}", text("policy"));
    if step["binding"].is_string() {
        line += &format!(", binding {}", text("binding"));
    }
    line += &format!(": {}", text("verdict"));
    if step["why"].is_string() {
        line += &format!(": {}", text("why"));
    }
    if let Some(cost) = step["cost"].as_u64() {
        line += &format!(" (cost {cost})");
    }
    println!("{line}");
    for (name, value) in step["variables"].as_object().into_iter().flatten() {
        println!("  variables.{name} = {value}");
    }
    if !step["patch"].is_null() {
        println!("  patch {}", step["patch"]);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::*;

    const POLICY: &str = "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: replicas}
spec:
  paramKind: {apiVersion: v1, kind: ConfigMap}
  matchConstraints:
    resourceRules: [{apiGroups: [apps], apiVersions: [v1], operations: [CREATE, UPDATE, DELETE], resources: [deployments]}]
  validations:
  - {expression: 'object == null || object.spec.replicas <= int(params.data.max)', messageExpression: \"'at most ' + params.data.max\"}
  - {expression: \"object == null || request.userInfo.username != 'bob'\", message: not bob}
  - {expression: \"object != null || authorizer.group('').resource('pods').check('approve').allowed()\", message: not approved}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: replicas}
spec: {policyName: replicas, validationActions: [Deny], paramRef: {name: limits, parameterNotFoundAction: Deny}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: limits, namespace: web}
data: {max: '5'}
";

    struct Files {
        dir: tempfile::TempDir,
    }

    impl Files {
        fn write(&self, name: &str, text: &str) -> PathBuf {
            let path = self.dir.path().join(name);
            fs::write(&path, text).unwrap();
            path
        }

        fn deployment(&self, name: &str, replicas: u32) -> PathBuf {
            let text = format!(
                "{{apiVersion: apps/v1, kind: Deployment, metadata: {{name: d, namespace: web}}, spec: {{replicas: {replicas}, \
                 selector: {{matchLabels: {{a: b}}}}, template: {{metadata: {{labels: {{a: b}}}}, spec: {{containers: [{{name: c, \
                 image: i}}]}}}}}}}}"
            );
            self.write(name, &text)
        }
    }

    fn args(file: PathBuf, object: Option<PathBuf>, old: Option<PathBuf>, user: Option<&str>) -> AdmissionTest {
        let (user, groups, namespace) = (user.map(str::to_owned), Vec::new(), "default".to_owned());
        AdmissionTest { files: vec![file], object, old, user, groups, namespace, json: false }
    }

    #[tokio::test]
    async fn bd_10_policies_are_evaluated_without_a_server() {
        let files = Files { dir: tempfile::tempdir().unwrap() };
        let policy = files.write("policy.yaml", POLICY);
        let (few, many) = (files.deployment("few.yaml", 2), files.deployment("many.yaml", 6));
        let run = async |object: Option<&PathBuf>, old: Option<&PathBuf>, user: Option<&str>| {
            test(args(policy.clone(), object.cloned(), old.cloned(), user)).await.map_err(|failure| {
                (failure.is_usage, failure.sentence.rsplit(": ").next().unwrap_or_default().to_owned())
            })
        };
        let refused = |why: &str| Err((false, why.to_owned()));
        assert_eq!(run(Some(&few), None, None).await, Ok(()));
        assert_eq!(run(Some(&many), None, None).await, refused("at most 5"));
        assert_eq!(run(Some(&many), Some(&few), None).await, refused("at most 5"));
        assert_eq!(run(Some(&few), Some(&many), Some("alice")).await, Ok(()));
        assert_eq!(run(Some(&few), None, Some("bob")).await, refused("not bob"));
        assert_eq!(run(None, Some(&few), None).await, Ok(()), "an administrator may do everything");
        assert_eq!(run(None, Some(&few), Some("alice")).await, refused("not approved"));
    }

    #[tokio::test]
    async fn bd_10_wrong_files_are_errors_of_usage() {
        let files = Files { dir: tempfile::tempdir().unwrap() };
        let object = files.deployment("object.yaml", 1);
        for (text, why) in [
            ("{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}", "the files have no admission policy"),
            ("{apiVersion: example.com/v1, kind: Thing, metadata: {name: a}}", "the files have no admission policy"),
            (POLICY, ""),
            (&POLICY.replace("not bob}", "not bob, reason: Nope}"), "Unsupported value: \"Nope\""),
        ] {
            let result = test(args(files.write("p.yaml", text), Some(object.clone()), None, None)).await;
            match result {
                Ok(()) => assert!(why.is_empty(), "{text}"),
                Err(failure) => assert!(failure.is_usage && failure.sentence.contains(why), "{failure}"),
            }
        }
        let missing = test(args(PathBuf::from("/nowhere.yaml"), Some(object), None, None)).await.unwrap_err();
        assert!(missing.is_usage && missing.sentence.starts_with("/nowhere.yaml cannot be read"), "{missing}");
    }
}
