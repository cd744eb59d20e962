//! Firmware built into the machine: the supervisor binary interface, so that
//! operating systems boot without any firmware image.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::system::bus::{Bus, Power};
use crate::system::csr::irq;
use crate::system::hart::{Hart, State};

const BASE: u64 = 0x10;
const TIME: u64 = 0x5449_4d45;
const IPI: u64 = 0x73_5049;
const RFENCE: u64 = 0x5246_4e43;
const HSM: u64 = 0x48_534d;
const SRST: u64 = 0x5352_5354;
const DBCN: u64 = 0x4442_434e;
const EXTENSIONS: [u64; 7] = [BASE, TIME, IPI, RFENCE, HSM, SRST, DBCN];
const LEGACY_PUTCHAR: u64 = 1;

/// Version 2.0 of the interface.
const VERSION: u64 = 2 << 24;
/// No number is registered for this implementation, so it takes a high one.
const IMPLEMENTATION: u64 = 0x0001_c405;

/// What the interface answers when it cannot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i64)]
enum Refusal {
    NotSupported = -2,
    InvalidParameter = -3,
    InvalidAddress = -5,
    AlreadyAvailable = -6,
}

type Answer = Result<u64, Refusal>;

/// Carries out the call that a hart's registers ask for, and sets the result.
pub(crate) fn call(harts: &mut [Hart], caller: usize, bus: &mut Bus) {
    let cpu = &harts[caller].cpu;
    let args: [u64; 6] = std::array::from_fn(|n| cpu.x(10 + n as u8));
    let (extension, function) = (cpu.x(17), cpu.x(16));
    if extension == LEGACY_PUTCHAR {
        bus.uart.transmit(args[0] as u8);
        harts[caller].cpu.set_x(10, 0);
        return;
    }
    let answer = match extension {
        BASE => base(function, args[0]),
        TIME => set_timer(&mut harts[caller], function, args[0]),
        IPI => send_ipi(harts, function, args),
        RFENCE => fence(harts, function, args),
        HSM => hart_state(harts, caller, function, args),
        SRST => reset(bus, function, args),
        DBCN => console(bus, function, args),
        _ => Err(Refusal::NotSupported),
    };
    // A hart that was just restarted has its arguments in these registers.
    let cpu = &mut harts[caller].cpu;
    cpu.set_x(10, answer.map_or_else(|refusal| refusal as i64 as u64, |_| 0));
    cpu.set_x(11, answer.unwrap_or(0));
}

fn base(function: u64, argument: u64) -> Answer {
    match function {
        0 => Ok(VERSION),
        1 => Ok(IMPLEMENTATION),
        2 => Ok(1),
        3 => Ok(EXTENSIONS.contains(&argument).into()),
        4..=6 => Ok(0),
        _ => Err(Refusal::NotSupported),
    }
}

fn set_timer(hart: &mut Hart, function: u64, time: u64) -> Answer {
    if function != 0 {
        return Err(Refusal::NotSupported);
    }
    hart.timer = (time != u64::MAX).then_some(time);
    hart.csrs.lines &= !irq::SUPERVISOR_TIMER;
    Ok(0)
}

/// The harts that a mask names: bits from `base` on, or all if that is -1.
fn named(harts: &[Hart], mask: u64, base: u64) -> Result<Vec<usize>, Refusal> {
    if base == u64::MAX {
        return Ok((0..harts.len()).collect());
    }
    let chosen: Vec<u64> =
        (0..64).filter(|n| mask >> n & 1 != 0).map(|n| base.wrapping_add(n)).collect();
    if chosen.iter().any(|&h| h >= harts.len() as u64) {
        return Err(Refusal::InvalidParameter);
    }
    Ok(chosen.into_iter().map(|h| h as usize).collect())
}

fn send_ipi(harts: &mut [Hart], function: u64, args: [u64; 6]) -> Answer {
    if function != 0 {
        return Err(Refusal::NotSupported);
    }
    for hart in named(harts, args[0], args[1])? {
        harts[hart].csrs.mip |= irq::SUPERVISOR_SOFTWARE;
    }
    Ok(0)
}

/// Remote fences. Decoded code is never stale, so only translations go.
fn fence(harts: &mut [Hart], function: u64, args: [u64; 6]) -> Answer {
    let chosen = named(harts, args[0], args[1])?;
    match function {
        0 => {}
        1 | 2 => {
            for hart in chosen {
                harts[hart].cpu.tlb.flush();
            }
        }
        _ => return Err(Refusal::NotSupported),
    }
    Ok(0)
}

fn hart_state(harts: &mut [Hart], caller: usize, function: u64, args: [u64; 6]) -> Answer {
    let count = harts.len() as u64;
    let target =
        || if args[0] < count { Ok(args[0] as usize) } else { Err(Refusal::InvalidParameter) };
    match function {
        0 => {
            let hart = &mut harts[target()?];
            if hart.state != State::Stopped {
                return Err(Refusal::AlreadyAvailable);
            }
            hart.start(args[0], args[1], args[2]);
            Ok(0)
        }
        1 => {
            harts[caller].state = State::Stopped;
            Ok(0)
        }
        2 => Ok(match harts[target()?].state {
            State::Stopped => 1,
            State::Running | State::Waiting => 0,
        }),
        // A retentive suspension is `wfi` by another name.
        3 if args[0] >> 31 == 0 => {
            harts[caller].state = State::Waiting;
            Ok(0)
        }
        _ => Err(Refusal::NotSupported),
    }
}

fn reset(bus: &mut Bus, function: u64, args: [u64; 6]) -> Answer {
    if function != 0 {
        return Err(Refusal::NotSupported);
    }
    bus.power = Some(match args[0] {
        0 if args[1] == 0 => Power::Off,
        0 => Power::Failed(args[1] as u32),
        _ => Power::Reset,
    });
    Ok(0)
}

fn console(bus: &mut Bus, function: u64, args: [u64; 6]) -> Answer {
    match function {
        0 | 1 => {
            let len = (args[0] as usize).min(4096);
            let index = bus.ram_index(args[1], len).ok_or(Refusal::InvalidAddress)?;
            if function == 1 {
                let bytes: Vec<u8> = (0..len)
                    .map_while(|_| bus.uart.has_input().then(|| bus.uart.read(0)))
                    .collect();
                let to = bus.ram.slice_mut(index, bytes.len()).ok_or(Refusal::InvalidAddress)?;
                to.copy_from_slice(&bytes);
                return Ok(bytes.len() as u64);
            }
            let bytes = bus.ram.slice(index, len).ok_or(Refusal::InvalidAddress)?.to_vec();
            for byte in bytes {
                bus.uart.transmit(byte);
            }
            Ok(len as u64)
        }
        2 => {
            bus.uart.transmit(args[0] as u8);
            Ok(0)
        }
        _ => Err(Refusal::NotSupported),
    }
}
