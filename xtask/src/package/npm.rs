//! The npm package: `npx dogwatch` runs the program itself, without JavaScript around it.

use serde_json::json;

use super::Package;
use super::archive::{Entry, gzip, tar};
use super::product::{LICENCE, NAME, Product, SUMMARY};

pub(super) fn make(product: &Product) -> Result<Package, String> {
    let mut manifest = json!({
        "name": NAME,
        "version": product.version,
        "description": SUMMARY,
        "license": LICENCE,
        "bin": { NAME: "bin/dogwatch" },
        "files": ["bin", "THIRD-PARTY-NOTICES"],
        "os": ["linux"],
        "cpu": [product.elf.machine.node()],
    });
    if product.elf.glibc.is_some() {
        manifest["libc"] = json!(["glibc"]);
    }
    let mut entries = vec![
        Entry::file("package.json", format!("{manifest:#}\n").into_bytes()),
        Entry::program("bin/dogwatch", product.program.as_slice()),
        Entry::file("README.md", format!("{SUMMARY}. `npx dogwatch up` starts it.\n").into_bytes()),
    ];
    entries.extend(product.legal(""));
    // npm removes the first folder of each path, whatever its name.
    let entries = entries.into_iter().map(|entry| entry.below("package")).collect();
    Ok(Package { name: format!("{}-npm.tgz", product.stem()), bytes: gzip(&tar(entries, "")?, product.fast)? })
}
