/** In the package, in the place of bench.ts and of the suites that a page runs (scripts/build_plugins.mjs). */
import { usageError } from '../../base/errors.js';

throw usageError(
  'benches run in a checkout: git clone https://github.com/splitkv/splitkv && cd splitkv && npm run bench',
);
