import { usageError } from '../../base/errors.js';
import {
  arrange,
  type Arrangement,
  type ArrangementProblem,
  MODES,
  OBJECTIVES,
  parseProfile,
  toArrangementFile,
} from '../../arrangement/index.js';
import { COPY_SHARING } from '../../placement/index.js';
import { describeArrangement } from '../arrangement_text.js';
import { type Command, commonOptions } from '../command.js';
import { defined, type Options, readGiven, writeGiven } from '../options.js';

export const command: Command = {
  summary:
    'Arranges kv heads over ranks by their load, so that ranks wait little for the busiest one. Modes: static (equally many heads ' +
    'a rank), greedy (longest first), backtrack (the reference, for few heads), exact (branch and bound), fair-copy (copies of heavy heads ' +
    'in equal shares), wrap (unequal shares).',
  usage: 'arrange --profile FILE --ranks R [options]',
  options: {
    profile: { value: 'FILE', help: 'kept entries of each head: {"model", "kv_budget", "layers": [[mean, ...], ...]}' },
    ranks: { value: 'R', help: 'the number of ranks' },
    pipeline: {
      value: 'P',
      help: 'cut the layers into P runs, each on R/P ranks of its own, and arrange heads within each; default 1',
    },
    mode: {
      value: 'MODE',
      help: `${MODES.join(', ')}; default: exact, and copies by wrap in the layers where whole heads leave ranks idle`,
    },
    objective: {
      value: 'WHAT',
      help: "per-layer (default): the busiest rank's load of each layer, added up; total: the rank busiest over all layers",
    },
    copies: {
      value: 'C',
      help: 'copies of heads beyond the first, at most so many a layer; default: what --memory allows, without it R - 1 (exact, backtrack: 0), of which the default mode takes as few as come close to what all would do',
    },
    memory: {
      value: 'M',
      help: 'heads that fit in the memory of one rank, over all layers, copies included; default: no limit',
    },
    batch: { value: 'B', help: 'requests a batch: shares become multiples of 1/B; default: real numbers' },
    sharing: {
      value: 'HOW',
      help: 'for --out: copies of a head share it by sequences, or by lanes (chunks of every sequence); default: sequences where several run side by side; one at a time lanes, where heads keep enough for them to help',
    },
    out: { value: 'FILE', help: 'also write the arrangement there, as a plan' },
    ...commonOptions,
  },
  async run(options, terminal) {
    const file = options.required('profile', 'name a file that `splitkv profile` wrote');
    const limits = readLimits(options);
    const profile = parseProfile(await readGiven('profile', file), file);
    const problem: ArrangementProblem = { loads: profile.layers, ...limits };
    const start = performance.now();
    const found = arrange(problem);
    const seconds = (performance.now() - start) / 1000;
    const out = options.text('out');
    const sharing = options.oneOf('sharing', COPY_SHARING);
    if (out !== undefined) {
      const how = { sharing, loads: profile.layers, pipeline: problem.pipeline };
      const arrangement = toArrangementFile(profile.model, problem.ranks, found, how);
      await writeGiven('out', out, `${JSON.stringify(arrangement)}\n`);
    }
    if (options.has('json')) await terminal.write(`${JSON.stringify(jsonDocument(found, seconds))}\n`);
    else await terminal.write(describeArrangement(profile, problem, found, seconds, sharing));
    if (out !== undefined && !options.has('json')) await terminal.write(`\nwritten to ${out}\n`);
    return 0;
  },
};

/** What `--json` prints; other tools read it. */
function jsonDocument(found: Arrangement, seconds: number): object {
  const { mode, objective, makespan, lowerBound, gap, optimal, utilisation, copies, placement } = found;
  return { mode, objective, makespan, lower_bound: lowerBound, gap, optimal, utilisation, copies, seconds, placement };
}

function readLimits(options: Options): Omit<ArrangementProblem, 'loads'> {
  const ranks = options.integer('ranks', 1, 1024);
  if (ranks === undefined) throw usageError('--ranks is missing: give the number of ranks, e.g. --ranks 4');
  return {
    ranks,
    ...defined({
      mode: options.oneOf('mode', MODES),
      objective: options.oneOf('objective', OBJECTIVES),
      pipeline: options.integer('pipeline', 1),
      copies: options.integer('copies', 0),
      memory: options.integer('memory', 1),
      batch: options.integer('batch', 1),
    }),
  };
}
