//! `$(( … ))`: integers with the operators of C.

/// Evaluates an expression; names are looked up with `variable`.
pub(super) fn evaluate(text: &str, variable: &dyn Fn(&str) -> String) -> Result<i64, String> {
    let mut parser = Parser { text: text.chars().filter(|c| !c.is_whitespace()).collect(), at: 0, variable, depth: 0 };
    let value = parser.level(0)?;
    if parser.at < parser.text.len() { Err("arithmetic syntax error".to_owned()) } else { Ok(value) }
}

struct Parser<'a> {
    text: Vec<char>,
    at: usize,
    variable: &'a dyn Fn(&str) -> String,
    depth: usize,
}

/// Operators by level, the loosest first. Longer ones precede their prefixes.
const LEVELS: [&[&str]; 10] = [
    &["||"],
    &["&&"],
    &["|"],
    &["^"],
    &["&"],
    &["==", "!="],
    &["<=", ">=", "<", ">"],
    &["<<", ">>"],
    &["+", "-"],
    &["*", "/", "%"],
];
/// How deep expressions may be nested.
const DEPTH_MAX: usize = 64;

impl Parser<'_> {
    fn begins(&self, with: &str) -> bool {
        with.chars().enumerate().all(|(ahead, c)| self.text.get(self.at + ahead) == Some(&c))
    }

    /// The operator of a level that is next, unless a longer one is.
    fn operator(&self, level: usize) -> Option<&'static str> {
        let longest =
            LEVELS.iter().flat_map(|level| level.iter()).filter(|sign| self.begins(sign)).max_by_key(|s| s.len());
        longest.copied().filter(|sign| LEVELS[level].contains(sign))
    }

    fn level(&mut self, level: usize) -> Result<i64, String> {
        if level == LEVELS.len() {
            return self.unary();
        }
        let mut left = self.level(level + 1)?;
        while let Some(sign) = self.operator(level) {
            self.at += sign.len();
            let right = self.level(level + 1)?;
            left = apply(sign, left, right)?;
        }
        Ok(left)
    }

    fn unary(&mut self) -> Result<i64, String> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err("arithmetic syntax error".to_owned());
        }
        let value = match self.text.get(self.at) {
            Some('-') => self.after_sign().map(i64::wrapping_neg),
            Some('+') => self.after_sign(),
            Some('!') => self.after_sign().map(|value| i64::from(value == 0)),
            Some('~') => self.after_sign().map(|value| !value),
            Some('(') => {
                self.at += 1;
                let value = self.level(0)?;
                if self.text.get(self.at) != Some(&')') {
                    return Err("arithmetic syntax error".to_owned());
                }
                self.at += 1;
                Ok(value)
            }
            _ => self.operand(),
        };
        self.depth -= 1;
        value
    }

    fn after_sign(&mut self) -> Result<i64, String> {
        self.at += 1;
        self.unary()
    }

    fn operand(&mut self) -> Result<i64, String> {
        let from = self.at;
        while self.text.get(self.at).is_some_and(|c| *c == '_' || c.is_ascii_alphanumeric()) {
            self.at += 1;
        }
        let word: String = self.text[from..self.at].iter().collect();
        let wrong = || "arithmetic syntax error".to_owned();
        match word.chars().next() {
            None => Err(wrong()),
            Some('0'..='9') => word.parse().map_err(|_| wrong()),
            Some(_) => {
                let value = (self.variable)(&word);
                if value.is_empty() { Ok(0) } else { value.trim().parse().map_err(|_| wrong()) }
            }
        }
    }
}

fn apply(sign: &str, left: i64, right: i64) -> Result<i64, String> {
    let zero = || "divide by zero".to_owned();
    Ok(match sign {
        "||" => i64::from(left != 0 || right != 0),
        "&&" => i64::from(left != 0 && right != 0),
        "|" => left | right,
        "^" => left ^ right,
        "&" => left & right,
        "==" => i64::from(left == right),
        "!=" => i64::from(left != right),
        "<=" => i64::from(left <= right),
        ">=" => i64::from(left >= right),
        "<" => i64::from(left < right),
        ">" => i64::from(left > right),
        "<<" => left.wrapping_shl(right as u32),
        ">>" => left.wrapping_shr(right as u32),
        "+" => left.wrapping_add(right),
        "-" => left.wrapping_sub(right),
        "*" => left.wrapping_mul(right),
        "/" => left.checked_div(right).ok_or_else(zero)?,
        _ => left.checked_rem(right).ok_or_else(zero)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_in_c() {
        let variable = |name: &str| if name == "N" { "7".to_owned() } else { String::new() };
        for (text, expected) in [
            ("1 + 2 * 3", Ok(7)),
            ("(1 + 2) * 3", Ok(9)),
            ("N % 4 == 3 && !0", Ok(1)),
            ("-N + none", Ok(-7)),
            ("32767 / 16384", Ok(1)),
            ("1 << 3 >= 8", Ok(1)),
            ("1 / 0", Err("divide by zero".to_owned())),
            ("1 +", Err("arithmetic syntax error".to_owned())),
        ] {
            assert_eq!(evaluate(text, &variable), expected, "{text}");
        }
        assert!(evaluate(&"(".repeat(10_000), &variable).is_err());
    }
}
