//! Decimal numbers of any precision, as bytes that compare as the numbers do.
//!
//! Byte map of the ordered form, which is the form in keys:
//! ```text
//! zero      0x80
//! positive  0x81 0x0000 + weight + 8191 (3 bytes, big-endian), a byte of 1 to 100 for each pair of
//!           digits of 00 to 99, 0x00 as terminator
//! infinity  0x83
//! NaN       0x84, greater than all others
//! negative  the complement of the bytes of the positive number; -infinity is 0x7c
//! ```
//! The pairs are the digits of base 100 of the number, which is 0.d1d2... times 100 to the power of
//! the weight. Neither the first nor the last pair is 00, so that a number has one form, whatever
//! zeroes it was written with. Numbers of a greater weight are greater; where weights agree, the
//! first pair that differs decides, and the terminator is below every pair.
//!
//! A row stores `scale (u16, little-endian) | ordered form`: the scale is how many digits are
//! printed behind the point. It has no part in comparisons: 1.0 and 1.00 are equal.
//!
//! There is no arithmetic here.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

use smallvec::SmallVec;

/// Most digits before the point.
const MAX_BEFORE: i64 = 131_072;
/// Most digits behind the point.
const MAX_AFTER: i64 = 16_383;

const ZERO: u8 = 0x80;
const POSITIVE: i32 = 0x81_0000;
const INFINITY: u8 = 0x83;
const NAN: u8 = 0x84;
/// Of 10 to the power of -16383, the least weight there is.
const MIN_WEIGHT: i32 = -8191;
/// Of a number with the most digits before the point.
const MAX_WEIGHT: i32 = 65_536;
/// Bytes that are not pairs: the weight and the terminator.
const HEAD_BYTES: usize = 3;
/// Ordered forms up to this length are on the stack: 22 digits at least.
const INLINE_BYTES: usize = 16;

/// A decimal number of any precision, infinite, or NaN. It has at most 131072 digits before the
/// point and 16383 behind it, and prints as many of these as it was made with.
///
/// ```
/// use selkie_txn::Decimal;
/// let price: Decimal = "1.50".parse()?;
/// assert_eq!(price.to_string(), "1.50");
/// assert_eq!(price, "15e-1".parse()?);
/// assert!(price < "NaN".parse()? && price > Decimal::from(-2));
/// # Ok::<(), selkie_txn::DecimalError>(())
/// ```
#[derive(Clone)]
pub struct Decimal {
    scale: u16,
    ordered: SmallVec<[u8; INLINE_BYTES]>,
}

/// A [`Decimal`], borrowed from a row or from one that is owned.
#[derive(Clone, Copy)]
pub struct DecimalRef<'a> {
    scale: u16,
    /// A whole ordered form.
    ordered: &'a [u8],
}

/// Why a text is no [`Decimal`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecimalError {
    /// It is not a number.
    #[error(
        "not a decimal number (allowed: digits with a point and an exponent, as -1.5e3; NaN, \
         Infinity, -Infinity)"
    )]
    Syntax,
    /// The number is too great, or too far below zero.
    #[error("a decimal number of {digits} digits before the point (allowed: {MAX_BEFORE})")]
    DigitsBefore {
        /// How many it has.
        digits: i64,
    },
    /// The number is too fine.
    #[error("a decimal number of {digits} digits behind the point (allowed: {MAX_AFTER})")]
    DigitsAfter {
        /// How many it has.
        digits: i64,
    },
}

/// What an ordered form stands for.
#[derive(Clone, Copy)]
enum Kind {
    NaN,
    Infinity,
    /// Zero has no pairs.
    Finite {
        weight: i32,
        pairs: usize,
    },
}

/// The beginning of some bytes, taken for an ordered form.
#[derive(Clone, Copy)]
struct Form<'a> {
    bytes: &'a [u8],
    /// The bytes of the positive number are those here with these bits flipped.
    flip: u8,
    negative: bool,
    kind: Kind,
}

