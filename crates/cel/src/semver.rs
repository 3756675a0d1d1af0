//! Semantic versions: `1.2.3-rc.1+build`.
//!
//! Written by hand rather than with the `semver` crate: error texts and the normalisation of `v1.2` and `01.2.3` are
//! visible to clients and must equal those of the Go library that Kubernetes uses.

use std::cmp::Ordering;

use machinery::go_text::quote;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Number(u64),
    Text(Box<str>),
}

#[derive(Clone, Debug)]
pub(crate) struct Version {
    pub(crate) major: u64,
    pub(crate) minor: u64,
    pub(crate) patch: u64,
    pre: Vec<Part>,
}

impl Version {
    pub(crate) fn parse(text: &str) -> Result<Version, String> {
        if text.is_empty() {
            return Err("Version string empty".to_owned());
        }
        let mut parts = text.splitn(3, '.');
        let (Some(major), Some(minor), Some(rest)) = (parts.next(), parts.next(), parts.next()) else {
            return Err("No Major.Minor.Patch elements found".to_owned());
        };
        let (rest, build) = match rest.split_once('+') {
            Some((rest, build)) => (rest, Some(build)),
            None => (rest, None),
        };
        let (patch, pre) = match rest.split_once('-') {
            Some((patch, pre)) => (patch, Some(pre)),
            None => (rest, None),
        };
        let version = Version {
            major: number("Major", major)?,
            minor: number("Minor", minor)?,
            patch: number("Patch", patch)?,
            pre: pre.map(|pre| pre.split('.').map(pre_release).collect()).transpose()?.unwrap_or_default(),
        };
        for part in build.into_iter().flat_map(|build| build.split('.')) {
            if part.is_empty() {
                return Err("Build meta data is empty".to_owned());
            }
            if !is_identifier(part) {
                return Err(format!("Invalid character(s) found in build meta data {}", quote(part)));
            }
        }
        Ok(version)
    }

    /// Accepts and normalises `v1.2`, `01.2.3` and similar.
    pub(crate) fn parse_lenient(text: &str) -> Result<Version, String> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let mut parts: Vec<String> = text.splitn(3, '.').map(str::to_owned).collect();
        for part in &mut parts {
            if part.len() > 1 {
                let plain = part.trim_start_matches('0');
                let zero = !plain.starts_with(|c: char| c.is_ascii_digit());
                *part = format!("{}{plain}", if zero { "0" } else { "" });
            }
        }
        if parts.len() < 3 {
            if parts.last().is_some_and(|part| part.contains(['+', '-'])) {
                return Err("short version cannot contain PreRelease/Build meta data".to_owned());
            }
            parts.resize(3, "0".to_owned());
        }
        Version::parse(&parts.join("."))
    }

    pub(crate) fn cmp(&self, other: &Version) -> Ordering {
        let numbers = (self.major, self.minor, self.patch).cmp(&(other.major, other.minor, other.patch));
        // A release is greater than its pre-releases.
        numbers.then_with(|| match (self.pre.is_empty(), other.pre.is_empty()) {
            (true, true) => Ordering::Equal,
            (true, false) => Ordering::Greater,
            (false, true) => Ordering::Less,
            (false, false) => self.pre.cmp(&other.pre),
        })
    }
}

fn is_identifier(part: &str) -> bool {
    part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

fn number(which: &str, text: &str) -> Result<u64, String> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        if text.is_empty() {
            return Err("strconv.ParseUint: parsing \"\": invalid syntax".to_owned());
        }
        return Err(format!("Invalid character(s) found in {} number {}", which.to_lowercase(), quote(text)));
    }
    if text.len() > 1 && text.starts_with('0') {
        return Err(format!("{which} number must not contain leading zeroes {}", quote(text)));
    }
    text.parse().map_err(|_| format!("strconv.ParseUint: parsing {}: value out of range", quote(text)))
}

fn pre_release(part: &str) -> Result<Part, String> {
    if part.is_empty() {
        return Err("Prerelease is empty".to_owned());
    }
    if part.bytes().all(|b| b.is_ascii_digit()) {
        if part.len() > 1 && part.starts_with('0') {
            return Err(format!("Numeric PreRelease version must not contain leading zeroes {}", quote(part)));
        }
        return part.parse().map(Part::Number).map_err(|_| "value out of range".to_owned());
    }
    if !is_identifier(part) {
        return Err(format!("Invalid character(s) found in prerelease {}", quote(part)));
    }
    Ok(Part::Text(part.into()))
}
