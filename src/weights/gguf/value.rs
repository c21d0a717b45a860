//! The keys and values of a GGUF file, of thirteen kinds.

use super::cursor::Cursor;
use crate::weights::limits;

/// A value as the file has it.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A whole number that is not negative.
    Unsigned(u64),
    /// A whole number.
    Signed(i64),
    /// A number of single or double precision.
    Number(f64),
    /// A truth value.
    Flag(bool),
    /// A text; bytes that are no UTF-8 are replaced.
    Text(String),
    /// Values of one kind.
    List(Vec<Self>),
}

impl Value {
    /// The value as people read it; `None` for a list.
    pub(super) fn spoken(&self) -> Option<String> {
        Some(match self {
            Self::Unsigned(number) => number.to_string(),
            Self::Signed(number) => number.to_string(),
            Self::Number(number) => number.to_string(),
            Self::Flag(flag) => flag.to_string(),
            Self::Text(text) => text.clone(),
            Self::List(_) => return None,
        })
    }

    /// A whole number that is a size.
    pub(super) fn size(&self) -> Option<usize> {
        match *self {
            Self::Unsigned(number) => usize::try_from(number).ok(),
            Self::Signed(number) => usize::try_from(number).ok(),
            _ => None,
        }
    }
}

const TEXT: u32 = 8;
const LIST: u32 = 9;

/// Reads one value of this kind; `None` if it is not whole or not what its kind allows.
pub(super) fn read(cursor: &mut Cursor, kind: u32) -> Option<Value> {
    match kind {
        TEXT => Some(Value::Text(String::from_utf8_lossy(cursor.text()?).into_owned())),
        LIST => {
            let (kind, length) = list(cursor)?;
            // Nothing is set aside on the word of the file: the list grows as its members are met.
            (0..length).map(|_| read(cursor, kind)).collect::<Option<_>>().map(Value::List)
        }
        _ => number(cursor, kind),
    }
}

fn number(cursor: &mut Cursor, kind: u32) -> Option<Value> {
    let bytes = cursor.take(width(kind)?)?;
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    let unsigned = u64::from_le_bytes(word);
    let signed = |bits: u32| (unsigned << (64 - bits)).cast_signed() >> (64 - bits);
    Some(match kind {
        0 | 2 | 4 | 10 => Value::Unsigned(unsigned),
        1 => Value::Signed(signed(8)),
        3 => Value::Signed(signed(16)),
        5 => Value::Signed(signed(32)),
        11 => Value::Signed(signed(64)),
        6 => Value::Number(f64::from(f32::from_bits(unsigned as u32))),
        7 if unsigned <= 1 => Value::Flag(unsigned == 1),
        12 => Value::Number(f64::from_bits(unsigned)),
        _ => return None,
    })
}

/// The bytes of a value of a kind that is neither text nor list.
///
/// # Source
/// `ggml-org/ggml docs/gguf.md`, `gguf_metadata_value_type`, MIT.
fn width(kind: u32) -> Option<usize> {
    match kind {
        0 | 1 | 7 => Some(1),
        2 | 3 => Some(2),
        4..=6 => Some(4),
        10..=12 => Some(8),
        _ => None,
    }
}

/// The kind and the length of a list, if so many members can follow.
fn list(cursor: &mut Cursor) -> Option<(u32, usize)> {
    let (kind, length) = (cursor.u32()?, cursor.size()?);
    let least = match kind {
        TEXT => 8,
        LIST => 12,
        _ => width(kind)?,
    };
    (length <= cursor.left() / least).then_some((kind, length))
}

/// What may still be read of lists: members in all, and lists inside one another.
pub(super) struct Budget {
    items: usize,
    nesting: usize,
}

impl Budget {
    /// What one file may have.
    pub(super) fn new() -> Self {
        Self { items: limits::GGUF_ITEMS, nesting: limits::GGUF_NESTING }
    }
}

/// Steps over one value, checking all that [`read`] would; keeps nothing.
pub(super) fn skip(cursor: &mut Cursor, kind: u32, budget: &mut Budget) -> Option<()> {
    match kind {
        TEXT => cursor.text().map(|_| ()),
        LIST => {
            budget.nesting = budget.nesting.checked_sub(1)?;
            let (kind, length) = list(cursor)?;
            budget.items = budget.items.checked_sub(length)?;
            match width(kind) {
                // Truth values are looked at, other numbers are all valid.
                Some(width) if kind != 7 => {
                    cursor.take(length.checked_mul(width)?)?;
                }
                _ => (0..length).try_for_each(|_| skip(cursor, kind, budget))?,
            }
            budget.nesting += 1;
            Some(())
        }
        _ => number(cursor, kind).map(|_| ()),
    }
}

/// A list of sizes, few enough to be a shape.
pub(super) fn read_shape(cursor: &mut Cursor, kind: u32) -> Option<Vec<usize>> {
    let (kind, length) = if is_list(kind) { list(cursor)? } else { return None };
    if length > limits::DIMS {
        return None;
    }
    (0..length).map(|_| number(cursor, kind)?.size()).collect()
}

/// Whether a kind is a list.
pub(super) fn is_list(kind: u32) -> bool {
    kind == LIST
}
