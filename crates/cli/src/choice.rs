//! What of a program is recorded when it is not everything: the flags, and what they mean to each collector.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use ichnos_collect_asm as asm;
use ichnos_collect_exec as exec;
use ichnos_flow::Level;

use crate::count;
use crate::switcher::Schedule;

/// What is recorded.
#[derive(Args, Clone, Debug, Default)]
pub struct ChoiceArgs {
    /// Record samples: in turns, EXEC instructions not and then INST instructions, of each thread by itself.
    /// Programs built by `ichnos cc` count events (`--events`) instead of instructions. The same run gives
    /// the same samples.
    #[arg(long, value_name = "EXEC:INST", value_parser = turns)]
    sample: Option<(u64, u64)>,
    /// Record from here on: a count of each thread's own instructions, or events, (`10M`), or a time after
    /// the program's start (`2s`, `500ms`); or a function (`@solve`, by its symbol) or a marker of
    /// `docs/ichnos_marker.h` (`marker:solve`): each time that a thread enters it.
    #[arg(long, value_name = "COUNT|TIME|@FUNCTION|marker:NAME", value_parser = place)]
    start: Option<Place>,
    /// Record until here, likewise; the program runs on.
    #[arg(long, value_name = "COUNT|TIME|@FUNCTION|marker:NAME", value_parser = place)]
    stop: Option<Place>,
    /// Let `ichnos control` switch the recording on and off.
    #[arg(long)]
    control: bool,
    /// The same, and begin with nothing.
    #[arg(long, conflicts_with = "start")]
    paused: bool,
    /// Record while the first word of this file is not zero; several recordings can have one file. It is made if it is
    /// not there (programs built by `ichnos cc`).
    #[arg(long, value_name = "FILE", conflicts_with_all = ["sample", "start", "stop"])]
    shared: Option<PathBuf>,
    /// Record in turns of time: once in this time (programs built by `ichnos cc`),
    #[arg(long, value_name = "TIME", value_parser = duration, requires = "for",
          conflicts_with_all = ["sample", "start", "stop", "paused"])]
    every: Option<Duration>,
    /// for so long.
    #[arg(long, value_name = "TIME", value_parser = duration, requires = "every")]
    r#for: Option<Duration>,
    /// At which events a thread can begin and cease to be recorded: `calls`, `loops`, or both, `calls,loops` (programs
    /// built by `ichnos cc`).
    #[arg(long, value_name = "EVENTS", value_parser = events)]
    events: Option<asm::Events>,
    /// The same for one function: `solve=calls,loops`, or `solve=none`. May be repeated.
    #[arg(long, value_name = "FUNCTION=EVENTS", value_parser = events_for)]
    events_for: Vec<(String, asm::Events)>,
}

/// A place in a run.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Place {
    Count(u64),
    Time(Duration),
    Function(String),
}

fn function(name: &str) -> Result<exec::Function> {
    let begin = || name.chars().take(32).collect::<String>();
    exec::Function::new(name)
        .with_context(|| format!("the name of the function `{}...` is too long", begin()))
}

fn turns(text: &str) -> Result<(u64, u64), String> {
    let bad = || format!("`{text}` is not like 1M:10K");
    let (plain, recorded) = text.split_once(':').ok_or_else(bad)?;
    let (plain, recorded) = (count::count(plain)?, count::count(recorded)?);
    if recorded == 0 {
        return Err(format!("`{text}` records nothing"));
    }
    Ok((plain, recorded))
}

fn place(text: &str) -> Result<Place, String> {
    if let Some(name) = text.strip_prefix('@').filter(|name| !name.is_empty()) {
        return Ok(Place::Function(name.to_owned()));
    }
    // What `docs/ichnos_marker.h` makes of a marker.
    if let Some(name) = text.strip_prefix("marker:").filter(|name| !name.is_empty()) {
        return Ok(Place::Function(format!("ichnos_marker_{name}")));
    }
    if text.ends_with('s') {
        return duration(text).map(Place::Time);
    }
    count::count(text).map(Place::Count)
}

/// A time: `2s`, `500ms`, `20us`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let units = [("ms", 1e-3), ("us", 1e-6), ("s", 1.0)];
    let bad = || format!("`{text}` is not a time like 2s or 500ms");
    let unit = units.iter().find_map(|&(unit, size)| Some((text.strip_suffix(unit)?, size)));
    let (digits, size) = unit.ok_or_else(bad)?;
    let number: f64 = digits.parse().map_err(|_| bad())?;
    Duration::try_from_secs_f64(number * size).map_err(|_| bad())
}

