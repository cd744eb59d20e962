//! The names of a kernel's functions, out of its own table (`kallsyms`), which a
//! flat image has where a file of symbols is missing. It is found by its shape:
//!
//! ```text
//!   number of symbols  u32, padded to 8 bytes
//!   names              a length (one byte, two if the first is over 127) and as
//!                      many numbers of tokens for each; the first character is
//!                      the sort of symbol
//!   markers            u32 for every 256th name: where it begins
//!   tokens             256 texts that end in zero; a digit's is the digit
//!   token index        u16 for each token: where it begins
//!   offsets            u32 for each symbol
//!   base               u64: what is added to them
//! ```
//!
//! Every part begins at a multiple of 8 bytes. This is the order of Linux 6.4 and
//! later; of other kernels nothing is found.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::GuestVa;

/// Names between two markers.
const STRIDE: usize = 256;
/// The most symbols that are believed.
const MOST: u64 = 1 << 22;

/// A symbol of a kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KernelSymbol {
    /// Where it stands.
    pub addr: GuestVa,
    /// What it is, as `nm` says it: `T` or `t` for functions.
    pub sort: char,
    /// Its name.
    pub name: String,
}

/// The symbols that a flat kernel image names itself, in order of address; none if
/// it has no table of them that is understood.
#[must_use]
pub fn kernel_symbols(image: &[u8]) -> Option<Vec<KernelSymbol>> {
    let mut from = 0;
    while let Some(at) = find_digits(image, from) {
        if let Some(symbols) = Table::around(image, at).and_then(|table| table.symbols()) {
            return Some(symbols);
        }
        from = at + 1;
    }
    None
}

/// The next place at or behind `from` where the tokens of digits stand.
fn find_digits(image: &[u8], from: usize) -> Option<usize> {
    const DIGITS: &[u8] = b"0\x001\x002\x003\x004\x005\x006\x007\x008\x009\x00";
    let rest = image.get(from..)?;
    rest.windows(DIGITS.len()).position(|window| window == DIGITS).map(|at| from + at)
}

const fn align(at: usize) -> usize {
    at.next_multiple_of(8)
}

fn u32_at(image: &[u8], at: usize) -> Option<u32> {
    image.get(at..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}

/// The tokens, and where the parts begin that stand around them.
struct Table<'a> {
    image: &'a [u8],
    tokens: Vec<&'a [u8]>,
    first_token: usize,
    offsets: usize,
}

impl<'a> Table<'a> {
    /// The table whose digits stand at `digits`.
    fn around(image: &'a [u8], digits: usize) -> Option<Self> {
        let mut first_token = digits;
        for _ in 0..b'0' {
            let before = image.get(..first_token.checked_sub(1)?)?;
            first_token = before.iter().rposition(|&byte| byte == 0)? + 1;
        }
        let (mut tokens, mut at, mut index) = (Vec::with_capacity(256), first_token, Vec::new());
        for _ in 0..256 {
            let rest = image.get(at..)?;
            let len = rest.iter().position(|&byte| byte == 0)?;
            tokens.push(&rest[..len]);
            index.extend(u16::try_from(at - first_token).ok()?.to_le_bytes());
            at += len + 1;
        }
        let index_at = align(at);
        let found = image.get(index_at..index_at + index.len())? == index;
        let offsets = align(index_at + index.len());
        (found && first_token.is_multiple_of(8)).then_some(Self {
            image,
            tokens,
            first_token,
            offsets,
        })
    }

    /// All symbols.
    fn symbols(&self) -> Option<Vec<KernelSymbol>> {
        let (count, names) = self.names()?;
        let base_at = align(self.offsets + 4 * count);
        let base = self.image.get(base_at..)?.first_chunk().map(|b| u64::from_le_bytes(*b))?;
        let (mut at, mut symbols) = (names, Vec::with_capacity(count));
        for n in 0..count {
            let (tokens, next) = self.name(at)?;
            at = next;
            let text: Vec<u8> =
                tokens.iter().flat_map(|&token| self.tokens[usize::from(token)]).copied().collect();
            let (&sort, name) = text.split_first()?;
            let offset = u32_at(self.image, self.offsets + 4 * n)?;
            symbols.push(KernelSymbol {
                addr: GuestVa(base.wrapping_add(offset.into())),
                sort: sort.into(),
                name: String::from_utf8_lossy(name).into_owned(),
            });
        }
        Some(symbols)
    }

