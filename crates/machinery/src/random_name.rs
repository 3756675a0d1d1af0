//! Generated names of objects with a `generateName` (spec 02 §2).

/// Characters of a suffix: no vowels, so that no words appear, and none that looks like another, so that names can be read out.
const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
const SUFFIX_LEN: usize = 5;
/// Longest prefix; a longer one is truncated, so that the name fits a DNS label.
const PREFIX_MAX: usize = 63 - SUFFIX_LEN;

/// Returns five characters chosen by `random`.
#[must_use]
pub fn suffix(random: u64) -> String {
    let mut rest = random;
    let mut out = String::with_capacity(SUFFIX_LEN);
    for _ in 0..SUFFIX_LEN {
        let letter = rest % ALPHABET.len() as u64;
        rest /= ALPHABET.len() as u64;
        out.push(char::from(ALPHABET[letter as usize]));
    }
    out
}

/// Returns the prefix, truncated to 58 bytes, and five random characters.
#[must_use]
pub fn generate(prefix: &str, random: u64) -> String {
    let mut end = prefix.len().min(PREFIX_MAX);
    while !prefix.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{}", &prefix[..end], suffix(random))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_characters_of_the_alphabet() {
        for random in [0, 1, 26, 27, u64::MAX, 0x1234_5678_9abc_def0] {
            let suffix = suffix(random);
            assert_eq!(suffix.len(), 5);
            assert!(suffix.bytes().all(|b| ALPHABET.contains(&b)), "{suffix}");
        }
        assert_ne!(suffix(0), suffix(1));
    }

    #[test]
    fn generate_name_of_70_characters_gives_63() {
        assert_eq!(generate(&"x".repeat(70), 7).len(), 63);
        assert_eq!(generate("web-", 0), "web-bbbbb");
        assert!(generate(&"é".repeat(40), 7).starts_with('é'));
    }
}
