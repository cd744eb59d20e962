//! Files that are right, and what is said of those that are not.
// SPDX-License-Identifier: MIT OR Apache-2.0

use super::*;

fn parse(text: &str) -> Result<Models> {
    File { place: "m.toml".into(), text }.machine()
}

const GOOD: &str = r#"
cores = 2
straddle = "one"

[[level]]
name = "l1"
code = "32K,8,64"
data = { size = "48K", ways = 12, line = 64, replacement = "nru" }

[[level]]
cache = { size = "1M", ways = 16, line = 64 }

[[level]]
sharing = "shared"
cache = "8M,16,64,srrip"

[[level]]
sharing = "shared"
cache = "64M,16,64"

[[tlb]]
code = { entries = 128, ways = 8 }
data = { entries = 64, ways = 4, replacement = "plru" }

[[tlb]]
unified = { entries = 1536, ways = 12 }

[pages]
base = "16K"
regions = [{ start = "0x7f0000000000", len = "1G", page = "2M" }]

[walk]
cache_entries = 32

[branch]
predictor = "gshare"
indirect = "last-target"
returns = 8
history = 9
log_entries = 12
"#;

#[test]
fn a_whole_machine_is_read() {
    let mut machine = parse(GOOD).unwrap();
    assert_eq!(machine.caches.levels.len(), 4);
    assert_eq!(machine.caches.cores, 2);
    assert_eq!(machine.caches.cache_mut("l1d").unwrap().ways, 12);
    assert_eq!(machine.caches.cache_mut("l3").unwrap().replacement, Replacement::Srrip);
    let tlbs = machine.tlbs.unwrap();
    assert_eq!((tlbs.levels.len(), tlbs.pages.base), (2, 16 << 10));
    assert_eq!(tlbs.walk.cache_entries, 32);
    let branch = machine.branch.unwrap();
    assert_eq!(branch.direction, DirectionConfig::Gshare { log_entries: 12, history: 9 });
    let region = PageRegion { start: GuestVa(0x7f00_0000_0000), len: 1 << 30, page: 2 << 20 };
    assert_eq!(tlbs.pages.regions, [region]);
    assert_eq!((branch.returns, branch.indirect), (8, IndirectConfig::LastTarget));
}

#[test]
fn errors_name_file_line_and_field() {
    for (from, to, want) in [
        ("ways = 12, line", "ways = 13, line", "m.toml:8: l1d.size must be a multiple"),
        ("\"nru\"", "\"best\"", "m.toml:8: l1d.replacement: expected lru"),
        ("cores = 2", "kores = 2", "m.toml:2: kores: there is no such field"),
        ("straddle = \"one\"", "straddle = 1.5", "m.toml:3: straddle: expected a string"),
        ("returns = 8", "returns = -8", "m.toml:38: branch.returns: expected a size"),
        ("\"gshare\"", "\"oracle\"", "m.toml:36: branch.predictor: there is no predictor"),
        ("size = \"1M\", ", "", "m.toml:11: l2.size is missing"),
        ("history = 9", "tables = 9", "m.toml:39: branch.tables: there is no such field"),
        ("\"0x7f0000000000\"", "\"top\"", "m.toml:30: pages.regions.start: expected an address"),
        (", page = \"2M\"", "", "m.toml:30: pages.regions: start, len and page"),
        ("name = \"l1\"", "name = \"l1", "m.toml:6: "),
        ("cache = \"8M,16,64,srrip\"", "", "m.toml:13: l3: give either `cache`"),
        ("{ entries = 128, ways = 8 }", "{ entries = 128 }", "m.toml:22: tlb1i: both"),
    ] {
        assert!(GOOD.contains(from), "{from}");
        let message = format!("{:#}", parse(&GOOD.replace(from, to)).expect_err(to));
        assert!(message.starts_with(want), "{message}\nnot {want}");
    }
    assert!(parse("").is_err());
}
