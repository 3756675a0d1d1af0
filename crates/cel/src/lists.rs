//! Functions on lists, sets and sizes.

use std::cmp::Ordering;

use crate::cost::Meter;
use crate::library::Implementation;
use crate::numbers;
use crate::strings;
use crate::time::Span;
use crate::value::{Fault, List, Outcome, Val, compare, equal};

pub(crate) fn implementation(name: &str) -> Option<Implementation> {
    Some(match name {
        "size" => |args, _| match args {
            [value] => {
                value.sized().map(|size| Val::Int(size as i64)).ok_or(Fault::from_static("no such overload: size"))
            }
            _ => Err(Fault::overload()),
        },
        "@in" => contained,
        "isSorted" => is_sorted,
        "sum" => sum,
        "min" => |args, meter| extreme(args, meter, "min", Ordering::Greater),
        "max" => |args, meter| extreme(args, meter, "max", Ordering::Less),
        "indexOf" => index_of,
        "lastIndexOf" => last_index_of,
        "slice" => slice,
        "flatten" => |args, meter| {
            flatten(args, meter).map_err(|fault| match args {
                [value] if fault == Fault::overload() => {
                    Fault::new(format!("no such overload: {}.flatten()", value.type_name()))
                }
                _ => fault,
            })
        },
        "reverse" => |args, meter| {
            let mut values = list(args)?.values(meter)?;
            values.reverse();
            Ok(Val::list(values))
        },
        "distinct" => distinct,
        "sort" => |args, meter| {
            let list = list(args).map_err(|_| Fault::from_static("no such overload: sort"))?;
            sorted(list, list, meter)
        },
        "@sortByAssociatedKeys" => |args, meter| match args {
            [Val::List(list), Val::List(keys)] => sorted(list, keys, meter),
            _ => Err(Fault::overload()),
        },
        "lists.range" => |args, meter| match args {
            [Val::Int(count)] => {
                let count = (*count).max(0);
                meter.work(count as u64)?;
                Ok(Val::list((0..count).map(Val::Int).collect()))
            }
            _ => Err(Fault::overload()),
        },
        "first" => |args, _| {
            let list = list(args)?;
            if list.len() == 0 { Ok(Val::Optional(None)) } else { list.get(0).map(Val::some) }
        },
        "last" => |args, _| {
            let list = list(args)?;
            if list.len() == 0 { Ok(Val::Optional(None)) } else { list.get(list.len() - 1).map(Val::some) }
        },
        "optional.unwrap" | "unwrapOpt" => unwrapped,
        "sets.contains" => |args, meter| set(args, meter, |a, b, meter| contains_all(a, b, meter)),
        "sets.equivalent" => {
            |args, meter| set(args, meter, |a, b, meter| Ok(contains_all(a, b, meter)? && contains_all(b, a, meter)?))
        }
        "sets.intersects" => |args, meter| {
            set(args, meter, |a, b, meter| {
                for element in a.iter() {
                    match holds(b, &element?, meter) {
                        Ok(true) => return Ok(true),
                        Err(Fault::Limit) => return Err(Fault::Limit),
                        _ => {}
                    }
                }
                Ok(false)
            })
        },
        _ => return None,
    })
}

fn list<'v, 'a>(args: &'v [Val<'a>]) -> Outcome<&'v List<'a>> {
    match args.first() {
        Some(Val::List(list)) => Ok(list),
        _ => Err(Fault::overload()),
    }
}

/// Reports whether a list contains a value. A failed comparison is an error only if no other element is equal.
fn holds<'a>(list: &List<'a>, value: &Val<'a>, meter: &mut Meter) -> Outcome<bool> {
    let mut error = None;
    for element in list.iter() {
        match element.and_then(|element| equal(&element, value, meter)) {
            Ok(true) => return Ok(true),
            Ok(false) => {}
            Err(Fault::Limit) => return Err(Fault::Limit),
            Err(fault) => error = Some(fault),
        }
    }
    error.map_or(Ok(false), Err)
}

