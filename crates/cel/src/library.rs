//! Function implementations: operators, conversions, times, and the types that Kubernetes adds. Functions on strings
//! and lists are in their own files.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::civil::DateTime;
use machinery::quantity::{Notation, Quantity};

use crate::cost::Meter;
use crate::formats::NamedFormat;
use crate::network::{Cidr, Ip};
use crate::numbers;
use crate::pattern::Pattern;
use crate::semver::Version;
use crate::time::{Span, Time};
use crate::url::Url;
use crate::value::{Fault, Key, Map, Outcome, Text, Val, compare};
use crate::{access, lists, patch, strings};

pub(crate) type Implementation = for<'a> fn(&[Val<'a>], &mut Meter) -> Outcome<Val<'a>>;

/// Returns the implementation of a function; `None` for functions that are declared but cannot be called in a schema.
pub(crate) fn implementation(name: &str) -> Option<Implementation> {
    lists::implementation(name).or_else(|| strings::implementation(name)).or_else(|| {
        Some(match name {
            "!_" => not,
            "-_" => negate,
            "_+_" => add,
            "_-_" => subtract,
            "_*_" => |args, _| arithmetic('*', args),
            "_/_" => |args, _| arithmetic('/', args),
            "_%_" => |args, _| arithmetic('%', args),
            "_<_" => |args, _| order(args, |order| order == Ordering::Less),
            "_<=_" => |args, _| order(args, |order| order != Ordering::Greater),
            "_>_" => |args, _| order(args, |order| order == Ordering::Greater),
            "_>=_" => |args, _| order(args, |order| order != Ordering::Less),
            "dyn" => |args, _| args.first().cloned().ok_or(Fault::overload()),
            "type" => |args, _| args.first().map(|value| Val::Type(value.type_name())).ok_or(Fault::overload()),
            "bool" => to_bool,
            "int" => |args, _| number(args, numbers::to_int, Val::Int),
            "uint" => |args, _| number(args, numbers::to_uint, Val::Uint),
            "double" => |args, _| number(args, numbers::to_double, Val::Double),
            "string" => to_string,
            "bytes" => to_bytes,
            "duration" => to_duration,
            "timestamp" => to_timestamp,
            "cel.@mapInsert" => insert,
            "optional.of" => |args, _| args.first().cloned().map(Val::some).ok_or(Fault::overload()),
            "optional.none" => |_, _| Ok(Val::Optional(None)),
            "optional.ofNonZeroValue" => |args, _| match args {
                [value] if value.is_zero() => Ok(Val::Optional(None)),
                [value] => Ok(Val::some(value.clone())),
                _ => Err(Fault::overload()),
            },
            "hasValue" => |args, _| match args {
                [Val::Optional(value)] => Ok(Val::Bool(value.is_some())),
                _ => Err(Fault::overload()),
            },
            "value" => |args, _| match args {
                [Val::Optional(Some(value))] => Ok((**value).clone()),
                [Val::Optional(None)] => Err(Fault::from_static("optional.none() dereference")),
                _ => Err(Fault::overload()),
            },
            "getFullYear" => |args, _| calendar(args, |at| at.year().into()),
            "getMonth" => |args, _| calendar(args, |at| i64::from(at.month()) - 1),
            "getDayOfYear" => |args, _| calendar(args, |at| i64::from(at.date().day_of_year()) - 1),
            "getDayOfMonth" => |args, _| calendar(args, |at| i64::from(at.day()) - 1),
            "getDate" => |args, _| calendar(args, |at| at.day().into()),
            "getDayOfWeek" => |args, _| calendar(args, |at| at.weekday().to_sunday_zero_offset().into()),
            "getHours" => |args, _| clock(args, 3_600_000_000_000, |at| at.hour().into()),
            "getMinutes" => |args, _| clock(args, 60_000_000_000, |at| at.minute().into()),
            "getSeconds" => |args, _| clock(args, 1_000_000_000, |at| at.second().into()),
            "getMilliseconds" => |args, _| clock(args, 1_000_000, |at| i64::from(at.subsec_nanosecond()) / 1_000_000),
            _ => return added(name),
        })
    })
}

