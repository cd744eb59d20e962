//! Which vector instructions obey MXCSR.
// SPDX-License-Identifier: MIT OR Apache-2.0

use iced_x86::Mnemonic;

/// Whether an instruction rounds, flushes denormals or reports exceptions as
/// MXCSR says.
pub(crate) fn uses_mxcsr(mnemonic: Mnemonic) -> bool {
    use Mnemonic as M;
    matches!(mnemonic, M::Addps)
}
