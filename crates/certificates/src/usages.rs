//! The words of `spec.usages`, and what a certificate has for each of them.

/// Each word with the bit of the key usage extension, in the order of bits.
const KEY_USAGES: [(&str, u16); 10] = [
    ("signing", 0),
    ("digital signature", 0),
    ("content commitment", 1),
    ("key encipherment", 2),
    ("data encipherment", 3),
    ("key agreement", 4),
    ("cert sign", 5),
    ("crl sign", 6),
    ("encipher only", 7),
    ("decipher only", 8),
];

/// Each word with its purpose in the extended key usage extension, in the order of the extension.
const PURPOSES: [(&str, &[u64]); 13] = [
    ("any", &[2, 5, 29, 37, 0]),
    ("server auth", &[1, 3, 6, 1, 5, 5, 7, 3, 1]),
    ("client auth", &[1, 3, 6, 1, 5, 5, 7, 3, 2]),
    ("code signing", &[1, 3, 6, 1, 5, 5, 7, 3, 3]),
    ("email protection", &[1, 3, 6, 1, 5, 5, 7, 3, 4]),
    ("s/mime", &[1, 3, 6, 1, 5, 5, 7, 3, 4]),
    ("ipsec end system", &[1, 3, 6, 1, 5, 5, 7, 3, 5]),
    ("ipsec tunnel", &[1, 3, 6, 1, 5, 5, 7, 3, 6]),
    ("ipsec user", &[1, 3, 6, 1, 5, 5, 7, 3, 7]),
    ("timestamping", &[1, 3, 6, 1, 5, 5, 7, 3, 8]),
    ("ocsp signing", &[1, 3, 6, 1, 5, 5, 7, 3, 9]),
    ("microsoft sgc", &[1, 3, 6, 1, 4, 1, 311, 10, 3, 3]),
    ("netscape sgc", &[2, 16, 840, 1, 113_730, 4, 1]),
];

/// The numbers of the set bits of the key usage extension.
pub(crate) fn key_usage_bits<S: AsRef<str>>(usages: &[S]) -> Vec<u16> {
    let mut bits: Vec<u16> = KEY_USAGES.iter().filter(|(word, _)| holds(usages, word)).map(|(_, bit)| *bit).collect();
    bits.dedup();
    bits
}

/// The purposes of the extended key usage extension.
pub(crate) fn purposes<S: AsRef<str>>(usages: &[S]) -> Vec<&'static [u64]> {
    let mut purposes: Vec<&'static [u64]> =
        PURPOSES.iter().filter(|(word, _)| holds(usages, word)).map(|(_, purpose)| *purpose).collect();
    purposes.dedup();
    purposes
}

/// Whether a word is among usages.
pub(crate) fn holds<S: AsRef<str>>(usages: &[S], word: &str) -> bool {
    usages.iter().any(|usage| usage.as_ref() == word)
}

/// Whether a word is a usage.
pub(crate) fn is_known(word: &str) -> bool {
    KEY_USAGES.iter().any(|(known, _)| *known == word) || PURPOSES.iter().any(|(known, _)| *known == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_become_bits_and_purposes_once_each() {
        let usages = ["s/mime", "client auth", "email protection", "key encipherment", "signing", "digital signature"];
        assert_eq!(key_usage_bits(&usages), [0, 2]);
        assert_eq!(purposes(&usages).len(), 2);
        assert_eq!(purposes(&usages)[0], [1, 3, 6, 1, 5, 5, 7, 3, 2]);
        assert!(is_known("any") && is_known("crl sign") && !is_known("nope"));
    }
}
