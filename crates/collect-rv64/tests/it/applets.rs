//! Busybox's applets, as Debian builds them, behave as under QEMU.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::debian;
use crate::guests::{Folder, here, under_qemu};

/// Command lines whose output depends on nothing but a text file, `%`.
const APPLETS: &[&[&str]] = &[
    &["awk", "{ n += NF; for (i = 1; i <= NF; i++) c[$i]++ } END { print n, length(c) }", "%"],
    &["base64", "%"],
    &["bc", "-q", "%"],
    &["bzip2", "-c", "%"],
    &["cal", "2", "2020"],
    &["cksum", "%"],
    &["cmp", "%", "%"],
    &["cut", "-c1-10", "%"],
    &["date", "-u", "-d", "@86400"],
    &["dc", "-e", "20k 2v p"],
    &["diff", "%", "/dev/null"],
    &["expand", "%"],
    &["expr", "6", "*", "7"],
    &["factor", "1234567890123456789", "600851475143"],
    &["fold", "-w", "20", "%"],
    &["grep", "-c", "-E", "th[eaio]+", "%"],
    &["gzip", "-c", "%"],
    &["head", "-n", "5", "%"],
    &["hexdump", "-C", "%"],
    &["md5sum", "%"],
    &["nl", "%"],
    &["od", "-c", "%"],
    &["printf", "%s-%d-%x\\n", "text", "42", "255"],
    &["rev", "%"],
    &["sed", "s/\\(.\\)\\(.\\)/\\2\\1/g", "%"],
    &["seq", "1", "500"],
    &["sh", "-c", "i=0; while [ $i -lt 500 ]; do i=$((i + 1)); done; echo $i; exit 3"],
    &["sha1sum", "%"],
    &["sha256sum", "%"],
    &["sort", "-u", "%"],
    &["tac", "%"],
    &["tail", "-n", "5", "%"],
    &["uniq", "-c", "%"],
    &["wc", "%"],
    &["xxd", "%"],
];

#[test]
fn applets_behave_as_under_qemu() {
    let Some(debian) = debian::files() else { return };
    let folder = Folder::new("applets");
    let text = folder.0.join("text");
    // Any text will do that is the same for both: this file's own.
    std::fs::write(&text, include_str!("applets.rs")).expect("the text can be written");
    let text = text.to_string_lossy();
    for applet in APPLETS {
        let args: Vec<&str> = applet.iter().map(|a| if *a == "%" { &*text } else { a }).collect();
        let Some((theirs, expected)) = under_qemu(&debian.busybox, &args, None) else { return };
        let (ours, found, _) = here(&debian.busybox, &args, &folder, None);
        assert_eq!(ours.status, theirs.status, "{applet:?}");
        assert!(found == expected, "{applet:?}: {} against {}", ours.output, theirs.output);
    }
}
