//! Physical memory and devices of the machine.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::ram::{PAGE_SIZE, Ram};
use crate::system::clint::{self, Clint};
use crate::system::disk::{self, Disk, Dma};
use crate::system::plic::{self, Plic};
use crate::system::tree::{POWER, POWER_OFF, RESET};
use crate::system::uart::{self, Uart};

/// Where RAM begins.
pub(crate) const RAM_BASE: u64 = 0x8000_0000;

/// How the guest asked the machine to end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Power {
    Off,
    Reset,
    /// Off, with a failure that the guest numbered.
    Failed(u32),
}

/// RAM, and everything that is not.
#[derive(Debug)]
pub(crate) struct Bus {
    pub(crate) ram: Ram,
    pub(crate) clint: Clint,
    pub(crate) plic: Plic,
    pub(crate) uart: Uart,
    pub(crate) disk: Option<Disk>,
    pub(crate) power: Option<Power>,
    /// Ticks of the machine's clock, as of now.
    pub(crate) clock: u64,
    access: Accesses,
}

/// Whether devices may be reached while a hart runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Accesses {
    Admitted,
    /// Not before the clock has been brought up to date.
    Refused,
    /// One was refused just now.
    WasRefused,
}

impl Bus {
    pub(crate) fn new(memory: usize, harts: usize, disk: Option<Disk>) -> Self {
        Self {
            ram: Ram::new(memory / PAGE_SIZE),
            clint: Clint::new(harts),
            plic: Plic::new(harts),
            uart: Uart::default(),
            disk,
            power: None,
            clock: 0,
            access: Accesses::Admitted,
        }
    }

    /// The index into RAM of a physical address, if `len` bytes are RAM there.
    pub(crate) fn ram_index(&self, pa: u64, len: usize) -> Option<usize> {
        let index = usize::try_from(pa.checked_sub(RAM_BASE)?).ok()?;
        (index.checked_add(len)? <= self.ram.len()).then_some(index)
    }

    /// Passes devices' lines on to the interrupt controller.
    fn update_lines(&mut self) {
        self.plic.set_level(uart::SOURCE, self.uart.interrupts());
        self.plic.set_level(disk::SOURCE, self.disk.as_ref().is_some_and(Disk::interrupts));
    }

    /// Refuses accesses to devices from now on.
    pub(crate) fn refuse_devices(&mut self) {
        self.access = Accesses::Refused;
    }

    /// Admits accesses to devices from now on.
    pub(crate) fn admit_devices(&mut self) {
        self.access = Accesses::Admitted;
    }

    /// A device is about to be reached; false if it must not be.
    pub(crate) fn admit_device(&mut self) -> bool {
        if self.access == Accesses::Refused {
            self.access = Accesses::WasRefused;
        }
        self.access == Accesses::Admitted
    }

    /// Whether an access was just refused.
    pub(crate) fn take_refused(&mut self) -> bool {
        let refused = self.access == Accesses::WasRefused;
        if refused {
            self.access = Accesses::Refused;
        }
        refused
    }

    /// Bytes that arrive at the serial port.
    pub(crate) fn receive(&mut self, bytes: &[u8]) {
        self.uart.receive(bytes);
        self.update_lines();
    }

    pub(crate) fn read(&mut self, pa: u64, size: usize) -> Option<u64> {
        let value = if let Some(offset) = inside(pa, uart::BASE, uart::SIZE) {
            self.uart.read(offset).into()
        } else if let Some(offset) = inside(pa, plic::BASE, plic::SIZE) {
            self.plic.read(offset)
        } else if let Some(offset) = inside(pa, clint::BASE, clint::SIZE) {
            self.clint.read(offset, self.clock)
        } else if let (Some(offset), Some(disk)) = (inside(pa, disk::BASE, disk::SIZE), &self.disk)
        {
            disk.read(offset)
        } else if inside(pa, POWER, 0x1000).is_some() {
            0
        } else {
            return None;
        };
        self.update_lines();
        Some(if size < 8 { value & ((1 << (8 * size)) - 1) } else { value })
    }

    /// Writes to a device; none if there is none.
    pub(crate) fn write(&mut self, pa: u64, size: usize, value: u64) -> Option<()> {
        let value = if size < 8 { value & ((1 << (8 * size)) - 1) } else { value };
        if let Some(offset) = inside(pa, uart::BASE, uart::SIZE) {
            self.uart.write(offset, value as u8);
        } else if let Some(offset) = inside(pa, plic::BASE, plic::SIZE) {
            self.plic.write(offset, value);
        } else if let Some(offset) = inside(pa, clint::BASE, clint::SIZE) {
            self.clint.write(offset, size, value, self.clock);
        } else if let (Some(offset), Some(disk)) =
            (inside(pa, disk::BASE, disk::SIZE), &mut self.disk)
        {
            disk.write(offset, value, &mut Dma { ram: &mut self.ram, base: RAM_BASE });
        } else if inside(pa, POWER, 0x1000).is_some() {
            self.power = match value as u32 & 0xffff {
                POWER_OFF => Some(Power::Off),
                RESET => Some(Power::Reset),
                0x3333 => Some(Power::Failed(value as u32 >> 16)),
                _ => self.power,
            };
        } else {
            return None;
        }
        self.update_lines();
        Some(())
    }
}

fn inside(pa: u64, base: u64, size: u64) -> Option<u64> {
    pa.checked_sub(base).filter(|&offset| offset < size)
}
