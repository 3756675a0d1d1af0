//! Makes the packages of the built program, installs each in a clean folder or root, and starts the program from there.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// Time limit of a start: far longer than it takes.
const DEADLINE: Duration = Duration::from_secs(120);

/// The packages, made once for all tests.
fn packages() -> &'static Path {
    static MADE: OnceLock<TempDir> = OnceLock::new();
    MADE.get_or_init(|| {
        let folder = TempDir::new().expect("the temporary folder can be written");
        make(&folder.path().join("out"));
        folder
    })
    .path()
}

fn make(out: &Path) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    command.args(["package", "--fast", "--base-url", "https://packages.example", "--program"]);
    run(command.arg(program()).arg("--out").arg(out));
}

/// The built program: from the environment, or from the build folder of this test.
fn program() -> PathBuf {
    let file = std::env::var_os("DOGWATCH_BIN").map_or_else(
        || {
            let test = std::env::current_exe().expect("a running test has a file");
            test.ancestors().nth(2).expect("a test is in target/debug/deps").join("dogwatch")
        },
        PathBuf::from,
    );
    assert!(file.exists(), "{} is missing: run the tests with `cargo xtask test`", file.display());
    file
}

/// The package whose name ends so.
fn package(end: &str) -> PathBuf {
    let out = packages().join("out");
    let mut files = fs::read_dir(&out).expect("the packages are there").flatten().map(|entry| entry.path());
    files.find(|file| file.to_string_lossy().ends_with(end)).unwrap_or_else(|| panic!("no package ends with {end}"))
}

/// Runs a command to its end and returns its output.
fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?} did not start: {e}"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?} failed: {text}");
    text
}

fn unpack(archive: &Path, to: &Path) {
    fs::create_dir_all(to).expect("the folder can be made");
    run(Command::new("tar").arg("-xf").arg(archive).arg("-C").arg(to));
}