    /// How many symbols there are, and where their names begin: the nearest number
    /// before the tokens that names and markers fit to.
    fn names(&self) -> Option<(usize, usize)> {
        let mut at = self.first_token;
        while let Some(before) = at.checked_sub(8) {
            at = before;
            let count = u32_at(self.image, at)?;
            let padded = u32_at(self.image, at + 4)? == 0;
            if padded && u64::from(count) < MOST && self.is_start(at + 8, count as usize) {
                return Some((count as usize, at + 8));
            }
        }
        None
    }

    /// Whether so many names begin at `names`: they end where the markers begin,
    /// and the markers where the tokens do.
    fn is_start(&self, names: usize, count: usize) -> bool {
        let markers = align(4 * count.div_ceil(STRIDE));
        let Some(first_marker) = self.first_token.checked_sub(markers) else { return false };
        // A name takes at least two bytes.
        if count < STRIDE || names + 2 * count > first_marker {
            return false;
        }
        let mut at = names;
        for n in 0..count {
            if n.is_multiple_of(STRIDE) {
                let marker = u32_at(self.image, first_marker + n / STRIDE * 4);
                if marker.map(|marker| marker as usize) != Some(at - names) {
                    return false;
                }
            }
            match self.name(at) {
                Some((_, next)) if next <= first_marker => at = next,
                _ => return false,
            }
        }
        align(at) == first_marker
    }

    /// The tokens of the name at `at`, and where the next one begins.
    fn name(&self, at: usize) -> Option<(&'a [u8], usize)> {
        let first = usize::from(*self.image.get(at)?);
        let (len, start) = if first & 0x80 == 0 {
            (first, at + 1)
        } else {
            (first & 0x7f | usize::from(*self.image.get(at + 1)?) << 7, at + 2)
        };
        Some((self.image.get(start..start + len)?, start + len)).filter(|_| len > 0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// An image with a table, made as a kernel's build makes it but for the choice
    /// of tokens: each stands for itself, and 1 to 9 for longer texts.
    fn image(symbols: &[(u32, String)]) -> Vec<u8> {
        let pad = |bytes: &mut Vec<u8>| bytes.resize(bytes.len().next_multiple_of(8), 0);
        let mut bytes = vec![0x5a; 4096];
        bytes.extend((symbols.len() as u64).to_le_bytes());
        let (start, mut markers) = (bytes.len(), Vec::new());
        for (n, (_, name)) in symbols.iter().enumerate() {
            if n.is_multiple_of(STRIDE) {
                markers.extend(((bytes.len() - start) as u32).to_le_bytes());
            }
            let packed = format!("t{name}").replace("sys_", "\x01");
            match packed.len() {
                len @ ..=127 => bytes.push(len as u8),
                len => bytes.extend([len as u8 | 0x80, (len >> 7) as u8]),
            }
            bytes.extend(packed.as_bytes());
        }
        pad(&mut bytes);
        bytes.extend(markers);
        pad(&mut bytes);
        let mut index = Vec::new();
        let first = bytes.len();
        for token in 0..=255u8 {
            index.extend(((bytes.len() - first) as u16).to_le_bytes());
            match token {
                0 => {}
                1 => bytes.extend(b"sys_"),
                _ => bytes.push(token),
            }
            bytes.push(0);
        }
        pad(&mut bytes);
        bytes.extend(index);
        pad(&mut bytes);
        symbols.iter().for_each(|(offset, _)| bytes.extend(offset.to_le_bytes()));
        pad(&mut bytes);
        bytes.extend(0xffff_ffff_8000_0000_u64.to_le_bytes());
        bytes
    }

    fn names() -> impl Strategy<Value = Vec<(u32, String)>> {
        prop::collection::vec((0..1_u32 << 31, "(sys_)?[a-z][a-z_.]{0,160}"), 256..900)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn finds_what_was_put_in(symbols in names()) {
            let found = kernel_symbols(&image(&symbols)).expect("the table is found");
            let expected = symbols.iter().map(|(offset, name)| KernelSymbol {
                addr: GuestVa(0xffff_ffff_8000_0000 + u64::from(*offset)),
                sort: 't',
                name: name.clone(),
            });
            prop_assert_eq!(found, expected.collect::<Vec<_>>());
        }

        #[test]
        fn finds_nothing_in_part_of_a_table(symbols in names(), cut in 1usize..2000) {
            let mut bytes = image(&symbols);
            bytes.truncate(bytes.len() - cut);
            prop_assert_eq!(kernel_symbols(&bytes), None);
        }
    }

    #[test]
    fn finds_nothing_where_nothing_is() {
        assert_eq!(kernel_symbols(b""), None);
        assert_eq!(kernel_symbols(b"0\x001\x002\x003\x004\x005\x006\x007\x008\x009\x00"), None);
    }
}
