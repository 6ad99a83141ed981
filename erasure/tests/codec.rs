//! The codecs against each other: every code, every kernel that this CPU has, every pattern of
//! loss.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "test support: what goes wrong here shall panic"
)]

use proptest::prelude::*;
use selkie_erasure::{Codec, CodecError, Kernel, MAX_SPLITS, Native, Reference, Shape, codec};

/// Bytes that look like chance and depend on the seed only.
fn bytes(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        (mixed ^ (mixed >> 27)) as u8
    };
    (0..length).map(|_| next()).collect()
}

fn shapes() -> impl Iterator<Item = Shape> {
    let parities = |k| (0..=MAX_SPLITS - k).map(move |r| Shape::new(k, r).unwrap());
    (1..=MAX_SPLITS).flat_map(parities)
}

fn natives(shape: Shape) -> Vec<Native> {
    let here = Kernel::ALL.into_iter().filter(|kernel| kernel.is_available());
    here.map(|kernel| Native::with(shape, kernel).unwrap()).collect()
}

fn all(shape: Shape) -> Vec<Box<dyn Codec>> {
    let mut codecs: Vec<Box<dyn Codec>> = vec![Box::new(Reference::new(shape).unwrap())];
    codecs.extend(natives(shape).into_iter().map(|native| Box::new(native) as Box<dyn Codec>));
    codecs
}

fn encode(codec: &dyn Codec, data: &[&[u8]]) -> Vec<Vec<u8>> {
    let length = data.first().map_or(0, |split| split.len());
    let mut parity = vec![vec![0xA5; length]; codec.shape().parity()];
    let mut outputs: Vec<&mut [u8]> = parity.iter_mut().map(|split| &mut split[..]).collect();
    codec.encode(data, &mut outputs).unwrap();
    parity
}

/// All splits of a page of chance.
fn page(shape: Shape, length: usize, seed: u64) -> Vec<Vec<u8>> {
    page_by(&Reference::new(shape).unwrap(), length, seed)
}

fn page_by(codec: &dyn Codec, length: usize, seed: u64) -> Vec<Vec<u8>> {
    let page = bytes(seed, length * codec.shape().data());
    let data: Vec<&[u8]> = page.chunks_exact(length).collect();
    let parity = encode(codec, &data);
    data.into_iter().map(<[u8]>::to_vec).chain(parity).collect()
}

fn at_hand(splits: &[Vec<u8>], set: u32) -> Vec<(usize, &[u8])> {
    let numbered = splits.iter().enumerate().filter(|split| set >> split.0 & 1 == 1);
    numbered.map(|(index, split)| (index, &split[..])).collect()
}

/// Has all splits of `wanted` computed from those of `set` and compares.
fn check_reconstruction(codec: &dyn Codec, splits: &[Vec<u8>], set: u32, wanted: u32) {
    let mut again = vec![vec![0x5A; splits[0].len()]; splits.len()];
    let numbered = again.iter_mut().enumerate().filter(|split| wanted >> split.0 & 1 == 1);
    let mut missing: Vec<_> = numbered.map(|(index, split)| (index, &mut split[..])).collect();
    codec.reconstruct(&at_hand(splits, set), &mut missing).unwrap();
    for (index, split) in missing {
        let context = || format!("{} {} {set:#b}", codec.name(), codec.shape());
        assert_eq!(*split, splits[index], "split {index}, {}", context());
    }
}

#[test]
fn parity_is_the_references_byte_for_byte() {
    for shape in shapes() {
        let (reference, natives) = (Reference::new(shape).unwrap(), natives(shape));
        let lengths = [191, 192, 255, 256, 257, 447, 512, 1000, 4096 / shape.data()];
        for length in (1..=130).chain(lengths) {
            let splits = page_by(&reference, length, length as u64);
            let (data, parity) = splits.split_at(shape.data());
            let data: Vec<&[u8]> = data.iter().map(|split| &split[..]).collect();
            for native in &natives {
                assert_eq!(encode(native, &data), parity, "{} {shape} {length}", native.name());
            }
        }
    }
}

#[test]
fn parity_is_what_it_always_was() {
    // Splits outlive the programs that wrote them: a byte that comes out differently is a lost
    // page.
    let data: Vec<Vec<u8>> = (0..8).map(|split| bytes(split, 4)).collect();
    let data: Vec<&[u8]> = data.iter().map(|split| &split[..]).collect();
    for codec in all(Shape::new(8, 2).unwrap()) {
        assert_eq!(
            encode(&*codec, &data),
            [[105, 199, 218, 74], [201, 186, 176, 13]],
            "{}",
            codec.name()
        );
    }
}