/// Ends the server with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts `up` with the command for the installed program and waits until it is ready. Then lists its namespaces.
///
/// `data` is the data directory, `inside` the same directory as the program sees it.
fn starts(program: &dyn Fn() -> Command, data: &Path, inside: &str) {
    assert!(run(program().arg("--version")).starts_with("dogwatch "));
    let log = TempDir::new().expect("the temporary folder can be written");
    let log = log.path().join("log");
    let output = fs::File::create(&log).expect("the log can be written");
    let errors = output.try_clone().expect("a file has a second handle");
    let mut command = program();
    command.args(["up", "--listen", "127.0.0.1:0", "--nodes", "1", "--data-dir", inside]);
    command.stdin(Stdio::null()).stdout(output).stderr(errors);
    let server = Running(command.spawn().expect("the installed program starts"));
    let end = Instant::now() + DEADLINE;
    while !fs::read_to_string(&log).is_ok_and(|text| text.contains("ready in ")) {
        assert!(Instant::now() < end, "it is not ready: {}", fs::read_to_string(&log).unwrap_or_default());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(data.join("kubeconfig").is_file(), "its data is in {}", data.display());
    let mut get = program();
    get.args(["get", "namespaces", "--output", "name", "--kubeconfig"]).arg(format!("{inside}/kubeconfig"));
    assert!(run(&mut get).contains("namespace/kube-system"));
    drop(server);
}

/// As [`starts`], for a program in the file system of the test.
fn starts_from(program: &Path) {
    let folder = TempDir::new().expect("the temporary folder can be written");
    let data = folder.path().join("data");
    let inside = data.to_string_lossy().into_owned();
    starts(&|| Command::new(program), &data, &inside);
}

#[test]
fn the_tarball_has_a_program_man_pages_and_completions() {
    let folder = TempDir::new().expect("the temporary folder can be written");
    let archive = package(".tar.gz");
    unpack(&archive, folder.path());
    let name = archive.file_name().expect("it has a name").to_string_lossy().replace(".tar.gz", "");
    let root = folder.path().join(name);
    starts_from(&root.join("bin/dogwatch"));
    let page = fs::read_to_string(root.join("share/man/man1/dogwatch-up.1")).expect("up has a page");
    assert!(page.contains("data\\-dir"), "the page has the flags");
    let script = root.join("share/bash-completion/completions/dogwatch");
    let complete = format!(
        ". {} && COMP_WORDS=(dogwatch ba) COMP_CWORD=1 && _dogwatch dogwatch ba dogwatch && echo ${{COMPREPLY[@]}}",
        script.display()
    );
    assert_eq!(run(Command::new("bash").args(["-c", &complete])).trim(), "backup");
    assert!(root.join("share/zsh/site-functions/_dogwatch").is_file());
    assert!(root.join("share/fish/vendor_completions.d/dogwatch.fish").is_file());
    assert!(root.join("LICENSE").is_file());
    let notices = fs::read_to_string(root.join("THIRD-PARTY-NOTICES")).expect("there are notices");
    assert!(notices.contains("\ntokio 1.") && notices.contains("MIT License"), "the licences of what it contains");
    assert!(!notices.contains("\nproptest "), "and of nothing else");
}

#[test]
fn checksums_agree_and_a_second_run_makes_the_same_bytes() {
    let out = packages().join("out");
    run(Command::new("sha256sum").args(["--check", "--strict", "SHA256SUMS"]).current_dir(&out));
    let folder = TempDir::new().expect("the temporary folder can be written");
    let again = folder.path().join("again");
    make(&again);
    let sums = |folder: &Path| fs::read_to_string(folder.join("SHA256SUMS")).expect("there are checksums");
    assert_eq!(sums(&out), sums(&again));
}

#[test]
fn pip_installs_the_wheel() {
    let folder = TempDir::new().expect("the temporary folder can be written");
    let environment = folder.path().join("environment");
    run(Command::new("python3").args(["-m", "venv"]).arg(&environment));
    let mut pip = Command::new(environment.join("bin/python"));
    pip.args(["-m", "pip", "--no-input", "--disable-pip-version-check", "install", "--no-index"]).arg(package(".whl"));
    run(&mut pip);
    starts_from(&environment.join("bin/dogwatch"));
    let mut remove = Command::new(environment.join("bin/python"));
    remove.args(["-m", "pip", "--no-input", "--disable-pip-version-check", "uninstall", "--yes", "dogwatch"]);
    run(&mut remove);
    assert!(!environment.join("bin/dogwatch").exists(), "RECORD lists the program");
}

#[test]
fn npm_installs_the_package() {
    let folder = TempDir::new().expect("the temporary folder can be written");
    fs::write(folder.path().join("package.json"), "{\"name\": \"clean\", \"private\": true}")
        .expect("it can be written");
    let mut install = Command::new("npm");
    install.args(["install", "--offline", "--no-audit", "--no-fund", "--cache"]).arg(folder.path().join("cache"));
    run(install.arg(package("-npm.tgz")).current_dir(folder.path()));
    let mut npx = Command::new("npx");
    npx.args(["--no-install", "--offline", "dogwatch", "--version"]).current_dir(folder.path());
    assert!(run(&mut npx).starts_with("dogwatch "));
    starts_from(&folder.path().join("node_modules/.bin/dogwatch"));
}

#[test]
fn the_go_kit_installs_the_wheel_and_the_npm_package() {
    let tools = std::env::var_os("DOGWATCH_TOOLS")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../.tools"), PathBuf::from);
    let suite = tools.join("bin/go-kit-suite");
    assert!(suite.exists(), "{} is missing: run the tests with `cargo xtask test`", suite.display());
    for end in [".whl", "-npm.tgz"] {
        let package = package(end);
        let sum = run(Command::new("sha256sum").arg(&package));
        let cache = TempDir::new().expect("the temporary folder can be written");
        let mut command = Command::new(&suite);
        command.args(["-test.v", "-test.run", "^TestAServerAnswersAndEndsWithItsTest$"]).current_dir(cache.path());
        // A fresh machine: no program is installed.
        command.env_remove("DOGWATCH").env("PATH", "/usr/bin:/bin").env("XDG_CACHE_HOME", cache.path());
        command.env("DOGWATCH_PACKAGE", &package);
        command.env("DOGWATCH_PACKAGE_SHA256", sum.split(' ').next().expect("a sum"));
        assert!(run(&mut command).contains("--- PASS"));
        assert!(cache.path().join("dogwatch/packages").is_dir());
    }
}

#[test]
fn dpkg_installs_the_debian_package() {
    let folder = TempDir::new().expect("the temporary folder can be written");
    let root = folder.path().join("root");
    for path in ["var/lib/dpkg/info", "var/lib/dpkg/updates", "var/lib/dpkg/triggers"] {
        fs::create_dir_all(root.join(path)).expect("the folder can be made");
    }
    fs::write(root.join("var/lib/dpkg/status"), "").expect("it can be written");
    fs::write(root.join("var/lib/dpkg/available"), "").expect("it can be written");
    let archive = package(".deb");
    assert!(run(Command::new("dpkg-deb").arg("--info").arg(&archive)).contains("Depends: libc6"));
    let mut install = Command::new("dpkg");
    install.arg(format!("--root={}", root.display()));
    // The clean root has no C library, and a test that is not run by root may not change owners.
    install.args(["--force-depends", "--force-not-root", "--force-bad-path", "--log=/dev/null", "--install"]);
    run(install.arg(&archive));
    starts_from(&root.join("usr/bin/dogwatch"));
    assert!(root.join("usr/share/man/man1/dogwatch.1.gz").is_file());
}

#[test]
fn the_image_starts_as_a_user_without_rights() {
    let folder = TempDir::new().expect("the temporary folder can be written");
    // The user of the image must be able to reach its root.
    run(Command::new("chmod").arg("755").arg(folder.path()));
    let layout = folder.path().join("layout");
    unpack(&package("-oci.tar"), &layout);
    let json = |file: &Path| -> serde_json::Value {
        serde_json::from_slice(&fs::read(file).expect("the file is there")).expect("it is JSON")
    };
    let blob = |descriptor: &serde_json::Value| {
        let digest = descriptor["digest"].as_str().expect("a descriptor has a digest").replace(':', "/");
        let file = layout.join("blobs").join(&digest);
        let size = fs::metadata(&file).expect("the blob is there").len();
        assert_eq!(descriptor["size"], size);
        let sum = run(Command::new("sha256sum").arg(&file));
        assert!(digest.ends_with(sum.split(' ').next().expect("a sum")), "the blob has the digest of its name");
        file
    };
    assert_eq!(json(&layout.join("oci-layout"))["imageLayoutVersion"], "1.0.0");
    let manifest = json(&blob(&json(&layout.join("index.json"))["manifests"][0]));
    let config = json(&blob(&manifest["config"]));
    let root = folder.path().join("root");
    for layer in manifest["layers"].as_array().expect("there are layers") {
        unpack(&blob(layer), &root);
    }
    let text = |value: &serde_json::Value| value.as_str().expect("it is a text").to_owned();
    let (user, program) = (text(&config["config"]["User"]), text(&config["config"]["Entrypoint"][0]));
    assert!(!user.starts_with('0'), "{user} is not the administrator");
    assert_eq!(config["config"]["Volumes"]["/data"], serde_json::json!({}));
    let chroot = || {
        // A test that is not run by root needs a user namespace for a new root, in which it has one user only.
        let mut command = if is_root() {
            let mut command = Command::new("chroot");
            command.arg(format!("--userspec={user}"));
            command
        } else {
            let mut command = Command::new("unshare");
            command.args(["--user", "--map-root-user", "chroot"]);
            command
        };
        command.arg(&root).arg(&program).env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        command
    };
    starts(&chroot, &root.join("data"), "/data");
}

fn is_root() -> bool {
    run(Command::new("id").arg("-u")).trim() == "0"
}

#[test]
fn the_recipes_name_the_tarball_by_its_checksum() {
    let sum = run(Command::new("sha256sum").arg(package(".tar.gz")));
    let sum = sum.split(' ').next().expect("a sum");
    let formula = fs::read_to_string(package(".rb")).expect("there is a formula");
    assert!(formula.contains(&format!("sha256 \"{sum}\"")), "{formula}");
    assert!(formula.contains("url \"https://packages.example/dogwatch-"), "{formula}");
    let nix = fs::read_to_string(package(".nix")).expect("there is a Nix file");
    assert!(nix.contains("hash = \"sha256-") && nix.contains("https://packages.example/dogwatch-"), "{nix}");
}
