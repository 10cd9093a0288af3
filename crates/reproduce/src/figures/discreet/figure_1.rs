//! Figure 1: the cost of a write with the drive's cache and without.

use crate::error::FigureError;
use crate::figure::{Figure, Results, Scale};
use crate::figures::common::{axis, least, ours, picture};
use crate::{Claim, Context};
use device::{Buffer, Disk, Durability, World};
use emulated::{CacheMode, DriveOptions, EmulatedDisk};
use eviction::Pattern;
use runtime::{SplitMix, VirtualWorld};
use std::rc::Rc;

pub fn figure() -> Figure {
    Figure {
        name: "discreet-figure-1",
        title: "Writes with the drive's cache on and off, by size",
        source: "Discreet (DSN 2011), Figure 1",
        about: "An emulated Hitachi 7K80, whose family is the paper's; 2,000 writes of one size, one after another, sequential or at \
                random places, with its cache on and off; the mean time of a write.",
        minutes: 1,
        by_chance: true,
        real_time: false,
        run,
    }
}

const MODEL: &str = "hitachi-7k80";

#[derive(Clone, Copy, PartialEq)]
struct Cell {
    cache: CacheMode,
    pattern: Pattern,
    size: u64,
}

fn run(context: &Context) -> Result<Results, FigureError> {
    let kibibytes: &[u64] =
        if context.quick { &[4, 256] } else { &[1, 2, 4, 8, 16, 32, 64, 128, 256, 512] };
    let writes = if context.quick { 200 } else { 2000 };
    let mut cells = Vec::new();
    for pattern in [Pattern::Sequential, Pattern::Random] {
        for cache in [CacheMode::Off, CacheMode::On] {
            cells.extend(kibibytes.iter().map(|size| Cell { cache, pattern, size: size << 10 }));
        }
    }
    let times = context.play(&cells, |cell| Ok(mean_ms(context, *cell, writes)))?;
    let lines: Vec<Vec<f64>> = times.chunks(kibibytes.len()).map(<[f64]>::to_vec).collect();
    let [sequential_off, sequential_on, random_off, random_on] = &lines[..] else {
        unreachable!("four lines")
    };

    let slowdown = |name: &str, off: &[f64], on: &[f64]| {
        let least = least(off.iter().zip(on).map(|(off, on)| off / on));
        Claim::of(&format!("discreet-figure-1/{name}"), least)
    };
    let claims = vec![
        slowdown("sequential", sequential_off, sequential_on),
        slowdown("random", random_off, random_on),
    ];
    let line = |name: &str, times: &[f64]| {
        ours(name, kibibytes.iter().map(|size| *size as f64).zip(times.iter().copied()).collect())
    };
    let series = vec![
        line("random, cache off", random_off),
        line("sequential, cache off", sequential_off),
        line("random, cache on", random_on),
        line("sequential, cache on", sequential_on),
    ];
    let x = axis("KiB of a write", Scale::Logarithmic);
    let y = axis("mean time of a write (ms)", Scale::Logarithmic);
    let notes = vec![
        "The paper's sizes, and how much it wrote, are not in its text. Writes follow one another without a pause, so the cache \
         is full most of the time and its time is that of the medium, which may choose among what it holds."
            .to_string(),
        "590 KB may wait for the medium in this model, from the times that the paper measured on its drive: two writes of 256 KiB, one of 512. So \
         the drive has little to choose among, and saves a sixth at 256 KiB and nothing at 512."
            .to_string(),
    ];
    Ok(Results {
        pictures: vec![picture("One write after another, Hitachi 7K80", x, y, series)],
        claims,
        notes,
    })
}

fn mean_ms(context: &Context, cell: Cell, writes: u64) -> f64 {
    let seed = context.seed;
    let world = VirtualWorld::new(seed);
    let options = DriveOptions { cache: cell.cache, ..DriveOptions::default() };
    let disk = EmulatedDisk::new(Rc::new(world.clone()), super::model(context, MODEL), options);
    let of_run = world.clone();
    let mean = world.run(async move {
        let places = disk.geometry().size / cell.size;
        let rng = SplitMix::new(seed);
        let content = Rc::new(Buffer::zeroed(cell.size as usize));
        let begun = of_run.now();
        for number in 0..writes {
            let place = match cell.pattern {
                Pattern::Sequential => number,
                Pattern::Random => rng.next() % places,
            };
            let write = disk.write(place * cell.size, vec![content.clone()], Durability::Cached);
            write.await.expect("an emulated drive without defects");
        }
        of_run.now().since(begun).as_secs_f64() * 1e3 / writes as f64
    });
    world.end();
    mean
}
