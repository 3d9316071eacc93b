// Where a vocabulary's bins and listed tokens lie in `partials`, in pairs of words, behind the best pairs of its tiles:
//
//   [slots][pairs]      (key, token id) of each tile's best token, from argmax_partial
//   [slots][BIN_PAIRS]  counts, low words and high words of the bins of weights.wgsl, BINS words each; then (tokens to list, 0)
//   [slots][LISTED]     (key, token id) of the tokens to list, in no order; there may be more of them than find place

const BIN_PAIRS: u32 = 1537u; // variant
const LISTED: u32 = 4096u; // variant

fn bins_at(slots: u32, pairs: u32, slot: u32) -> u32 {
  return slots * pairs + slot * BIN_PAIRS;
}

fn list_at(slots: u32, pairs: u32, slot: u32) -> u32 {
  return slots * (pairs + BIN_PAIRS) + slot * LISTED;
}
