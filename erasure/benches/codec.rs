//! What coding a page costs: encoding all parity, and reconstructing as many data splits as there
//! are parity splits, by each kernel that this CPU has, against the crate `reed-solomon-erasure`
//! with its vector code in C, called with the buffers that suit it best.
//!
//! The ratios come from medians of rounds that alternate between all candidates. Criterion adds
//! the statistics of each candidate, and what changed since the previous run.
//!
//! Run with `cargo bench -p selkie-erasure --bench codec`. Under `cargo test` it runs tiny.
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a benchmark: it stops at the first error"
)]

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::Criterion;
use reed_solomon_erasure::galois_8::ReedSolomon;
use selkie_erasure::{Codec, Kernel, Native, Reference, Shape};

const ROUNDS: usize = 31;

/// A codec to measure: its name, and a call that writes its result to the scratch splits.
struct Candidate<'a> {
    name: String,
    run: Box<Run<'a>>,
}

type Run<'a> = dyn FnMut(&mut [Vec<u8>]) + 'a;

/// A page and its splits.
struct Page {
    data: Vec<Vec<u8>>,
    parity: Vec<Vec<u8>>,
}

impl Page {
    fn new(shape: Shape, bytes: usize) -> Page {
        let length = bytes / shape.data();
        let byte = |i: usize| ((i as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8;
        let page: Vec<u8> = (0..bytes).map(byte).collect();
        let data: Vec<Vec<u8>> = page.chunks_exact(length).map(<[u8]>::to_vec).collect();
        let mut parity = vec![vec![0; length]; shape.parity()];
        let codec = ReedSolomon::new(shape.data(), shape.parity()).expect("a code");
        codec.encode_sep(&data, &mut parity).expect("parity");
        Page { data, parity }
    }

    /// All splits but the first r, with their numbers.
    fn after_loss(&self) -> Vec<(usize, &[u8])> {
        let all = self.data.iter().chain(&self.parity).map(|split| &split[..]);
        all.enumerate().skip(self.parity.len()).collect()
    }
}

fn codecs(shape: Shape) -> Vec<Box<dyn Codec>> {
    let reference = Reference::new(shape).expect("a codec");
    let mut codecs: Vec<Box<dyn Codec>> = vec![Box::new(reference)];
    for kernel in Kernel::ALL.into_iter().filter(|kernel| kernel.is_available()) {
        codecs.push(Box::new(Native::with(shape, kernel).expect("a codec")));
    }
    codecs
}

fn encoders(shape: Shape, page: &Page) -> Vec<Candidate<'_>> {
    let code = ReedSolomon::new(shape.data(), shape.parity()).expect("a code");
    let data: Vec<&[u8]> = page.data.iter().map(|split| &split[..]).collect();
    let own = data.clone();
    let run = move |out: &mut [Vec<u8>]| code.encode_sep(&own, out).expect("parity");
    let mut all = vec![Candidate { name: "the crate".into(), run: Box::new(run) }];
    for codec in codecs(shape) {
        let (name, data) = (codec.name().into(), data.clone());
        let run = move |out: &mut [Vec<u8>]| {
            let mut iter = out.iter_mut().map(|split| &mut split[..]);
            let mut parity: [&mut [u8]; 2] =
                std::array::from_fn(|_| iter.next().unwrap_or_default());
            codec.encode(&data, &mut parity[..shape.parity()]).expect("parity");
        };
        all.push(Candidate { name, run: Box::new(run) });
    }
    all
}

fn reconstructors(shape: Shape, page: &Page) -> Vec<Candidate<'_>> {
    let code = ReedSolomon::new(shape.data(), shape.parity()).expect("a code");
    let mut splits: Vec<(Vec<u8>, bool)> =
        page.data.iter().chain(&page.parity).map(|split| (split.clone(), true)).collect();
    // It works in place: an exchange of two pointers moves its result to `out`, without a copy.
    let run = move |out: &mut [Vec<u8>]| {
        for (split, out) in splits.iter_mut().zip(out.iter_mut()) {
            split.1 = false;
            std::mem::swap(&mut split.0, out);
        }
        code.reconstruct_data(&mut splits).expect("enough splits");
        for (split, out) in splits.iter_mut().zip(out) {
            std::mem::swap(&mut split.0, out);
        }
    };
    let mut all = vec![Candidate { name: "the crate".into(), run: Box::new(run) }];
    for codec in codecs(shape) {
        let (name, present) = (codec.name().into(), page.after_loss());
        let run = move |out: &mut [Vec<u8>]| {
            let mut iter = out.iter_mut().map(|split| &mut split[..]);
            let mut missing: [(usize, &mut [u8]); 2] =
                std::array::from_fn(|index| (index, iter.next().unwrap_or_default()));
            codec.reconstruct(&present, &mut missing[..shape.parity()]).expect("enough splits");
        };
        all.push(Candidate { name, run: Box::new(run) });
    }
    all
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Criterion's statistics of the candidates, as one group.
fn sample(
    criterion: &mut Criterion,
    name: &str,
    candidates: &mut [Candidate<'_>],
    expected: &[Vec<u8>],
) {
    let mut group = criterion.benchmark_group(name);
    let mut out: Vec<Vec<u8>> = expected.to_vec();
    for candidate in candidates {
        group.bench_function(&candidate.name, |bencher| {
            out.iter_mut().for_each(|split| split.fill(0));
            bencher.iter(|| (candidate.run)(black_box(&mut out)));
            assert_eq!(checksum(&out), checksum(expected), "{name} by {}", candidate.name);
        });
    }
    group.finish();
}

fn checksum(splits: &[Vec<u8>]) -> u32 {
    crc_fast::crc32_iscsi(&splits.concat())
}

/// Prints the ratio of each candidate to the first, from rounds that alternate between them.
fn compare(name: &str, candidates: &mut [Candidate<'_>], expected: &[Vec<u8>], passes: usize) {
    let mut ns = vec![Vec::new(); candidates.len()];
    let mut out: Vec<Vec<u8>> = expected.to_vec();
    for _ in 0..ROUNDS {
        for (candidate, ns) in candidates.iter_mut().zip(&mut ns) {
            out.iter_mut().for_each(|split| split.fill(0));
            let start = Instant::now();
            for _ in 0..passes {
                (candidate.run)(black_box(&mut out));
            }
            ns.push(start.elapsed().as_nanos() as f64 / passes as f64);
            assert_eq!(out, expected, "{name} by {}", candidate.name);
        }
    }
    println!("{name}, checksum {:#x}", checksum(&out));
    let ns: Vec<f64> = ns.into_iter().map(median).collect();
    for (candidate, own) in candidates.iter().zip(&ns) {
        println!("  {:<10} {own:>8.1} ns, ratio {:.2}", candidate.name, own / ns[0]);
    }
}

fn main() {
    let tiny = !std::env::args().any(|a| a == "--bench");
    let passes = if tiny { 2 } else { 2000 };
    // Short, as a pass takes less than a microsecond. The command line may choose other times.
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(500))
        .configure_from_args();
    println!("{passes} passes, median of {ROUNDS} rounds, fastest {}", Kernel::fastest());
    for (k, r) in [(8, 2), (6, 6)] {
        let start = Instant::now();
        let codec = Native::new(Shape::new(k, r).expect("a shape")).expect("a codec");
        println!("{} made in {:.0} us", codec.shape(), start.elapsed().as_nanos() as f64 / 1e3);
    }
    for (bytes, k, r) in [(512, 8, 2), (4096, 8, 2), (2048, 2, 1), (2048, 4, 2)] {
        let shape = Shape::new(k, r).expect("a shape");
        let page = Page::new(shape, bytes);
        let name = format!("{bytes} B, {shape}");
        let lost = &page.data[..r];
        for (task, mut candidates, expected) in [
            ("encode".to_owned(), encoders(shape, &page), &page.parity[..]),
            (format!("reconstruct {r}"), reconstructors(shape, &page), lost),
        ] {
            let name = format!("{name}, {task}");
            sample(&mut criterion, &name, &mut candidates, expected);
            compare(&name, &mut candidates, expected, passes);
        }
    }
    criterion.final_summary();
}