#[test]
fn every_loss_of_every_code_is_made_good() {
    for shape in shapes() {
        let splits = page(shape, 97, 1);
        let codecs = all(shape);
        let everything = (1u32 << shape.splits()) - 1;
        for set in (0..=everything).filter(|set| set.count_ones() as usize == shape.data()) {
            for codec in &codecs {
                check_reconstruction(&**codec, &splits, set, everything ^ set);
            }
        }
    }
}

#[test]
fn every_length_is_made_good_for_small_codes() {
    for shape in shapes().filter(|shape| shape.splits() <= 5) {
        let natives = natives(shape);
        let everything = (1u32 << shape.splits()) - 1;
        for length in (1..=130).chain([255, 256, 257, 512, 777]) {
            let splits = page(shape, length, 2);
            for set in (0..=everything).filter(|set| set.count_ones() as usize == shape.data()) {
                for native in &natives {
                    check_reconstruction(native, &splits, set, everything ^ set);
                }
            }
        }
    }
}

#[test]
fn only_what_is_wanted_is_computed_and_more_than_k_may_be_at_hand_in_any_order() {
    let shape = Shape::new(4, 3).unwrap();
    let splits = page(shape, 64, 3);
    for codec in all(shape) {
        for set in (0u32..1 << 7).filter(|set| set.count_ones() >= 4) {
            for wanted in (0..1 << 7).filter(|wanted| wanted & set == 0) {
                check_reconstruction(&*codec, &splits, set, wanted);
            }
        }
        let mut present = at_hand(&splits, 0b110_1101);
        present.reverse();
        let (mut first, mut second) = ([0; 64], [0; 64]);
        codec.reconstruct(&present, &mut [(4, &mut second), (1, &mut first)]).unwrap();
        assert_eq!((&first[..], &second[..]), (&splits[1][..], &splits[4][..]));
    }
}

#[test]
fn splits_lie_anywhere_and_nothing_beside_them_is_written() {
    let shape = Shape::new(3, 2).unwrap();
    let natives = natives(shape);
    for length in [1, 31, 32, 63, 64, 65, 127, 200, 300] {
        let splits = page(shape, length, 4);
        for offset in 0..9 {
            for native in &natives {
                // The page as it lies in a frame, data splits being its slices.
                let mut frame = vec![0x77; offset];
                splits[..3].iter().for_each(|split| frame.extend(split));
                let data: Vec<&[u8]> = frame[offset..].chunks(length).collect();
                let mut ring = vec![0x33; 2 * (length + offset) + 64];
                let (first, second) = ring.split_at_mut(length + offset);
                let mut parity = [&mut first[offset..], &mut second[offset..offset + length]];
                native.encode(&data, &mut parity).unwrap();
                assert!(parity.iter().zip(&splits[3..]).all(|(new, split)| *new == split));
                assert!(second[offset + length..].iter().all(|byte| *byte == 0x33));

                // Two splits are missing in place, the third lies between them.
                frame[offset..][..length].fill(0);
                frame[offset + 2 * length..].fill(0);
                frame.extend([0x77; 64]);
                let (one, rest) = frame[offset..].split_at_mut(length);
                let (two, rest) = rest.split_at_mut(length);
                let (three, after) = rest.split_at_mut(length);
                let present = [(4, &splits[4][..]), (1, &*two), (3, &splits[3][..])];
                native.reconstruct(&present, &mut [(0, one), (2, three)]).unwrap();
                assert!(after.iter().all(|byte| *byte == 0x77));
                let page: Vec<u8> = splits[..3].concat();
                assert_eq!(frame[offset..][..3 * length], page);
                assert!(frame[..offset].iter().all(|byte| *byte == 0x77));
            }
        }
    }
}

#[test]
fn an_updated_parity_is_the_parity_of_the_page_as_it_is_now() {
    for shape in shapes() {
        let codecs = all(shape);
        for length in [1, 64, 200, 513] {
            let before = page(shape, length, 5);
            let (data, parity) = before.split_at(shape.data());
            for index in 0..shape.data() {
                let new = bytes(6 + index as u64, length);
                let mut after: Vec<&[u8]> = data.iter().map(|split| &split[..]).collect();
                after[index] = &new;
                let expected = encode(&*codecs[0], &after);
                for codec in &codecs {
                    let mut parity = parity.to_vec();
                    let mut outputs: Vec<&mut [u8]> =
                        parity.iter_mut().map(|split| &mut split[..]).collect();
                    codec.update(index, &data[index], &new, &mut outputs).unwrap();
                    assert_eq!(parity, expected, "{} {shape} {index}", codec.name());
                }
            }
        }
    }
}

