//! `cargo xtask package`: everything that people install the program with, from one build, for the platform of that build.
//!
//! Each format has a file in `package/`. The packages hold the same program, and the same input gives the same bytes.

mod archive;
mod debian;
mod elf;
mod image;
mod notices;
mod npm;
mod product;
mod recipes;
mod tarball;
mod wheel;

use std::fs;
use std::path::{Path, PathBuf};

use archive::Checksum;
use product::Product;

use crate::progress::{Outcome, Step, say};
use crate::workspace::Workspace;

/// The largest program that `dist` may build, and the largest compressed package with it.
const PROGRAM_MAX: usize = 35_000_000;
const PACKAGE_MAX: usize = 12_000_000;

const USAGE: &str =
    "usage: cargo xtask package [--profile NAME | --program FILE] [--out DIR] [--base-url URL] [--fast]";

/// A finished package.
struct Package {
    name: String,
    bytes: Vec<u8>,
}

struct Options {
    profile: String,
    /// A program that is built already.
    program: Option<PathBuf>,
    out: Option<PathBuf>,
    /// Address of the folder that people will download the packages from; the recipes need it.
    base_url: Option<String>,
    /// Compresses quickly, for tests.
    fast: bool,
}

impl Options {
    fn parse(args: &[&str]) -> Result<Self, String> {
        let mut options = Self { profile: "dist".into(), program: None, out: None, base_url: None, fast: false };
        let mut args = args.iter();
        while let Some(&flag) = args.next() {
            if flag == "--fast" {
                options.fast = true;
                continue;
            }
            let value = *args.next().ok_or(USAGE)?;
            match flag {
                "--profile" => options.profile = value.into(),
                "--program" => options.program = Some(value.into()),
                "--out" => options.out = Some(value.into()),
                "--base-url" => options.base_url = Some(value.trim_end_matches('/').into()),
                _ => return Err(USAGE.into()),
            }
        }
        Ok(options)
    }
}

pub(crate) fn package(workspace: &Workspace, args: &[&str]) -> Outcome {
    let options = Options::parse(args)?;
    let program = match &options.program {
        Some(file) => file.clone(),
        None => build(workspace, &options.profile)?,
    };
    let out = match &options.out {
        Some(folder) => folder.clone(),
        None => workspace.target_dir()?.join("package"),
    };
    let _ = fs::remove_dir_all(&out);
    fs::create_dir_all(&out).map_err(|e| format!("cannot make {}: {e}", out.display()))?;
    let out = out.canonicalize().map_err(|e| format!("{}: {e}", out.display()))?;
    let product = Product::collect(workspace, &program, options.fast)?;
    // Without an address the recipes install from this folder.
    let base_url = options.base_url.clone().unwrap_or_else(|| format!("file://{}", out.display()));

    let mut packages = Vec::new();
    say("compress");
    let tarball = tarball::make(&product)?;
    let recipes = recipes::make(&product, &tarball, &base_url);
    packages.push(tarball);
    packages.push(wheel::make(&product)?);
    packages.push(npm::make(&product)?);
    packages.push(debian::make(&product)?);
    packages.push(image::make(&product)?);
    packages.extend(recipes);
    for package in &packages {
        write(&out, &package.name, &package.bytes)?;
    }
    let sums: Vec<String> =
        packages.iter().map(|package| format!("{}  {}\n", Checksum::of(&package.bytes).hex(), package.name)).collect();
    write(&out, "SHA256SUMS", sums.concat().as_bytes())?;
    table(&out, &product, &packages);
    if options.program.is_none() && options.profile == "dist" { check_sizes(&product, &packages) } else { Ok(()) }
}

fn build(workspace: &Workspace, profile: &str) -> Result<PathBuf, String> {
    let mut build = workspace.cargo(&["build", "--package", "dogwatch", "--bin", "dogwatch", "--profile", profile]);
    Step::new(&format!("build with the profile {profile}")).run(&mut build)?;
    let folder = if profile == "dev" { "debug" } else { profile };
    Ok(workspace.target_dir()?.join(folder).join("dogwatch"))
}

fn write(folder: &Path, name: &str, bytes: &[u8]) -> Outcome {
    let file = folder.join(name);
    fs::write(&file, bytes).map_err(|e| format!("cannot write {}: {e}", file.display()))
}

fn table(out: &Path, product: &Product, packages: &[Package]) {
    println!("{}", out.display());
    let rows = packages.iter().map(|package| (package.name.as_str(), package.bytes.len()));
    for (name, size) in std::iter::once(("the program, stripped", product.program.len())).chain(rows) {
        println!("  {name:<52} {:>7.2} MB", size as f64 / 1e6);
    }
}

/// Fails if the program or a package is larger than the documentation says.
fn check_sizes(product: &Product, packages: &[Package]) -> Outcome {
    if product.program.len() > PROGRAM_MAX {
        return Err(format!("the program has {} bytes, more than {PROGRAM_MAX}", product.program.len()));
    }
    match packages.iter().find(|package| package.bytes.len() > PACKAGE_MAX + image_extra(package)) {
        Some(package) => Err(format!("{} has {} bytes, more than {PACKAGE_MAX}", package.name, package.bytes.len())),
        None => Ok(()),
    }
}

/// An image has the C library besides the program.
fn image_extra(package: &Package) -> usize {
    if package.name.ends_with("-oci.tar") { 2_000_000 } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::Options;

    #[test]
    fn options_are_read_and_unknown_ones_refused() {
        let options = Options::parse(&["--program", "x", "--fast"]).expect("both are options");
        assert!(options.fast && options.program.is_some() && options.profile == "dist");
        assert!(Options::parse(&["--profile"]).is_err());
        assert!(Options::parse(&["--colour", "red"]).is_err());
    }
}
