//! Named string formats: `format.dns1123Label().validate(…)`.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use machinery::names::{self, NameRule};

use crate::time::Time;
use crate::url::Url;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NamedFormat {
    Dns1123Label,
    Dns1123Subdomain,
    Dns1035Label,
    QualifiedName,
    Dns1123LabelPrefix,
    Dns1123SubdomainPrefix,
    Dns1035LabelPrefix,
    LabelValue,
    Uri,
    Uuid,
    Byte,
    Date,
    DateTime,
}

impl NamedFormat {
    pub(crate) fn named(name: &str) -> Option<NamedFormat> {
        Some(match name {
            "dns1123Label" => NamedFormat::Dns1123Label,
            "dns1123Subdomain" => NamedFormat::Dns1123Subdomain,
            "dns1035Label" => NamedFormat::Dns1035Label,
            "qualifiedName" => NamedFormat::QualifiedName,
            "dns1123LabelPrefix" => NamedFormat::Dns1123LabelPrefix,
            "dns1123SubdomainPrefix" => NamedFormat::Dns1123SubdomainPrefix,
            "dns1035LabelPrefix" => NamedFormat::Dns1035LabelPrefix,
            "labelValue" => NamedFormat::LabelValue,
            "uri" => NamedFormat::Uri,
            "uuid" => NamedFormat::Uuid,
            "byte" => NamedFormat::Byte,
            "date" => NamedFormat::Date,
            "datetime" => NamedFormat::DateTime,
            _ => return None,
        })
    }

    /// Returns the length of the regular expression that Kubernetes uses for the format. Costs depend on it.
    pub(crate) const fn pattern_length(self) -> u64 {
        match self {
            NamedFormat::Dns1123Label
            | NamedFormat::Dns1035Label
            | NamedFormat::Dns1123LabelPrefix
            | NamedFormat::Dns1035LabelPrefix => 30,
            NamedFormat::Dns1123Subdomain | NamedFormat::QualifiedName | NamedFormat::Dns1123SubdomainPrefix => 60,
            NamedFormat::LabelValue => 40,
            NamedFormat::Uri => 1103,
            NamedFormat::Uuid => 70,
            NamedFormat::Byte => 84,
            NamedFormat::Date | NamedFormat::DateTime => 71,
        }
    }

    /// Returns the errors of a text; none if it has the format.
    pub(crate) fn errors(self, text: &str) -> Vec<String> {
        let wrong = |fits: bool, why: &str| if fits { Vec::new() } else { vec![why.to_owned()] };
        match self {
            NamedFormat::Dns1123Label => NameRule::DnsLabel.check(text),
            NamedFormat::Dns1123Subdomain => NameRule::DnsSubdomain.check(text),
            NamedFormat::Dns1035Label => NameRule::Dns1035Label.check(text),
            NamedFormat::Dns1123LabelPrefix => NameRule::DnsLabel.check_prefix(text),
            NamedFormat::Dns1123SubdomainPrefix => NameRule::DnsSubdomain.check_prefix(text),
            NamedFormat::Dns1035LabelPrefix => NameRule::Dns1035Label.check_prefix(text),
            NamedFormat::QualifiedName => names::qualified_name(text),
            NamedFormat::LabelValue => names::label_value(text),
            NamedFormat::Uri => Url::error(text).into_iter().collect(),
            NamedFormat::Uuid => wrong(is_uuid(text), "does not match the UUID format"),
            NamedFormat::Byte => wrong(base64(text).is_some(), "invalid base64"),
            NamedFormat::Date => wrong(Time::parse_date(text).is_some(), "invalid date"),
            NamedFormat::DateTime => wrong(Time::parse(&text.to_uppercase()).is_some(), "invalid datetime"),
        }
    }
}

fn is_uuid(text: &str) -> bool {
    let mut rest = text;
    for (at, count) in [8, 4, 4, 4, 12].into_iter().enumerate() {
        if at > 0 {
            rest = rest.strip_prefix('-').unwrap_or(rest);
        }
        let Some((digits, after)) = rest.split_at_checked(count) else {
            return false;
        };
        if !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
            return false;
        }
        rest = after;
    }
    rest.is_empty()
}

pub(crate) fn base64(text: &str) -> Option<Vec<u8>> {
    let text: String = text.chars().filter(|c| !matches!(c, '\r' | '\n')).collect();
    STANDARD.decode(text).ok()
}

pub(crate) fn to_base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}
