//! Kubeconfig files: where to call and with which credentials.

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use machinery::json::Value;

use crate::client::Client;
use crate::endpoint::{Credential, Endpoint};
use crate::error::{Error, ErrorKind};
use crate::tls::{Identity, Roots, TlsOptions};

/// A kubeconfig. Files that it names are read with it, so that a bad one is found at start.
#[derive(Clone, Debug, Default)]
pub struct Kubeconfig {
    pub current_context: String,
    /// By name: the names of cluster and user.
    contexts: HashMap<String, (String, String)>,
    clusters: HashMap<String, Cluster>,
    users: HashMap<String, User>,
}

/// A server.
#[derive(Clone, Debug, Default)]
pub struct Cluster {
    pub server: String,
    pub roots: Roots,
    pub server_name: Option<String>,
}

/// Credentials.
#[derive(Clone, Debug, Default)]
pub struct User {
    pub identity: Option<Identity>,
    pub credential: Option<Credential>,
}

/// Why a kubeconfig cannot be used.
#[derive(Debug)]
pub struct KubeconfigError {
    path: PathBuf,
    why: String,
}

impl fmt::Display for KubeconfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.why)
    }
}

impl std::error::Error for KubeconfigError {}

impl Kubeconfig {
    pub fn read(path: &Path) -> Result<Self, KubeconfigError> {
        let failed = |why: String| KubeconfigError { path: path.to_owned(), why };
        let text = std::fs::read(path).map_err(|error| failed(error.to_string()))?;
        Self::parse(&text, path.parent().unwrap_or(Path::new("."))).map_err(failed)
    }

    /// Parses a kubeconfig; paths in it are relative to `folder`.
    pub fn parse(text: &[u8], folder: &Path) -> Result<Self, String> {
        let document = machinery::yaml::read(text)?.value;
        if !document.is_object() {
            return Err("expected a kubeconfig".to_owned());
        }
        let mut config = Kubeconfig { current_context: text_of(&document, "current-context"), ..Kubeconfig::default() };
        for (name, context) in named(&document, "contexts", "context")? {
            config.contexts.insert(name, (text_of(context, "cluster"), text_of(context, "user")));
        }
        for (name, cluster) in named(&document, "clusters", "cluster")? {
            let read = Cluster::parse(cluster, folder).map_err(|why| format!("cluster {name:?}: {why}"))?;
            config.clusters.insert(name, read);
        }
        for (name, user) in named(&document, "users", "user")? {
            let read = User::parse(user, folder).map_err(|why| format!("user {name:?}: {why}"))?;
            config.users.insert(name, read);
        }
        Ok(config)
    }

    /// The credentials of this name.
    #[must_use]
    pub fn user(&self, name: &str) -> Option<&User> {
        self.users.get(name)
    }

    /// The credentials of the current context, if it names any.
    #[must_use]
    pub fn current_user(&self) -> Option<&User> {
        let (_, user) = self.contexts.get(&self.current_context)?;
        self.users.get(user)
    }

    /// Cluster and user of the current context.
    pub fn current(&self) -> Result<(&Cluster, User), String> {
        let name = &self.current_context;
        let Some((cluster, user)) = self.contexts.get(name) else {
            return Err(match name.as_str() {
                "" => "there is no current-context".to_owned(),
                name => format!("context {name:?} does not exist"),
            });
        };
        let server = self.clusters.get(cluster).ok_or_else(|| format!("cluster {cluster:?} does not exist"))?;
        match self.users.get(user) {
            Some(user) => Ok((server, user.clone())),
            None if user.is_empty() => Ok((server, User::default())),
            None => Err(format!("user {user:?} does not exist")),
        }
    }

    /// The server of the current context, with its credentials.
    pub fn endpoint(&self, client: &Client) -> Result<Endpoint, Error> {
        let (cluster, user) = self.current().map_err(|why| Error::new(ErrorKind::Configuration, why))?;
        let tls = client.tls(&TlsOptions {
            roots: cluster.roots.clone(),
            identity: user.identity,
            server_name: cluster.server_name.clone(),
        })?;
        Ok(Endpoint::new(&cluster.server, tls)?.with_credential(user.credential))
    }
}

impl Cluster {
    fn parse(cluster: &Value, folder: &Path) -> Result<Self, String> {
        let server = text_of(cluster, "server");
        if server.is_empty() {
            return Err("server is missing".to_owned());
        }
        let bundle = data_or_file(cluster, "certificate-authority", folder)?;
        let roots = match (cluster["insecure-skip-tls-verify"].as_bool().unwrap_or_default(), bundle) {
            (true, Some(_)) => {
                return Err("specifying a root certificates file with the insecure flag is not allowed".to_owned());
            }
            (true, None) => Roots::Unverified,
            (false, bundle) => Roots::bundle(bundle.unwrap_or_default()),
        };
        let server_name = Some(text_of(cluster, "tls-server-name")).filter(|name| !name.is_empty());
        Ok(Cluster { server, roots, server_name })
    }
}