/// Functions that Kubernetes adds.
fn added(name: &str) -> Option<Implementation> {
    Some(match name {
        "url" => to_url,
        "isURL" => |args, _| string_arg(args).map(|text| Val::Bool(Url::error(text).is_none())),
        "getScheme" => |args, _| of_url(args, |url| url.scheme().to_owned()),
        "getHost" => |args, _| of_url(args, |url| url.host().to_owned()),
        "getHostname" => |args, _| of_url(args, |url| url.hostname().to_owned()),
        "getPort" => |args, _| of_url(args, |url| url.port().to_owned()),
        "getEscapedPath" => |args, _| of_url(args, Url::escaped_path),
        "getQuery" => query,
        "find" | "findAll" | "matches" => match_pattern_of(name)?,
        "quantity" => to_quantity,
        "isQuantity" => |args, _| string_arg(args).map(|text| Val::Bool(text.parse::<Quantity>().is_ok())),
        "sign" => |args, _| match args {
            [Val::Quantity(q)] => Ok(Val::Int(if q.is_zero() { 0 } else { 1 - 2 * i64::from(q.is_negative()) })),
            _ => Err(Fault::overload()),
        },
        "isGreaterThan" => |args, _| ordered(args).map(|order| Val::Bool(order == Ordering::Greater)),
        "isLessThan" => |args, _| ordered(args).map(|order| Val::Bool(order == Ordering::Less)),
        "compareTo" => |args, _| ordered(args).map(|order| Val::Int(order as i64)),
        "asApproximateFloat" => |args, _| match args {
            [Val::Quantity(q)] => Ok(Val::Double(q.approximate())),
            _ => Err(Fault::overload()),
        },
        "asInteger" => |args, _| match args {
            [Val::Quantity(q)] => q.whole().map(Val::Int).ok_or(Fault::from_static("cannot convert value to integer")),
            _ => Err(Fault::overload()),
        },
        "isInteger" => |args, _| match args {
            [Val::Quantity(q)] => Ok(Val::Bool(q.whole().is_some())),
            _ => Err(Fault::overload()),
        },
        "add" => |args, _| quantities(args, Quantity::plus),
        "sub" => |args, _| quantities(args, Quantity::minus),
        "ip" => to_ip,
        "isIP" => |args, _| string_arg(args).map(|text| Val::Bool(Ip::parse(text).is_ok())),
        "ip.isCanonical" => |args, _| {
            let text = string_arg(args)?;
            Ip::parse(text).map(|ip| Val::Bool(ip.to_string() == text)).map_err(Fault::new)
        },
        "family" => |args, _| of_ip(args, |ip| Val::Int(ip.family())),
        "isUnspecified" => |args, _| of_ip(args, |ip| Val::Bool(ip.is_unspecified())),
        "isLoopback" => |args, _| of_ip(args, |ip| Val::Bool(ip.is_loopback())),
        "isLinkLocalMulticast" => |args, _| of_ip(args, |ip| Val::Bool(ip.is_link_local_multicast())),
        "isLinkLocalUnicast" => |args, _| of_ip(args, |ip| Val::Bool(ip.is_link_local_unicast())),
        "isGlobalUnicast" => |args, _| of_ip(args, |ip| Val::Bool(ip.is_global_unicast())),
        "cidr" => |args, _| read_cidr(string_arg(args)?).map(Val::Cidr),
        "isCIDR" => |args, _| string_arg(args).map(|text| Val::Bool(Cidr::parse(text).is_ok())),
        "containsIP" => |args, _| match args {
            [Val::Cidr(cidr), Val::Ip(ip)] => Ok(Val::Bool(cidr.contains(*ip))),
            [Val::Cidr(cidr), Val::String(text)] => {
                Ip::parse(text).map(|ip| Val::Bool(cidr.contains(ip))).map_err(|_| Fault::overload())
            }
            _ => Err(Fault::overload()),
        },
        "containsCIDR" => |args, _| match args {
            [Val::Cidr(cidr), Val::Cidr(other)] => Ok(Val::Bool(cidr.contains_network(*other))),
            [Val::Cidr(cidr), Val::String(text)] => {
                read_cidr(text).map(|other| Val::Bool(cidr.contains_network(other)))
            }
            _ => Err(Fault::overload()),
        },
        "prefixLength" => |args, _| match args {
            [Val::Cidr(cidr)] => Ok(Val::Int(cidr.prefix_length())),
            _ => Err(Fault::overload()),
        },
        "masked" => |args, _| match args {
            [Val::Cidr(cidr)] => Ok(Val::Cidr(cidr.masked())),
            _ => Err(Fault::overload()),
        },
        "semver" => |args, _| version(args)?.map(|version| Val::Semver(Arc::new(version))).map_err(Fault::new),
        "isSemver" => |args, _| version(args).map(|version| Val::Bool(version.is_ok())),
        "major" => |args, _| of_version(args, |version| version.major),
        "minor" => |args, _| of_version(args, |version| version.minor),
        "patch" => |args, _| of_version(args, |version| version.patch),
        "validate" => |args, _| match args {
            [Val::Format(format), Val::String(text)] => {
                let errors = format.errors(text);
                let found = (!errors.is_empty()).then(|| Arc::new(Val::strings(errors)));
                Ok(Val::Optional(found))
            }
            _ => Err(Fault::overload()),
        },
        "format.named" => |args, _| {
            let format = NamedFormat::named(string_arg(args)?);
            Ok(Val::Optional(format.map(|format| Arc::new(Val::Format(format)))))
        },
        _ => {
            return access::implementation(name).or_else(|| patch::implementation(name)).or_else(|| named_format(name));
        }
    })
}

