// What a token weighs, and sums of weights by bins.
//
// Weight: exp((logit - best) / temperature) as an integer of 2^-31; a token whose weight rounds to 0 (22 nats below the best) takes no
// part. Integer sums have no order, so neither threads nor tiles change a result. A bin holds the tokens of 1 / 44 nat: bin 0 the best
// one's. Its sum is (count, mass low word, mass high word).

const THREADS: u32 = 256u; // variant
const BINS: u32 = 1024u;
/// 1023 / 44 = 23.25 nats: beyond every token that takes part.
const BINS_PER_NAT: f32 = 44.0;
const WEIGHT_ONE: f32 = 2147483648.0;
const NOTHING: u32 = 0xffffffffu;

/// Counts, low words and high words of the bins; after `accumulate_bins`, of each and all bins before it.
var<workgroup> bins: array<atomic<u32>, 3u * BINS>;

fn nats_below(best: f32, logit: f32, inverse_temperature: f32) -> f32 {
  return clamp((best - logit) * inverse_temperature, 0.0, 100.0);
}

fn bin_at(nats: f32) -> u32 {
  return u32(min(nats * BINS_PER_NAT, 1023.0));
}

fn weight_at(nats: f32) -> u32 {
  return u32(exp(-nats) * WEIGHT_ONE + 0.5);
}

fn add_to_bin(bin: u32, weight: u32) {
  atomicAdd(&bins[bin], 1u);
  if (atomicAdd(&bins[BINS + bin], weight) > NOTHING - weight) {
    atomicAdd(&bins[2u * BINS + bin], 1u);
  }
}

fn bin_sum(bin: u32) -> vec3<u32> {
  return vec3<u32>(atomicLoad(&bins[bin]), atomicLoad(&bins[BINS + bin]), atomicLoad(&bins[2u * BINS + bin]));
}
