//! The Python wheel: pip copies the program into the environment's folder of programs.

use super::Package;
use super::archive::{Checksum, Entry, zip};
use super::product::{LICENCE, NAME, Product, SUMMARY};

pub(super) fn make(product: &Product) -> Result<Package, String> {
    let version = &product.version;
    let platforms = platforms(product);
    let info = format!("{NAME}-{version}.dist-info");
    let metadata = format!(
        "Metadata-Version: 2.1\nName: {NAME}\nVersion: {version}\nSummary: {SUMMARY}\nLicense: {LICENCE}\nLicense-File: LICENSE\nLicense-File: THIRD-PARTY-NOTICES\n\
         Description-Content-Type: text/markdown\n\n{SUMMARY}. `dogwatch up` starts it.\n"
    );
    let tags: String = platforms.iter().map(|platform| format!("Tag: py3-none-{platform}\n")).collect();
    let wheel = format!("Wheel-Version: 1.0\nGenerator: cargo xtask package\nRoot-Is-Purelib: false\n{tags}");
    let mut entries = vec![
        // Files below this folder are installed as programs.
        Entry::program(format!("{NAME}-{version}.data/scripts/{NAME}"), product.program.as_slice()),
        Entry::file(format!("{info}/METADATA"), metadata.into_bytes()),
        Entry::file(format!("{info}/WHEEL"), wheel.into_bytes()),
    ];
    entries.extend(product.legal(&format!("{info}/licenses/")));
    let mut record: String = entries
        .iter()
        .map(|entry| {
            let content = entry.content();
            format!("{},sha256={},{}\n", entry.path, Checksum::of(content).url_base64(), content.len())
        })
        .collect();
    record += &format!("{info}/RECORD,,\n");
    entries.push(Entry::file(format!("{info}/RECORD"), record.into_bytes()));
    let name = format!("{NAME}-{version}-py3-none-{}.whl", platforms.join("."));
    Ok(Package { name, bytes: zip(&entries, product.fast)? })
}

/// The platforms that pip may install the program on, by the C library that it needs.
fn platforms(product: &Product) -> Vec<String> {
    let machine = product.elf.machine.triple();
    match product.elf.glibc {
        Some(minor) => vec![format!("manylinux_2_{minor}_{machine}")],
        None => vec![format!("manylinux_2_17_{machine}"), format!("musllinux_1_1_{machine}")],
    }
}
