//! What of a program is recorded when it is not everything: the flags, and what they mean together.
// SPDX-License-Identifier: MIT OR Apache-2.0

use std::time::Duration;

use clap::Args;
use ichnos_collect_exec::Choice;

use crate::count;

/// What is recorded.
#[derive(Args, Clone, Debug)]
pub struct ChoiceArgs {
    /// Record samples: in turns, EXEC instructions not and then INST instructions, of each thread by itself.
    /// The same run gives the same samples.
    #[arg(long, value_name = "EXEC:INST", value_parser = turns)]
    sample: Option<(u64, u64)>,
    /// Record from here on: a count of each thread's own instructions (`10M`), or a time after the program's
    /// start (`2s`, `500ms`).
    #[arg(long, value_name = "COUNT|TIME", value_parser = place)]
    start: Option<Place>,
    /// Record until here, likewise; the program runs on.
    #[arg(long, value_name = "COUNT|TIME", value_parser = place)]
    stop: Option<Place>,
    /// Let `ichnos control` switch the recording on and off.
    #[arg(long)]
    control: bool,
    /// The same, and begin with nothing.
    #[arg(long, conflicts_with = "start")]
    paused: bool,
}

/// A place in a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    Count(u64),
    Time(Duration),
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
    let units = [("ms", 1e-3), ("us", 1e-6), ("s", 1.0)];
    let unit = units.iter().find_map(|&(unit, size)| Some((text.strip_suffix(unit)?, size)));
    let Some((digits, size)) = unit else { return count::count(text).map(Place::Count) };
    let bad = || format!("`{text}` is not a time like 2s or 500ms");
    let number: f64 = digits.parse().map_err(|_| bad())?;
    Duration::try_from_secs_f64(number * size).map(Place::Time).map_err(|_| bad())
}

impl ChoiceArgs {
    /// What is recorded, if not everything.
    pub fn choice(&self) -> Option<Choice> {
        let Self { sample, start, stop, control, paused } = self;
        if sample.is_none() && start.is_none() && stop.is_none() && !control && !paused {
            return None;
        }
        let mut choice = Choice { sample: *sample, paused: *paused, ..Choice::default() };
        match start {
            Some(Place::Count(count)) => choice.start = *count,
            Some(Place::Time(time)) => choice.start_after = Some(*time),
            None => {}
        }
        match stop {
            Some(Place::Count(count)) => choice.stop = *count,
            Some(Place::Time(time)) => choice.stop_after = Some(*time),
            None => {}
        }
        Some(choice)
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
        assert_eq!(turns("1K:10"), Ok((1000, 10)));
        for bad in ["", "s", "-1s", "x", "main"] {
            assert!(place(bad).is_err(), "{bad}");
        }
        for bad in ["1", "1:", "1:0", ":1"] {
            assert!(turns(bad).is_err(), "{bad}");
        }
    }
}
