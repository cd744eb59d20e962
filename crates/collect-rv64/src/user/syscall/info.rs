//! What programs ask about the system, themselves and their limits. Answers are
//! the same everywhere, so that runs are too.
// SPDX-License-Identifier: MIT OR Apache-2.0

use rustix::io::Errno;

use super::Call;

const PR_SET_NAME: u64 = 15;
const PR_GET_NAME: u64 = 16;
const RLIMIT_STACK: u64 = 3;
const RLIMIT_NOFILE: u64 = 7;
const INFINITE: u64 = u64::MAX;
/// Bytes of memory that programs are told of.
const MEMORY: u64 = 4 << 30;

impl Call<'_> {
    pub(super) fn uname(&mut self) -> Result<u64, Errno> {
        let [va, ..] = self.args;
        let texts = ["Linux", "ichnos", "6.12.0", "#1 SMP", "riscv64", "(none)"];
        for (n, text) in texts.iter().enumerate() {
            let mut field = [0; 65];
            field[..text.len()].copy_from_slice(text.as_bytes());
            self.view().write(va + 65 * n as u64, &field)?;
        }
        Ok(0)
    }

    pub(super) fn user_ids(&mut self, number: u64) -> Result<u64, Errno> {
        Ok(match number {
            174 => rustix::process::getuid().as_raw(),
            175 => rustix::process::geteuid().as_raw(),
            176 => rustix::process::getgid().as_raw(),
            _ => rustix::process::getegid().as_raw(),
        }
        .into())
    }

    /// Real, effective and saved are the same.
    pub(super) fn three_ids(&mut self, number: u64) -> Result<u64, Errno> {
        let [a, b, c, ..] = self.args;
        let id = self.user_ids(if number == 148 { 174 } else { 176 })? as u32;
        for va in [a, b, c] {
            self.view().write_u32(va, id)?;
        }
        Ok(0)
    }

    pub(super) fn sched_getparam(&mut self) -> Result<u64, Errno> {
        let [_, va, ..] = self.args;
        self.view().write_u32(va, 0)?;
        Ok(0)
    }

    /// The highest and lowest priority of a policy.
    pub(super) fn priority_limit(&mut self, number: u64) -> Result<u64, Errno> {
        match self.args[0] {
            1 | 2 => Ok(if number == 125 { 99 } else { 1 }),
            0 | 3 | 5 | 6 => Ok(0),
            _ => Err(Errno::INVAL),
        }
    }

    /// Threads take turns and see each other's stores at once: nothing to do.
    pub(super) fn membarrier(&mut self) -> Result<u64, Errno> {
        // Global, private, and the registration for private.
        const KNOWN: u64 = 1 | 8 | 16;
        match self.args[0] {
            0 => Ok(KNOWN),
            command if command & KNOWN == command && command.is_power_of_two() => Ok(0),
            _ => Err(Errno::INVAL),
        }
    }

    pub(super) fn getcpu(&mut self) -> Result<u64, Errno> {
        let [cpu, node, ..] = self.args;
        for va in [cpu, node].into_iter().filter(|va| *va != 0) {
            self.view().write_u32(va, 0)?;
        }
        Ok(0)
    }

    pub(super) fn rlimit(&mut self, number: u64) -> Result<u64, Errno> {
        let (resource, old) = match number {
            163 => (self.args[0], self.args[1]),
            _ => (self.args[1], self.args[3]),
        };
        let limit = match resource {
            RLIMIT_STACK => 8 << 20,
            RLIMIT_NOFILE => 1024,
            _ => INFINITE,
        };
        if old != 0 {
            self.view().write_u64(old, limit)?;
            self.view()
                .write_u64(old + 8, if resource == RLIMIT_NOFILE { limit } else { INFINITE })?;
        }
        Ok(0)
    }

    pub(super) fn getrusage(&mut self) -> Result<u64, Errno> {
        let [_, va, ..] = self.args;
        let now = self.kernel.now;
        let mut bytes = vec![0; 144];
        bytes[..8].copy_from_slice(&(now / 1_000_000_000).to_le_bytes());
        bytes[8..16].copy_from_slice(&(now % 1_000_000_000 / 1000).to_le_bytes());
        self.view().write(va, &bytes)?;
        Ok(0)
    }

    pub(super) fn times(&mut self) -> Result<u64, Errno> {
        let [va, ..] = self.args;
        let ticks = self.kernel.now / 10_000_000;
        if va != 0 {
            let bytes: Vec<u8> = [ticks, 0, 0, 0].iter().flat_map(|w| w.to_le_bytes()).collect();
            self.view().write(va, &bytes)?;
        }
        Ok(ticks)
    }

    pub(super) fn umask(&mut self) -> Result<u64, Errno> {
        let mask = rustix::fs::Mode::from_bits_truncate(self.args[0] as u32);
        Ok(rustix::process::umask(mask).bits().into())
    }

    pub(super) fn prctl(&mut self) -> Result<u64, Errno> {
        let [option, va, ..] = self.args;
        match option {
            PR_SET_NAME => Ok(0),
            PR_GET_NAME => {
                let mut name = [0; 16];
                let program = self.process().program.file_name().unwrap_or_default().to_owned();
                let bytes = std::os::unix::ffi::OsStrExt::as_bytes(&*program);
                let len = bytes.len().min(15);
                name[..len].copy_from_slice(&bytes[..len]);
                self.view().write(va, &name)?;
                Ok(0)
            }
            _ => Err(Errno::INVAL),
        }
    }

    pub(super) fn sysinfo(&mut self) -> Result<u64, Errno> {
        let [va, ..] = self.args;
        let mut words = [0; 14];
        words[0] = self.kernel.now / 1_000_000_000;
        words[4] = MEMORY;
        words[5] = MEMORY - self.kernel.frames.used() as u64 * crate::ram::PAGE_SIZE as u64;
        words[13] = 1;
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        self.view().write(va, &bytes)?;
        Ok(0)
    }

    pub(super) fn sched_getaffinity(&mut self) -> Result<u64, Errno> {
        let [_, size, va, ..] = self.args;
        if size < 8 {
            return Err(Errno::INVAL);
        }
        self.view().write_u64(va, 1)?;
        Ok(8)
    }

    /// Numbers that look random and are the same in every run.
    pub(super) fn getrandom(&mut self) -> Result<u64, Errno> {
        let [va, len, ..] = self.args;
        let mut bytes = vec![0; (len as usize).min(1 << 20)];
        self.random(&mut bytes);
        self.view().write(va, &bytes)?;
        Ok(bytes.len() as u64)
    }

    /// Fills bytes with such numbers.
    pub(super) fn random(&mut self, bytes: &mut [u8]) {
        for part in bytes.chunks_mut(8) {
            let r = &mut self.kernel.random;
            *r ^= *r << 13;
            *r ^= *r >> 7;
            *r ^= *r << 17;
            part.copy_from_slice(&r.to_le_bytes()[..part.len()]);
        }
    }
}
