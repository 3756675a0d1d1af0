//! The tarball: one folder with `bin/` and `share/`, to unpack anywhere.

use super::Package;
use super::archive::{gzip, tar};
use super::product::Product;

pub(super) fn make(product: &Product) -> Result<Package, String> {
    let mut entries = product.installation();
    entries.extend(product.legal(""));
    let stem = product.stem();
    let entries = entries.into_iter().map(|entry| entry.below(&stem)).collect();
    let bytes = gzip(&tar(entries, "")?, product.fast)?;
    Ok(Package { name: format!("{stem}.tar.gz"), bytes })
}
