//! Decodes string and bytes literals.

/// Decodes a string token, including quotes and prefix.
pub(crate) fn string(token: &str) -> Result<String, &'static str> {
    let bytes = unescape(token, false)?;
    String::from_utf8(bytes).map_err(|_| "invalid unicode code point")
}

/// Decodes a bytes token, including quotes and prefix.
pub(crate) fn bytes(token: &str) -> Result<Vec<u8>, &'static str> {
    unescape(token.get(1..).unwrap_or(""), true)
}

fn unescape(token: &str, is_bytes: bool) -> Result<Vec<u8>, &'static str> {
    const UNABLE: &str = "unable to unescape string";
    let normal = token.replace("\r\n", "\n").replace('\r', "\n");
    let (raw, quoted) = match normal.strip_prefix(['r', 'R']) {
        Some(rest) => (true, rest),
        None => (false, &*normal),
    };
    let content = ["'''", "\"\"\"", "'", "\""]
        .into_iter()
        .find_map(|quote| {
            let whole = quoted.len() >= 2 * quote.len();
            quoted.strip_prefix(quote)?.strip_suffix(quote).filter(|_| whole)
        })
        .ok_or(UNABLE)?;
    if raw || !content.contains('\\') {
        return Ok(content.as_bytes().to_vec());
    }
    let mut out = Vec::with_capacity(content.len());
    let mut rest = content.chars();
    while let Some(c) = rest.next() {
        if c != '\\' {
            push(&mut out, c);
            continue;
        }
        let escaped = rest.next().ok_or("unable to unescape string, found '\\' as last character")?;
        match escaped {
            'a' => out.push(7),
            'b' => out.push(8),
            'f' => out.push(12),
            'n' => out.push(b'\n'),
            'r' => out.push(b'\r'),
            't' => out.push(b'\t'),
            'v' => out.push(11),
            '\\' | '\'' | '"' | '`' | '?' => out.push(escaped as u8),
            'x' | 'X' | 'u' | 'U' => {
                let digits = match escaped {
                    'u' => 4,
                    'U' => 8,
                    _ => 2,
                };
                if is_bytes && digits > 2 {
                    return Err(UNABLE);
                }
                let code = number(&mut rest, digits, 16).ok_or(UNABLE)?;
                code_point(&mut out, code, is_bytes)?;
            }
            '0'..='3' => {
                let high = escaped as u32 - '0' as u32;
                let low = number(&mut rest, 2, 8).ok_or("unable to unescape octal sequence in string")?;
                code_point(&mut out, high * 64 + low, is_bytes)?;
            }
            _ => return Err(UNABLE),
        }
    }
    Ok(out)
}

fn number(rest: &mut std::str::Chars<'_>, digits: usize, radix: u32) -> Option<u32> {
    let mut value = 0_u32;
    for _ in 0..digits {
        value = value.checked_mul(radix)?.checked_add(rest.next()?.to_digit(radix)?)?;
    }
    Some(value)
}

fn code_point(out: &mut Vec<u8>, code: u32, is_bytes: bool) -> Result<(), &'static str> {
    if is_bytes {
        out.push(code as u8);
    } else {
        push(out, char::from_u32(code).ok_or("invalid unicode code point")?);
    }
    Ok(())
}

fn push(out: &mut Vec<u8>, c: char) {
    out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_are_unescaped() {
        for (token, want) in [
            (r"'a\n\x41\u00e9\101'", "a\nAéA"),
            (r"r'a\n'", r"a\n"),
            (r#""""a"b'''c""""#, "a\"b'''c"),
            ("'''x\r\ny'''", "x\ny"),
            ("''", ""),
        ] {
            assert_eq!(string(token).as_deref(), Ok(want), "{token}");
        }
        assert_eq!(bytes(r"b'\xff\101é'"), Ok(vec![0xff, b'A', 0xc3, 0xa9]));
        assert_eq!(bytes(r"b'\u0041'"), Err("unable to unescape string"));
        assert_eq!(string(r"'\ud800'"), Err("invalid unicode code point"));
    }
}
