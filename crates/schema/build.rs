//! Extracts the descriptions of kinds and fields from the `k8s-openapi` crate, and hashes the sources of OpenAPI
//! documents.
//!
//! - `texts.deflate`: one line per description. A definition is `name<TAB>text`, each of its fields
//!   `<TAB>field<TAB>text`; a text is the inside of a string literal. Sorted by definition. 1.1 MB, a fifth of it
//!   compressed.
//! - `OPENAPI_SOURCES`: a hash over these texts, the tables and the code of `src/openapi`. Documents that are made from
//!   the same sources and kinds are equal, so their ETags are known before they are built.
//!
//! The descriptions are in the source of the crate (its schemas for the `schemars` feature), which Cargo locates.
//! Reading them costs a second of compilation; enabling the feature would cost every program that links the crate
//! megabytes.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, io};

use sha2::{Digest as _, Sha256};

const CRATE: &str = "k8s-openapi";
/// The version of the crate. Update it together with the dependency, since Cargo does not rerun this script for that.
const VERSION: &str = "0.29.";
/// The API version of the tables of this crate.
const FOLDER: &str = "src/v1_36";

fn main() -> io::Result<()> {
    for path in ["build.rs", "src/openapi", "src/facts/types.tsv", "src/kinds/builtin.tsv"] {
        println!("cargo::rerun-if-changed={path}");
    }
    let mut texts = BTreeMap::new();
    match source_of(CRATE, VERSION) {
        Some(root) => read_folder(&root.join(FOLDER), &mut texts)?,
        None => {
            println!(
                "cargo::warning=the source of {CRATE} {VERSION}x was not found: OpenAPI documents will have no descriptions"
            )
        }
    }
    let mut lines = String::new();
    for (definition, fields) in &texts {
        for (field, text) in fields {
            let separator = if field.is_empty() { definition.clone() } else { format!("\t{field}") };
            let _ = writeln!(lines, "{separator}\t{text}");
        }
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    let mut packed = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::best());
    packed.write_all(lines.as_bytes())?;
    fs::write(out.join("texts.deflate"), packed.finish()?)?;

    let mut hash = Sha256::new();
    hash.update(&lines);
    let mut sources = vec![PathBuf::from("src/facts/types.tsv"), PathBuf::from("src/kinds/builtin.tsv")];
    for file in fs::read_dir("src/openapi")? {
        sources.push(file?.path());
    }
    sources.sort();
    for source in sources.iter().filter(|source| source.is_file()) {
        hash.update(fs::read(source)?);
    }
    let hash: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    println!("cargo::rustc-env=OPENAPI_SOURCES={hash}");
    Ok(())
}

/// Returns the folder of a dependency of the workspace.
fn source_of(package: &str, version: &str) -> Option<PathBuf> {
    // A build has its packages already; only a build of this crate alone may have to fetch one.
    [&["--offline"][..], &[]].into_iter().find_map(|network| {
        let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(cargo);
        command.args(["metadata", "--format-version=1", "--filter-platform"]).arg(env::var_os("HOST")?).args(network);
        let output = command.output().ok().filter(|output| output.status.success())?;
        let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
        let mut packages = metadata["packages"].as_array()?.iter();
        let found = packages.find(|found| {
            found["name"] == package && found["version"].as_str().is_some_and(|found| found.starts_with(version))
        })?;
        Path::new(found["manifest_path"].as_str()?).parent().map(Path::to_owned)
    })
}

type Texts = BTreeMap<String, BTreeMap<String, String>>;

fn read_folder(folder: &Path, texts: &mut Texts) -> io::Result<()> {
    println!("cargo::rerun-if-changed={}", folder.display());
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            read_folder(&path, texts)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            read_file(&fs::read_to_string(&path)?, texts);
        }
    }
    Ok(())
}

/// Extracts the descriptions of a type. Its schema has one key per line; the indentation shows whether a line belongs
/// to the type (12 spaces) or to a field (16 spaces or more).
fn read_file(source: &str, texts: &mut Texts) {
    let Some((_, schema)) = source.split_once("fn schema_name()") else { return };
    let mut lines = schema.lines().skip(1);
    let Some(definition) = lines.next().and_then(|line| line.trim().strip_suffix(".into()")) else { return };
    let fields = texts.entry(definition.trim_matches('"').to_owned()).or_default();
    let mut field = String::new();
    for line in lines {
        let depth = line.len() - line.trim_start().len();
        let line = line.trim();
        if depth == 16 && line.starts_with('"') {
            field = line[1..].split('"').next().unwrap_or_default().to_owned();
        }
        let described = match depth {
            12 => line.strip_prefix("\"description\": \"").and_then(|text| text.strip_suffix("\",")),
            20 if !field.is_empty() => line
                .strip_prefix("\"description\": \"")
                .and_then(|text| text.strip_suffix("\","))
                .or_else(|| line.split_once("\"description\".into(), \"")?.1.strip_suffix("\".into());")),
            _ => None,
        };
        if let Some(text) = described {
            let of = if depth == 12 { String::new() } else { field.clone() };
            fields.entry(of).or_insert_with(|| text.to_owned());
        }
    }
}
