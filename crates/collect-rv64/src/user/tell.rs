//! What a program's doings are called in a trace: starts, maps, calls' news.
// SPDX-License-Identifier: MIT OR Apache-2.0

use ichnos_base::{Event, FileOff, GuestVa, Map, MapKind, Protection, ThreadId, ThreadStart};

use crate::tracer::{More, Tracer};
use crate::user::kernel::News;
use crate::user::loader::Image;
use crate::user::machine::{Flow, Machine};

impl<T: Tracer> Machine<T> {
    /// Tells the trace what system calls brought about.
    pub(super) fn tell_news(&mut self) -> Flow<T> {
        for news in std::mem::take(&mut self.kernel.news) {
            if self.tell(news)? == More::Enough {
                return Ok(More::Enough);
            }
        }
        Ok(More::Yes)
    }

    fn start(&mut self, thread: usize, creator: Option<ThreadId>) -> Flow<T> {
        self.started += 1;
        let t = &self.kernel.threads[thread];
        let process = &self.kernel.processes[t.process];
        let start =
            ThreadStart { process: process.id, creator, os_pid: process.pid, os_tid: t.tid };
        self.tracer.assign(t.id, process.id);
        self.event(thread, &Event::ThreadStart(start))
    }

    fn tell(&mut self, news: News) -> Flow<T> {
        match news {
            News::Began { thread } => self.start(thread.index(), None),
            News::Created { creator, child } => {
                if self.event(creator.index(), &Event::ThreadCreate { child })? == More::Enough {
                    return Ok(More::Enough);
                }
                self.start(child.index(), Some(creator))
            }
            News::Loaded { thread, path, images, stack } => {
                let thread = thread.index();
                if thread < self.started
                    && self.kernel.threads[thread].cpu.retired > 0
                    && self.event(thread, &Event::Exec { path: &path.to_string_lossy() })?
                        == More::Enough
                {
                    return Ok(More::Enough);
                }
                self.tell_images(thread, &images, stack)
            }
            News::Mapped { thread, map } => {
                let kind = if map.path.is_empty() { MapKind::OTHER } else { MapKind::FILE };
                let event = Event::Map(Map {
                    start: GuestVa(map.start),
                    len: map.len,
                    protection: map.protection,
                    kind,
                    offset: FileOff(map.offset),
                    bias: map.start.wrapping_sub(map.offset),
                    path: &map.path,
                    build_id: &[],
                });
                self.changed(thread.index(), map.start, map.len, &event)
            }
            News::Unmapped { thread, start, len } => self.changed(
                thread.index(),
                start,
                len,
                &Event::Unmap { start: GuestVa(start), len },
            ),
            News::Returned { thread, pc } => {
                self.event(thread.index(), &Event::SignalReturn { pc: GuestVa(pc) })
            }
        }
    }

    fn changed(&mut self, thread: usize, start: u64, len: u64, event: &Event<'_>) -> Flow<T> {
        let process = self.kernel.process(thread).id;
        let more = self.event(thread, event)?;
        self.tracer.code_changed(process, GuestVa(start), len);
        Ok(more)
    }

    fn tell_images(&mut self, thread: usize, images: &[Image], stack: (u64, u64)) -> Flow<T> {
        for image in images {
            for segment in &image.segments {
                let event = Event::Map(Map {
                    start: GuestVa(segment.start),
                    len: segment.len,
                    protection: segment.protection,
                    kind: MapKind::IMAGE,
                    offset: FileOff(segment.offset),
                    bias: image.bias,
                    path: &image.path.to_string_lossy(),
                    build_id: &image.build_id,
                });
                if self.changed(thread, segment.start, segment.len, &event)? == More::Enough {
                    return Ok(More::Enough);
                }
            }
        }
        let read_write = Protection(Protection::READ.0 | Protection::WRITE.0);
        self.event(
            thread,
            &Event::Map(Map {
                start: GuestVa(stack.0),
                len: stack.1,
                protection: read_write,
                kind: MapKind::STACK,
                offset: FileOff(0),
                bias: 0,
                path: "[stack]",
                build_id: &[],
            }),
        )
    }
}
