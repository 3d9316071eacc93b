/**
 * Opens the model folders that its arguments name, one after the other, and prints a line of JSON for each: how it ended, processor
 * time of the process, and the most memory that the process had so far. Text for the tokenizer lies beside it, where there is some.
 */
import { existsSync, readFileSync } from 'node:fs';
import { SplitkvError } from '../../../base/errors.js';
import { openSource } from '../../../loader/open_source.js';
import { readAll } from './read_files.js';

export interface HostileEnd {
  /** What refused it; undefined where it was read. */
  readonly error?: { readonly code: string; readonly message: string };
  readonly ms: number;
  /** MB (10^6 bytes) resident. */
  readonly before: number;
  readonly most: number;
}

// What every model needs isn't what this one took.
await readAll(await openSource('models/tiny-gqa'));
/** Of this program: what Node tells counts the process it came from, too. */
function megabytes(): number {
  const high = existsSync('/proc/self/status') && /VmHWM:\s*(\d+)/.exec(readFileSync('/proc/self/status', 'utf8'));
  return Math.round(((high ? Number(high[1]) : process.resourceUsage().maxRSS) * 1024) / 1e6);
}

for (const path of process.argv.slice(2)) {
  const before = megabytes();
  const started = process.cpuUsage();
  let error: HostileEnd['error'];
  try {
    const text = existsSync(`${path}.txt`) ? readFileSync(`${path}.txt`, 'utf8') : '';
    await readAll(await openSource(path), text);
  } catch (thrown) {
    error =
      thrown instanceof SplitkvError
        ? { code: thrown.code, message: thrown.message.slice(0, 300) }
        : { code: 'none of ours', message: String(thrown instanceof Error ? thrown.stack : thrown).slice(0, 600) };
  }
  const { user, system } = process.cpuUsage(started);
  const end: HostileEnd = {
    ...(error && { error }),
    ms: Math.round((user + system) / 1000),
    before,
    most: megabytes(),
  };
  console.log(JSON.stringify(end));
}
