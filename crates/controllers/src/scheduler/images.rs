//! The score of nodes that have the images of a pod already (SC-21).

use std::collections::HashMap;

use k8s_openapi::api::core::v1::Pod;

use super::cluster::NodeInfo;

/// Bytes of images below which nothing is gained, and above which nothing more is, for each container.
const LEAST: i64 = 23 * 1024 * 1024;
const MOST: i64 = 1_000 * 1024 * 1024;

/// A score from 0 to 100 for each node; none if no node has an image of the pod. An image counts by its size and by the share
/// of nodes that have it, so that pods do not all follow the first node that pulled it.
pub(super) fn scores(pod: &Pod, nodes: &[&NodeInfo]) -> Option<Vec<i64>> {
    if nodes.iter().all(|node| images(node).next().is_none()) {
        return None;
    }
    let spec = pod.spec.as_ref()?;
    let containers = spec.init_containers.iter().flatten().chain(&spec.containers);
    let wanted: Vec<String> =
        containers.map(|container| tagged(container.image.as_deref().unwrap_or_default())).collect();
    let sizes: Vec<HashMap<&str, i64>> = nodes.iter().map(|node| images(node).collect()).collect();
    let most = MOST.saturating_mul(i64::try_from(wanted.len()).unwrap_or(i64::MAX));
    let total = i64::try_from(nodes.len()).unwrap_or(i64::MAX);
    let having = |image: &str| sizes.iter().filter(|sizes| sizes.contains_key(image)).count();
    let spread: Vec<i64> = wanted.iter().map(|image| i64::try_from(having(image)).unwrap_or(i64::MAX)).collect();
    let score = |sizes: &HashMap<&str, i64>| {
        let counted = wanted.iter().zip(&spread);
        let sum = counted.fold(0i64, |sum, (image, spread)| {
            let size = sizes.get(image.as_str()).copied().unwrap_or_default();
            sum.saturating_add(size.saturating_mul(*spread) / total)
        });
        100 * (sum.clamp(LEAST, most) - LEAST) / (most - LEAST)
    };
    Some(sizes.iter().map(score).collect())
}

/// The images of a node by name, with their sizes.
fn images(node: &NodeInfo) -> impl Iterator<Item = (&str, i64)> {
    let images = node.object.status.iter().flat_map(|status| status.images.iter().flatten());
    images.flat_map(|image| {
        let size = image.size_bytes.unwrap_or_default();
        image.names.iter().flatten().map(move |name| (name.as_str(), size))
    })
}

/// An image with its tag.
fn tagged(image: &str) -> String {
    let last = image.rsplit('/').next().unwrap_or_default();
    if last.contains(':') || image.contains('@') { image.to_owned() } else { format!("{image}:latest") }
}
