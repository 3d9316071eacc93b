import unitOf32 from '../lib/unit_of_32.wgsl?raw';

/** Units of 32 elements, or more that are read in pieces of 32. */
export const unitOf = (elements: number): string =>
  `const UNIT: u32 = ${elements}u;\nconst UNIT4: u32 = ${elements / 4}u;\n${unitOf32}`;