fn contained<'a>(args: &[Val<'a>], meter: &mut Meter) -> Outcome<Val<'a>> {
    match args {
        [value, Val::List(list)] => holds(list, value, meter).map(Val::Bool),
        [key, Val::Map(map)] => map.get(key).map(|found| Val::Bool(found.is_some())),
        _ => Err(Fault::overload()),
    }
}

fn contains_all<'a>(list: &List<'a>, part: &List<'a>, meter: &mut Meter) -> Outcome<bool> {
    for element in part.iter() {
        if !holds(list, &element?, meter)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn set<'a>(
    args: &[Val<'a>],
    meter: &mut Meter,
    test: fn(&List<'a>, &List<'a>, &mut Meter) -> Outcome<bool>,
) -> Outcome<Val<'a>> {
    match args {
        [Val::List(a), Val::List(b)] => test(a, b, meter).map(Val::Bool),
        _ => Err(Fault::overload()),
    }
}

fn is_sorted<'a>(args: &[Val<'a>], meter: &mut Meter) -> Outcome<Val<'a>> {
    let values = list(args)?.values(meter)?;
    for pair in values.windows(2) {
        if compare(&pair[0], &pair[1]) == Ok(Ordering::Greater) {
            return Ok(Val::Bool(false));
        }
    }
    Ok(Val::Bool(true))
}

/// `sum` of a list of durations, which may be empty.
pub(crate) fn sum_of_durations<'a>(args: &[Val<'a>], meter: &mut Meter) -> Outcome<Val<'a>> {
    if list(args)?.len() == 0 { Ok(Val::Duration(Span::from_nanoseconds(0))) } else { sum(args, meter) }
}

fn sum<'a>(args: &[Val<'a>], meter: &mut Meter) -> Outcome<Val<'a>> {
    let values = list(args)?.values(meter)?;
    let mut values = values.into_iter();
    // The element type of an empty list is not known here; zero compares equal to any number type.
    let Some(mut total) = values.next() else {
        return Ok(Val::Int(0));
    };
    for value in values {
        total = match (&total, &value) {
            (Val::Duration(a), Val::Duration(b)) => Val::Duration(a.plus(*b)?),
            (a, b) => numbers::arithmetic('+', a, b).unwrap_or(Err(Fault::overload()))?,
        };
    }
    Ok(total)
}

fn extreme<'a>(args: &[Val<'a>], meter: &mut Meter, name: &str, replaced: Ordering) -> Outcome<Val<'a>> {
    let mut values = list(args)?.values(meter)?.into_iter();
    let mut best = values.next().ok_or_else(|| Fault::new(format!("{name} called on empty list")))?;
    for value in values {
        if compare(&best, &value) == Ok(replaced) {
            best = value;
        }
    }
    Ok(best)
}

fn index_of<'a>(args: &[Val<'a>], meter: &mut Meter) -> Outcome<Val<'a>> {
    match args {
        [Val::String(text), Val::String(wanted)] => strings::index_of(text, wanted, 0).map(Val::Int),
        [Val::String(text), Val::String(wanted), Val::Int(from)] => {
            strings::index_of(text, wanted, *from).map(Val::Int)
        }
        [Val::List(list), wanted] => find(0..list.len(), list, wanted, meter),
        _ => Err(Fault::overload()),
    }
}

fn last_index_of<'a>(args: &[Val<'a>], meter: &mut Meter) -> Outcome<Val<'a>> {
    match args {
        [Val::String(text), Val::String(wanted)] => strings::last_index_of(text, wanted, None).map(Val::Int),
        [Val::String(text), Val::String(wanted), Val::Int(from)] => {
            strings::last_index_of(text, wanted, Some(*from)).map(Val::Int)
        }
        [Val::List(list), wanted] => find((0..list.len()).rev(), list, wanted, meter),
        _ => Err(Fault::overload()),
    }
}

fn find<'a>(
    places: impl Iterator<Item = u64>,
    list: &List<'a>,
    wanted: &Val<'a>,
    meter: &mut Meter,
) -> Outcome<Val<'a>> {
    for at in places {
        match list.get(at).and_then(|element| equal(&element, wanted, meter)) {
            Ok(true) => return Ok(Val::Int(at as i64)),
            Err(Fault::Limit) => return Err(Fault::Limit),
            _ => {}
        }
    }
    Ok(Val::Int(-1))
}

