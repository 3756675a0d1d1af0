//! What a container uses over time, as annotations and rules prescribe it.
//!
//! | text | amount |
//! |---|---|
//! | `250m` | always the same |
//! | `sine(100m,900m,10m)` | a wave from low to high and back in ten minutes, by the wall clock: all pods are in phase |
//! | `square(100m,900m,10m)` | low for five minutes, high for five minutes, by the wall clock |
//! | `ramp(100m,900m,5m)` | rises (or falls) during the five minutes after the start of the pod, and stays |
//! | `step(100m,900m,5m)` | the first for five minutes after the start of the pod, then the second |
//! | `shared(CURVE)` | a load that the running pods of one owner share in equal parts |

use std::time::Duration;

use machinery::quantity::Quantity;

use crate::nodes::stages::parse_duration;

/// An amount over time: cores, or bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Curve {
    shape: Shape,
    /// Whether the pods of one owner divide it among them.
    pub is_shared: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Shape {
    Fixed(f64),
    Moving { motion: Motion, from: f64, to: f64, time: Duration },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Motion {
    Sine,
    Square,
    Ramp,
    Step,
}

const MOTIONS: [(&str, Motion); 4] =
    [("sine", Motion::Sine), ("square", Motion::Square), ("ramp", Motion::Ramp), ("step", Motion::Step)];

/// A moment in the life of a pod.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Moment {
    /// Since 1970, in seconds.
    pub wall: f64,
    /// Since the start of the pod, in seconds; for a shared curve that of the oldest one.
    pub age: f64,
}

impl Curve {
    /// Parses a text of the table above.
    pub fn parse(text: &str) -> Result<Curve, String> {
        let text = text.trim();
        if let Some(("shared", inner)) = call(text) {
            let shape = Shape::parse(inner.trim())?;
            return Ok(Curve { shape, is_shared: true });
        }
        Ok(Curve { shape: Shape::parse(text)?, is_shared: false })
    }

    /// The amount at a moment, never negative.
    #[must_use]
    pub fn at(&self, moment: Moment) -> f64 {
        let (motion, from, to, time) = match self.shape {
            Shape::Fixed(amount) => return amount,
            Shape::Moving { motion, from, to, time } => (motion, from, to, time.as_secs_f64()),
        };
        // The part of the way from the first amount to the second.
        let part = match motion {
            Motion::Sine => (1.0 - (std::f64::consts::TAU * moment.wall.rem_euclid(time) / time).cos()) / 2.0,
            Motion::Square => f64::from(moment.wall.rem_euclid(time) >= time / 2.0),
            Motion::Ramp => (moment.age / time).clamp(0.0, 1.0),
            Motion::Step => f64::from(moment.age >= time),
        };
        from + (to - from) * part
    }
}

impl Shape {
    fn parse(text: &str) -> Result<Shape, String> {
        let Some((name, inner)) = call(text) else {
            return Ok(Shape::Fixed(amount(text)?));
        };
        let Some((_, motion)) = MOTIONS.iter().find(|(known, _)| *known == name) else {
            let known: Vec<&str> = MOTIONS.iter().map(|(name, _)| *name).collect();
            return Err(format!("there is no curve {name:?}; there are: {}, shared", known.join(", ")));
        };
        let parts: Vec<&str> = inner.split(',').map(str::trim).collect();
        let [from, to, time] = parts.as_slice() else {
            return Err(format!("{text:?} should have three parts: {name}(100m,900m,10m)"));
        };
        let time = parse_duration(time)?;
        if time < Duration::from_millis(1) {
            return Err(format!("{text:?} has no duration"));
        }
        Ok(Shape::Moving { motion: *motion, from: amount(from)?, to: amount(to)?, time })
    }
}

/// The name and the inside of `name(inside)`.
fn call(text: &str) -> Option<(&str, &str)> {
    let (name, rest) = text.split_once('(')?;
    Some((name.trim(), rest.strip_suffix(')')?))
}

/// Cores or bytes.
pub(super) fn amount(text: &str) -> Result<f64, String> {
    let quantity: Quantity = text.parse().map_err(|_| format!("{text:?} is no amount; write 250m or 64Mi"))?;
    let amount = quantity.approximate();
    if !amount.is_finite() || amount < 0.0 {
        return Err(format!("{text:?} is no amount that can be used"));
    }
    Ok(amount)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str, wall: f64, age: f64) -> f64 {
        Curve::parse(text).unwrap().at(Moment { wall, age })
    }

    #[test]
    fn mx_5_curves_move_as_they_say() {
        for (text, wall, age, expected) in [
            ("250m", 7.0, 7.0, 0.25),
            ("64Mi", 0.0, 0.0, 67_108_864.0),
            ("sine(100m,900m,10m)", 0.0, 3.0, 0.1),
            ("sine(100m,900m,10m)", 300.0, 3.0, 0.9),
            ("sine(100m,900m,10m)", 750.0, 3.0, 0.5),
            ("square(1,3,10s)", 4.0, 9.0, 1.0),
            ("square(1,3,10s)", 15.0, 0.0, 3.0),
            ("ramp(100m, 900m, 10s)", 99.0, 5.0, 0.5),
            ("ramp(100m,900m,10s)", 0.0, 50.0, 0.9),
            ("ramp(2,1,10s)", 0.0, 5.0, 1.5),
            ("step(1,2,10s)", 0.0, 9.0, 1.0),
            ("step(1,2,10s)", 0.0, 10.0, 2.0),
            ("shared(ramp(1,2,10s))", 0.0, 10.0, 2.0),
        ] {
            let found = at(text, wall, age);
            assert!((found - expected).abs() < 1e-9, "{text} at {wall}, {age}: {found}");
        }
        assert!(Curve::parse("shared(1)").unwrap().is_shared);
    }

    #[test]
    fn mx_6_a_curve_that_cannot_be_read_is_named() {
        for (bad, word) in [
            ("", "no amount"),
            ("much", "much"),
            ("-1", "-1"),
            ("sine(1,2)", "three parts"),
            ("sine(1,2,soon)", "soon"),
            ("sine(1,2,0)", "no duration"),
            ("cosine(1,2,3s)", "cosine"),
            ("sine(1,2,3s", "sine"),
            ("shared(shared(1))", "shared"),
        ] {
            let error = Curve::parse(bad).unwrap_err();
            assert!(error.contains(word), "{bad}: {error}");
        }
    }
}