fn events(text: &str) -> Result<asm::Events, String> {
    match text {
        "calls" => Ok(asm::Events::Calls),
        "loops" => Ok(asm::Events::Loops),
        "calls,loops" | "loops,calls" => Ok(asm::Events::CallsAndLoops),
        _ => Err(format!("there are no events `{text}`: `calls`, `loops`, or `calls,loops`")),
    }
}

fn events_for(text: &str) -> Result<(String, asm::Events), String> {
    let bad = || format!("`{text}` is not like solve=calls,loops");
    let (name, said) = text.split_once('=').filter(|(name, _)| !name.is_empty()).ok_or_else(bad)?;
    let said = if said == "none" { asm::Events::None } else { events(said)? };
    Ok((name.to_owned(), said))
}

/// How a program built by `ichnos cc` is recorded, and what switches the recording as time goes by.
pub type Inline = (asm::Choice, Option<(Arc<asm::Word>, Schedule)>);

impl ChoiceArgs {
    /// Whether everything is recorded.
    pub fn is_all(&self) -> bool {
        let Self { sample, start, stop, control, paused, shared, every, .. } = self;
        let some = sample.is_some() || start.is_some() || stop.is_some() || shared.is_some();
        !some && every.is_none() && !control && !paused
    }

    /// The function at which the recording begins, if one does.
    pub fn begins_at(&self) -> Option<&str> {
        match &self.start {
            Some(Place::Function(name)) => Some(name),
            _ => None,
        }
    }

    /// How much the planner should do about what is recorded.
    pub const fn level(&self) -> Level {
        if self.sample.is_some() { Level::Superblock } else { Level::Flow }
    }

    /// What is recorded of a program that runs from the code cache, if not everything.
    pub fn exec(&self) -> Result<Option<exec::Choice>> {
        let Self { sample, start, stop, paused, shared, every, events, .. } = self;
        if shared.is_some() || every.is_some() || events.is_some() || !self.events_for.is_empty() {
            bail!("--shared, --every and --events are for programs built by `ichnos cc`");
        }
        if self.is_all() {
            return Ok(None);
        }
        let mut choice = exec::Choice { sample: *sample, paused: *paused, ..Default::default() };
        match start {
            Some(Place::Count(count)) => choice.start = *count,
            Some(Place::Time(time)) => choice.start_after = Some(*time),
            Some(Place::Function(name)) => choice.functions[0] = Some(function(name)?),
            None => {}
        }
        match stop {
            Some(Place::Count(count)) => choice.stop = *count,
            Some(Place::Time(time)) => choice.stop_after = Some(*time),
            Some(Place::Function(name)) => choice.functions[1] = Some(function(name)?),
            None => {}
        }
        Ok(Some(choice))
    }

    /// What is recorded of a program built by `ichnos cc`, if not everything.
    pub fn inline(&self) -> Result<Option<Inline>> {
        if self.is_all() {
            return Ok(None);
        }
        let (mut choice, switched) = match self.by_function()? {
            Some(choice) => (choice, None),
            None => match self.counted()? {
                Some(choice) => (choice, None),
                None => self.by_word()?,
            },
        };
        choice.events = self.events.unwrap_or_default();
        choice.events_for.clone_from(&self.events_for);
        Ok(Some((choice, switched)))
    }

    /// Choices that functions make.
    fn by_function(&self) -> Result<Option<asm::Choice>> {
        let name = |place: &Option<Place>| match place {
            Some(Place::Function(name)) => Some(name.clone()),
            _ => None,
        };
        let (start, stop) = (name(&self.start), name(&self.stop));
        let others = self.sample.is_some() || self.control || self.paused || self.every.is_some();
        match (start, stop) {
            (None, None) => Ok(None),
            (Some(start), stop) if !others && stop.is_some() == self.stop.is_some() => {
                Ok(Some(asm::Choice::new(asm::When::Functions { start, stop })))
            }
            _ => bail!("a function begins what another one ends, and nothing else does"),
        }
    }

