//! Which labels an assembly file takes the address of.
//!
//! Control can reach a label by a direct branch, which the machine code shows, or by an
//! address that was computed or stored: a jump table, a computed goto, a landing
//! pad. Those appear as names in data directives and in operands of instructions that
//! are no branches. Any name found there is told; one too many does no harm.
//! Debugging sections name labels too, and are passed over.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::HashMap;

/// Directives that put expressions into memory.
const DATA: &[&str] = &[
    ".long", ".quad", ".int", ".value", ".short", ".byte", ".uleb128", ".sleb128", ".2byte",
    ".4byte", ".8byte", ".hword", ".word", ".octa", ".dc.l", ".dc.a", ".set", ".equ",
];

/// What an address is taken for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Taken {
    /// To be jumped to, perhaps, by its own function.
    Jump,
    /// To be continued at after an exception.
    Pad,
}

/// What a file says about itself.
#[derive(Debug, Default)]
pub(super) struct Labels<'a> {
    /// Names whose address is taken.
    pub(super) taken: HashMap<&'a str, Taken>,
    /// Whether a compiler wrote it: then the calling convention is kept.
    pub(super) compiled: bool,
    /// Whether it holds code for the link-time optimiser.
    pub(super) lto: bool,
}

impl<'a> Labels<'a> {
    /// Reads a file.
    pub(super) fn of(text: &'a str) -> Self {
        let mut labels = Self::default();
        let mut sections = Sections { now: "", before: "", stack: Vec::new() };
        for line in text.lines() {
            labels.line(line, &mut sections);
        }
        labels
    }

    fn line(&mut self, line: &'a str, sections: &mut Sections<'a>) {
        let line = after_labels(line.trim_start());
        let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        if word.starts_with('.') {
            sections.directive(word, rest);
            if word == ".ident" {
                self.compiled |= rest.contains("GCC") || rest.contains("clang");
            }
            self.lto |= sections.now.starts_with(".gnu.lto_");
            if !DATA.contains(&word) || sections.now.starts_with(".debug") {
                return;
            }
        } else if is_branch(word) && !rest.trim_start().starts_with('*') {
            return;
        }
        let pads = sections.now.starts_with(".gcc_except_table");
        let taken = if word.starts_with('.') && pads { Taken::Pad } else { Taken::Jump };
        for name in names(rest).filter(|n| !is_bound(n)) {
            let before = self.taken.entry(name).or_insert(taken);
            *before = taken.max(*before);
        }
    }
}

/// Whether gcc's name says that the label bounds a stretch of code, and is no place to go.
fn is_bound(name: &str) -> bool {
    [".LEHB", ".LEHE", ".LFB", ".LFE"].iter().any(|start| name.starts_with(start))
}

fn is_branch(word: &str) -> bool {
    ["j", "call", "loop", "xbegin"].iter().any(|start| word.starts_with(start))
}

/// A line without the labels at its beginning.
fn after_labels(mut line: &str) -> &str {
    while let Some((label, rest)) = line.split_once(':') {
        if label.is_empty() || label.contains(|c: char| !is_name(c)) {
            break;
        }
        line = rest.trim_start();
    }
    line
}

const fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '$') || !c.is_ascii()
}

/// The names in an expression. Registers and numbers are no names of labels and do no harm.
fn names(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c| !is_name(c))
        .map(|name| name.trim_start_matches('$'))
        .filter(|name| name.starts_with(|c: char| !c.is_ascii_digit()))
}

/// Where in the file's sections we are.
struct Sections<'a> {
    now: &'a str,
    before: &'a str,
    stack: Vec<(&'a str, &'a str)>,
}

impl<'a> Sections<'a> {
    fn directive(&mut self, word: &'a str, rest: &'a str) {
        let named = || rest.split(',').next().unwrap_or("").trim().trim_matches('"');
        match word {
            ".text" | ".data" | ".bss" => self.enter(word),
            ".section" => self.enter(named()),
            ".pushsection" => {
                self.stack.push((self.now, self.before));
                self.enter(named());
            }
            ".popsection" => {
                if let Some((now, before)) = self.stack.pop() {
                    (self.now, self.before) = (now, before);
                }
            }
            ".previous" => std::mem::swap(&mut self.now, &mut self.before),
            _ => {}
        }
    }

    fn enter(&mut self, name: &'a str) {
        self.before = self.now;
        self.now = name;
    }
}

#[cfg(test)]
mod tests {
    use super::Labels;

    #[test]
    fn jump_tables_and_address_taken_labels_are_found() {
        let text = "\t.text\nf:\tjmp .L9\n.L2: leaq .L5(%rip), %rax\n\tjmp *.L4(,%rax,8)\n\
            \t.section .rodata\n.L4:\n\t.long .L7-.L4\n\t.quad .L8\n\
            \t.section .debug_info,\"\",@progbits\n\t.quad .LFB0\n\t.ident \"GCC: 12\"\n";
        let labels = Labels::of(text);
        for name in [".L4", ".L5", ".L7", ".L8"] {
            assert!(labels.taken.contains_key(name), "{name}: {:?}", labels.taken);
        }
        for name in [".L9", ".LFB0", ".L2"] {
            assert!(!labels.taken.contains_key(name), "{name}: {:?}", labels.taken);
        }
        assert!(labels.compiled && !labels.lto);
    }
}
