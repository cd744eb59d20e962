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

/// The file that the module shows.
#[test]
fn the_example_of_the_module_is_right() {
    let source = include_str!("../config_file.rs");
    let lines = source.lines().skip_while(|line| *line != "//! ```toml").skip(1);
    let lines = lines.take_while(|line| *line != "//! ```");
    let text: Vec<_> = lines.map(|line| line.trim_start_matches("//!")).collect();
    let machine = parse(&text.join("\n")).unwrap();
    assert_eq!((machine.caches.levels.len(), machine.caches.cores), (2, 4));
    assert!(machine.tlbs.is_some() && machine.branch.is_some());
}

/// The file that the document shows has every field that there is.
#[test]
fn the_example_of_the_document_is_right() {
    let document = include_str!("../../../../docs/MODELS.md");
    let text = document.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
    let machine = parse(text).unwrap();
    assert_eq!((machine.caches.levels.len(), machine.tlbs.unwrap().levels.len()), (2, 2));
    for field in [
        "cores",
        "straddle",
        "modify",
        "hints",
        "sharing",
        "code",
        "data",
        "cache",
        "unified",
        "base",
        "regions",
        "start",
        "len",
        "page",
        "address_bits",
        "bits_per_level",
        "cycles_per_access",
        "cache_entries",
        "predictor",
        "btb_sets",
        "btb_ways",
        "returns",
        "indirect",
    ] {
        assert!(text.contains(&format!("{field} = ")), "{field}");
    }
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
        (
            "history = 9",
            "tables = 9",
            "m.toml:39: branch.tables: there is no such field; expected predictor, btb_sets, \
             btb_ways, returns, indirect, or a size of the predictor (log_entries, history)",
        ),
        (
            "cache = \"64M,16,64\"",
            "name = \"l2\"\ncache = \"64M,16,64\"",
            "m.toml:17: level.name: there is another cache or level called \"l2\"",
        ),
        (
            "cache = \"64M,16,64\"",
            "name = \"l1i\"\ncache = \"64M,16,64\"",
            "m.toml:17: level.name: there is another cache or level called \"l1i\"",
        ),
        (
            "[[tlb]]\nunified",
            "[[tlb]]\nname = \"tlb1\"\nunified",
            "m.toml: tlb1.name: there are two",
        ),
        ("\"0x7f0000000000\"", "\"7f00\"", "m.toml:30: pages.regions.start: expected an address"),
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

#[test]
fn addresses_are_decimal_unless_they_say_otherwise() {
    for (text, want) in
        [("4096", 4096), ("\"4096\"", 4096), ("0x4096", 0x4096), ("\"0x4096\"", 0x4096)]
    {
        let text = GOOD.replace("\"0x7f0000000000\"", text);
        let regions = parse(&text).unwrap().tlbs.unwrap().pages.regions;
        assert_eq!(regions[0].start, GuestVa(want), "{text}");
    }
}

#[test]
fn pages_and_walks_are_read_and_checked_without_tlbs() {
    let text =
        "[[level]]\ncache = \"32K,8,64\"\n[pages]\nbase = \"16K\"\n[walk]\naddress_bits = 39\n";
    let tlbs = parse(text).unwrap().tlbs.unwrap();
    assert!(tlbs.levels.is_empty());
    assert_eq!((tlbs.pages.base, tlbs.walk.address_bits), (16 << 10, 39));
    for (from, to, want) in [
        ("\"16K\"", "\"17K\"", "m.toml: pages.base must be a power of two"),
        ("= 39", "= 3", "m.toml: walk.address_bits must lie between 12 and 64"),
    ] {
        let message = format!("{:#}", parse(&text.replace(from, to)).expect_err(to));
        assert!(message.starts_with(want), "{message}");
    }
    assert!(parse("[[level]]\ncache = \"32K,8,64\"").unwrap().tlbs.is_none());
}
