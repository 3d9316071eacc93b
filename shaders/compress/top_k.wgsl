// The best items of a list, by one workgroup: radix selection, 8 bits at a time. An item's key is a u32, larger is better; of equal
// keys the lower item is better. So the choice is one whatever the number of threads.
// The kernel declares fn item_key(item: u32) -> u32, THREADS, and the param digits: 8, as a bound that compilers don't unroll. Loops
// count down (steps.wgsl), but for one thread's walk over the bins: wgsl_reflect's race check misreads it in that form.

// A cut is (key, item): taken are items with a larger key, and of those with this one all up to the item.
const NOTHING_TAKEN = vec2<u32>(0xffffffffu, 0u);
const RADIX: u32 = 256u;

var<workgroup> bins: array<atomic<u32>, RADIX>;
// The digit found last, and how many are still wanted among the items that have it.
var<workgroup> found: vec2<u32>;

fn is_taken(cut: vec2<u32>, key: u32, item: u32) -> bool {
  return key > cut.x || (key == cut.x && item <= cut.y);
}

// The cut that takes `wanted` of `count` items, 0 < wanted <= count; every thread of the workgroup calls it.
fn find_cut(count: u32, wanted: u32, thread: u32) -> vec2<u32> {
  // Digits found so far: 4 of the key, then 4 of ~item.
  var key = 0u;
  var place = 0u;
  var remaining = wanted;
  for (var rounds = params.digits; rounds > 0u; rounds--) {
    let digit = params.digits - rounds;
    var cleared = thread;
    for (var left = steps(thread, RADIX, THREADS); left > 0u; left--) {
      atomicStore(&bins[cleared], 0u);
      cleared += THREADS;
    }
    workgroupBarrier();
    let shift = 24u - 8u * (digit % 4u);
    // Bits above the digit.
    let known = ~(0xffffffffu >> (8u * (digit % 4u)));
    var item = thread;
    for (var left = steps(thread, count, THREADS); left > 0u; left--) {
      let own = item_key(item);
      if (digit < 4u) {
        if ((own & known) == key) {
          atomicAdd(&bins[(own >> shift) & 255u], 1u);
        }
      } else if (own == key && (~item & known) == place) {
        atomicAdd(&bins[(~item >> shift) & 255u], 1u);
      }
      item += THREADS;
    }
    workgroupBarrier();
    if (thread == 0u) {
      var bin = RADIX - 1u;
      var left = remaining;
      var size = atomicLoad(&bins[bin]);
      while (size < left && bin > 0u) {
        left -= size;
        bin--;
        size = atomicLoad(&bins[bin]);
      }
      found = vec2<u32>(bin, left);
    }
    workgroupBarrier();
    remaining = found.y;
    if (digit < 4u) {
      key |= found.x << shift;
    } else {
      place |= found.x << shift;
    }
  }
  return vec2<u32>(key, ~place);
}
