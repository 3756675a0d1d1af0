//! The container image, as an archive of an OCI layout, written without a container engine.
//!
//! The image has no distribution in it: the program, the loader and libraries of the C library that it is linked to (none for a
//! static program), a user without rights, and a volume for data.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};

use super::Package;
use super::archive::{Checksum, Entry, gzip, tar, with_folders};
use super::elf;
use super::product::{self, LICENCE, NAME, Product, SUMMARY};

/// The user and the group of the program.
const USER: u32 = 65_532;
/// The volume.
const DATA: &str = "data";
/// Time of the image, as in every archive.
const CREATED: &str = "1980-01-01T00:00:00Z";

pub(super) fn make(product: &Product) -> Result<Package, String> {
    let layer = tar(with_folders(files(product)?), "")?;
    let mut blobs = Vec::new();
    let difference = digest(&layer);
    let layer = blob(&mut blobs, "application/vnd.oci.image.layer.v1.tar+gzip", gzip(&layer, product.fast)?);
    let platform = json!({ "architecture": product.elf.machine.debian(), "os": "linux" });
    let config = json!({
        "created": CREATED,
        "architecture": platform["architecture"],
        "os": "linux",
        "config": {
            "User": format!("{USER}:{USER}"),
            "ExposedPorts": { "6443/tcp": {} },
            "Env": ["PATH=/usr/bin", format!("HOME=/{DATA}")],
            "Entrypoint": ["/usr/bin/dogwatch"],
            "Cmd": ["up", "--data-dir", format!("/{DATA}"), "--listen", "0.0.0.0:6443"],
            "Volumes": { format!("/{DATA}"): {} },
            "WorkingDir": format!("/{DATA}"),
        },
        "rootfs": { "type": "layers", "diff_ids": [difference] },
        "history": [{ "created": CREATED, "created_by": "cargo xtask package" }],
    });
    let config = blob(&mut blobs, "application/vnd.oci.image.config.v1+json", text(&config));
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": config,
        "layers": [layer],
        "annotations": {
            "org.opencontainers.image.title": NAME,
            "org.opencontainers.image.version": product.version,
            "org.opencontainers.image.description": SUMMARY,
            "org.opencontainers.image.licenses": LICENCE,
        },
    });
    let mut manifest = blob(&mut blobs, "application/vnd.oci.image.manifest.v1+json", text(&manifest));
    manifest["platform"] = platform;
    // `docker load` and `podman load` name the image by this annotation.
    manifest["annotations"] = json!({
        "org.opencontainers.image.ref.name": product.version,
        "io.containerd.image.name": format!("localhost/{NAME}:{}", product.version),
    });
    let index = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [manifest],
    });
    let mut entries = vec![
        Entry::file("oci-layout", text(&json!({ "imageLayoutVersion": "1.0.0" }))),
        Entry::file("index.json", text(&index)),
    ];
    entries.extend(blobs);
    Ok(Package { name: format!("{}-oci.tar", product.stem()), bytes: tar(with_folders(entries), "")? })
}

fn text(value: &Value) -> Vec<u8> {
    value.to_string().into_bytes()
}

fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", Checksum::of(bytes).hex())
}

/// Stores a blob and returns its descriptor.
fn blob(blobs: &mut Vec<Entry<'_>>, kind: &str, bytes: Vec<u8>) -> Value {
    let digest = digest(&bytes);
    let descriptor = json!({ "mediaType": kind, "digest": digest, "size": bytes.len() });
    blobs.push(Entry::file(format!("blobs/{}", digest.replace(':', "/")), bytes));
    descriptor
}

fn files(product: &Product) -> Result<Vec<Entry<'_>>, String> {
    let mut files = vec![
        Entry::program("usr/bin/dogwatch", product.program.as_slice()),
        Entry::file("etc/passwd", format!("root:x:0:0::/:/\n{NAME}:x:{USER}:{USER}::/{DATA}:/\n").into_bytes()),
        Entry::file("etc/group", format!("root:x:0:\n{NAME}:x:{USER}:\n").into_bytes()),
        Entry::folder(DATA, 0o755, USER),
        Entry::folder("tmp", 0o1777, 0),
    ];
    files.extend(product.legal("usr/share/doc/dogwatch/"));
    let libraries = libraries(product)?;
    // The libraries keep their own licence.
    let copyright = Path::new("/usr/share/doc/libc6/copyright");
    if !libraries.is_empty() && copyright.is_file() {
        files.push(Entry::file("usr/share/doc/libc6/copyright", product::read(copyright)?));
    }
    files.extend(libraries.into_iter().map(|(path, bytes)| Entry::program(path, bytes)));
    Ok(files)
}

/// Returns the loader, the libraries, and what these need, by the paths at which the loader looks for them.
fn libraries(product: &Product) -> Result<BTreeMap<String, Vec<u8>>, String> {
    let mut found = BTreeMap::new();
    let Some(loader) = &product.elf.interpreter else { return Ok(found) };
    let mut missing = product.elf.libraries.clone();
    let loader_name = Path::new(loader).file_name().map(|name| name.to_string_lossy().into_owned());
    found.insert(loader.trim_start_matches('/').to_owned(), product::read(Path::new(loader))?);
    while let Some(name) = missing.pop() {
        if loader_name.as_ref() == Some(&name) || found.keys().any(|path| path.ends_with(&format!("/{name}"))) {
            continue;
        }
        let file = find(product, &name).ok_or_else(|| format!("this machine has no {name} for the image"))?;
        let bytes = product::read(Path::new(&file))?;
        missing.extend(elf::read(&bytes).into_iter().flat_map(|elf| elf.libraries));
        found.insert(file.trim_start_matches('/').to_owned(), bytes);
    }
    Ok(found)
}

/// Looks for a library where the loader does.
fn find(product: &Product, name: &str) -> Option<String> {
    let folder = format!("{}-linux-gnu", product.elf.machine.triple());
    let folders = [
        format!("/lib/{folder}"),
        format!("/usr/lib/{folder}"),
        "/lib64".into(),
        "/usr/lib64".into(),
        "/lib".into(),
        "/usr/lib".into(),
    ];
    let files = folders.iter().map(|folder| format!("{folder}/{name}"));
    files.into_iter().find(|file| Path::new(file).is_file())
}
