import { usageError } from '../../base/errors.js';
import type { Command } from '../command.js';

/** In the package; a checkout has another one in its place (bench/cli/main.ts). Thrown before any option is read. */
export const command: Command = refuse();

function refuse(): never {
  throw usageError(
    'benches and simulations run in a checkout: git clone https://github.com/splitkv/splitkv && cd splitkv && npm run bench',
  );
}
