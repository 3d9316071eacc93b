/** The command line that tests start: of this checkout, or, in `npm test`, the built package, which starts in a third of the time. */
export const BIN = process.env['SPLITKV_TEST_BIN'] ?? 'bin/splitkv.js';

/** Benches and simulations run in a checkout alone. */
export const binFor = (command: string | undefined): string =>
  command === 'bench' || command === 'simulate' ? 'bin/splitkv.js' : BIN;
