// Loops that browsers can prove finite, and so leave as they are: they count down to 0 by one, from any number. Every other loop
// whose bound isn't a constant gets a counter of 64 bits, which keeps compilers from unrolling it.
//
//   var i = first;
//   for (var left = steps(first, end, step); left > 0u; left--) {      as for (var i = first; i < end; i += step)
//     ...
//     i += step;
//   }

fn steps(first: u32, end: u32, step: u32) -> u32 {
  return (max(end, first) - first + step - 1u) / step;
}
