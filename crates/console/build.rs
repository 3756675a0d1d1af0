//! Compresses the files of `console/` and writes the table that `files.rs` includes.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

use flate2::Compression;
use flate2::write::GzEncoder;
use sha2::{Digest as _, Sha256};

/// The media types of the files that are served. Others, such as the README, are for those who read the source.
const MEDIA: [(&str, &str); 4] = [
    ("html", "text/html; charset=utf-8"),
    ("css", "text/css; charset=utf-8"),
    ("js", "text/javascript; charset=utf-8"),
    ("svg", "image/svg+xml"),
];

fn main() -> io::Result<()> {
    let root = Path::new(&env::var("CARGO_MANIFEST_DIR").unwrap_or_default()).join("../../console");
    let out = PathBuf::from(env::var("OUT_DIR").unwrap_or_default());
    let mut paths = Vec::new();
    collect(&root, &mut paths)?;
    paths.sort();
    let mut table = String::from("[\n");
    for (index, path) in paths.iter().enumerate() {
        let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
        let Some((_, media)) = MEDIA.iter().find(|(one, _)| *one == extension) else { continue };
        let content = fs::read(path)?;
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(&content)?;
        let compressed = out.join(format!("{index}.gz"));
        fs::write(&compressed, encoder.finish()?)?;
        let digest = Sha256::digest(&content);
        let etag: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        let name = path.strip_prefix(&root).unwrap_or(path).display().to_string();
        let _ = writeln!(
            table,
            "File {{ path: {name:?}, media: {media:?}, etag: \"\\\"{etag}\\\"\", gzip: include_bytes!({compressed:?}) }},"
        );
    }
    table.push_str("]\n");
    fs::write(out.join("files.rs"), table)
}

fn collect(folder: &Path, found: &mut Vec<PathBuf>) -> io::Result<()> {
    println!("cargo::rerun-if-changed={}", folder.display());
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, found)?;
        } else {
            println!("cargo::rerun-if-changed={}", path.display());
            found.push(path);
        }
    }
    Ok(())
}
