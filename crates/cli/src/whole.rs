//! The whole trace of a recording that is not packed yet: a verb that is given one packs it first.
//!
//! A trace is made beside its place and put there when it is whole: whoever reads what is there meanwhile goes on with that, and whatever
//! ends packing early leaves it and the spool as they were. Where it cannot be put there, it is a file without a name for as long as it
//! is read.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::fs::{self, File};
use std::io::Read;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use ichnos_trace::{Condition, Reader};

use crate::interrupt;
use crate::later::Later;
use crate::packing::Words;
use crate::pattern::{fits, is_pattern};
use crate::spooling::spool_of;
use crate::unpacked::{Found, Packed, Unpacked};

/// What every spool begins with, of whatever version.
const MAGIC: &[u8] = b"ichnos spool ";
/// So many files are named where there are many.
const NAMED: usize = 8;

/// A trace that is not, or not only, at the place that a user named.
pub struct Whole {
    path: PathBuf,
    /// Keeps a file that has no name.
    _held: Option<File>,
}

impl Whole {
    /// Where it can be opened, as long as this is kept.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn at(path: &Path) -> Self {
        Self { path: path.to_owned(), _held: None }
    }
}

/// What there is of a trace before anything is packed.
#[derive(Clone, Copy)]
pub enum There<'a> {
    /// No file, or an empty one.
    Nothing,
    /// It is a spool that was named.
    Spool,
    /// A trace that ends early: what is whole of it must do if somebody else has its spool.
    Begun(&'a Reader),
}

/// Whether a file that begins like this is a spool.
pub fn is_spool(head: &[u8]) -> bool {
    head.starts_with(MAGIC)
}

/// As [`of`], for whoever reads what is there himself, and damaged files, too.
pub fn unless_there(given: &Path) -> Result<Option<Whole>> {
    let mut head = Vec::new();
    let read = File::open(given).and_then(|f| f.take(MAGIC.len() as u64).read_to_end(&mut head));
    match Reader::open(given) {
        _ if is_spool(&head) => of(given, There::Spool),
        _ if head.is_empty() && (read.is_ok() || !given.exists()) => of(given, There::Nothing),
        Ok(reader) if *reader.condition() != Condition::Complete => {
            of(given, There::Begun(&reader))
        }
        _ => Ok(None),
    }
}

/// Packs the recording behind a name, if that is a spool or there is one of it.
pub fn of(given: &Path, there: There<'_>) -> Result<Option<Whole>> {
    let spool = match there {
        There::Spool => Some(given.to_owned()),
        There::Nothing | There::Begun(_) => spool_behind(given),
    };
    let Some(spool) = spool else { return Ok(None) };
    let is_begun = matches!(there, There::Begun(reader) if !reader.threads().is_empty());
    let unpacked = match hold(given, &spool, is_begun)? {
        Held::Free(unpacked) => unpacked,
        Held::Packed => return Ok(Some(Whole::at(given))),
        Held::Not => return Ok(None),
    };
    if matches!(there, There::Begun(reader) if !is_of(reader, &unpacked.later)) {
        eprintln!("ichnos: {}: it is of another recording", spool.display());
        return Ok(None);
    }
    let begun = if is_begun { "to its end" } else { "yet" };
    eprintln!("ichnos: {}: not packed {begun}: packing it first", given.display());
    let trace = match there {
        There::Spool => unpacked.later.path.clone(),
        There::Nothing | There::Begun(_) => trace_of(&spool),
    };
    let whole = match is_pattern(&trace) {
        true => each(given, unpacked, &trace)?,
        false => one(given, unpacked, &trace)?,
    };
    Ok(Some(whole))
}

/// What came of taking hold of a spool.
enum Held {
    Free(Box<Unpacked>),
    /// Its trace is whole by now.
    Packed,
    /// It cannot be had, and what there is must do.
    Not,
}

