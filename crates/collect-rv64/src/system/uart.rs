//! A 16550 serial port. Output goes out at once; input waits in a queue.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::collections::VecDeque;

pub(crate) const BASE: u64 = 0x1000_0000;
pub(crate) const SIZE: u64 = 0x100;
/// Its interrupt source.
pub(crate) const SOURCE: u32 = 10;

const DIVISOR_LATCH: u8 = 0x80;
const DATA_READY: u8 = 1;
const TRANSMITTER_EMPTY: u8 = 0x60;
const RECEIVE_INTERRUPT: u8 = 1;
const TRANSMIT_INTERRUPT: u8 = 2;

/// The serial port.
#[derive(Debug, Default)]
pub(crate) struct Uart {
    input: VecDeque<u8>,
    output: Vec<u8>,
    enable: u8,
    line: u8,
    modem: u8,
    scratch: u8,
    divisor: [u8; 2],
    /// The transmitter became empty and nobody has been told.
    empty_pending: bool,
}

impl Uart {
    /// Bytes that arrive at the port.
    pub(crate) fn receive(&mut self, bytes: &[u8]) {
        self.input.extend(bytes);
    }

    /// Whether input waits to be read.
    pub(crate) fn has_input(&self) -> bool {
        !self.input.is_empty()
    }

    /// What the guest has written since the last time.
    pub(crate) fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.output)
    }

    pub(crate) fn has_output(&self) -> bool {
        !self.output.is_empty()
    }

    /// Writes a byte as the guest would.
    pub(crate) fn transmit(&mut self, byte: u8) {
        self.output.push(byte);
        self.empty_pending = true;
    }

    /// Whether the interrupt line is high.
    pub(crate) fn interrupts(&self) -> bool {
        self.enable & RECEIVE_INTERRUPT != 0 && self.has_input()
            || self.enable & TRANSMIT_INTERRUPT != 0 && self.empty_pending
    }

    fn latched(&self) -> bool {
        self.line & DIVISOR_LATCH != 0
    }

    pub(crate) fn read(&mut self, offset: u64) -> u8 {
        match offset {
            0 if self.latched() => self.divisor[0],
            1 if self.latched() => self.divisor[1],
            0 => self.input.pop_front().unwrap_or(0),
            1 => self.enable,
            2 => self.identify(),
            3 => self.line,
            4 => self.modem,
            5 => TRANSMITTER_EMPTY | if self.has_input() { DATA_READY } else { 0 },
            // Carrier, data set ready, clear to send.
            6 => 0xb0,
            7 => self.scratch,
            _ => 0,
        }
    }

    /// Why it interrupts; asking settles the transmitter's interrupt.
    fn identify(&mut self) -> u8 {
        let fifo = 0xc0;
        if self.enable & RECEIVE_INTERRUPT != 0 && self.has_input() {
            fifo | 4
        } else if self.enable & TRANSMIT_INTERRUPT != 0 && self.empty_pending {
            self.empty_pending = false;
            fifo | 2
        } else {
            fifo | 1
        }
    }

    pub(crate) fn write(&mut self, offset: u64, value: u8) {
        match offset {
            0 if self.latched() => self.divisor[0] = value,
            1 if self.latched() => self.divisor[1] = value,
            0 => self.transmit(value),
            1 => {
                // Enabling the transmitter's interrupt while it is empty raises it.
                if value & !self.enable & TRANSMIT_INTERRUPT != 0 {
                    self.empty_pending = true;
                }
                self.enable = value & 15;
            }
            2 if value & 2 != 0 => self.input.clear(),
            3 => self.line = value,
            4 => self.modem = value,
            7 => self.scratch = value,
            _ => {}
        }
    }
}
