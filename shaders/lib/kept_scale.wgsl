// What a unit of weights_kept.wgsl has beside it. 32 rows of a block of BLOCK_UNITS units have BLOCK_WORDS words: first
// [unit][lane] of HIGH_WORDS words, then what the type's fragment reads.

struct Scale {
  /// HIGH bits of a code each: those of vec4 p of the unit are bits (HIGH * p) % 8 on of the bytes of word HIGH * p / 8.
  high: vec2<u32>,
  factors: vec2<u32>,
}

fn unit_scale(index: u32) -> Scale {
  let begin = (index / (BLOCK_UNITS * 32u)) * BLOCK_WORDS;
  let unit = index % (BLOCK_UNITS * 32u);
  let first = begin + HIGH_WORDS * unit;
  var high = vec2<u32>(0u);
  if (HIGH_WORDS > 0u) {
    high.x = scale[first];
  }
  if (HIGH_WORDS > 1u) {
    high.y = scale[first + 1u];
  }
  return Scale(high, factors_of(begin + HIGH_WORDS * (BLOCK_UNITS * 32u), unit));
}

/// In bytes, those of a vec4's codes above their LOW bits.
fn high_bits(s: Scale, part: u32) -> u32 {
  let place = HIGH * part;
  let word = select(s.high.x, s.high.y, place > 7u);
  let bit = place & 7u;
  return select(word << (LOW - bit), word >> (bit - LOW), bit > LOW) & (((1u << HIGH) - 1u) * (0x01010101u << LOW));
}