impl<'a> Form<'a> {
    /// Reads an ordered form of which every byte was combined with `flip`; `None` if `bytes` do
    /// not begin with one.
    fn read(bytes: &'a [u8], flip: u8) -> Option<Self> {
        let negative = bytes.first()? ^ flip < ZERO;
        let flip = if negative { !flip } else { flip };
        let form = |kind| Some(Self { bytes, flip, negative, kind });
        match bytes.first()? ^ flip {
            ZERO if !negative => return form(Kind::Finite { weight: 0, pairs: 0 }),
            NAN if !negative => return form(Kind::NaN),
            INFINITY => return form(Kind::Infinity),
            _ => {}
        }
        let (head, digits) = bytes.split_first_chunk::<HEAD_BYTES>()?;
        let [a, b, c] = head.map(|byte| byte ^ flip);
        let weight = i32::from_be_bytes([0, a, b, c]) - POSITIVE + MIN_WEIGHT;
        let pairs = digits.iter().position(|byte| byte ^ flip == 0)?;
        let found = Self { bytes, flip, negative, kind: Kind::Finite { weight, pairs } };
        let digits = digits.get(..pairs)?;
        let is_pair = |byte: &u8| (1..=100).contains(&(byte ^ flip));
        let is_zero = |byte: Option<&u8>| byte.is_none_or(|byte| byte ^ flip == 1);
        let is_whole = (MIN_WEIGHT..=MAX_WEIGHT).contains(&weight)
            && digits.iter().all(is_pair)
            && !is_zero(digits.first())
            && !is_zero(digits.last())
            && found.digits_behind() <= MAX_AFTER;
        is_whole.then_some(found)
    }

    /// Bytes that it takes.
    fn length(&self) -> usize {
        match self.kind {
            Kind::Finite { pairs, .. } if pairs > 0 => HEAD_BYTES + pairs + 1,
            _ => 1,
        }
    }

    /// The pair at this position, counted from the first; 0 where there is none.
    fn pair(&self, at: i64) -> u8 {
        let Kind::Finite { pairs, .. } = self.kind else { return 0 };
        let at = usize::try_from(at).ok().filter(|&at| at < pairs);
        let byte = at.and_then(|at| self.bytes.get(HEAD_BYTES + at));
        byte.map_or(0, |byte| (byte ^ self.flip).saturating_sub(1))
    }

    /// The digit at this position, counted from the first of the first pair; 0 where there is none.
    fn digit(&self, at: i64) -> u8 {
        let pair = self.pair(at.div_euclid(2));
        if at.rem_euclid(2) == 0 { pair / 10 } else { pair % 10 }
    }

    /// Digits behind the point, up to the last that is not 0.
    fn digits_behind(&self) -> i64 {
        let Kind::Finite { weight, pairs } = self.kind else { return 0 };
        let last = pairs as i64 - 1;
        let behind = 2 * (last + 1 - i64::from(weight));
        (behind - i64::from(self.pair(last).is_multiple_of(10))).max(0)
    }

    /// Digits from the first that is not 0 to the last that is not 0.
    fn significant_digits(&self) -> usize {
        let Kind::Finite { pairs, .. } = self.kind else { return 0 };
        let Some(last) = pairs.checked_sub(1) else { return 0 };
        let zeroes =
            usize::from(self.pair(0) < 10) + usize::from(self.pair(last as i64).is_multiple_of(10));
        2 * pairs - zeroes
    }
}

/// Bytes that an ordered form takes at the beginning of `bytes`, of which every byte was combined
/// with `flip`; `None` if there is none.
pub(crate) fn ordered_length(bytes: &[u8], flip: u8) -> Option<usize> {
    Some(Form::read(bytes, flip)?.length())
}

impl Decimal {
    /// It as rows lend it.
    #[must_use]
    pub fn as_ref(&self) -> DecimalRef<'_> {
        DecimalRef { scale: self.scale, ordered: &self.ordered }
    }

    /// A number that is not finite.
    fn special(class: u8) -> Self {
        Self { scale: 0, ordered: SmallVec::from_slice(&[class]) }
    }

    /// The number 0.d1d2... times ten to the power of `point`, of digits in ASCII. The limits were
    /// checked.
    #[expect(clippy::cast_possible_truncation, reason = "the weight was checked with the digits")]
    fn of_digits(negative: bool, digits: &str, point: i64, scale: u16) -> Self {
        let leading = digits.len() - digits.trim_start_matches('0').len();
        let digits = digits.trim_matches('0');
        if digits.is_empty() {
            return Self { scale, ..Self::special(ZERO) };
        }
        let point = point - leading as i64;
        let is_odd = point.rem_euclid(2) == 1;
        let weight = (point + i64::from(is_odd)) / 2;
        let head = (POSITIVE + weight as i32 - MIN_WEIGHT).to_be_bytes();
        let mut ordered: SmallVec<[u8; INLINE_BYTES]> = head.into_iter().skip(1).collect();
        let mut tens = is_odd.then_some(0);
        for digit in digits.bytes().map(|digit| digit - b'0') {
            match tens.take() {
                Some(tens) => ordered.push(10 * tens + digit + 1),
                None => tens = Some(digit),
            }
        }
        ordered.extend(tens.map(|tens| 10 * tens + 1));
        ordered.push(0);
        if negative {
            ordered.iter_mut().for_each(|byte| *byte = !*byte);
        }
        Self { scale, ordered }
    }
}

