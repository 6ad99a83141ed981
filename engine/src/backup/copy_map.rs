//! Where the records of a log are in its copy.

use selkie_wal::{FIRST_LSN, Lsn};

/// Where records of a log are in its copy, which lacks some of them.
#[derive(Default)]
pub(super) struct CopyMap {
    /// Stretches without one that it lacks: where each begins, and where in the copy.
    stretches: Vec<(Lsn, Lsn)>,
    /// Where the last one ends.
    end: (Lsn, Lsn),
}

impl CopyMap {
    /// A record from `lsn` on, of so many bytes, is in the copy behind those before.
    pub(super) fn note(&mut self, lsn: Lsn, place: Lsn, length: u64) {
        if self.stretches.is_empty() || self.end.0 != lsn {
            self.stretches.push((lsn, place));
        }
        self.end = (lsn + length, place + length);
    }

    /// Where the copy ends of what comes before `lsn`, where a record begins or the log ends.
    pub(super) fn before(&self, lsn: Lsn) -> Lsn {
        let following = self.stretches.partition_point(|(start, _)| *start < lsn);
        let (_, end) = self.stretches.get(following).copied().unwrap_or(self.end);
        match following.checked_sub(1).and_then(|last| self.stretches.get(last)) {
            Some((start, place)) => end.min(place + (lsn - start)),
            None => FIRST_LSN,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_a_copy_ends_of_what_comes_before_a_record_is_known() {
        let mut copied = CopyMap::default();
        assert_eq!(copied.before(1000), FIRST_LSN);
        // Of 1000..1090 the copy lacks 1030..1050, and what comes before 1010.
        for (lsn, place) in [(1010, 64), (1020, 74), (1050, 84), (1060, 94), (1070, 104)] {
            copied.note(lsn, place, 10);
        }
        assert_eq!(copied.stretches.len(), 2);
        let ends = [(1000, 64), (1010, 64), (1020, 74), (1030, 84), (1040, 84), (1050, 84)];
        for (lsn, end) in ends.into_iter().chain([(1060, 94), (1080, 114), (1090, 114)]) {
            assert_eq!(copied.before(lsn), end, "{lsn}");
        }
    }
}