fn named_format(name: &str) -> Option<Implementation> {
    use NamedFormat as F;
    macro_rules! constant {
        ($format:expr) => {
            |_, _| Ok(Val::Format($format))
        };
    }
    Some(match F::named(name.strip_prefix("format.")?)? {
        F::Dns1123Label => constant!(F::Dns1123Label),
        F::Dns1123Subdomain => constant!(F::Dns1123Subdomain),
        F::Dns1035Label => constant!(F::Dns1035Label),
        F::QualifiedName => constant!(F::QualifiedName),
        F::Dns1123LabelPrefix => constant!(F::Dns1123LabelPrefix),
        F::Dns1123SubdomainPrefix => constant!(F::Dns1123SubdomainPrefix),
        F::Dns1035LabelPrefix => constant!(F::Dns1035LabelPrefix),
        F::LabelValue => constant!(F::LabelValue),
        F::Uri => constant!(F::Uri),
        F::Uuid => constant!(F::Uuid),
        F::Byte => constant!(F::Byte),
        F::Date => constant!(F::Date),
        F::DateTime => constant!(F::DateTime),
    })
}

/// Returns the first argument if it is a string.
pub(crate) fn string_arg<'v>(args: &'v [Val<'_>]) -> Outcome<&'v str> {
    match args.first() {
        Some(Val::String(text)) => Ok(text),
        _ => Err(Fault::overload()),
    }
}

fn not<'a>(args: &[Val<'a>], _: &mut Meter) -> Outcome<Val<'a>> {
    match args {
        [Val::Bool(value)] => Ok(Val::Bool(!value)),
        _ => Err(Fault::overload()),
    }
}

fn negate<'a>(args: &[Val<'a>], _: &mut Meter) -> Outcome<Val<'a>> {
    match args {
        [Val::Int(value)] => value.checked_neg().map(Val::Int).ok_or(Fault::from_static("integer overflow")),
        [Val::Double(value)] => Ok(Val::Double(-value)),
        _ => Err(Fault::overload()),
    }
}

fn arithmetic<'a>(operator: char, args: &[Val<'a>]) -> Outcome<Val<'a>> {
    match args {
        [a, b] => numbers::arithmetic(operator, a, b).unwrap_or(Err(Fault::overload())),
        _ => Err(Fault::overload()),
    }
}