impl<'a> DecimalRef<'a> {
    /// Reads what a row stores; `None` if it is damaged.
    pub(crate) fn from_stored(bytes: &'a [u8]) -> Option<Self> {
        let (&scale, ordered) = bytes.split_first_chunk()?;
        let scale = u16::from_le_bytes(scale);
        let form = Form::read(ordered, 0)?;
        let most = if matches!(form.kind, Kind::Finite { .. }) { MAX_AFTER } else { 0 };
        let is_whole = form.length() == ordered.len()
            && (form.digits_behind()..=most).contains(&i64::from(scale));
        is_whole.then_some(Self { scale, ordered })
    }

    /// Reads what a key has; `None` if it is damaged. It prints no more digits than it needs.
    pub(crate) fn from_ordered(ordered: &'a [u8]) -> Option<Self> {
        let form = Form::read(ordered, 0)?;
        let scale = u16::try_from(form.digits_behind()).ok()?;
        (form.length() == ordered.len()).then_some(Self { scale, ordered })
    }

    /// It as rows store it.
    pub(crate) fn to_stored(self) -> SmallVec<[u8; 2 * INLINE_BYTES]> {
        self.scale.to_le_bytes().into_iter().chain(self.ordered.iter().copied()).collect()
    }

    /// It as keys have it.
    pub(crate) fn ordered(self) -> &'a [u8] {
        self.ordered
    }

    /// Digits behind the point that it prints.
    #[must_use]
    pub fn scale(self) -> u16 {
        self.scale
    }

    /// Digits from the first that is not 0 to the last that is not 0.
    #[must_use]
    pub fn significant_digits(self) -> usize {
        Form::read(self.ordered, 0).map_or(0, |form| form.significant_digits())
    }

    /// A copy of its own.
    #[must_use]
    pub fn to_owned(self) -> Decimal {
        Decimal { scale: self.scale, ordered: SmallVec::from_slice(self.ordered) }
    }
}

impl FromStr for Decimal {
    type Err = DecimalError;

    fn from_str(text: &str) -> Result<Self, DecimalError> {
        let negative = text.starts_with('-');
        let number = text.strip_prefix(['-', '+']).unwrap_or(text);
        if text.eq_ignore_ascii_case("nan") {
            return Ok(Self::special(NAN));
        }
        if number.eq_ignore_ascii_case("infinity") || number.eq_ignore_ascii_case("inf") {
            return Ok(Self::special(if negative { !INFINITY } else { INFINITY }));
        }
        let (digits, exponent) = match number.split_once(['e', 'E']) {
            Some((digits, exponent)) => (digits, read_exponent(exponent)?),
            None => (number, 0),
        };
        let (before, behind) = digits.split_once('.').unwrap_or((digits, ""));
        let digits = format!("{before}{behind}");
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(DecimalError::Syntax);
        }
        let scale = (behind.len() as i64 - exponent).max(0);
        if scale > MAX_AFTER {
            return Err(DecimalError::DigitsAfter { digits: scale });
        }
        let point = before.len() as i64 + exponent;
        let significant = digits.trim_start_matches('0').len();
        let first = point - (digits.len() - significant) as i64;
        if significant > 0 && first > MAX_BEFORE {
            return Err(DecimalError::DigitsBefore { digits: first });
        }
        let scale = u16::try_from(scale).map_err(|_| DecimalError::Syntax)?;
        Ok(Self::of_digits(negative, &digits, point, scale))
    }
}

/// An exponent; one that no number can have is as good as any other such.
fn read_exponent(text: &str) -> Result<i64, DecimalError> {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(DecimalError::Syntax);
    }
    let beyond = if text.starts_with('-') { i32::MIN } else { i32::MAX };
    Ok(text.parse().unwrap_or(beyond).into())
}

impl From<i64> for Decimal {
    fn from(value: i64) -> Self {
        let digits = value.unsigned_abs().to_string();
        Self::of_digits(value < 0, &digits, digits.len() as i64, 0)
    }
}

