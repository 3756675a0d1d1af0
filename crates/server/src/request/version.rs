//! `/version`: the Kubernetes version that is served, and the build of this server.

use machinery::json::{Value, json};

/// The version whose behaviour is served.
pub const MAJOR: &str = "1";
pub const MINOR: &str = "36";
/// Clients compare the part before the plus.
pub const GIT_VERSION: &str = "v1.36.4+dogwatch";

/// The body of `/version`. The fields that describe Go in the reference describe this build.
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
