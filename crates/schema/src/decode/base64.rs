//! Checks base64 like Go decodes it.
//!
//! The `base64` crate is not used here: the position of the wrong byte is part of the error text, but the crate does
//! not skip line breaks like Go, and its errors about padding have no position.

fn is_break(byte: &u8) -> bool {
    matches!(byte, b'\r' | b'\n')
}

/// Returns `Ok(None)` for valid text, `Ok(Some(_))` with the line breaks removed if there are any, or the index of the
/// wrong byte.
pub(super) fn check(text: &str) -> Result<Option<String>, usize> {
    let bytes = text.as_bytes();

    let mut at = 0;
    loop {
        // A group of four characters.
        let mut count = 0;
        while count < 4 {
            while bytes.get(at).is_some_and(is_break) {
                at += 1;
            }
            let Some(byte) = bytes.get(at) else {
                return match count {
                    0 => Ok(bytes.iter().any(is_break).then(|| text.replace(['\r', '\n'], ""))),
                    _ => Err(at - count),
                };
            };
            at += 1;
            match byte {
                b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'+' | b'/' => count += 1,
                b'=' if count < 2 => return Err(at - 1),
                b'=' => {
                    if count == 2 {
                        while bytes.get(at).is_some_and(is_break) {
                            at += 1;
                        }
                        match bytes.get(at) {
                            None => return Err(bytes.len()),
                            Some(b'=') => at += 1,
                            Some(_) => return Err(at - 1),
                        }
                    }
                    while bytes.get(at).is_some_and(is_break) {
                        at += 1;
                    }
                    if at < bytes.len() {
                        return Err(at);
                    }
                    count = 4;
                }
                _ => return Err(at - 1),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn the_wrong_byte_is_named() {
        assert_eq!(check(""), Ok(None));
        assert_eq!(check("YQ=="), Ok(None));
        assert_eq!(check("YWE="), Ok(None));
        assert_eq!(check("YW\nFh"), Ok(Some("YWFh".to_owned())));
        assert_eq!(check("not base64!"), Err(3));
        assert_eq!(check("YQ"), Err(0));
        assert_eq!(check("YQ="), Err(3));
        assert_eq!(check("YQ==x"), Err(4));
        assert_eq!(check("=aaa"), Err(0));
    }
}
