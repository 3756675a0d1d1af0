//! The files of all containers: a root for each instance, volumes for each pod, host paths for each node.

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Container, Pod, Volume};
use parking_lot::Mutex;

use super::environment;
use super::program::image_name;
use crate::nodes::shell::files::{PATH_BYTES_MAX, SharedTree, absolute};
use crate::nodes::shell::{Environment, Files};

/// Host paths and claims whose files are kept; those beyond it start empty each time.
pub const SHARED_VOLUMES_MAX: usize = 1_000;

/// The files of all containers of simulated nodes.
#[derive(Debug, Default)]
pub struct Places(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    pods: HashMap<Arc<str>, PodPlaces>,
    /// Host paths by node and path, claims by namespace and name.
    shared: HashMap<String, SharedTree>,
}

#[derive(Debug, Default)]
struct PodPlaces {
    volumes: HashMap<String, SharedTree>,
    /// The root of the current instance of a container, and its `restartCount`.
    roots: HashMap<String, (i32, Files)>,
}

impl Places {
    /// The files and the environment of a container; none if the pod has no such container.
    #[must_use]
    pub fn of(&self, pod: &Pod, container: &str) -> Option<(Files, Arc<Environment>)> {
        let spec = pod.spec.as_ref()?;
        let init = spec.init_containers.iter().flatten();
        let container = init.chain(&spec.containers).find(|known| known.name == container)?;
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let mut state = self.0.lock();
        let State { pods, shared } = &mut *state;
        let places = pods.entry(uid.into()).or_default();
        let restarts = restarts_of(pod, &container.name);
        let (_, root) = places
            .roots
            .entry(container.name.clone())
            .and_modify(|(known, root)| {
                if *known != restarts {
                    (*known, *root) = (restarts, new_root(container));
                }
            })
            .or_insert_with(|| (restarts, new_root(container)));
        let mut files = root.clone();
        for mount in container.volume_mounts.iter().flatten() {
            let Some(volume) = spec.volumes.iter().flatten().find(|volume| volume.name == mount.name) else { continue };
            let tree = match shared_name(pod, volume) {
                Some(name) if shared.contains_key(&name) || shared.len() < SHARED_VOLUMES_MAX => {
                    shared.entry(name).or_default().clone()
                }
                _ => places.volumes.entry(volume.name.clone()).or_default().clone(),
            };
            let sub_path = mount.sub_path.as_deref().unwrap_or_default();
            files.mount(&mount.mount_path, tree, sub_path, mount.read_only.unwrap_or_default() || is_read_only(volume));
        }
        Some((files, Arc::new(environment::of(pod, container))))
    }

    /// Forgets the files of a pod that is gone.
    pub fn remove(&self, pod_uid: &str) {
        self.0.lock().pods.remove(pod_uid);
    }
}

fn restarts_of(pod: &Pod, container: &str) -> i32 {
    let Some(status) = &pod.status else { return 0 };
    let statuses = status.init_container_statuses.iter().flatten().chain(status.container_statuses.iter().flatten());
    statuses.filter(|status| status.name == container).map(|status| status.restart_count).next().unwrap_or_default()
}

fn new_root(container: &Container) -> Files {
    let files = Files::default();
    let made = |path: &str, text: &[u8]| {
        let directory = path.rsplit_once('/').map_or("/", |(directory, _)| directory);
        let _ = files.make_directory(directory, true);
        let _ = files.write(path, text, false);
    };
    if let Some(website) = website(container) {
        made(website.file, b"<html><body><h1>It works!</h1></body></html>\n");
    }
    if let Some(directory) = container.working_dir.as_deref().filter(|path| path.len() <= PATH_BYTES_MAX) {
        let _ = files.make_directory(&absolute("/", directory), true);
    }
    files
}

/// What a web server of an image shows.
pub(super) struct Website {
    root: &'static str,
    /// What it shows for `/`.
    start: &'static str,
    /// The file that the image comes with.
    file: &'static str,
}

impl Website {
    /// The file that is shown for a path of a request.
    pub(super) fn file_of(&self, path: &str) -> String {
        if path == "/" { self.start.to_owned() } else { format!("{}{path}", self.root) }
    }
}

/// The website of a container whose image is that of a web server.
pub(super) fn website(container: &Container) -> Option<Website> {
    let (root, start, file) = match image_name(container) {
        "httpd" => {
            let page = "/usr/local/apache2/htdocs/index.html";
            ("/usr/local/apache2/htdocs", page, page)
        }
        "nginx" => {
            let page = "/usr/share/nginx/html/index.html";
            ("/usr/share/nginx/html", page, page)
        }
        // Shows all its files; `/` is the list of them.
        "agnhost" if container.args.iter().flatten().any(|word| word == "test-webserver") => {
            ("", "/", "/localhost.crt")
        }
        _ => return None,
    };
    Some(Website { root, start, file })
}

/// The name of a volume that outlives its pod.
fn shared_name(pod: &Pod, volume: &Volume) -> Option<String> {
    if let Some(host) = volume.host_path.as_ref().filter(|host| host.path.len() <= PATH_BYTES_MAX) {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default();
        return Some(format!("host {node} {}", absolute("/", &host.path)));
    }
    let claim = volume.persistent_volume_claim.as_ref()?;
    Some(format!("claim {} {}", pod.metadata.namespace.as_deref().unwrap_or_default(), claim.claim_name))
}

fn is_read_only(volume: &Volume) -> bool {
    volume.config_map.is_some()
        || volume.secret.is_some()
        || volume.projected.is_some()
        || volume.downward_api.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(uid: &str, restarts: i32) -> Pod {
        let value: Value = json!({
            "metadata": {"name": uid, "namespace": "d", "uid": uid},
            "spec": {"nodeName": "n",
                "volumes": [{"name": "e", "emptyDir": {}}, {"name": "h", "hostPath": {"path": "/host/x"}},
                    {"name": "s", "secret": {"secretName": "s"}}],
                "containers": [
                    {"name": "c", "image": "httpd", "volumeMounts": [{"name": "e", "mountPath": "/e"},
                        {"name": "h", "mountPath": "/h"}, {"name": "s", "mountPath": "/s"}]},
                    {"name": "b", "volumeMounts": [{"name": "e", "mountPath": "/other"}]}]},
            "status": {"containerStatuses": [{"name": "c", "restartCount": restarts, "image": "", "imageID": "",
                "ready": true}]}});
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn cmd_8_files_live_as_long_as_their_volume() {
        let places = Places::default();
        let files = |uid: &str, restarts: i32, name: &str| places.of(&pod(uid, restarts), name).unwrap().0;
        let first = files("a", 0, "c");
        for path in ["/e/flag", "/h/flag", "/tmp/flag"] {
            first.write(path, b"", false).unwrap();
        }
        assert!(first.write("/s/x", b"", false).is_err(), "secrets are read-only");
        let there = |files: &Files| ["/e/flag", "/h/flag", "/tmp/flag"].map(|path| files.exists(path));
        assert_eq!(there(&files("a", 0, "c")), [true, true, true], "the same instance");
        assert_eq!(there(&files("a", 1, "c")), [true, true, false], "the next instance");
        assert_eq!(there(&files("other", 0, "c")), [false, true, false], "another pod on the node");
        assert!(files("a", 1, "b").exists("/other/flag"));
        places.remove("a");
        assert_eq!(there(&files("a", 1, "c")), [false, true, false]);
        assert!(files("a", 1, "c").exists("/usr/local/apache2/htdocs/index.html"));
    }
}
