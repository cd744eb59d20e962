//! What happens when a program is built: the compiler's assembly is read on its way to the
//! assembler, and a note about it goes into the object.
// SPDX-License-Identifier: MIT OR Apache-2.0

mod assemble;
mod driver;
mod labels;
mod object_file;
mod rust;

pub use assemble::assemble;
pub use driver::{ASSEMBLER, compile};
pub use rust::{LINKER, link};