/// Takes hold of a spool; an error if it cannot be had and nothing else is there.
fn hold(given: &Path, spool: &Path, is_begun: bool) -> Result<Held> {
    let place = given.display();
    match Unpacked::open(spool) {
        Ok(Found::Free(unpacked)) => Ok(Held::Free(unpacked)),
        // Somebody has packed it since.
        Ok(Found::Gone) => Ok(Held::Packed),
        Ok(Found::InUse) if is_begun => {
            eprintln!("ichnos: {place}: its recording still runs, or somebody packs it now");
            Ok(Held::Not)
        }
        Ok(Found::InUse) => bail!(
            "{place}: nothing of it is packed yet, and its recording still runs, or somebody packs it now: try again later"
        ),
        Err(error) if is_begun => {
            eprintln!("ichnos: {place}: the rest of it cannot be packed: {error:#}");
            Ok(Held::Not)
        }
        Err(error) => Err(error.context(format!("{place}: it cannot be packed"))),
    }
}

/// Says that there may be more of a trace than is in its file.
pub fn say_if_more(path: &Path) {
    if let Some(spool) = spool_behind(path) {
        eprintln!(
            "ichnos: {}: {} is left: if packing was interrupted, `ichnos pack {}` makes the whole trace",
            path.display(),
            spool.display(),
            trace_of(&spool).display()
        );
    }
}

/// The spool of a trace, if there is one.
fn spool_behind(given: &Path) -> Option<PathBuf> {
    let beside = spool_of(given);
    if beside.exists() {
        return Some(beside);
    }
    // Of one of several processes: the spool has the name for all.
    let (name, folder) = (given.file_name()?, given.parent()?);
    let here = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let mut spools = fs::read_dir(here).ok()?.flatten().map(|entry| entry.file_name());
    spools
        .find(|spool| {
            let trace = trace_of(Path::new(spool));
            trace.as_os_str() != spool && fits(trace.as_os_str(), name)
        })
        .map(|spool| folder.join(spool))
}

/// The trace beside which a spool is: [`spool_of`] the other way.
fn trace_of(spool: &Path) -> PathBuf {
    match spool.extension() {
        Some(extension) if extension == "spool" => spool.with_extension(""),
        _ => spool.to_owned(),
    }
}

/// Whether a trace is of the recording that left a spool.
fn is_of(reader: &Reader, later: &Later) -> bool {
    let (one, other) = (reader.about(), &later.about);
    one.started_ns == other.started_ns && one.command == other.command
}

/// Whether nothing is lost if the trace takes a place.
fn is_free(trace: &Path, later: &Later) -> bool {
    match trace.metadata() {
        Ok(found) if !found.is_file() => false,
        Ok(found) if found.len() > 0 => Reader::open(trace).is_ok_and(|r| is_of(&r, later)),
        _ => true,
    }
}

/// Packs a recording of one file: where it was to be, or else for now.
fn one(given: &Path, unpacked: Box<Unpacked>, trace: &Path) -> Result<Whole> {
    let (place, spool) = (given.display(), unpacked.path().to_owned());
    let kept = match is_free(trace, &unpacked.later) {
        true => keep(unpacked, trace),
        false => {
            drop(unpacked);
            Err(anyhow::anyhow!("{} is something else", trace.display()))
        }
    };
    let why = match kept {
        Ok(kept) => return kept.with_context(|| interrupted(&spool)),
        Err(error) => error,
    };
    let folder = std::env::temp_dir();
    eprintln!(
        "ichnos: {place}: its trace cannot be kept ({why:#}): it goes into {} until it is read, and {} is left",
        folder.display(),
        spool.display()
    );
    let lent = lend(&spool, &folder)
        .with_context(|| format!("{place}: it cannot be packed in {} either", folder.display()))?;
    lent.with_context(|| interrupted(&spool))
}

fn interrupted(spool: &Path) -> String {
    format!("interrupted; {} is left", spool.display())
}

