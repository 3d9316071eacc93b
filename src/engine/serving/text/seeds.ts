/**
 * The seed of an answer among several: the first one's is the request's own. The others' are mixed (the finaliser of murmur3, 24
 * bits of each half), so that neighbouring requests share none.
 */
export function answerSeed(seed: number, index: number): number {
  if (index === 0) return seed;
  const low = mix((seed >>> 0) ^ Math.imul(index, 0x9e3779b9));
  const high = mix(Math.floor(seed / 2 ** 32) ^ Math.imul(low, 0x85ebca6b) ^ index);
  return (high >>> 8) * 2 ** 24 + (low >>> 8);
}

function mix(value: number): number {
  let bits = value >>> 0;
  bits = Math.imul(bits ^ (bits >>> 16), 0x85ebca6b);
  bits = Math.imul(bits ^ (bits >>> 13), 0xc2b2ae35);
  return (bits ^ (bits >>> 16)) >>> 0;
}
