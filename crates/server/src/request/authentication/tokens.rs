//! Static bearer tokens: a file with lines of `token,user,uid,"group1,group2"`.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use crate::error::TokenFileError;
use access::identity::User;

/// Static tokens, by their digest, so that the time of a lookup reveals nothing about a token.
#[derive(Clone, Debug, Default)]
pub struct Tokens {
    users: HashMap<[u8; 32], Arc<User>>,
}

impl Tokens {
    pub fn read(path: &Path) -> Result<Self, TokenFileError> {
        let text =
            std::fs::read_to_string(path).map_err(|source| TokenFileError::File { path: path.to_owned(), source })?;
        Self::parse(&text, path)
    }

    /// `path` names the file in errors.
    pub fn parse(text: &str, path: &Path) -> Result<Self, TokenFileError> {
        let mut tokens = Tokens::default();
        for (index, line) in text.lines().enumerate() {
            let wrong = |why| TokenFileError::Line { path: path.to_owned(), line: index + 1, why };
            if line.trim().is_empty() {
                continue;
            }
            let fields = split(line).ok_or_else(|| wrong("a quote is not closed"))?;
            let [token, name, uid, rest @ ..] = fields.as_slice() else {
                return Err(wrong(match fields.len() {
                    1 => "token, user name and uid are needed, and there is 1 column",
                    _ => "token, user name and uid are needed, and there are 2 columns",
                }));
            };
            if token.is_empty() {
                tracing::warn!(path = %path.display(), line = index + 1, "the token of a line is empty");
                continue;
            }
            let groups = rest.first().map(String::as_str).unwrap_or_default();
            let groups = groups.split(',').map(str::trim).filter(|group| !group.is_empty()).map(str::to_owned);
            let user = User { name: name.clone(), uid: uid.clone(), groups: groups.collect(), ..User::default() };
            tokens.add(token, user);
        }
        Ok(tokens)
    }

    /// Adds a token; replaces the user of an equal one.
    pub fn add(&mut self, token: &str, user: User) {
        self.users.insert(Sha256::digest(token.as_bytes()).into(), Arc::new(user.authenticated()));
    }

    #[must_use]
    pub fn user(&self, token: &str) -> Option<Arc<User>> {
        self.users.get(<[u8; 32]>::from(Sha256::digest(token.as_bytes())).as_slice()).cloned()
    }
}

/// Splits a line of comma-separated fields; a field may be quoted, with `""` for a quote.
fn split(line: &str) -> Option<Vec<String>> {
    let mut fields = vec![String::new()];
    let mut quoted = false;
    let mut characters = line.trim_end_matches('\r').chars().peekable();
    while let Some(character) = characters.next() {
        let field = fields.last_mut()?;
        match character {
            '"' if quoted && characters.peek() == Some(&'"') => {
                characters.next();
                field.push('"');
            }
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(String::new()),
            // Spaces before a field are not part of it.
            ' ' if !quoted && field.is_empty() => {}
            other => field.push(other),
        }
    }
    (!quoted).then_some(fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Tokens, String> {
        Tokens::parse(text, Path::new("t.csv")).map_err(|error| error.to_string())
    }

    #[test]
    fn au_18_lines_name_users() {
        let tokens = parse("a,alice,1,\"devs, ops\"\r\n\nb, bob ,2\nc,carol,3,solo,ignored\n").unwrap();
        let alice = tokens.user("a").unwrap();
        assert_eq!((alice.name.as_str(), alice.uid.as_str()), ("alice", "1"));
        assert_eq!(alice.groups, ["devs", "ops", "system:authenticated"]);
        assert_eq!(tokens.user("b").unwrap().groups, ["system:authenticated"]);
        assert_eq!(tokens.user("c").unwrap().groups, ["solo", "system:authenticated"]);
        assert!(tokens.user("d").is_none());
        assert!(tokens.user("").is_none());
    }

    #[test]
    fn au_18_bad_lines_are_named() {
        assert_eq!(
            parse("a,alice,1\nb,bob\n").unwrap_err(),
            "t.csv, line 2: token, user name and uid are needed, and there are 2 columns"
        );
        assert!(parse("a,alice,1,\"devs\nops\"").unwrap_err().contains("line 1: a quote"));
        let tokens = parse(",alice,1\na,,1\nb,bob,2\nb,carol,3\n").unwrap();
        assert!(tokens.user("").is_none(), "a line without a token is skipped");
        assert_eq!(tokens.user("b").unwrap().name, "carol", "the last line of a token counts");
    }
}
