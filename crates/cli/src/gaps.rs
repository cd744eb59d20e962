//! What a trace leaves out: its gaps, counted as they pass by, and the note that says so.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{About, Event, GapReason};
use ichnos_report::number::thousands;

/// The gaps of a trace.
#[derive(Default)]
pub struct Gaps {
    /// By reason, as often as there are, in the order in which they came first.
    counts: Vec<(GapReason, u64)>,
    /// Whether the program was built by `ichnos cc`, and only what was built so is traced.
    inline: bool,
}

impl Gaps {
    /// The trace begins.
    pub fn begin(&mut self, about: &About<'_>) {
        self.inline = about.collector.starts_with("collect-asm");
    }

    /// Counts an event if it is a gap.
    pub fn event(&mut self, event: &Event<'_>) {
        let Event::Gap { reason, .. } = event else { return };
        match self.counts.iter_mut().find(|(known, _)| known == reason) {
            Some((_, count)) => *count += 1,
            None => self.counts.push((*reason, 1)),
        }
    }

    /// Says what is not answered for; nothing if all was traced.
    pub fn note(&self) -> Option<String> {
        let all: u64 = self.counts.iter().map(|(_, count)| count).sum();
        if all == 0 {
            return None;
        }
        let what: Vec<_> = self.counts.iter().map(|&(reason, _)| self.words(reason)).collect();
        let parts: Vec<_> = self
            .counts
            .iter()
            .zip(&what)
            .map(|((_, count), what)| format!("{} {what}", thousands(*count)))
            .collect();
        let said = match (what.as_slice(), all) {
            ([what], 1) => format!("1 gap: {what}"),
            ([what], _) => format!("{} gaps: {what}", thousands(all)),
            _ => format!("{} gaps: {}", thousands(all), parts.join(", ")),
        };
        Some(format!("parts of the program were not traced, and are not in the answer: {said}"))
    }

    fn words(&self, reason: GapReason) -> &'static str {
        match reason {
            GapReason::Sampling => "between samples",
            GapReason::Window => "outside of what was asked for",
            GapReason::Overflow => "lost to full buffers",
            GapReason::Untraced if self.inline => {
                "in code not built by `ichnos cc`, as libraries are (`--collector exec` on the program traces all)"
            }
            GapReason::Untraced => "in code that could not be followed",
            GapReason::Damage => "lost to damage of the file",
            GapReason::Cut => "cut out",
            _ => "for another reason",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gaps(inline: bool, reasons: &[GapReason]) -> Gaps {
        let mut gaps = Gaps { inline, ..Gaps::default() };
        for &reason in reasons {
            gaps.event(&Event::Gap { reason, insns: None, skipped: None });
        }
        gaps.event(&Event::Timestamp { ns: 1 });
        gaps
    }

    #[test]
    fn gaps_are_counted_by_reason() {
        assert_eq!(gaps(true, &[]).note(), None);
        let note = gaps(false, &[GapReason::Sampling]).note().unwrap();
        assert!(note.ends_with(": 1 gap: between samples"), "{note}");
        let note = gaps(true, &[GapReason::Untraced; 1200]).note().unwrap();
        assert!(note.contains(": 1,200 gaps: in code not built by `ichnos cc`"), "{note}");
        let both = [GapReason::Cut, GapReason::Damage, GapReason::Cut];
        let note = gaps(false, &both).note().unwrap();
        assert!(note.ends_with(": 3 gaps: 2 cut out, 1 lost to damage of the file"), "{note}");
    }
}
