//! `/version`: which Kubernetes this server speaks, and which build of it is running.

use machinery::json::{Value, json};

/// The version whose behaviour is served.
pub const MAJOR: &str = "1";
pub const MINOR: &str = "36";
/// Clients compare the part before the plus.
pub const GIT_VERSION: &str = "v1.36.4+dogwatch";

/// The body of `/version`. The reference's fields about Go hold what is true here.
#[must_use]
pub fn body() -> Value {
    json!({
        "major": MAJOR,
        "minor": MINOR,
        "emulationMajor": MAJOR,
        "emulationMinor": MINOR,
        "minCompatibilityMajor": MAJOR,
        "minCompatibilityMinor": "35",
        "gitVersion": GIT_VERSION,
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "",
        "goVersion": "",
        "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, go_architecture(std::env::consts::ARCH)),
    })
}

fn go_architecture(architecture: &str) -> &str {
    match architecture {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
