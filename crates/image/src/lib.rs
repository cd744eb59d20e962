//! Executables and shared libraries: what an ELF file says about itself, its
//! symbols and source lines, and, built from the events of a trace, which image,
//! function and line a run-time address belongs to.
//!
//! [`Image`] is one file, opened cheaply: symbols and debugging information are
//! read when first asked for. [`Symbolizer`] listens to `Map`, `Unmap` and `Exec`
//! events and answers for addresses of traced processes. An image whose file no
//! longer has the build-id of the event gives no names at all, and
//! [`Symbolizer::problems`] says so: no name is better than a wrong one.
//!
//! Nothing here decodes instructions or runs programs.
//!
//! ```
//! use ichnos_image::Image;
//!
//! let exe = std::env::current_exe()?;
//! let image = Image::open(&exe)?;
//! let symbols = image.symbols()?;
//! let main = symbols.iter().find(|s| s.name == "main").expect("test programs have a main");
//! let found = symbols.find(main.addr).expect("main lies in main");
//! assert_eq!(found.offset, 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
// SPDX-License-Identifier: MIT OR Apache-2.0
#![forbid(unsafe_code)]

mod debug_file;
mod elf;
mod error;
mod image;
mod lines;
mod space;
mod store;
mod symbolizer;
mod symbols;

pub use debug_file::DebugFolders;
pub use elf::{ImageType, ImageVa, Machine, Segment};
pub use error::{Error, Result};
pub use image::Image;
pub use lines::{Frame, Lines, demangle};
pub use space::{AddressSpace, Mapping};
pub use store::{ImageId, Problem};
pub use symbolizer::{Place, Symbolizer};
pub use symbols::{Symbol, SymbolAt, SymbolKind, SymbolTable};
