//! The device tree that tells an operating system what this machine has.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::system::fdt::Fdt;
use crate::system::{clint, disk, plic, uart};

/// Ticks of the clock per second.
pub(crate) const TIMEBASE: u32 = 10_000_000;
/// What the harts have, but for cache-block instructions: a kernel that knew of
/// them would zero its pages by those, which is slower here than by stores.
const EXTENSIONS: [&str; 13] =
    ["i", "m", "a", "f", "d", "c", "zicntr", "zicsr", "zifencei", "zicond", "zba", "zbb", "zbs"];
const SUPERVISOR_EXTERNAL: u32 = 9;
const MACHINE_EXTERNAL: u32 = 11;
const MACHINE_SOFTWARE: u32 = 3;
const MACHINE_TIMER: u32 = 7;
const PLIC_HANDLE: u32 = 1000;
const POWER_HANDLE: u32 = 1001;
pub(crate) const POWER: u64 = 0x10_0000;
/// What turns the machine off when written to the power register.
pub(crate) const POWER_OFF: u32 = 0x5555;
/// What restarts it.
pub(crate) const RESET: u32 = 0x7777;

/// What the tree says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts<'a> {
    pub(crate) harts: u32,
    pub(crate) memory: (u64, u64),
    pub(crate) command_line: &'a str,
    pub(crate) initrd: Option<(u64, u64)>,
    pub(crate) has_disk: bool,
}

/// Writes the tree.
pub(crate) fn device_tree(facts: &Facts<'_>) -> Vec<u8> {
    let mut fdt = Fdt::default();
    fdt.node("", |f| {
        f.cells("#address-cells", &[2]);
        f.cells("#size-cells", &[2]);
        f.text("compatible", "riscv-virtio");
        f.text("model", "ichnos");
        f.node("chosen", |f| chosen(f, facts));
        f.node(&format!("memory@{:x}", facts.memory.0), |f| {
            f.text("device_type", "memory");
            f.wide("reg", &[facts.memory.0, facts.memory.1]);
        });
        f.node("cpus", |f| cpus(f, facts.harts));
        f.node("soc", |f| devices(f, facts));
        f.node("poweroff", |f| {
            f.text("compatible", "syscon-poweroff");
            f.cells("regmap", &[POWER_HANDLE]);
            f.cells("offset", &[0]);
            f.cells("value", &[POWER_OFF]);
        });
        f.node("reboot", |f| {
            f.text("compatible", "syscon-reboot");
            f.cells("regmap", &[POWER_HANDLE]);
            f.cells("offset", &[0]);
            f.cells("value", &[RESET]);
        });
    });
    fdt.finish()
}

fn chosen(f: &mut Fdt, facts: &Facts<'_>) {
    f.text("bootargs", facts.command_line);
    f.text("stdout-path", &format!("/soc/serial@{:x}", uart::BASE));
    if let Some((start, end)) = facts.initrd {
        f.wide("linux,initrd-start", &[start]);
        f.wide("linux,initrd-end", &[end]);
    }
    // A fixed seed, so that the guest's random numbers repeat.
    f.bytes("rng-seed", b"ichnos: the same seed in each run");
}

fn cpus(f: &mut Fdt, harts: u32) {
    f.cells("#address-cells", &[1]);
    f.cells("#size-cells", &[0]);
    f.cells("timebase-frequency", &[TIMEBASE]);
    for hart in 0..harts {
        f.node(&format!("cpu@{hart:x}"), |f| {
            f.text("device_type", "cpu");
            f.cells("reg", &[hart]);
            f.text("status", "okay");
            f.text("compatible", "riscv");
            f.text("riscv,isa", "rv64imafdc_zicntr_zicond_zicsr_zifencei_zba_zbb_zbs");
            f.text("riscv,isa-base", "rv64i");
            f.texts("riscv,isa-extensions", &EXTENSIONS);
            f.text("mmu-type", "riscv,sv48");
            f.node("interrupt-controller", |f| {
                f.cells("#interrupt-cells", &[1]);
                f.empty("interrupt-controller");
                f.text("compatible", "riscv,cpu-intc");
                f.cells("phandle", &[hart + 1]);
            });
        });
    }
}

fn devices(f: &mut Fdt, facts: &Facts<'_>) {
    f.cells("#address-cells", &[2]);
    f.cells("#size-cells", &[2]);
    f.text("compatible", "simple-bus");
    f.empty("ranges");
    let lines = |pairs: [u32; 2]| -> Vec<u32> {
        (1..=facts.harts).flat_map(|handle| [handle, pairs[0], handle, pairs[1]]).collect()
    };
    f.node(&format!("clint@{:x}", clint::BASE), |f| {
        f.texts("compatible", &["sifive,clint0", "riscv,clint0"]);
        f.wide("reg", &[clint::BASE, clint::SIZE]);
        f.cells("interrupts-extended", &lines([MACHINE_SOFTWARE, MACHINE_TIMER]));
    });
    f.node(&format!("plic@{:x}", plic::BASE), |f| {
        f.texts("compatible", &["sifive,plic-1.0.0", "riscv,plic0"]);
        f.cells("#interrupt-cells", &[1]);
        f.cells("#address-cells", &[0]);
        f.empty("interrupt-controller");
        f.wide("reg", &[plic::BASE, plic::SIZE]);
        f.cells("interrupts-extended", &lines([MACHINE_EXTERNAL, SUPERVISOR_EXTERNAL]));
        f.cells("riscv,ndev", &[plic::SOURCES as u32 - 1]);
        f.cells("phandle", &[PLIC_HANDLE]);
    });
    f.node(&format!("serial@{:x}", uart::BASE), |f| {
        f.text("compatible", "ns16550a");
        f.wide("reg", &[uart::BASE, uart::SIZE]);
        f.cells("interrupts", &[uart::SOURCE]);
        f.cells("interrupt-parent", &[PLIC_HANDLE]);
        f.cells("clock-frequency", &[3_686_400]);
    });
    f.node(&format!("power@{POWER:x}"), |f| {
        f.texts("compatible", &["sifive,test1", "sifive,test0", "syscon"]);
        f.wide("reg", &[POWER, 0x1000]);
        f.cells("phandle", &[POWER_HANDLE]);
    });
    if facts.has_disk {
        f.node(&format!("virtio_mmio@{:x}", disk::BASE), |f| {
            f.text("compatible", "virtio,mmio");
            f.wide("reg", &[disk::BASE, disk::SIZE]);
            f.cells("interrupts", &[disk::SOURCE]);
            f.cells("interrupt-parent", &[PLIC_HANDLE]);
        });
    }
}
