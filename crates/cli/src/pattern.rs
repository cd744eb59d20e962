//! A name for the files of several processes: `%p` in it stands for the number of each.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Whether a name stands for a file of each process.
pub fn is_pattern(path: &Path) -> bool {
    path.as_os_str().as_bytes().windows(2).any(|two| two == b"%p")
}

/// Whether a name is what a pattern gives for some process.
pub fn fits(pattern: &OsStr, name: &OsStr) -> bool {
    let is_begin = |at: &usize| pattern.as_bytes()[*at..].starts_with(b"%p");
    let Some(begin) = (0..pattern.len()).find(is_begin) else { return false };
    let rest = name.as_bytes().get(begin..).unwrap_or_default();
    let is_number = |byte: &&u8| byte.is_ascii_digit() || **byte == b'.';
    let most = rest.iter().take_while(is_number).count();
    let numbers = (1..=most).filter_map(|len| std::str::from_utf8(&rest[..len]).ok());
    numbers
        .filter(|number| number.starts_with(|c: char| c.is_ascii_digit()))
        .any(|number| named(pattern, number).as_os_str() == name)
}

/// A pattern with a process's number in the place of each `%p`.
pub fn named(pattern: &OsStr, number: &str) -> PathBuf {
    let (mut name, mut rest) = (Vec::new(), pattern.as_bytes());
    while let [first, tail @ ..] = rest {
        if let [b'%', b'p', tail @ ..] = rest {
            name.extend(number.bytes());
            rest = tail;
        } else {
            name.push(*first);
            rest = tail;
        }
    }
    OsString::from_vec(name).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_of_the_number_is_filled() {
        let name = |pattern: &str| named(OsStr::new(pattern), "12");
        assert_eq!(name("a.%p.ichnos"), PathBuf::from("a.12.ichnos"));
        assert_eq!(name("%p/%p%%"), PathBuf::from("12/12%%"));
    }

    #[test]
    fn a_file_is_known_by_its_pattern() {
        let fit = |pattern: &str, name: &str| fits(OsStr::new(pattern), OsStr::new(name));
        assert!(fit("a.%p.ichnos", "a.12.ichnos") && fit("%p.%p", "1.2.1.2"));
        // The system has given the number away again.
        assert!(fit("a.%p.ichnos", "a.12.3.ichnos"));
        for (pattern, name) in
            [("a.%p.ichnos", "a..ichnos"), ("%p.%p", "1.2"), ("a.ichnos", "a.ichnos"), ("%p", "")]
        {
            assert!(!fit(pattern, name), "{pattern} {name}");
        }
    }
}
