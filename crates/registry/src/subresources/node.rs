//! What only the node of a pod could answer: logs, and connections to what runs there. No node agent runs here, so a
//! clear refusal is the answer; what is wrong with the question itself is said first.

use machinery::json::Value;
use machinery::query::Query;
use machinery::{FieldError, GroupResource, Status};

use crate::registry::Registry;
use crate::request::Target;
use crate::view;

/// The subresources a node answers.
pub const QUESTIONS: [&str; 5] = ["log", "exec", "attach", "portforward", "proxy"];

impl Registry {
    /// Asks the target's node. What comes back without an error is that nothing has been said yet: a pod without a node
    /// has an empty log.
    pub async fn ask_node(&self, target: &Target, query: &Query) -> Result<(), Status> {
        let what = target.subresource.as_deref().unwrap_or_default();
        let is_pod = target.kind.collection == "core/pods";
        if is_pod && what == "log" {
            check_log_options(target.name(), query)?;
        }
        let key = self.key(target)?;
        let item = self.current(&key).await?;
        let item = item.ok_or_else(|| Status::not_found(&target.gr(), target.name()))?;
        let object = view::parse(&item)?;
        if is_pod {
            if matches!(what, "log" | "exec" | "attach") {
                check_container(&object, target.name(), query.get("container").unwrap_or_default())?;
            }
            if object["spec"]["nodeName"].as_str().unwrap_or_default().is_empty() {
                let why = format!("pod {} does not have a host assigned", target.name());
                return if what == "log" { Ok(()) } else { Err(Status::bad_request(why)) };
            }
        }
        Err(Status::not_implemented(format!(
            "{what} needs a node agent, and {} {:?} has none",
            target.kind.singular,
            target.name()
        )))
    }
}

fn check_log_options(pod: &str, query: &Query) -> Result<(), Status> {
    let mut errors = Vec::new();
    if let Some(lines) = query.integer("tailLines")?.filter(|lines| *lines < 0) {
        errors.push(FieldError::invalid("tailLines", lines, "must be greater than or equal to 0"));
    }
    if let Some(bytes) = query.integer("limitBytes")?.filter(|bytes| *bytes < 1) {
        errors.push(FieldError::invalid("limitBytes", bytes, "must be greater than 0"));
    }
    let since = query.integer("sinceSeconds")?;
    if since.is_some() && query.get("sinceTime").is_some() {
        errors.push(FieldError::forbidden("", "at most one of `sinceTime` or `sinceSeconds` may be specified"));
    } else if let Some(seconds) = since.filter(|seconds| *seconds < 1) {
        errors.push(FieldError::invalid("sinceSeconds", seconds, "must be greater than 0"));
    }
    if errors.is_empty() {
        Ok(())
    } else {
        Err(Status::invalid(&GroupResource::new("", "PodLogOptions"), pod, &errors))
    }
}

/// The container a question is about: the one it names, or the only one.
fn check_container(pod: &Value, name: &str, container: &str) -> Result<(), Status> {
    let lists = ["initContainers", "containers", "ephemeralContainers"];
    let all = lists.into_iter().flat_map(|list| pod["spec"][list].as_array().into_iter().flatten());
    let names: Vec<&str> = all.filter_map(|container| container["name"].as_str()).collect();
    if !container.is_empty() {
        return if names.contains(&container) {
            Ok(())
        } else {
            Err(Status::bad_request(format!("container {container} is not valid for pod {name}")))
        };
    }
    match pod["spec"]["containers"].as_array().map_or(0, Vec::len) {
        1 => Ok(()),
        0 => Err(Status::bad_request(format!("a container name must be specified for pod {name}"))),
        _ => {
            let names = names.join(" ");
            let why = format!("a container name must be specified for pod {name}, choose one of: [{names}]");
            Err(Status::bad_request(why))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use machinery::json::json;

    #[test]
    fn one_of_several_containers_must_be_named() {
        let pod = json!({"spec": {"containers": [{"name": "c"}, {"name": "d"}], "initContainers": [{"name": "i"}]}});
        let why = |container: &str| check_container(&pod, "x", container).map_err(|status| status.message);
        assert_eq!(why("").unwrap_err(), "a container name must be specified for pod x, choose one of: [i c d]");
        assert_eq!(why("z").unwrap_err(), "container z is not valid for pod x");
        assert!(why("i").is_ok());
        assert!(check_container(&json!({"spec": {"containers": [{"name": "c"}]}}), "x", "").is_ok());
    }

    #[test]
    fn log_options_have_bounds() {
        let why = |query: &str| check_log_options("x", &Query::parse(query)).map_err(|status| status.code);
        assert_eq!(why("tailLines=-1"), Err(422));
        assert_eq!(why("sinceSeconds=1&sinceTime=2020-01-01T00:00:00Z"), Err(422));
        assert_eq!(why("tailLines=x"), Err(400));
        assert_eq!(why("tailLines=0&limitBytes=1&sinceSeconds=1"), Ok(()));
    }
}
