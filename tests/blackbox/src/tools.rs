//! Paths of the program under test and the clients, which `cargo xtask test` builds and installs.

use std::env;
use std::path::{Path, PathBuf};

/// The folder `tests/` of the checkout.
pub fn tests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("this crate is in tests/").to_path_buf()
}

/// The built server: from the environment, or from the build folder of this test.
pub fn dogwatch() -> PathBuf {
    let file = env::var_os("DOGWATCH_BIN").map_or_else(
        || {
            let test = env::current_exe().expect("a running test has a file");
            // target/debug/deps/clients-0123 -> target/debug/dogwatch
            test.ancestors().nth(2).expect("a test is in target/debug/deps").join("dogwatch")
        },
        PathBuf::from,
    );
    present(file)
}

/// A program that `cargo xtask test` has installed, by its path in `.tools`.
pub fn installed(path: &str) -> PathBuf {
    let tools = env::var_os("DOGWATCH_TOOLS")
        .map_or_else(|| tests().parent().expect("tests/ is in the root").join(".tools"), PathBuf::from);
    present(tools.join(path))
}

fn present(file: PathBuf) -> PathBuf {
    assert!(file.exists(), "{} is missing: run the tests with `cargo xtask test`", file.display());
    file
}
