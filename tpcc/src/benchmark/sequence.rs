//! Keys that a check meets in their order.

use std::cmp::Ordering;
use std::ops::Range;

use super::findings::Findings;

/// Keys of which each is to be met once, in their order.
pub(crate) struct Sequence {
    /// Whose keys they are.
    title: &'static str,
    /// What is broken if one is not met.
    rule: &'static str,
    left: Range<i32>,
}

impl Sequence {
    pub(crate) fn new(title: &'static str, rule: &'static str, keys: Range<i32>) -> Self {
        Self { title, rule, left: keys }
    }

    /// Meets a key, to which `order` compares others; says whether its turn has come. Keys before
    /// it will not be met any more.
    pub(crate) fn meet(&mut self, order: impl Fn(i32) -> Ordering, found: &mut Findings) -> bool {
        while let Some(next) = self.due() {
            match order(next) {
                Ordering::Less => self.miss(next, found),
                Ordering::Equal => {
                    self.left.start += 1;
                    return true;
                }
                Ordering::Greater => return false,
            }
        }
        false
    }

    /// No more keys will be met.
    pub(crate) fn finish(mut self, found: &mut Findings) {
        while let Some(next) = self.due() {
            self.miss(next, found);
        }
    }

    /// The key that is to be met next.
    pub(crate) fn due(&self) -> Option<i32> {
        (!self.left.is_empty()).then_some(self.left.start)
    }

    fn miss(&mut self, key: i32, found: &mut Findings) {
        found.expect(false, self.rule, || format!("{} {key} is missing", self.title));
        self.left.start += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which of these keys are met in turn, and the examples of what is missing.
    fn met(keys: &[i32]) -> (Vec<bool>, Vec<String>) {
        let mut found = Findings::default();
        let mut sequence = Sequence::new("customer", "a rule", 3..7);
        let met = keys.iter().map(|key| sequence.meet(|next| next.cmp(key), &mut found)).collect();
        sequence.finish(&mut found);
        (met, found.violations().flat_map(|violation| violation.examples.clone()).collect())
    }

    #[test]
    fn each_key_has_one_turn() {
        assert_eq!(met(&[3, 4, 5, 6]), (vec![true; 4], vec![]));
        let missing = |keys: &[i32]| -> Vec<String> {
            keys.iter().map(|key| format!("customer {key} is missing")).collect()
        };
        assert_eq!(met(&[4, 6]), (vec![true, true], missing(&[3, 5])));
        assert_eq!(met(&[3, 4, 4, 5, 6]), (vec![true, true, false, true, true], vec![]));
        assert_eq!(met(&[2, 3, 4, 5, 6, 7]).0, [false, true, true, true, true, false]);
        assert_eq!(met(&[5, 4, 6]), (vec![true, false, true], missing(&[3, 4])));
        assert_eq!(met(&[]), (vec![], missing(&[3, 4, 5])), "three examples are kept");
    }
}
