//! Libraries that come and go while a program runs.
//!
//! The loader calls a function that does nothing whenever it has changed which libraries there are: before it runs their
//! constructors, and behind their destructors. The program stops there, and those with notes get copies
//! of their own, or lose them.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::fs;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use ichnos_rt::Thread as Task;

use super::copies::{Found, Manner};
use super::follow::Tracer;
use super::library::{Library, can_load, find, is_same};
use super::maps::{self, Mapped};
use super::message::Message;
use super::setup::{arrived, find_functions, hook_search, make_room, put, take};
use crate::Error;
use crate::code::{Copy, Tool};

/// All signals but those that cannot be held back, and the one of steps.
const HELD: u64 = !(1 << 4);

impl Tracer<'_> {
    /// Whether a trap means that the loader has changed which libraries there are; if so, they are looked after.
    pub(super) fn at_loader(&mut self, task: Task) -> Result<bool, Error> {
        let failed = |source| Error::Process { pid: task.0, what: "loading libraries", source };
        let Some(pid) = self.threads.get(&task.0).map(|t| t.pid) else { return Ok(false) };
        let stop = self.processes.get(&pid).and_then(|p| p.libraries.stop);
        let mut regs = task.regs().map_err(failed)?;
        if stop.is_none_or(|stop| regs.rip != stop + 1) {
            return Ok(false);
        }
        let mask = task.signal_mask().map_err(failed)?;
        task.set_signal_mask(HELD).map_err(failed)?;
        let done = self.libraries(task, pid);
        task.set_signal_mask(mask).map_err(failed)?;
        done?;
        // The function does nothing but return.
        regs.rip = task.word(regs.rsp).map_err(failed)?;
        regs.rsp += 8;
        task.set_regs(&regs).map_err(failed)?;
        Ok(true)
    }

    fn libraries(&mut self, task: Task, pid: i32) -> Result<(), Error> {
        let failed = |source| Error::Process { pid, what: "loading libraries", source };
        let text = fs::read_to_string(format!("/proc/{pid}/maps")).map_err(failed)?;
        let program = fs::read_link(format!("/proc/{pid}/exe")).map_err(failed)?;
        let found = find(&text, &program, &mut self.copies);
        self.flush(task)?;
        let halted = match self.changes(task, pid, &found) {
            true => Some(self.halt(task, pid)?),
            false => None,
        };
        if halted.is_some() {
            self.stamp(task);
        }
        self.unload(task, pid, &found).map_err(failed)?;
        let taken: Vec<Range<u64>> = maps::lines(&text).map(|l| l.range).collect();
        let mut more = false;
        for library in &found {
            let process = self.processes.get(&pid);
            if process.is_some_and(|p| !p.libraries.has(library)) {
                let copied = self.load(task, pid, library, &taken)?;
                if let Some(process) = self.processes.get_mut(&pid).filter(|_| !copied) {
                    process.libraries.refuse(library);
                }
                more |= copied;
            }
        }
        let told = self.processes.get(&pid).is_some_and(|p| !p.libraries.told.is_empty());
        if told || more {
            self.tell_maps(task, Mapped::is_image);
        }
        if let Some(halted) = halted {
            self.stamp_others(&halted);
        }
        Ok(())
    }

    /// Whether copies come or go if a process has these libraries.
    fn changes(&self, task: Task, pid: i32, found: &[Found]) -> bool {
        let libraries = self.processes.get(&pid).map(|p| &p.libraries);
        libraries.is_some_and(|l| l.changes(task, found))
    }

    /// Takes copies away of libraries that are not among these.
    fn unload(&mut self, task: Task, pid: i32, found: &[Found]) -> io::Result<()> {
        let Some(process) = self.processes.get_mut(&pid) else { return Ok(()) };
        for library in process.libraries.unload(task, found) {
            process.images.remove(&library.copy);
            if let Some(listed) = &mut process.libraries.listed {
                for (at, bytes) in listed.remove(&library.copy) {
                    task.write(at, &bytes)?;
                }
            }
            take(task, &library.copy)?;
        }
        Ok(())
    }

    /// Makes copies of a library and puts them into its process; whether that could be done.
    fn load(
        &mut self,
        task: Task,
        pid: i32,
        found: &Found,
        taken: &[Range<u64>],
    ) -> Result<bool, Error> {
        let failed = |source| Error::Process { pid, what: "copying a library", source };
        let program = self.processes.get(&pid).and_then(|p| p.images.program().cloned());
        let Some(program) = program else { return Ok(false) };
        let tool = program.tool.as_ref();
        if tool.is_some_and(|t| t.path == found.path) || !is_same(task, found).map_err(failed)? {
            return Ok(false);
        }
        self.hook(task, pid, &program)?;
        let library = match self.processes.get_mut(&pid).and_then(|p| p.libraries.again(found)) {
            Some(library) => Some(library),
            None => self.copied(task, pid, (found, tool), taken)?,
        };
        let Some(library) = library.filter(|l| self.list(task, pid, &l.copy)) else {
            self.seen.left_out += found.image.notes.len() as u64;
            return Ok(false);
        };
        let copy = Arc::clone(&library.copy);
        put(task, &copy).map_err(failed)?;
        let Some(process) = self.processes.get_mut(&pid) else { return Ok(false) };
        process.libraries.add(library);
        process.images.add(Arc::clone(&copy));
        let (process, thread) = (process.id, self.threads.get(&task.0).map_or(0, |t| t.id));
        self.tell(Message::Library { thread, process, copy });
        Ok(true)
    }

    /// Makes the copy of a library that is there for the first time, and the room for it.
    fn copied(
        &mut self,
        task: Task,
        pid: i32,
        (found, tool): (&Found, Option<&Tool>),
        taken: &[Range<u64>],
    ) -> Result<Option<Library>, Error> {
        let failed = |source| Error::Process { pid, what: "making room for copies", source };
        let mut form = self.form;
        // What cannot be told in the form that was asked for is told in the other, and lies in a room by itself.
        for _ in 0..2 {
            let Some(process) = self.processes.get_mut(&pid) else { return Ok(None) };
            let libraries = &mut process.libraries;
            let mut all = taken.to_vec();
            all.extend(libraries.ours());
            all.extend(process.images.program().into_iter().flat_map(|c| c.plot.windows()));
            let Some((room, new)) = libraries.room(found, form, &all) else { return Ok(None) };
            let next = process.images.next();
            let Some((plot, number)) = libraries.plot(room, next) else { return Ok(None) };
            let manner = Manner { options: &self.options, form: self.form, config: self.config };
            let made = match self.copies.library(found, plot, manner, tool) {
                // What cannot be laid out runs untraced.
                Err(Error::Layout { .. }) => None,
                made => made?,
            };
            let Some(copy) = made else { return Ok(None) };
            if copy.form != form {
                form = copy.form;
                continue;
            }
            if new {
                let how = (self.config.choice.is_some(), self.config.word());
                make_room(task, room, how, tool).map_err(failed)?;
                libraries.add_room(room, form);
                // Before the program's beginning the tool may not be ready.
                if let Some(tool) = tool.filter(|_| process.first.is_none()) {
                    find_functions(task, room.tool_page(), tool).map_err(failed)?;
                }
            }
            self.seen.left_out += copy.left_out as u64;
            self.seen.code = self.seen.code.and(copy.size);
            return Ok(Some(Library::new(found, number, copy)));
        }
        Ok(None)
    }

    /// Sees to it that the unwinder finds a process's copies, if it can.
    fn hook(&mut self, task: Task, pid: i32, program: &Copy) -> Result<(), Error> {
        let failed = |source| Error::Process { pid, what: "finding the unwinder", source };
        if self.processes.get(&pid).is_none_or(|p| p.libraries.listed.is_some()) {
            return Ok(());
        }
        let listed = hook_search(task, program).map_err(failed)?;
        if let Some(process) = self.processes.get_mut(&pid) {
            process.libraries.listed = listed;
        }
        self.list(task, pid, program);
        Ok(())
    }

    /// Puts a copy on the list of those that the unwinder finds; whether it is on it, or need not be.
    fn list(&mut self, task: Task, pid: i32, copy: &Copy) -> bool {
        let Some(process) = self.processes.get_mut(&pid) else { return false };
        let Some(listed) = &mut process.libraries.listed else { return !copy.catches };
        let entries = listed.add(copy);
        entries.is_some_and(|all| all.iter().all(|(at, bytes)| task.write(*at, bytes).is_ok()))
    }

    /// Whether a trap means that a program has come to its beginning; if so, it is ready.
    pub(super) fn at_beginning(&mut self, task: Task) -> Result<bool, Error> {
        let Some(process) = self.processes.get_mut(&task.0) else { return Ok(false) };
        let (Some(first), Some(copy)) = (process.first, process.images.program().cloned()) else {
            return Ok(false);
        };
        let failed = |what| move |source| Error::Process { pid: task.0, what, source };
        let rip = task.regs().map_err(failed("its beginning"))?.rip;
        if copy.entry.map(|e| e.0 + 1) != Some(rip) {
            return Ok(false);
        }
        process.first = None;
        let pages: Vec<u64> =
            [copy.tool_page()].into_iter().chain(process.libraries.tool_pages()).collect();
        arrived(task, &copy, first)?;
        if let Some(tool) = &copy.tool {
            let found = pages.into_iter().try_for_each(|page| find_functions(task, page, tool));
            found.map_err(failed("finding the tool's functions"))?;
        }
        self.hook(task, task.0, &copy)?;
        let hooked = self.processes.get(&task.0).is_some_and(|p| p.libraries.listed.is_some());
        if copy.catches && !hooked {
            let source = io::Error::other("the C library has no _dl_find_object");
            return Err(failed("preparing for exceptions")(source));
        }
        self.tell_maps(task, |_| true);
        self.all_found(task)?;
        Ok(true)
    }

    /// Whether functions that were asked for by name are there, or may come.
    fn all_found(&self, task: Task) -> Result<(), Error> {
        let program = self.config.program.to_string_lossy().into_owned();
        let found = self.copies.all_found(self.config, program);
        let text = || fs::read_to_string(format!("/proc/{}/maps", task.0)).unwrap_or_default();
        if found.is_err() && can_load(&text()) { Ok(()) } else { found }
    }

    /// Tells what mappings a process has, but for those that were told before. Of what is there later, and of what is there
    /// no more, only some are told.
    pub(super) fn tell_maps(&mut self, task: Task, some: impl Fn(&Mapped) -> bool) {
        let Some(thread) = self.threads.get(&task.0) else { return };
        let (id, pid) = (thread.id, thread.pid);
        let Some(process) = self.processes.get_mut(&pid) else { return };
        let mut ours: Vec<_> = process.images.all().iter().flat_map(|c| c.parts()).collect();
        ours.extend(process.images.program().map(|c| c.tool_page()..c.tool_page() + 1));
        ours.extend(process.images.program().map(|c| c.plot.exec_room..c.plot.exec_room + 1));
        ours.extend(process.libraries.ours());
        let now = maps::of(pid, &ours);
        let told = &mut process.libraries.told;
        if told.is_empty() {
            told.clone_from(&now);
            return self.tell(Message::Maps { thread: id, gone: Vec::new(), maps: now });
        }
        let (stays, gone) = std::mem::take(told)
            .into_iter()
            .partition::<Vec<_>, _>(|m| !m.is_image() || now.contains(m));
        // Where there is something again, or still is, nobody saw that there was nothing.
        let unmapped: Vec<Mapped> = gone.iter().filter(|m| !m.meets(&now)).cloned().collect();
        let new: Vec<Mapped> = now.into_iter().filter(|m| some(m) && !stays.contains(m)).collect();
        *told = stays;
        told.extend(new.iter().cloned());
        let maps: Vec<Mapped> = gone.iter().map(Mapped::forgotten).chain(new).collect();
        if !maps.is_empty() {
            self.tell(Message::Maps { thread: id, gone: unmapped, maps });
        }
    }
}
