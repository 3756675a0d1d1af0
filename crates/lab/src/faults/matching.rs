//! Which requests a fault is about.

use machinery::glob;
use server::disturbance::Disturbed;

use super::spec::Match;

impl Match {
    pub(crate) fn matches(&self, request: &Disturbed) -> bool {
        is_among(&self.verbs, request.verb)
            && (self.resources.is_empty() || self.resources.iter().any(|named| is_resource(named, request)))
            && is_among(&self.namespaces, &request.namespace)
            && self.has_name(request)
            && fits(&self.user_agents, &request.agent)
            && fits(&self.users, &request.user)
    }

    /// Whether a fault whose object is in the world `home` is about requests to a world: to its own, unless it names others.
    pub(crate) fn has_world(&self, home: &str, world: &str) -> bool {
        if self.worlds.is_empty() { home == world } else { fits(&self.worlds, world) }
    }

    /// A watch of a whole collection is about all its objects: events are looked at by name.
    fn has_name(&self, request: &Disturbed) -> bool {
        is_among(&self.names, &request.name) || (request.verb == "watch" && request.name.is_empty())
    }
}

fn is_among(wanted: &[String], found: &str) -> bool {
    wanted.is_empty() || wanted.iter().any(|wanted| wanted == found)
}

fn fits(patterns: &[String], text: &str) -> bool {
    patterns.is_empty() || patterns.iter().any(|pattern| glob::fits(pattern, text))
}

/// `pods`, `deployments.apps`, `deployments.apps/status`. Without a subresource only the resource itself is meant.
fn is_resource(named: &str, request: &Disturbed) -> bool {
    let (resource, subresource) = named.split_once('/').unwrap_or((named, ""));
    let (plural, group) = match resource.split_once('.') {
        Some((plural, group)) => (plural, Some(group)),
        None => (resource, None),
    };
    (plural == request.resource || plural == "*")
        && group.is_none_or(|group| group == request.group)
        && (subresource == request.subresource || subresource == "*")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wld_4_a_fault_hits_its_own_world_unless_it_names_others() {
        let hits = |worlds: &[&str], world: &str| {
            let worlds = worlds.iter().map(|name| (*name).to_owned()).collect();
            Match { worlds, ..Match::default() }.has_world("main", world)
        };
        assert!(Match::default().has_world("a", "a") && !Match::default().has_world("a", "main"));
        assert!(hits(&[], "main") && !hits(&[], "a"));
        assert!(hits(&["a", "b*"], "a") && hits(&["a", "b*"], "b1") && !hits(&["a"], "main"));
        assert!(hits(&["*"], "main") && hits(&["*"], "a"));
    }

    #[test]
    fn resources_are_named_with_or_without_their_group() {
        let request = |resource: &str, group: &str, subresource: &str| Disturbed {
            resource: resource.into(),
            group: group.into(),
            subresource: subresource.into(),
            ..Disturbed::default()
        };
        let status = request("deployments", "apps", "status");
        assert!(is_resource("deployments.apps/status", &status) && is_resource("deployments/*", &status));
        assert!(!is_resource("deployments.apps", &status) && !is_resource("deployments.extensions/status", &status));
        assert!(is_resource("pods", &request("pods", "", "")) && is_resource("*", &request("pods", "", "")));
        assert!(!is_resource("pods.apps", &request("pods", "", "")));
    }
}
