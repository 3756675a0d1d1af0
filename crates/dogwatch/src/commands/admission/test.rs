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
