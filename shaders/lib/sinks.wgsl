// A sink: a further logit in a query head's softmax, with no value, neither scaled nor capped. It belongs to the state of the chunk, or
// merge lane, that has the row's own entry: to one state of each row and head, whoever computes it. So ranks, merges and lanes don't
// need to know of it.
//
// A row of queries carries its heads' sinks behind q, k and v (and gates). The kernel declares the params group, query heads of a kv
// head, and sink_skip, elements of a kv head's q, k and v, and fn row_sink(row: u32, head: u32) -> f32.
// Variant: SINKS. Without it the param isn't read.
const SINKS: bool = false; // variant

// Element of the queries where the sink of a head lies; `heads`, and `head` among them, of the row that begins at `row_unit`.
fn sink_at(row_unit: u32, heads: u32, head: u32) -> u32 {
  return 4u * row_unit + heads / params.group * params.sink_skip + head;
}

// The same of 4 heads.
fn row_sinks(row: u32, heads: vec4<u32>) -> vec4<f32> {
  return vec4<f32>(row_sink(row, heads.x), row_sink(row, heads.y), row_sink(row, heads.z), row_sink(row, heads.w));
}

// What sinks add to l, for states whose m is at least theirs. EMPTY_M: no sink.
fn sink_weights(sinks: vec4<f32>, m: vec4<f32>) -> vec4<f32> {
  return exp(max(sinks - m, vec4<f32>(-200.0)));
}
