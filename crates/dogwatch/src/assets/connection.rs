//! Flags of kubectl that name a server and credentials in place of a kubeconfig.
//!
//! Some harnesses have no kubeconfig: they pass `--server`, `--certificate-authority`, `--client-certificate` and
//! `--client-key`. Those become a kubeconfig in a file of its own for the time of one command.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use machinery::json::{Value, json};

use crate::failure::Failure;

/// Flags that only say how a request is sent; they have values and change nothing here.
const UNUSED: [&str; 4] = ["request-timeout", "cache-dir", "v", "field-manager"];

/// A server and credentials.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Connection {
    server: String,
    authority: Option<String>,
    certificate: Option<String>,
    key: Option<String>,
    token: Option<String>,
    insecure: bool,
}

/// Takes the flags of a connection from a command line. None without `--server`.
pub(super) fn split(words: Vec<String>) -> Result<(Vec<String>, Option<Connection>), Failure> {
    let (mut rest, mut connection) = (Vec::new(), Connection::default());
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        let Some(flag) = word
            .strip_prefix("--")
            .or_else(|| word.strip_prefix("-s").filter(|rest| rest.is_empty()).map(|_| "server"))
        else {
            rest.push(word);
            continue;
        };
        let (name, value) = flag.split_once('=').map_or((flag, None), |(name, value)| (name, Some(value.to_owned())));
        if name == "insecure-skip-tls-verify" {
            connection.insecure = value.as_deref() != Some("false");
            continue;
        }
        let known = ["server", "certificate-authority", "client-certificate", "client-key", "token"];
        if !known.contains(&name) && !UNUSED.contains(&name) {
            rest.push(word);
            continue;
        }
        let value = value.or_else(|| words.next());
        let value = value.ok_or_else(|| Failure::usage(format!("--{name} needs a value")))?;
        match name {
            "server" => connection.server = value,
            "certificate-authority" => connection.authority = Some(value),
            "client-certificate" => connection.certificate = Some(value),
            "client-key" => connection.key = Some(value),
            "token" => connection.token = Some(value),
            _ => {}
        }
    }
    let given = !connection.server.is_empty();
    Ok((rest, given.then_some(connection)))
}

impl Connection {
    fn kubeconfig(&self) -> Value {
        let absolute = |path: &Option<String>| {
            path.as_deref()
                .map(|path| std::path::absolute(path).unwrap_or_else(|_| PathBuf::from(path)).display().to_string())
        };
        let mut cluster = json!({"server": self.server});
        if let Some(authority) = absolute(&self.authority) {
            cluster["certificate-authority"] = authority.into();
        }
        if self.insecure {
            cluster["insecure-skip-tls-verify"] = true.into();
        }
        let mut user = json!({});
        for (name, value) in [
            ("client-certificate", absolute(&self.certificate)),
            ("client-key", absolute(&self.key)),
            ("token", self.token.clone()),
        ] {
            if let Some(value) = value {
                user[name] = value.into();
            }
        }
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "given",
            "clusters": [{"name": "given", "cluster": cluster}],
            "users": [{"name": "given", "user": user}],
            "contexts": [{"name": "given", "context": {"cluster": "given", "user": "given"}}],
        })
    }

    /// Writes a kubeconfig that only this user can read.
    pub(super) fn write(&self) -> Result<OwnFile, Failure> {
        let path =
            std::env::temp_dir().join(format!("dogwatch-kubectl-{}-{:x}", std::process::id(), rand::random::<u64>()));
        let failed = |error: std::io::Error| Failure::new(format!("{} cannot be written: {error}", path.display()));
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).map_err(failed)?;
        file.write_all(self.kubeconfig().to_string().as_bytes()).map_err(failed)?;
        Ok(OwnFile(path))
    }
}

/// A file that is removed when it is no longer needed.
#[derive(Debug)]
pub(super) struct OwnFile(PathBuf);

impl OwnFile {
    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for OwnFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn a_server_in_flags_becomes_a_kubeconfig() {
        let line = "--client-certificate=/c.crt --client-key=/c.key --certificate-authority /ca.crt \
                    --server=https://127.0.0.1:1 --request-timeout=5s get ns default";
        let (rest, connection) = split(words(line)).unwrap();
        assert_eq!(rest, ["get", "ns", "default"]);
        let connection = connection.unwrap();
        let config = connection.kubeconfig();
        assert_eq!(config["clusters"][0]["cluster"]["certificate-authority"], "/ca.crt");
        assert_eq!(config["users"][0]["user"]["client-key"], "/c.key");
        let file = connection.write().unwrap();
        let path = file.path().to_owned();
        assert!(path.exists());
        drop(file);
        assert!(!path.exists());
    }

    #[test]
    fn without_a_server_the_words_stay() {
        let (rest, connection) = split(words("--kubeconfig=/k get pods -o json")).unwrap();
        assert_eq!((rest.len(), connection), (5, None));
        assert!(split(words("get pods --server")).is_err());
    }
}
