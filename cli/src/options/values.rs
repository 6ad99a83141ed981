//! Values of options that several commands and scenario files take.

use selkie::fabric::sim::CostModel;

/// Default bytes of a range of a pool: small, so that little memory of a node is left over.
pub(crate) const RANGE_BYTES: u64 = 4 << 20;

/// Bytes, with K, M, G or T for powers of 1024.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    let allowed = || "a size is a number with K, M, G or T, as 512M".to_owned();
    let (digits, shift) = match text.char_indices().last() {
        Some((at, 'K' | 'k')) => (text.get(..at), 10),
        Some((at, 'M' | 'm')) => (text.get(..at), 20),
        Some((at, 'G' | 'g')) => (text.get(..at), 30),
        Some((at, 'T' | 't')) => (text.get(..at), 40),
        _ => (Some(text), 0),
    };
    let number: u64 = digits.and_then(|digits| digits.parse().ok()).ok_or_else(allowed)?;
    number.checked_mul(1 << shift).filter(|bytes| *bytes > 0).ok_or_else(allowed)
}

/// Bytes, or 0 for none.
pub(crate) fn size_or_none(text: &str) -> Result<u64, String> {
    if text == "0" { Ok(0) } else { size(text) }
}

/// Whole seconds; how many are allowed, a command says itself.
pub(crate) fn seconds(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "must be a whole number of seconds, from 1 on".to_owned())
}

/// A range of warehouses as `3-4`.
pub(crate) fn homes(text: &str) -> Result<(u32, u32), String> {
    let refused = || "a range of warehouses is written FIRST-LAST, as 3-4".to_owned();
    let (first, last) = text.split_once('-').ok_or_else(refused)?;
    let number = |text: &str| text.parse().map_err(|_| refused());
    Ok((number(first)?, number(last)?))
}

/// A preset of the simulated network.
pub(crate) fn preset(name: &str) -> Result<CostModel, String> {
    CostModel::preset(name).ok_or_else(|| {
        let known: Vec<_> = CostModel::PRESETS.iter().map(|preset| preset.name).collect();
        format!("there is no such preset; there are {}", known.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::size;

    #[test]
    fn sizes_are_read_and_others_refused() {
        assert_eq!(size("512M"), Ok(512 << 20));
        assert_eq!(size("2g"), Ok(2 << 30));
        assert_eq!(size("4096"), Ok(4096));
        for bad in ["", "M", "0", "1.5G", "-1M", "12X", "99999999T", "1 G"] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }
}
