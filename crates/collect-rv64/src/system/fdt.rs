//! Writes flattened device trees, version 17 of the format.
// SPDX-License-Identifier: MIT OR Apache-2.0

const BEGIN_NODE: u32 = 1;
const END_NODE: u32 = 2;
const PROPERTY: u32 = 3;
const END: u32 = 9;
const HEADER: usize = 40;
/// An empty list of reserved memory: one entry of zeros.
const RESERVATIONS: usize = 16;

/// A tree under construction.
#[derive(Debug, Default)]
pub(crate) struct Fdt {
    structure: Vec<u8>,
    strings: Vec<u8>,
}

impl Fdt {
    fn word(&mut self, value: u32) {
        self.structure.extend_from_slice(&value.to_be_bytes());
    }

    fn pad(&mut self) {
        self.structure.resize(self.structure.len().next_multiple_of(4), 0);
    }

    /// A node with what `fill` puts into it.
    pub(crate) fn node(&mut self, name: &str, fill: impl FnOnce(&mut Self)) {
        self.word(BEGIN_NODE);
        self.structure.extend_from_slice(name.as_bytes());
        self.structure.push(0);
        self.pad();
        fill(self);
        self.word(END_NODE);
    }

    pub(crate) fn bytes(&mut self, name: &str, value: &[u8]) {
        let at = self.string(name);
        self.word(PROPERTY);
        self.word(value.len() as u32);
        self.word(at);
        self.structure.extend_from_slice(value);
        self.pad();
    }

    pub(crate) fn empty(&mut self, name: &str) {
        self.bytes(name, &[]);
    }

    pub(crate) fn text(&mut self, name: &str, value: &str) {
        self.texts(name, &[value]);
    }

    pub(crate) fn texts(&mut self, name: &str, values: &[&str]) {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.bytes().chain([0])).collect();
        self.bytes(name, &bytes);
    }

    pub(crate) fn cells(&mut self, name: &str, values: &[u32]) {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_be_bytes()).collect();
        self.bytes(name, &bytes);
    }

    /// 64-bit values, of two cells each.
    pub(crate) fn wide(&mut self, name: &str, values: &[u64]) {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_be_bytes()).collect();
        self.bytes(name, &bytes);
    }

    /// The offset of a name, which all properties of that name share.
    fn string(&mut self, name: &str) -> u32 {
        let wanted: Vec<u8> = name.bytes().chain([0]).collect();
        let found = self.strings.windows(wanted.len()).position(|w| w == wanted);
        let at = found.unwrap_or_else(|| {
            self.strings.extend_from_slice(&wanted);
            self.strings.len() - wanted.len()
        });
        at as u32
    }

    /// The finished tree.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        self.word(END);
        let structure_at = HEADER + RESERVATIONS;
        let strings_at = structure_at + self.structure.len();
        let total = strings_at + self.strings.len();
        let header = [
            0xd00d_feed,
            total,
            structure_at,
            strings_at,
            HEADER,
            17,
            16,
            0,
            self.strings.len(),
            self.structure.len(),
        ];
        let mut tree: Vec<u8> = header.iter().flat_map(|&w| (w as u32).to_be_bytes()).collect();
        tree.resize(structure_at, 0);
        tree.extend(self.structure);
        tree.extend(self.strings);
        tree
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_has_the_layout_of_the_specification() {
        let mut fdt = Fdt::default();
        fdt.node("", |f| {
            f.cells("#size-cells", &[2]);
            f.node("a", |f| f.text("size-cells", "x"));
        });
        let tree = fdt.finish();
        let word = |at: usize| u32::from_be_bytes(tree[at..at + 4].try_into().expect("four bytes"));
        assert_eq!((word(0), word(4) as usize), (0xd00d_feed, tree.len()));
        let structure = word(8) as usize;
        assert_eq!((word(structure), word(structure + 4)), (BEGIN_NODE, 0));
        assert_eq!(
            (word(structure + 8), word(structure + 12), word(structure + 20)),
            (PROPERTY, 4, 2)
        );
        // The second name is the tail of the first.
        assert_eq!(word(32), 12);
        assert_eq!(word(structure + word(36) as usize - 4), END);
    }
}
