//! The Debian package.

use super::Package;
use super::archive::{Entry, ar, gzip, tar, with_folders};
use super::product::{NAME, Product, SUMMARY};

pub(super) fn make(product: &Product) -> Result<Package, String> {
    let mut files: Vec<Entry<'_>> = Vec::new();
    for entry in product.installation() {
        // Debian's man pages are compressed.
        files.push(if entry.path.starts_with("share/man/") {
            Entry::file(format!("{}.gz", entry.path), gzip(entry.content(), product.fast)?)
        } else {
            entry
        });
    }
    files.push(Entry::file("share/doc/dogwatch/copyright", product.licence.as_slice()));
    files.push(Entry::file("share/doc/dogwatch/THIRD-PARTY-NOTICES", product.notices.as_slice()));
    let size: usize = files.iter().map(|entry| entry.content().len().div_ceil(1024)).sum();
    let files = files.into_iter().map(|entry| entry.below("usr")).collect();
    let control = Entry::file("control", control(product, size).into_bytes());
    let archive = ar(&[
        ("debian-binary", b"2.0\n".to_vec()),
        ("control.tar.gz", gzip(&tar(vec![control], "./")?, product.fast)?),
        ("data.tar.gz", gzip(&tar(with_folders(files), "./")?, product.fast)?),
    ]);
    let architecture = product.elf.machine.debian();
    Ok(Package { name: format!("{NAME}_{}_{architecture}.deb", product.version), bytes: archive })
}

fn control(product: &Product, kilobytes: usize) -> String {
    let mut depends = String::new();
    if let Some(minor) = product.elf.glibc {
        depends = format!("Depends: libc6 (>= 2.{minor})");
        if product.elf.libraries.iter().any(|name| name == "libgcc_s.so.1") {
            depends += ", libgcc-s1";
        }
        depends.push('\n');
    }
    format!(
        "Package: {NAME}\nVersion: {}\nArchitecture: {}\nMaintainer: the {NAME} project\nInstalled-Size: {kilobytes}\n{depends}\
         Section: devel\nPriority: optional\nDescription: {SUMMARY}\n \
         kubectl, client-go and other clients of Kubernetes talk to it unmodified. It needs no cluster,\n no containers and no etcd.\n",
        product.version,
        product.elf.machine.debian(),
    )
}
