//! Pods: their specs repeat, and only their node can serve their logs and connections.

use machinery::json::Value;
use machinery::query::Query;
use machinery::{FieldError, GroupResource, Status};

use super::KindBehaviour;
use crate::subresources::node::{NodeAnswer, NodeRequest};

pub(super) struct Pods;

impl KindBehaviour for Pods {
    fn repeats_specs(&self) -> bool {
        true
    }

    fn pod_template<'v>(&self, pod: &'v Value) -> Option<&'v Value> {
        Some(pod)
    }

    fn check_node_request(&self, request: &NodeRequest<'_>) -> Result<(), Status> {
        if request.subresource() == "log" {
            check_log_options(request.target.name(), request.query)?;
        }
        Ok(())
    }

    fn locate_node_request(&self, request: &NodeRequest<'_>, pod: &Value) -> Result<NodeAnswer, Status> {
        let name = request.target.name();
        if request.subresource() == "proxy" {
            return Ok(NodeAnswer::Address);
        }
        let container = match request.subresource() {
            "log" | "exec" | "attach" => {
                check_container(pod, name, request.query.get("container").unwrap_or_default())?
            }
            _ => String::new(),
        };
        match pod["spec"]["nodeName"].as_str().unwrap_or_default() {
            // Nothing has been written to the log of a pod that runs nowhere.
            "" if request.subresource() == "log" => Ok(NodeAnswer::EmptyLog),
            "" => Err(Status::bad_request(format!("pod {name} does not have a host assigned"))),
            node => Ok(NodeAnswer::At { node: node.to_owned(), container }),
        }
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

/// The container of a request: the one it names, or the only one.
fn check_container(pod: &Value, name: &str, container: &str) -> Result<String, Status> {
    let lists = ["initContainers", "containers", "ephemeralContainers"];
    let all = lists.into_iter().flat_map(|list| pod["spec"][list].as_array().into_iter().flatten());
    let names: Vec<&str> = all.filter_map(|container| container["name"].as_str()).collect();
    if !container.is_empty() {
        return if names.contains(&container) {
            Ok(container.to_owned())
        } else {
            Err(Status::bad_request(format!("container {container} is not valid for pod {name}")))
        };
    }
    let containers = pod["spec"]["containers"].as_array();
    match containers.map_or(0, Vec::len) {
        1 => Ok(pod["spec"]["containers"][0]["name"].as_str().unwrap_or_default().to_owned()),
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
        let only = check_container(&json!({"spec": {"containers": [{"name": "c"}]}}), "x", "");
        assert_eq!(only.unwrap(), "c");
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
