// Queries that come in pieces, and outputs that leave in pieces, [piece][rows][stride]: piece p holds the heads from its start to that
// of the next, in order, and a piece may be empty. The kernel declares the params heads, piece_units (4 elements each, from piece to
// piece), and piece_1 .. piece_7, the starts of pieces 1 to 7: heads where there is no such piece.
// Variant: PIECES, more than one. Without it the params aren't read.
const PIECES: bool = false; // variant

struct QueryPiece {
  // Units before its rows.
  base: u32,
  // Its first head, and the one behind its last.
  start: u32,
  end: u32,
}

// The piece of a head among those up to the next one, which begins at `start`.
fn next_piece(piece: QueryPiece, head: u32, start: u32) -> QueryPiece {
  // Of equal starts all but the last are of empty pieces.
  if (head >= start) {
    return QueryPiece(piece.base + params.piece_units, start, piece.end);
  }
  return QueryPiece(piece.base, piece.start, min(piece.end, start));
}

// The piece that holds a head.
fn query_piece(head: u32) -> QueryPiece {
  var piece = QueryPiece(0u, 0u, params.heads);
  if (PIECES) {
    piece = next_piece(piece, head, params.piece_1);
    piece = next_piece(piece, head, params.piece_2);
    piece = next_piece(piece, head, params.piece_3);
    piece = next_piece(piece, head, params.piece_4);
    piece = next_piece(piece, head, params.piece_5);
    piece = next_piece(piece, head, params.piece_6);
    piece = next_piece(piece, head, params.piece_7);
  }
  return piece;
}

// Unit 0 of a head's query in a row, where rows are `row_units` apart and a piece's heads `head_units`.
fn query_unit(row: u32, row_units: u32, head: u32, head_units: u32) -> u32 {
  let piece = query_piece(head);
  return piece.base + row * row_units + (head - piece.start) * head_units;
}

// The same of 4 heads.
fn query_units(row: u32, row_units: u32, heads: vec4<u32>, head_units: u32) -> vec4<u32> {
  return vec4<u32>(
    query_unit(row, row_units, heads.x, head_units),
    query_unit(row, row_units, heads.y, head_units),
    query_unit(row, row_units, heads.z, head_units),
    query_unit(row, row_units, heads.w, head_units),
  );
}
