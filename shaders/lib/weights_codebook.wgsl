// llama.cpp's blocks of codebooks as a file has them (linear/kept/codebooks.ts): a unit has rows of the codebook in place of its
// elements' codes, and a row's sizes stand for four elements or eight. 32 rows of a block of BLOCK_UNITS units have BLOCK_WORDS words
// beside them: [unit][lane] of WORDS_BESIDE words, [unit][lane] of HALVES_BESIDE halves of words, [lane] halves of words, the f16 d.
// value = number * factor: all factors are exact, and so is their product. The kernel declares the bindings
// `weight: array<vec4<u32>>` and `scale: array<u32>`, and a type's fragment gives
//   fn numbers_of(words: vec4<u32>, s: Scale, part: u32) -> vec4<f32>   the numbers of the `part`-th vec4 of a unit's piece s.piece
//   fn factor(words: vec4<u32>, s: Scale, part: u32) -> f32       which they are multiplied by, and by d

const UNIT_PIECES: u32 = UNIT / 32u;
/// Of one, in vec4s.
const PIECE4: u32 = 8u;

struct Scale {
  /// The words, and the half.
  beside: vec4<u32>,
  d: f32,
  piece: u32,
}

fn half_from(first: u32, at: u32) -> u32 {
  return (scale[first + (at >> 1u)] >> ((at & 1u) * 16u)) & 0xffffu;
}

fn unit_scale(index: u32) -> Scale {
  let begin = (index / (BLOCK_UNITS * 32u)) * BLOCK_WORDS;
  let unit = index % (BLOCK_UNITS * 32u);
  let first = begin + WORDS_BESIDE * unit;
  var s = Scale();
  if (WORDS_BESIDE > 0u) {
    s.beside.x = scale[first];
  }
  if (WORDS_BESIDE > 1u) {
    s.beside.y = scale[first + 1u];
  }
  if (WORDS_BESIDE > 2u) {
    s.beside.z = scale[first + 2u];
  }
  let halves = begin + WORDS_BESIDE * BLOCK_UNITS * 32u;
  if (HALVES_BESIDE > 0u) {
    s.beside.w = half_from(halves, unit);
  }
  s.d = half_value(half_from(halves + HALVES_BESIDE * BLOCK_UNITS * 16u, unit & 31u));
  return s;
}

fn piece_words(words: vec4<u32>, piece: u32) -> vec4<u32> {
  return words;
}

fn piece_scale(s: Scale, piece: u32) -> Scale {
  return Scale(s.beside, s.d, piece);
}

fn unit_values(words: vec4<u32>, s: Scale) -> Unit {
  var values: Unit;
  for (var part = 0u; part < PIECE4; part++) {
    values[part] = numbers_of(words, s, part) * (s.d * factor(words, s, part));
  }
  return values;
}

/// `index` = (tile * units + unit) * 32 + lane.
fn load_part(index: u32, part: u32, s: Scale) -> vec4<f32> {
  let of_piece = piece_scale(s, part / PIECE4);
  let words = weight[index];
  return numbers_of(words, of_piece, part % PIECE4) * (s.d * factor(words, of_piece, part % PIECE4));
}

fn byte_of(word: u32, i: u32) -> u32 {
  return (word >> (i * 8u)) & 255u;
}

/// The bits of a word, or of a byte of it.
fn bits(word: u32, at: u32, count: u32) -> u32 {
  return (word >> at) & ((1u << count) - 1u);
}