#[test]
fn every_corruption_of_up_to_the_surplus_shows() {
    for shape in shapes().filter(|shape| shape.parity() > 0 && shape.splits() <= 7) {
        // The wrong byte is beyond the first block that is compared, once in the last byte.
        let splits = page(shape, 700, 7);
        for codec in all(shape) {
            let everything = (1u32 << shape.splits()) - 1;
            for set in (0..=everything).filter(|set| set.count_ones() as usize > shape.data()) {
                assert_eq!(codec.verify(&at_hand(&splits, set)), Ok(true));
                let surplus = set.count_ones() as usize - shape.data();
                for wrong in (1..=everything).filter(|wrong| {
                    wrong & set == *wrong && (wrong.count_ones() as usize) <= surplus
                }) {
                    let mut splits = splits.clone();
                    let numbered = splits.iter_mut().enumerate();
                    for (index, split) in numbered.filter(|split| wrong >> split.0 & 1 == 1) {
                        split[699 - (wrong % 2) as usize * 80] ^= 1 << (index % 8);
                    }
                    assert_eq!(
                        codec.verify(&at_hand(&splits, set)),
                        Ok(false),
                        "{set:b} {wrong:b}"
                    );
                }
            }
        }
    }
}

#[test]
fn corrupt_splits_are_found_up_to_half_the_surplus() {
    for (k, r) in [(1, 2), (2, 2), (2, 4), (4, 2), (3, 5), (4, 4), (8, 2), (8, 4)] {
        let shape = Shape::new(k, r).unwrap();
        let splits = page(shape, 130, 8);
        let codec = Native::new(shape).unwrap();
        let everything = (1u32 << shape.splits()) - 1;
        let most = r as u32 / 2;
        for wrong in (0..=everything).filter(|wrong| wrong.count_ones() <= most) {
            let mut splits = splits.clone();
            for index in (0..shape.splits()).filter(|index| wrong >> index & 1 == 1) {
                // One in a single bit, another all over.
                match index % 2 {
                    0 => splits[index][129] ^= 0x10,
                    _ => splits[index] = bytes(9, 130),
                }
            }
            let mut present = at_hand(&splits, everything);
            present.rotate_left(wrong as usize % shape.splits());
            let found: u32 = codec.locate(&present).unwrap().iter().map(|index| 1 << index).sum();
            assert_eq!(found, wrong, "{shape}");
        }
    }
}

#[test]
fn the_reference_finds_the_same_and_of_too_many_wrong_ones_it_is_said() {
    let shape = Shape::new(4, 3).unwrap();
    let mut splits = page(shape, 64, 10);
    splits[5][3] ^= 0x40;
    for codec in all(shape) {
        assert_eq!(codec.locate(&at_hand(&splits, 0b111_1111)), Ok(vec![5]));
        assert_eq!(codec.locate(&at_hand(&splits, 0b101_1111)), Ok(vec![]));
        let too_many = CodecError::TooManyWrong { most: 0, given: 5 };
        assert_eq!(codec.locate(&at_hand(&splits, 0b110_1110)), Err(too_many));
    }
    splits[0][3] ^= 0x40;
    let too_many = CodecError::TooManyWrong { most: 1, given: 7 };
    for codec in all(shape) {
        assert_eq!(codec.locate(&at_hand(&splits, 0b111_1111)), Err(too_many));
        assert!(codec.locate(&[]).unwrap_err().is_retryable());
    }
}

#[test]
fn the_fastest_is_taken_and_none_that_the_cpu_has_not() {
    let fastest = codec(8, 2).unwrap();
    assert_eq!(fastest.name(), Kernel::fastest().name());
    assert!(Kernel::Portable.is_available());
    let shape = Shape::new(2, 1).unwrap();
    for kernel in Kernel::ALL {
        match Native::with(shape, kernel) {
            Ok(native) => assert_eq!(native.name(), kernel.name()),
            Err(error) => assert_eq!(error, CodecError::KernelUnavailable { kernel }),
        }
    }
    assert_eq!(codec(0, 1).unwrap_err(), CodecError::Shape { data: 0, parity: 1 });
    assert_eq!(codec(10, 3).unwrap_err(), CodecError::Shape { data: 10, parity: 3 });
}

#[test]
fn without_parity_there_is_nothing_to_compute() {
    let shape = Shape::new(2, 0).unwrap();
    for codec in all(shape) {
        codec.encode(&[&[1], &[2]], &mut []).unwrap();
        codec.update(1, &[2], &[3], &mut []).unwrap();
        codec.reconstruct(&[(0, &[1]), (1, &[2])], &mut []).unwrap();
        let none = CodecError::TooFew { needed: 3, given: 2 };
        assert_eq!(codec.verify(&[(0, &[1]), (1, &[2])]), Err(none));
    }
}