fn add<'a>(args: &[Val<'a>], meter: &mut Meter) -> Outcome<Val<'a>> {
    match args {
        [Val::String(a), Val::String(b)] => {
            meter.bytes(a.len() + b.len())?;
            Ok(Val::string(format!("{}{}", &**a, &**b)))
        }
        [Val::Bytes(a), Val::Bytes(b)] => {
            meter.bytes(a.len() + b.len())?;
            Ok(Val::Bytes([&**a, &**b].concat().into()))
        }
        [Val::List(a), Val::List(b)] => a.clone().plus(b.clone(), meter).map(Val::List),
        [Val::Duration(a), Val::Duration(b)] => a.plus(*b).map(Val::Duration),
        [Val::Duration(span), Val::Timestamp(time)] | [Val::Timestamp(time), Val::Duration(span)] => {
            time.plus(*span).map(Val::Timestamp)
        }
        _ => arithmetic('+', args),
    }
}

fn subtract<'a>(args: &[Val<'a>], _: &mut Meter) -> Outcome<Val<'a>> {
    match args {
        [Val::Duration(a), Val::Duration(b)] => a.minus(*b).map(Val::Duration),
        [Val::Timestamp(time), Val::Duration(span)] => time.minus(*span).map(Val::Timestamp),
        [Val::Timestamp(a), Val::Timestamp(b)] => a.since(*b).map(Val::Duration),
        _ => arithmetic('-', args),
    }
}

fn order<'a>(args: &[Val<'a>], holds: fn(Ordering) -> bool) -> Outcome<Val<'a>> {
    match args {
        [a, b] => compare(a, b).map(|order| Val::Bool(holds(order))),
        _ => Err(Fault::overload()),
    }
}

/// Returns the error of a conversion.
fn unconvertible(value: &Val<'_>, to: &str) -> Fault {
    Fault::new(format!("type conversion error from '{}' to '{to}'", value.type_name()))
}

fn number<'a, T>(
    args: &[Val<'a>],
    convert: fn(&Val<'_>) -> Option<Outcome<T>>,
    wrap: fn(T) -> Val<'a>,
) -> Outcome<Val<'a>> {
    match args {
        [value] => convert(value).unwrap_or(Err(Fault::overload())).map(wrap),
        _ => Err(Fault::overload()),
    }
}

fn to_bool<'a>(args: &[Val<'a>], _: &mut Meter) -> Outcome<Val<'a>> {
    match args {
        [Val::Bool(value)] => Ok(Val::Bool(*value)),
        [value @ Val::String(text)] => match &**text {
            "true" | "True" | "TRUE" | "t" | "T" | "1" => Ok(Val::Bool(true)),
            "false" | "False" | "FALSE" | "f" | "F" | "0" => Ok(Val::Bool(false)),
            _ => Err(unconvertible(value, "bool")),
        },
        _ => Err(Fault::overload()),
    }
}

fn to_string<'a>(args: &[Val<'a>], _: &mut Meter) -> Outcome<Val<'a>> {
    let [value] = args else {
        return Err(Fault::overload());
    };
    Ok(match value {
        Val::String(_) => value.clone(),
        Val::Bool(_) | Val::Int(_) | Val::Uint(_) | Val::Double(_) => Val::string(value.to_string()),
        Val::Bytes(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => Val::string(text),
            Err(_) => return Err(Fault::from_static("invalid UTF-8 in bytes, cannot convert to string")),
        },
        Val::Duration(span) => Val::string(span.to_text()),
        Val::Timestamp(time) => Val::string(time.to_text()),
        Val::Ip(ip) => Val::string(ip.to_string()),
        Val::Cidr(cidr) => Val::string(cidr.to_string()),
        _ => return Err(Fault::overload()),
    })
}

fn to_bytes<'a>(args: &[Val<'a>], _: &mut Meter) -> Outcome<Val<'a>> {
    match args {
        [Val::Bytes(bytes)] => Ok(Val::Bytes(bytes.clone())),
        [Val::String(text)] => Ok(Val::Bytes(text.as_bytes().into())),
        _ => Err(Fault::overload()),
    }
}