impl fmt::Display for DecimalRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Every value was checked when it was made.
        let form = Form::read(self.ordered, 0).ok_or(fmt::Error)?;
        let sign = if form.negative { "-" } else { "" };
        let weight = match form.kind {
            Kind::NaN => return f.write_str("NaN"),
            Kind::Infinity => return write!(f, "{sign}Infinity"),
            Kind::Finite { weight, .. } => i64::from(weight),
        };
        let digit = |at| char::from(b'0' + form.digit(at));
        let mut text = String::from(sign);
        let leading = i64::from(form.pair(0) < 10);
        text.extend((leading..2 * weight).map(digit));
        if weight <= 0 {
            text.push('0');
        }
        if self.scale > 0 {
            text.push('.');
            text.extend((0..i64::from(self.scale)).map(|at| digit(2 * weight + at)));
        }
        f.write_str(&text)
    }
}

impl fmt::Debug for DecimalRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl PartialEq for DecimalRef<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.ordered == other.ordered
    }
}

impl Eq for DecimalRef<'_> {}

impl Ord for DecimalRef<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.ordered.cmp(other.ordered)
    }
}

impl PartialOrd for DecimalRef<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Hash for DecimalRef<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.ordered.hash(state);
    }
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_ref().fmt(f)
    }
}

impl fmt::Debug for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl PartialEq for Decimal {
    fn eq(&self, other: &Self) -> bool {
        self.as_ref() == other.as_ref()
    }
}

impl Eq for Decimal {}

impl Ord for Decimal {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_ref().cmp(&other.as_ref())
    }
}

impl PartialOrd for Decimal {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Hash for Decimal {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_ref().hash(state);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decimal(text: &str) -> Decimal {
        text.parse().unwrap()
    }

    /// Numbers of up to 44 digits, many of them near each other, and what is no number.
    pub(crate) fn texts() -> impl Strategy<Value = String> {
        prop_oneof![
            8 => "-?[0-9]{1,3}(\\.[0-9]{1,3})?",
            4 => "-?[0-9]{1,22}(\\.[0-9]{1,22})?",
            4 => "-?0\\.0{0,5}[0-9]{1,4}",
            4 => "-?[0-9]{1,3}(\\.[0-9]{0,2})?e-?[0-9]{1,2}",
            1 => prop_oneof![Just("NaN"), Just("Infinity"), Just("-Infinity")]
                .prop_map(str::to_owned),
        ]
    }

    /// The digits of the number times ten to the power of 140, as text of one length; written
    /// without the code under test.
    fn scaled(text: &str) -> String {
        let (digits, exponent) = text.split_once('e').unwrap_or((text, "0"));
        let (before, behind) = digits.split_once('.').unwrap_or((digits, ""));
        let zeroes = 140 + exponent.parse::<i64>().unwrap() - behind.len() as i64;
        let zeroes = "0".repeat(usize::try_from(zeroes).unwrap());
        format!("{:0>300}", format!("{before}{behind}{zeroes}"))
    }

