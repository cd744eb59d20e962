//! Names and numbers of control and status registers.
// SPDX-License-Identifier: MIT OR Apache-2.0

use core::fmt;

/// The number of a control and status register.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Csr(pub u16);

macro_rules! csrs {
    ($($name:ident $text:literal $number:literal;)*) => {
        #[allow(missing_docs, reason = "these are the architecture's own names")]
        impl Csr {
            $(pub const $name: Self = Self($number);)*

            /// All registers that have a name here.
            pub const NAMED: &[(Self, &'static str)] = &[$((Self::$name, $text),)*];
        }
    };
}

csrs! {
    FFLAGS "fflags" 0x001;
    FRM "frm" 0x002;
    FCSR "fcsr" 0x003;
    SSTATUS "sstatus" 0x100;
    SIE "sie" 0x104;
    STVEC "stvec" 0x105;
    SCOUNTEREN "scounteren" 0x106;
    SENVCFG "senvcfg" 0x10a;
    SSCRATCH "sscratch" 0x140;
    SEPC "sepc" 0x141;
    SCAUSE "scause" 0x142;
    STVAL "stval" 0x143;
    SIP "sip" 0x144;
    SATP "satp" 0x180;
    MSTATUS "mstatus" 0x300;
    MISA "misa" 0x301;
    MEDELEG "medeleg" 0x302;
    MIDELEG "mideleg" 0x303;
    MIE "mie" 0x304;
    MTVEC "mtvec" 0x305;
    MCOUNTEREN "mcounteren" 0x306;
    MENVCFG "menvcfg" 0x30a;
    MCOUNTINHIBIT "mcountinhibit" 0x320;
    MSCRATCH "mscratch" 0x340;
    MEPC "mepc" 0x341;
    MCAUSE "mcause" 0x342;
    MTVAL "mtval" 0x343;
    MIP "mip" 0x344;
    PMPCFG0 "pmpcfg0" 0x3a0;
    PMPCFG2 "pmpcfg2" 0x3a2;
    PMPADDR0 "pmpaddr0" 0x3b0;
    PMPADDR15 "pmpaddr15" 0x3bf;
    MCYCLE "mcycle" 0xb00;
    MINSTRET "minstret" 0xb02;
    CYCLE "cycle" 0xc00;
    TIME "time" 0xc01;
    INSTRET "instret" 0xc02;
    MVENDORID "mvendorid" 0xf11;
    MARCHID "marchid" 0xf12;
    MIMPID "mimpid" 0xf13;
    MHARTID "mhartid" 0xf14;
    MCONFIGPTR "mconfigptr" 0xf15;
}

impl Csr {
    /// Whether writes are illegal, by the register's number.
    #[must_use]
    pub const fn is_read_only(self) -> bool {
        self.0 >> 10 == 3
    }

    /// The lowest privilege that may touch it (0 user, 1 supervisor, 3 machine).
    #[must_use]
    pub const fn privilege(self) -> u8 {
        (self.0 >> 8 & 3) as u8
    }
}

impl fmt::Display for Csr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Self::NAMED.iter().find(|(csr, _)| csr == self) {
            Some((_, name)) => f.write_str(name),
            None => write!(f, "{:#x}", self.0),
        }
    }
}

impl fmt::Debug for Csr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Csr({self})")
    }
}
