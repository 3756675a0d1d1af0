//! A CustomResourceDefinition of the size that operators have, and objects of its kind.
//!
//! Some 2 000 lines as YAML: 300 fields in groups of ten, with descriptions, bounds, patterns, defaults, and a rule for each
//! group. Only the standard library is needed, so that other programs can measure with the same definition.

use std::fmt::Write as _;

const GROUPS: u64 = 30;
/// The largest number that the rule of a group accepts.
const NUMBER_MAX: u64 = 1000;

/// The definition of `things` in an API group.
pub(crate) fn body(group: &str) -> String {
    let mut groups = String::new();
    for g in 0..GROUPS {
        let fields: Vec<String> = (g * 10..g * 10 + 10).map(field).collect();
        let (comma, number) = (if g == 0 { "" } else { "," }, g * 10 + 1);
        let _ = write!(
            groups,
            r#"{comma}"group{g}":{{"type":"object","properties":{{{}}},"x-kubernetes-validations":[{{"rule":"!has(self.field{number}) || self.field{number} <= {NUMBER_MAX}","message":"is too large"}}]}}"#,
            fields.join(",")
        );
    }
    format!(
        r#"{{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{{"name":"things.{group}"}},"spec":{{"group":"{group}","scope":"Namespaced","names":{{"plural":"things","kind":"Thing"}},"versions":[{{"name":"v1","served":true,"storage":true,"subresources":{{"status":{{}}}},"schema":{{"openAPIV3Schema":{{"type":"object","properties":{{"spec":{{"type":"object","properties":{{{groups}}}}},"status":{{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}}}}}}}}]}}}}"#
    )
}

fn field(number: u64) -> String {
    let what = match number % 5 {
        0 => r#""type":"string","maxLength":253,"pattern":"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$""#.to_owned(),
        1 => format!(r#""type":"integer","minimum":0,"default":{number}"#),
        2 => r#""type":"array","maxItems":16,"items":{"type":"string"}"#.to_owned(),
        3 => r#""type":"object","additionalProperties":{"type":"string"}"#.to_owned(),
        _ => r#""type":"string","maxLength":63,"pattern":"^(([0-9]+(\\.[0-9]+)?(h|m|s|ms))+)$""#.to_owned(),
    };
    format!(
        r#""field{number}":{{"description":"Field number {number}, in a sentence as operators write them.",{what}}}"#
    )
}

/// An object of that kind.
pub(crate) fn object(group: &str, name: &str) -> String {
    format!(
        r#"{{"apiVersion":"{group}/v1","kind":"Thing","metadata":{{"name":"{name}"}},"spec":{{"group0":{{"field0":"abc","field1":7,"field2":["a","b"],"field3":{{"a":"b"}},"field4":"1h"}}}}}}"#
    )
}

/// A merge patch that changes one number.
pub(crate) fn patch(number: u64) -> String {
    format!(r#"{{"spec":{{"group0":{{"field1":{}}}}}}}"#, number % NUMBER_MAX)
}