    /// The exact order of two numbers.
    pub(crate) fn compare(a: &str, b: &str) -> Ordering {
        let rank = |text: &str| match text {
            "NaN" => 2,
            "Infinity" => 1,
            "-Infinity" => -1,
            _ => 0,
        };
        if rank(a) != 0 || rank(b) != 0 {
            return rank(a).cmp(&rank(b));
        }
        let number = |text: &str| {
            let digits = scaled(text.trim_start_matches('-'));
            let negative = text.starts_with('-') && digits.contains(|digit| digit != '0');
            (negative, digits)
        };
        match (number(a), number(b)) {
            ((false, a), (false, b)) => a.cmp(&b),
            ((true, a), (true, b)) => b.cmp(&a),
            ((true, _), (false, _)) => Ordering::Less,
            ((false, _), (true, _)) => Ordering::Greater,
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn decimals_compare_as_scaled_integers(a in texts(), b in texts()) {
            prop_assert_eq!(decimal(&a).cmp(&decimal(&b)), compare(&a, &b), "{} {}", a, b);
        }

        #[test]
        fn what_is_parsed_is_printed_and_stored(text in texts()) {
            let value = decimal(&text);
            let printed = value.to_string();
            let again = decimal(&printed);
            prop_assert_eq!(&value, &again);
            prop_assert_eq!(value.scale, again.scale);
            prop_assert_eq!(&printed, &again.to_string());
            prop_assert_eq!(compare(&text, &printed), Ordering::Equal);
            let stored = value.as_ref().to_stored();
            let read = DecimalRef::from_stored(&stored).unwrap();
            prop_assert_eq!((read, read.scale), (value.as_ref(), value.scale));
            for flip in [0, 0xff] {
                let mut key: Vec<u8> = value.ordered.iter().map(|byte| byte ^ flip).collect();
                let length = key.len();
                for cut in 0..length {
                    prop_assert_eq!(ordered_length(&key[..cut], flip), None);
                }
                key.extend([0, 0xff, 3]);
                prop_assert_eq!(ordered_length(&key, flip), Some(length));
            }
        }

        /// Damage is refused, or it is another number in its one form.
        #[test]
        fn damage_is_refused_or_another_number(text in texts(), at in 0usize..64, bits in 1u8..) {
            let mut stored = decimal(&text).as_ref().to_stored().to_vec();
            let at = at % stored.len();
            stored[at] ^= bits;
            if let Some(read) = DecimalRef::from_stored(&stored) {
                let again = decimal(&read.to_string());
                prop_assert_eq!(&again.as_ref().to_stored()[..], &stored[..]);
            }
        }

        #[test]
        fn any_bytes_are_no_reason_to_panic(bytes in proptest::collection::vec(any::<u8>(), 0..12)) {
            let _ = ordered_length(&bytes, 0);
            if let Some(read) = DecimalRef::from_stored(&bytes) {
                prop_assert_eq!(&decimal(&read.to_string()).as_ref().to_stored()[..], &bytes[..]);
            }
        }

        #[test]
        fn integers_are_decimals(value in any::<i64>()) {
            prop_assert_eq!(Decimal::from(value).to_string(), value.to_string());
        }
    }

    #[test]
    fn texts_and_what_they_print() {
        for (text, printed) in [
            ("0", "0"),
            ("-0.00", "0.00"),
            ("+007.50", "7.50"),
            (".5", "0.5"),
            ("5.", "5"),
            ("1e3", "1000"),
            ("1.25E+1", "12.5"),
            ("1.25e-3", "0.00125"),
            ("100", "100"),
            ("-0.001", "-0.001"),
            ("nan", "NaN"),
            ("-inf", "-Infinity"),
            ("+Infinity", "Infinity"),
            ("0e2147483648", "0"),
        ] {
            assert_eq!(decimal(text).to_string(), printed, "{text}");
        }
        for text in ["", "-", ".", "e5", "1e", "1e+", "1.2.3", "1_0", " 1", "--1", "-nan", "1ee2"] {
            assert_eq!(text.parse::<Decimal>(), Err(DecimalError::Syntax), "{text}");
        }
    }

    #[test]
    fn the_bytes_are_those_of_the_map() {
        let ordered = |text| decimal(text).ordered.to_vec();
        assert_eq!(ordered("0.00"), [0x80]);
        // 12345.67 is 0.01234567 times 100 to the power of 3.
        assert_eq!(ordered("12345.670"), [0x81, 0x20, 0x02, 2, 24, 46, 68, 0]);
        assert_eq!(ordered("-12345.67"), [0x7e, 0xdf, 0xfd, 253, 231, 209, 187, 255]);
        assert_eq!(ordered("-infinity"), [0x7c]);
        assert_eq!(&decimal("2.50").as_ref().to_stored()[..], [2, 0, 0x81, 0x20, 0, 3, 51, 0]);
    }

    #[test]
    fn the_extremes() {
        let greatest = format!("{}.{}", "9".repeat(131_072), "9".repeat(16_383));
        let least = format!("0.{}1", "0".repeat(16_382));
        for text in [&greatest, &least, &format!("-{greatest}"), &format!("-{least}")] {
            let value = decimal(text);
            assert_eq!(value.to_string(), *text);
            assert!(DecimalRef::from_stored(&value.as_ref().to_stored()).is_some());
        }
        let order = ["-inf", &format!("-{greatest}"), "-1e131071", &format!("-{least}"), "0"];
        assert!(order.map(decimal).is_sorted());
        assert!(["0", &least, "1", "1e131071", &greatest, "inf", "NaN"].map(decimal).is_sorted());
        let before = |text: &str| text.parse::<Decimal>().unwrap_err();
        assert_eq!(before("1e131072"), DecimalError::DigitsBefore { digits: 131_073 });
        assert_eq!(before("-1e131072"), DecimalError::DigitsBefore { digits: 131_073 });
        assert_eq!(before("1e-16384"), DecimalError::DigitsAfter { digits: 16_384 });
        assert_eq!(before("0e-16384"), DecimalError::DigitsAfter { digits: 16_384 });
        assert!(matches!(before("1e99999999999"), DecimalError::DigitsBefore { .. }));
        assert!(matches!(before("1e-99999999999"), DecimalError::DigitsAfter { .. }));
        // One more digit behind the point than there may be.
        let mut stored = decimal(&least).as_ref().to_stored().to_vec();
        stored[5] = 21;
        assert!(DecimalRef::from_stored(&stored).is_some());
        stored[5] = 12;
        assert!(DecimalRef::from_stored(&stored).is_none());
    }
}