fn to_duration<'a>(args: &[Val<'a>], _: &mut Meter) -> Outcome<Val<'a>> {
    match args {
        [Val::Duration(span)] => Ok(Val::Duration(*span)),
        [Val::Int(nanoseconds)] => Ok(Val::Duration(Span::from_nanoseconds(*nanoseconds))),
        [value @ Val::String(text)] => {
            Span::parse(text).map(Val::Duration).ok_or_else(|| unconvertible(value, "google.protobuf.Duration"))
        }
        _ => Err(Fault::overload()),
    }
}

fn to_timestamp<'a>(args: &[Val<'a>], _: &mut Meter) -> Outcome<Val<'a>> {
    match args {
        [Val::Timestamp(time)] => Ok(Val::Timestamp(*time)),
        [Val::Int(seconds)] => Time::from_seconds(*seconds).map(Val::Timestamp),
        [value @ Val::String(text)] => {
            Time::parse(text).map(Val::Timestamp).ok_or_else(|| unconvertible(value, "google.protobuf.Timestamp"))
        }
        _ => Err(Fault::overload()),
    }
}

fn calendar<'a>(args: &[Val<'a>], part: fn(DateTime) -> i64) -> Outcome<Val<'a>> {
    match args {
        [Val::Timestamp(time)] => time.calendar(None).map(|at| Val::Int(part(at))),
        [Val::Timestamp(time), Val::String(zone)] => time.calendar(Some(zone)).map(|at| Val::Int(part(at))),
        _ => Err(Fault::overload()),
    }
}

fn clock<'a>(args: &[Val<'a>], unit: i64, part: fn(DateTime) -> i64) -> Outcome<Val<'a>> {
    match args {
        [Val::Duration(span)] => Ok(Val::Int(span.nanoseconds() / unit)),
        _ => calendar(args, part),
    }
}

fn insert<'a>(args: &[Val<'a>], _: &mut Meter) -> Outcome<Val<'a>> {
    // Only macros call it, and the plan inserts in place.
    let _ = args;
    Err(Fault::overload())
}

fn to_url<'a>(args: &[Val<'a>], _: &mut Meter) -> Outcome<Val<'a>> {
    match Url::parse(string_arg(args)?) {
        Ok(url) => Ok(Val::Url(Arc::new(url))),
        Err(why) => Err(Fault::new(format!("URL parse error during conversion from string: {why}"))),
    }
}

fn of_url<'a>(args: &[Val<'a>], part: fn(&Url) -> String) -> Outcome<Val<'a>> {
    match args {
        [Val::Url(url)] => Ok(Val::string(part(url))),
        _ => Err(Fault::overload()),
    }
}

fn query<'a>(args: &[Val<'a>], _: &mut Meter) -> Outcome<Val<'a>> {
    let [Val::Url(url)] = args else {
        return Err(Fault::overload());
    };
    let entries: BTreeMap<Key<'a>, Val<'a>> =
        url.query().into_iter().map(|(key, values)| (Key::Text(Text::from(key)), Val::strings(values))).collect();
    Ok(Val::Map(Map::Values(Arc::new(entries))))
}

/// Compiles a pattern that was not known at compile time; this counts as work.
const COMPILE_WORK: u64 = 500;

fn match_pattern_of(name: &str) -> Option<Implementation> {
    macro_rules! dynamic {
        ($name:literal, $prefix:literal) => {
            |args, meter| {
                let [_, Val::String(text), ..] = args else {
                    return Err(Fault::overload());
                };
                meter.work(COMPILE_WORK + 20 * text.len() as u64)?;
                let pattern = Pattern::new(text);
                if let Some(why) = pattern.error() {
                    return Err(Fault::new(format!("{}{why}", $prefix)));
                }
                with_pattern($name, &pattern, args, meter)
            }
        };
    }
    Some(match name {
        "find" => dynamic!("find", "Illegal regex: "),
        "findAll" => dynamic!("findAll", "Illegal regex: "),
        "matches" => dynamic!("matches", ""),
        _ => return None,
    })
}