#[test]
fn what_does_not_fit_is_refused_and_nothing_written() {
    let (a, b, short): (&[u8], &[u8], &[u8]) = (&[1; 40], &[2; 40], &[3; 39]);
    for codec in all(Shape::new(2, 2).unwrap()) {
        let (mut p, mut q, mut small) = ([9; 40], [9; 40], [9; 39]);
        let mut encode = |data: &[&[u8]]| codec.encode(data, &mut [&mut p, &mut q]);
        let count = |which, given| Err(CodecError::Count { which, expected: 2, given });
        assert_eq!(encode(&[a]), count("data", 1));
        assert_eq!(encode(&[a, b, a]), count("data", 3));
        assert_eq!(encode(&[a, short]), Err(CodecError::Length { expected: 40, given: 39 }));
        assert_eq!(encode(&[&[], &[]]), Err(CodecError::Empty));
        assert_eq!(codec.encode(&[a, b], &mut [&mut p]), count("parity", 1));
        let length = Err(CodecError::Length { expected: 40, given: 39 });
        assert_eq!(codec.encode(&[a, b], &mut [&mut p, &mut small]), length);

        assert_eq!(codec.update(0, a, b, &mut [&mut p]), count("parity", 1));
        let index = Err(CodecError::Index { index: 2, splits: 2 });
        assert_eq!(codec.update(2, a, b, &mut [&mut p, &mut q]), index);
        assert_eq!(codec.update(1, a, short, &mut [&mut p, &mut q]), length);
        assert_eq!(codec.update(1, &[], &[], &mut [&mut p, &mut q]), Err(CodecError::Empty));

        let mut want =
            |present: &[(usize, &[u8])], index| codec.reconstruct(present, &mut [(index, &mut p)]);
        assert_eq!(want(&[(0, a)], 1), Err(CodecError::TooFew { needed: 2, given: 1 }));
        assert_eq!(want(&[], 1), Err(CodecError::TooFew { needed: 2, given: 0 }));
        assert_eq!(want(&[(0, a), (0, b)], 1), Err(CodecError::Repeated { index: 0 }));
        assert_eq!(want(&[(0, a), (1, b)], 1), Err(CodecError::Repeated { index: 1 }));
        for index in [4, 16, 64, usize::MAX] {
            let expected = Err(CodecError::Index { index, splits: 4 });
            assert_eq!(want(&[(0, a), (index, b)], 1), expected);
            assert_eq!(want(&[(0, a), (2, b)], index), expected);
        }
        assert_eq!(want(&[(0, a), (2, short)], 1), length);
        assert_eq!(want(&[(0, a), (2, b), (3, short)], 1), length);
        assert_eq!(want(&[(0, &[]), (2, &[])], 1), Err(CodecError::Empty));
        let missing = &mut [(1, &mut p[..]), (3, &mut small[..])];
        assert_eq!(codec.reconstruct(&[(0, a), (2, b)], missing), length);
        let missing = &mut [(1, &mut p[..]), (1, &mut q[..])];
        let twice = codec.reconstruct(&[(0, a), (2, b)], missing);
        assert_eq!(twice, Err(CodecError::Repeated { index: 1 }));

        let few = Err(CodecError::TooFew { needed: 3, given: 2 });
        assert_eq!(codec.verify(&[(0, a), (1, b)]), few);
        assert_eq!(codec.verify(&[(0, a), (1, b), (1, b)]), Err(CodecError::Repeated { index: 1 }));
        let length = Err(CodecError::Length { expected: 40, given: 39 });
        assert_eq!(codec.verify(&[(0, a), (1, b), (3, short)]), length);
        assert_eq!((p, q, small), ([9; 40], [9; 40], [9; 39]), "{}", codec.name());
    }
}

proptest! {
    #[test]
    fn whatever_is_lost_and_changed_comes_back(
        (k, r) in (1usize..=12).prop_flat_map(|k| (Just(k), 0..=12 - k)),
        length in 1usize..3000,
        seed: u64,
        order in Just((0..12).collect::<Vec<usize>>()).prop_shuffle(),
        kernel in 0usize..4,
    ) {
        let shape = Shape::new(k, r).unwrap();
        let kernel = Kernel::ALL[kernel];
        let kernel = if kernel.is_available() { kernel } else { Kernel::Portable };
        let native = Native::with(shape, kernel).unwrap();
        let splits = page(shape, length, seed);
        let order: Vec<usize> = order.into_iter().filter(|index| *index < k + r).collect();
        let present: Vec<(usize, &[u8])> =
            order[..k].iter().map(|index| (*index, &splits[*index][..])).collect();
        let mut again = vec![vec![0; length]; r];
        let mut missing: Vec<(usize, &mut [u8])> =
            order[k..].iter().copied().zip(again.iter_mut().map(|split| &mut split[..])).collect();
        native.reconstruct(&present, &mut missing).unwrap();
        for (index, split) in order[k..].iter().zip(&again) {
            prop_assert_eq!(split, &splits[*index]);
        }
    }
}