fn slice<'a>(args: &[Val<'a>], meter: &mut Meter) -> Outcome<Val<'a>> {
    let [Val::List(list), Val::Int(start), Val::Int(end)] = args else {
        return Err(Fault::overload());
    };
    let refuse = |why: String| Err(Fault::new(format!("cannot slice({start}, {end}), {why}")));
    if *start < 0 || *end < 0 {
        return refuse("negative indexes not supported".to_owned());
    }
    if start > end {
        return refuse("start index must be less than or equal to end index".to_owned());
    }
    if list.len() < *end as u64 {
        return refuse(format!("list is length {}", list.len()));
    }
    meter.work((end - start) as u64)?;
    (*start..*end).map(|at| list.get(at as u64)).collect::<Outcome<Vec<_>>>().map(Val::list)
}

fn flatten<'a>(args: &[Val<'a>], meter: &mut Meter) -> Outcome<Val<'a>> {
    let depth = match args.get(1) {
        None => 1,
        Some(Val::Int(depth)) if *depth < 0 => return Err(Fault::from_static("level must be non-negative")),
        Some(Val::Int(depth)) => *depth,
        Some(_) => return Err(Fault::overload()),
    };
    let mut flat = Vec::new();
    flatten_into(&mut flat, list(args)?, depth, meter)?;
    Ok(Val::list(flat))
}

fn flatten_into<'a>(flat: &mut Vec<Val<'a>>, list: &List<'a>, depth: i64, meter: &mut Meter) -> Outcome<()> {
    for element in list.iter() {
        meter.work(1)?;
        match element? {
            Val::List(inner) if depth > 0 => flatten_into(flat, &inner, depth - 1, meter)?,
            value => flat.push(value),
        }
    }
    Ok(())
}

fn distinct<'a>(args: &[Val<'a>], meter: &mut Meter) -> Outcome<Val<'a>> {
    let mut unique: Vec<Val<'a>> = Vec::new();
    'next: for value in list(args)?.values(meter)? {
        for earlier in &unique {
            match equal(&value, earlier, meter) {
                Ok(true) => continue 'next,
                Err(Fault::Limit) => return Err(Fault::Limit),
                _ => {}
            }
        }
        unique.push(value);
    }
    Ok(Val::list(unique))
}

fn sorted<'a>(list: &List<'a>, keys: &List<'a>, meter: &mut Meter) -> Outcome<Val<'a>> {
    if list.len() != keys.len() {
        return Err(Fault::new(format!(
            "@sortByAssociatedKeys() expected a list of the same size as the associated keys list, but got {} and {} \
             elements respectively",
            list.len(),
            keys.len()
        )));
    }
    let keys = keys.values(meter)?;
    if let Some(first) = keys.first() {
        if compare(first, first) == Err(Fault::overload()) {
            return Err(Fault::from_static("list elements must be comparable"));
        }
        if keys.iter().any(|key| key.type_name() != first.type_name()) {
            return Err(Fault::from_static("list elements must have the same type"));
        }
    }
    let mut pairs: Vec<(Val<'a>, Val<'a>)> = keys.into_iter().zip(list.values(meter)?).collect();
    pairs.sort_by(|(a, _), (b, _)| match (a, b) {
        // A total order over doubles: sorting needs one even with NaN.
        (Val::Double(a), Val::Double(b)) => a.total_cmp(b),
        (a, b) => compare(a, b).unwrap_or(Ordering::Equal),
    });
    Ok(Val::list(pairs.into_iter().map(|(_, value)| value).collect()))
}

fn unwrapped<'a>(args: &[Val<'a>], meter: &mut Meter) -> Outcome<Val<'a>> {
    let mut values = Vec::new();
    for value in list(args)?.values(meter)? {
        match value {
            Val::Optional(Some(inner)) => values.push((*inner).clone()),
            Val::Optional(None) => {}
            other => return Err(Fault::new(format!("value {other} is not optional"))),
        }
    }
    Ok(Val::list(values))
}
