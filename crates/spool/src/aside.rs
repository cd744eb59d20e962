//! Work that stands back for the program.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::panic::resume_unwind;
use std::thread;

use rustix::process::setpriority_process;

/// How nice it is to the program.
const NICE: i32 = 19;

/// Does something at the lowest priority, on a thread of its own: who has a low priority cannot have a higher one again.
pub fn aside<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let done = thread::scope(|scope| {
        let worker = scope.spawn(|| {
            // Of this thread, and of those that it starts. Who may not does without.
            let _ = setpriority_process(None, NICE);
            work()
        });
        worker.join()
    });
    done.unwrap_or_else(|panic| resume_unwind(panic))
}