impl User {
    fn parse(user: &Value, folder: &Path) -> Result<Self, String> {
        for member in ["exec", "auth-provider"] {
            if !user[member].is_null() {
                return Err(format!("{member} is not supported; use a certificate, token, or name and password"));
            }
        }
        let certificate = data_or_file(user, "client-certificate", folder)?;
        let key = data_or_file(user, "client-key", folder)?;
        let identity = match (certificate, key) {
            (Some(certificate_pem), Some(key_pem)) => Some(Identity { certificate_pem, key_pem }),
            (None, None) => None,
            _ => return Err("a client certificate needs both client-certificate and client-key".to_owned()),
        };
        let token = match text_of(user, "token") {
            token if !token.is_empty() => Some(token),
            _ => match text_of(user, "tokenFile") {
                file if file.is_empty() => None,
                file => {
                    let token = read_file(&folder.join(file))?;
                    Some(String::from_utf8_lossy(&token).trim().to_owned())
                }
            },
        };
        let name = text_of(user, "username");
        let credential = match token {
            Some(token) => {
                Some(Credential::bearer(&token).ok_or("the token has characters that a header cannot have")?)
            }
            None if name.is_empty() => None,
            None => {
                let password = text_of(user, "password");
                Some(Credential::basic(&name, &password).ok_or("name and password cannot be sent")?)
            }
        };
        Ok(User { identity, credential })
    }
}

fn text_of(value: &Value, member: &str) -> String {
    value[member].as_str().unwrap_or_default().to_owned()
}

/// The entries of a list of `{name, <member>}`.
fn named<'a>(document: &'a Value, list: &str, member: &str) -> Result<Vec<(String, &'a Value)>, String> {
    let entries = match &document[list] {
        Value::Null => return Ok(Vec::new()),
        entries => entries.as_array().ok_or_else(|| format!("{list} is not a list"))?,
    };
    Ok(entries.iter().map(|entry| (text_of(entry, "name"), &entry[member])).collect())
}

/// The bytes of `<member>-data` (base64), else of the file `<member>`.
fn data_or_file(value: &Value, member: &str, folder: &Path) -> Result<Option<Vec<u8>>, String> {
    let data = text_of(value, &format!("{member}-data"));
    if !data.is_empty() {
        let bytes = STANDARD.decode(data.trim()).map_err(|error| format!("{member}-data: {error}"))?;
        return Ok(Some(bytes));
    }
    match text_of(value, member) {
        file if file.is_empty() => Ok(None),
        file => read_file(&folder.join(file)).map(Some),
    }
}

fn read_file(path: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_files_and_credentials_are_read() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("ca.crt"), "CA").unwrap();
        std::fs::write(folder.path().join("token"), "secret\n").unwrap();
        let text = "
current-context: main
contexts:
- {name: main, context: {cluster: c, user: u}}
clusters:
- {name: c, cluster: {server: 'https://host:1/hook', certificate-authority: ca.crt, tls-server-name: other}}
users:
- {name: u, user: {tokenFile: token, client-certificate-data: Q0VSVA==, client-key-data: S0VZ}}
- {name: basic, user: {username: a, password: b}}
";
        let config = Kubeconfig::parse(text.as_bytes(), folder.path()).unwrap();
        let (cluster, user) = config.current().unwrap();
        assert_eq!(cluster.server, "https://host:1/hook");
        assert_eq!(cluster.roots, Roots::Bundle(b"CA".to_vec()));
        assert_eq!(cluster.server_name.as_deref(), Some("other"));
        assert_eq!(user.credential, Credential::bearer("secret"));
        assert_eq!(user.identity.unwrap().key_pem, b"KEY");
        assert_eq!(config.user("basic").unwrap().credential, Credential::basic("a", "b"));
        assert!(config.user("none").is_none());
    }

    #[test]
    fn what_cannot_be_used_is_an_error_with_its_place() {
        let parse = |text: &str| Kubeconfig::parse(text.as_bytes(), Path::new("/nowhere")).map(|_| ());
        for (text, why) in [
            ("[]", "expected a kubeconfig"),
            ("clusters: [{name: c, cluster: {}}]", "cluster \"c\": server is missing"),
            ("clusters: [{name: c, cluster: {server: s, certificate-authority: ca}}]", "cluster \"c\": /nowhere/ca: "),
            ("users: [{name: u, user: {client-key-data: '?'}}]", "user \"u\": client-key-data: "),
            ("users: [{name: u, user: {client-key-data: S0VZ}}]", "user \"u\": a client certificate needs both"),
            ("users: [{name: u, user: {exec: {command: x}}}]", "user \"u\": exec is not supported"),
            ("users: 7", "users is not a list"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.starts_with(why), "{error}");
        }
        let none = Kubeconfig::parse(b"current-context: x", Path::new(".")).unwrap();
        assert_eq!(none.current().unwrap_err(), "context \"x\" does not exist");
    }
}