    /// Choices that each thread makes by counting.
    fn counted(&self) -> Result<Option<asm::Choice>> {
        let by_word = self.control || self.paused || self.shared.is_some() || self.every.is_some();
        let count = |place: &Option<Place>| match place {
            Some(Place::Count(count)) => Ok(Some(*count)),
            Some(_) => Err(()),
            None => Ok(None),
        };
        let places = (count(&self.start), count(&self.stop));
        if by_word && self.sample.is_none() && self.start.is_none() && self.stop.is_none() {
            return Ok(None);
        }
        let (Ok(start), Ok(stop)) = places else {
            if self.sample.is_some() || matches!(places, (Ok(Some(_)), _) | (_, Ok(Some(_)))) {
                bail!("of programs built by `ichnos cc`, places are all counts or all times");
            }
            return Ok(None);
        };
        if by_word {
            bail!("a recording that counts events cannot be switched by others as well");
        }
        let first = start.unwrap_or(0);
        Ok(Some(match (self.sample, stop) {
            (Some(_), Some(_)) => bail!("--sample and --stop: samples are taken to the end"),
            (Some((skipped, recorded)), None) => {
                let first = first.saturating_add(skipped);
                asm::Choice::new(asm::When::Counted { first, recorded, skipped })
            }
            (None, stop) => {
                let len = stop.unwrap_or(u64::MAX).saturating_sub(first);
                if len == 0 {
                    bail!("--stop comes before --start: nothing would be recorded");
                }
                asm::Choice::window(first, len)
            }
        }))
    }

    /// Choices that a word in memory tells.
    fn by_word(&self) -> Result<Inline> {
        let word = match &self.shared {
            Some(file) => asm::Word::open(file)
                .with_context(|| format!("{} cannot be opened", file.display()))?,
            None => asm::Word::new().context("there is no memory for a switch")?,
        };
        let word = Arc::new(word);
        let time = |place: &Option<Place>| match place {
            Some(Place::Time(time)) => Some(*time),
            _ => None,
        };
        let (start, stop) = (time(&self.start), time(&self.stop));
        let schedule = match (self.every, self.r#for) {
            (Some(every), Some(length)) => Some(Schedule::Periodic { every, length }),
            _ if start.is_some() || stop.is_some() => Some(Schedule::Once { start, stop }),
            _ => None,
        };
        // A file says itself how to begin.
        if self.shared.is_none() || self.control || self.paused {
            let on = !self.paused && start.is_none() && self.every.is_none();
            word.set(u32::from(on)).context("the switch cannot be set")?;
        }
        let choice = asm::Choice::new(asm::When::Shared(Arc::clone(&word)));
        Ok((choice, schedule.map(|s| (word, s))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_counts_or_times() {
        assert_eq!(place("10M"), Ok(Place::Count(10_000_000)));
        assert_eq!(place("2s"), Ok(Place::Time(Duration::from_secs(2))));
        assert_eq!(place("1.5ms"), Ok(Place::Time(Duration::from_micros(1500))));
        assert_eq!(place("@main"), Ok(Place::Function("main".into())));
        assert_eq!(turns("1K:10"), Ok((1000, 10)));
        for bad in ["", "s", "-1s", "x", "main", "@"] {
            assert!(place(bad).is_err(), "{bad}");
        }
        for bad in ["1", "1:", "1:0", ":1"] {
            assert!(turns(bad).is_err(), "{bad}");
        }
        assert_eq!(events("calls,loops"), Ok(asm::Events::CallsAndLoops));
        assert_eq!(events("loops"), Ok(asm::Events::Loops));
        assert!(events("turns").is_err());
        assert_eq!(events_for("f=none"), Ok(("f".into(), asm::Events::None)));
        assert!(events_for("calls").is_err() && events_for("=calls").is_err());
        assert_eq!(place("marker:a"), Ok(Place::Function("ichnos_marker_a".into())));
    }

    #[test]
    fn counts_and_times_do_not_mix() {
        let sample = ChoiceArgs { sample: Some((10, 1)), ..ChoiceArgs::default() };
        assert!(matches!(sample.inline(), Ok(Some((_, None)))));
        let time = Some(Place::Time(Duration::from_secs(1)));
        let mixed = ChoiceArgs { start: time.clone(), ..sample.clone() };
        assert!(mixed.inline().is_err());
        let timed = ChoiceArgs { start: time, ..ChoiceArgs::default() };
        assert!(matches!(timed.inline(), Ok(Some((_, Some(_))))));
        let empty = ChoiceArgs {
            start: Some(Place::Count(5)),
            stop: Some(Place::Count(5)),
            ..ChoiceArgs::default()
        };
        assert!(empty.inline().is_err());
        assert!(matches!(ChoiceArgs::default().inline(), Ok(None)));
    }
}
