//! Extended attributes of files: read, not written. (Programs that copy files take
//! "not supported" for an answer.)
// SPDX-License-Identifier: MIT OR Apache-2.0

use rustix::fs;
use rustix::io::Errno;

use super::Call;

const AT_FDCWD: u64 = -100i64 as u64;
/// No attribute, and no list of names, is longer.
const MOST: u64 = 1 << 16;

impl Call<'_> {
    /// The value of an attribute: of a path, of a link, of an open file.
    pub(super) fn attribute(&mut self, number: u64) -> Result<u64, Errno> {
        let [whose, name, va, size, ..] = self.args;
        let name = self.view().read_text(name)?;
        let mut value = vec![0; size.min(MOST) as usize];
        let len = match number {
            8 => fs::getxattr(&self.place(AT_FDCWD, whose)?.path, &name[..], &mut value[..])?,
            9 => fs::lgetxattr(&self.place(AT_FDCWD, whose)?.path, &name[..], &mut value[..])?,
            _ => fs::fgetxattr(&*self.host_file(whose)?, &name[..], &mut value[..])?,
        };
        self.hand_out(va, value, len)
    }

    /// The names of all attributes.
    pub(super) fn attributes(&mut self, number: u64) -> Result<u64, Errno> {
        let [whose, va, size, ..] = self.args;
        let mut names = vec![0; size.min(MOST) as usize];
        let len = match number {
            11 => fs::listxattr(&self.place(AT_FDCWD, whose)?.path, &mut names[..])?,
            12 => fs::llistxattr(&self.place(AT_FDCWD, whose)?.path, &mut names[..])?,
            _ => fs::flistxattr(&*self.host_file(whose)?, &mut names[..])?,
        };
        self.hand_out(va, names, len)
    }

    /// Writes what there is room for: without room, only the length is asked.
    fn hand_out(&mut self, va: u64, bytes: Vec<u8>, len: usize) -> Result<u64, Errno> {
        if let Some(bytes) = bytes.get(..len).filter(|bytes| !bytes.is_empty()) {
            self.view().write(va, bytes)?;
        }
        Ok(len as u64)
    }
}