/// `matches`, `find` and `findAll` with a compiled pattern.
pub(crate) fn with_pattern<'a>(name: &str, pattern: &Pattern, args: &[Val<'a>], meter: &mut Meter) -> Outcome<Val<'a>> {
    let (Some(Val::String(subject)), Ok(regex)) = (args.first(), pattern.regex()) else {
        return Err(Fault::overload());
    };
    let subject_text: &str = subject;
    // A part of a borrowed text is borrowed.
    let part = |from: usize, to: usize| match subject {
        Text::Borrowed(text) => Val::String(Text::Borrowed(&text[from..to])),
        Text::Shared(text) => Val::string(&text[from..to]),
    };
    match name {
        "matches" => Ok(Val::Bool(regex.is_match(subject_text))),
        "find" => Ok(regex.find(subject_text).map_or(Val::string(""), |found| part(found.start(), found.end()))),
        _ => {
            let count = match args.get(2) {
                Some(Val::Int(count)) => usize::try_from(*count).unwrap_or(usize::MAX),
                None => usize::MAX,
                Some(_) => return Err(Fault::overload()),
            };
            let mut found = Vec::new();
            for one in regex.find_iter(subject_text).take(count) {
                meter.work(1)?;
                found.push(part(one.start(), one.end()));
            }
            Ok(Val::list(found))
        }
    }
}

fn to_quantity<'a>(args: &[Val<'a>], _: &mut Meter) -> Outcome<Val<'a>> {
    match string_arg(args)?.parse::<Quantity>() {
        Ok(quantity) => Ok(Val::Quantity(Arc::new(quantity))),
        Err(why) => Err(Fault::new(why.to_string())),
    }
}

fn ordered(args: &[Val<'_>]) -> Outcome<Ordering> {
    match args {
        [Val::Quantity(a), Val::Quantity(b)] => Ok(a.cmp(b)),
        [Val::Semver(a), Val::Semver(b)] => Ok(a.cmp(b)),
        _ => Err(Fault::overload()),
    }
}

fn quantities<'a>(args: &[Val<'a>], combine: fn(&Quantity, &Quantity) -> Quantity) -> Outcome<Val<'a>> {
    let result = match args {
        [Val::Quantity(a), Val::Quantity(b)] => combine(a, b),
        [Val::Quantity(a), Val::Int(b)] => combine(a, &Quantity::new(*b, Notation::Exponent)),
        _ => return Err(Fault::overload()),
    };
    Ok(Val::Quantity(Arc::new(result)))
}

fn to_ip<'a>(args: &[Val<'a>], _: &mut Meter) -> Outcome<Val<'a>> {
    match args {
        [Val::String(text)] => Ip::parse(text).map(Val::Ip).map_err(Fault::new),
        [Val::Cidr(cidr)] => Ok(Val::Ip(cidr.ip())),
        _ => Err(Fault::overload()),
    }
}

fn of_ip<'a>(args: &[Val<'a>], part: fn(Ip) -> Val<'static>) -> Outcome<Val<'a>> {
    match args {
        [Val::Ip(ip)] => Ok(part(*ip)),
        _ => Err(Fault::overload()),
    }
}

fn read_cidr(text: &str) -> Outcome<Cidr> {
    Cidr::parse(text)
        .map_err(|why| Fault::new(format!("network address parse error during conversion from string: {why}")))
}

fn version(args: &[Val<'_>]) -> Outcome<Result<Version, String>> {
    match args {
        [Val::String(text)] | [Val::String(text), Val::Bool(false)] => Ok(Version::parse(text)),
        [Val::String(text), Val::Bool(true)] => Ok(Version::parse_lenient(text)),
        _ => Err(Fault::overload()),
    }
}

fn of_version<'a>(args: &[Val<'a>], part: fn(&Version) -> u64) -> Outcome<Val<'a>> {
    match args {
        [Val::Semver(version)] => Ok(Val::Int(part(version) as i64)),
        _ => Err(Fault::overload()),
    }
}