/// Packs all into a file until somebody asks for the end; nothing then.
fn pack(unpacked: &mut Unpacked, place: &Path) -> Result<Option<Packed>> {
    let pack = |stop: &_| unpacked.pack(place, Words::Said, stop);
    let (packed, stopped) = interrupt::during(pack)?;
    let packed = packed?;
    if packed.stopped || stopped {
        return Ok(None);
    }
    if let Some(note) = packed.note {
        eprintln!("ichnos: {}: {note}", unpacked.path().display());
    }
    Ok(Some(packed))
}

/// Makes a trace and puts it where it was to be; nothing if that was interrupted.
fn keep(mut unpacked: Box<Unpacked>, trace: &Path) -> Result<Option<Whole>> {
    let trace = trace.canonicalize().unwrap_or_else(|_| trace.to_owned());
    // Only whoever has the spool makes a file of this name.
    let mut making = trace.clone().into_os_string();
    making.push(".packing");
    let making = PathBuf::from(making);
    let made = pack(&mut unpacked, &making).and_then(|packed| match packed {
        Some(_) => put(&making, &trace).map(|()| true),
        None => Ok(false),
    });
    if !matches!(made, Ok(true)) {
        let _ = fs::remove_file(&making);
        return made.map(|_| None);
    }
    say_if_it_stays(unpacked);
    Ok(Some(Whole::at(&trace)))
}

/// Puts a file into the place of another one, whose owner and rights it gets as far as that is allowed.
fn put(new: &Path, old: &Path) -> Result<()> {
    if let Ok(found) = old.metadata() {
        let _ = File::open(new).and_then(|new| fchown(&new, Some(found.uid()), Some(found.gid())));
        let _ = fs::set_permissions(new, found.permissions());
    }
    fs::rename(new, old).with_context(|| format!("cannot make {}", old.display()))
}

/// Makes a trace that lives no longer than it is held; nothing if that was interrupted.
fn lend(spool: &Path, folder: &Path) -> Result<Option<Whole>> {
    let Found::Free(mut unpacked) = Unpacked::open(spool)? else {
        bail!("somebody else packs {} now", spool.display());
    };
    let path = folder.join(format!("ichnos-{}.packing", std::process::id()));
    let mut options = File::options();
    let file = options.read(true).write(true).create_new(true).mode(0o600).open(&path);
    let file = file.with_context(|| format!("cannot make {}", path.display()))?;
    // Nothing is left of it then, whatever happens.
    fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
    let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    let packed = pack(&mut unpacked, &path)?;
    Ok(packed.map(|_| Whole { path, _held: Some(file) }))
}

/// Packs a recording of a file for each process, of which a verb reads the one that it was given, or the only one.
fn each(given: &Path, mut unpacked: Box<Unpacked>, pattern: &Path) -> Result<Whole> {
    let spool = unpacked.path().to_owned();
    let packed = pack(&mut unpacked, pattern).with_context(|| {
        format!("{}: it cannot be packed; {} is left", given.display(), spool.display())
    })?;
    let packed = packed.with_context(|| interrupted(&spool))?;
    let files = packed.traces.iter().flat_map(|traces| traces.files());
    let files: Vec<PathBuf> = files.map(|file| file.path().to_owned()).collect();
    drop(packed);
    say_if_it_stays(unpacked);
    if let Some(file) = files.iter().find(|file| is_same(file, given)) {
        return Ok(Whole::at(file));
    }
    if let [file] = &files[..] {
        return Ok(Whole::at(file));
    }
    let names = files.iter().take(NAMED).map(|file| file.display().to_string());
    let names = names.collect::<Vec<_>>().join(", ");
    let more = match files.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    bail!("{}: each process has a file of its own: name one of {names}{more}", given.display())
}

/// Whether two names are of one file.
pub fn is_same(one: &Path, other: &Path) -> bool {
    match (one.canonicalize(), other.canonicalize()) {
        (Ok(one), Ok(other)) => one == other,
        _ => false,
    }
}

/// Removes the spool of a trace that is whole. If that is not allowed, whoever reads the trace need not care.
fn say_if_it_stays(unpacked: Box<Unpacked>) {
    if let Err(error) = unpacked.remove() {
        eprintln!("ichnos: {error:#}");
    }
}
