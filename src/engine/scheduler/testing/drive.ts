/**
 * Room: random traces for the scheduler, and a model of the KV memory beside it (kv_model.ts): every row checks all
 * cells that it would attend to. audit.ts counts blocks and slots after each call.
 */

import { type EndReason, type Iteration, contextPolicy, Scheduler } from '../index.js';
import type { Sequence, Span } from '../sequence.js';
import { audit } from './audit.js';
import { KvModel } from './kv_model.js';
import type { RandomRequest, RandomRun } from './random_trace.js';

interface Outcome {
  readonly reason: EndReason;
  readonly generated: readonly number[];
  readonly finishedAt: number;
}

export interface DriveResult {
  readonly outcomes: ReadonlyMap<string, Outcome>;
  /** Every decision, as text. */
  readonly decisions: readonly string[];
  readonly preemptions: number;
  readonly cachedTokens: number;
  readonly moves: number;
  /** Sequences that went from one micro-batch to another. */
  readonly shifts: number;
  /** Sequences that began with a kept state. */
  readonly restored: number;
  /** Sequences that took over a beginning that was kept elsewhere. */
  readonly handed: number;
  /** As `restored`, of prompts that are compressed. */
  readonly restoredPrompts: number;
}

const STEMS = [
  [1, 1, 2, 1, 1, 2, 2, 1, 1, 1, 2, 1, 2, 2],
  [1, 1, 2, 1, 2, 2, 2, 1, 1, 1, 2, 1, 2, 2],
  [3, 1, 2, 1, 1, 2, 2, 1, 1, 1, 2, 1, 2, 2],
];

const promptOf = ({ stem, stemTokens, ownTokens }: RandomRequest): number[] => [
  ...STEMS[stem]!.slice(0, stemTokens),
  ...Array.from({ length: ownTokens }, (_, i) => 1 + ((i + ownTokens) % 2)),
];

/** What a request generates, whatever it is batched with. */
export const generatedOf = (index: number, count: number): number[] =>
  Array.from({ length: count }, (_, i) => 1 + ((i * 7 + index) % 3));

/** Runs a random trace to its end, as a runner with `depth` iterations in flight would; checks every invariant as it goes. */
export function drive({ options, requests, depth }: RandomRun): DriveResult {
  const scheduler = new Scheduler(options, contextPolicy);
  const prompts = requests.map(promptOf);
  const memory = new KvModel(
    options.ranks,
    options.blockTokens ?? 64,
    options.chunkTokens ?? 256,
    (id, position) => {
      const index = Number(id);
      const prompt = prompts[index]!;
      return prompt[position] ?? generatedOf(index, position - prompt.length + 1).at(-1)!;
    },
    options.keptStates !== undefined,
  );
  const outcomes = new Map<string, Outcome>();
  const decisions: string[] = [];
  const inFlight: { readonly iteration: Iteration; readonly ids: number[][] }[] = [];
  const cameAt = requests.map(() => -1);
  let sent = 0;
  let due = requests[0]!.delay;
  let now = 0;
  let preemptions = 0;
  let cachedTokens = 0;
  let moves = 0;
  let shifts = 0;
  let restored = 0;
  let handed = 0;
  let restoredPrompts = 0;
  const groups = new Map<string, string>();
  const finish = (id: string, sequence: { endReason: EndReason | undefined; generated: readonly number[] }): void => {
    if (outcomes.has(id)) throw new Error(`${id} finished twice`);
    outcomes.set(id, { reason: sequence.endReason!, generated: [...sequence.generated], finishedAt: now });
  };
  const complete = (): void => {
    const { iteration, ids } = inFlight.shift()!;
    const ended = endedBy(iteration, requests);
    const seconds = 0.01 + 0.001 * Math.max(...iteration.ranks.map(({ tokens }) => tokens));
    for (const sequence of scheduler.complete(iteration, { ids, ended, seconds })) finish(sequence.id, sequence);
    audit(scheduler);
  };

  for (now = 0; outcomes.size < requests.length; now++) {
    if (now > 20_000) throw new Error(`${requests.length - outcomes.size} requests don't finish`);
    while (sent < requests.length && now >= due) {
      const { maxTokens, priority, client, deadline, stemTokens, generatedTokens, prefillOnly } = requests[sent]!;
      const prompt = prompts[sent]!;
      const spanEnd = Math.min(stemTokens + generatedTokens, prompt.length - 1);
      const spans: Span[] = spanEnd > stemTokens ? [[stemTokens, spanEnd]] : [];
      const late = deadline === undefined ? {} : { firstTokenDeadline: now * 0.02 + deadline };
      const awaited = !options.handover && !options.eviction && requests[sent]!.keptBlocks >= 0;
      const rows = { prompt, generatedSpans: spans, maxTokens: prefillOnly ? 0 : maxTokens, awaited };
      scheduler.submit({ id: String(sent), ...rows, priority, client, ...late });
      cameAt[sent] = now;
      sent++;
      due = now + (requests[sent]?.delay ?? 0);
    }
    for (const [index, { abortedAfter }] of requests.entries()) {
      if (abortedAfter < 0 || cameAt[index]! < 0 || now !== cameAt[index]! + abortedAfter) continue;
      const sequence = scheduler.sequence(String(index));
      if (!sequence) continue;
      scheduler.abort(String(index));
      audit(scheduler);
      finish(String(index), sequence);
    }
    // A prefill worker that takes two rounds for a prompt.
    const next = options.handover && now % 2 === 0 ? scheduler.nextToHand(new Map()) : undefined;
    if (next && !scheduler.hand(next.id)) throw new Error(`${next.id} doesn't wait`);
    // What is kept of a beginning, as soon as it may be told.
    for (const [index, { keptBlocks }] of requests.slice(0, sent).entries()) {
      const sequence = scheduler.sequence(String(index));
      if (!sequence || sequence.hasPrompt || options.handover || now % 2 === 0) continue;
      const { blockTokens } = scheduler.config;
      const from = Math.floor(scheduler.cachedTokens(sequence.id) / blockTokens);
      const end = Math.min(from + keptBlocks, Math.floor((sequence.promptLength - 1) / blockTokens));
      scheduler.hand(sequence.id, end > from ? [from * blockTokens, end * blockTokens] : [0, 0]);
    }
    const iteration = scheduler.schedule(now * 0.02);
    if (iteration) {
      memory.run(iteration);
      checkBudgets(iteration, scheduler);
      audit(scheduler);
      decisions.push(describe(iteration));
      for (const { moves: moved, preempted, tables } of iteration.ranks) {
        moves += moved.length;
        preemptions += preempted.length;
        for (const { cachedTokens: tokens } of tables) cachedTokens += tokens;
      }
      for (const work of iteration.ranks) restored += work.restored.length;
      if (!options.handover) for (const work of iteration.ranks) handed += work.handed.length;
      for (const work of iteration.ranks) restoredPrompts += work.restoredPrompts.length;
      shifts += shiftsOf(iteration, scheduler, groups);
      inFlight.push({ iteration, ids: sampledIds(iteration, options.ranks) });
    }
    if (inFlight.length > 0 && (inFlight.length >= depth || !iteration)) complete();
  }
  while (inFlight.length > 0) complete();
  if (scheduler.schedule(now)) throw new Error('work without requests');
  return { outcomes, decisions, preemptions, cachedTokens, moves, shifts, restored, handed, restoredPrompts };
}

/** Decode rows that are of another micro-batch of the same rank than the last time. */
function shiftsOf({ ranks }: Iteration, scheduler: Scheduler, groups: Map<string, string>): number {
  let shifts = 0;
  for (const [rank, { decodes, preempted }] of ranks.entries()) {
    for (const { id } of preempted) groups.delete(id);
    for (const { id, slot } of decodes) {
      const { microBatches = [] } = scheduler.ranks[rank]!.limits;
      let end = 0;
      const group = microBatches.findIndex((size) => slot < (end += size));
      const [oldRank, oldGroup] = groups.get(id)?.split('.') ?? [];
      if (oldRank === String(rank) && oldGroup !== String(group)) shifts++;
      groups.set(id, `${rank}.${group}`);
    }
  }
  return shifts;
}

/** Ids as the GPU would give them: of every slot, poison where no row sampled. */
function sampledIds({ ranks }: Iteration, limits: RandomRun['options']['ranks']): number[][] {
  return ranks.map(({ handed, prefills, decodes }, rank) => {
    const ids = Array.from({ length: limits[rank]!.slots }, () => -1);
    const begun = [...handed, ...prefills].filter(({ samples }) => samples);
    const rows = [...begun.map(({ sequence }) => sequence), ...decodes];
    for (const { id, slot, sampled } of rows) ids[slot] = generatedOf(Number(id), sampled).at(-1)!;
    return ids;
  });
}

function endedBy({ ranks }: Iteration, requests: readonly RandomRequest[]): string[] {
  const ended: string[] = [];
  for (const { handed, prefills, decodes } of ranks) {
    const begun = [...handed, ...prefills].filter(({ samples }) => samples);
    const sampled = [...begun.map(({ sequence }) => sequence), ...decodes];
    for (const { id, generated, status } of sampled) {
      // This iteration's token is the next to be received.
      if (status !== 'finished' && generated.length + 1 >= requests[Number(id)]!.endsAfter) ended.push(id);
    }
  }
  return ended;
}

function checkBudgets(iteration: Iteration, { config }: Scheduler): void {
  const all = iteration.ranks.reduce((sum, { tokens }) => sum + tokens, 0);
  if (config.sharedRows && config.ranks.length > 1 && all > config.maxTokensPerIteration) {
    throw new Error(`iteration ${iteration.number}: ${all} rows of all ranks`);
  }
  for (const [rank, work] of iteration.ranks.entries()) {
    const where = `iteration ${iteration.number}, rank ${rank}`;
    const rows = work.prefills.reduce((sum, { count }) => sum + count, 0);
    if (work.contextTokens !== rows || work.tokens !== rows + work.decodes.length) throw new Error(`${where}: counts`);
    if (work.tokens > config.maxTokensPerIteration) throw new Error(`${where}: ${work.tokens} rows`);
    if (work.prefills.length > config.maxPrefillSequences) throw new Error(`${where}: too many prefills`);
    if (work.decodes.length > config.ranks[rank]!.slots) throw new Error(`${where}: more rows than slots`);
    if (config.handover && work.prefills.some(({ role }) => role === 'prompt'))
      throw new Error(`${where}: prompt rows`);
    for (const { sequence, start, end } of work.handed) {
      const most = config.handover ? sequence.prompt.length : sequence.prompt.length - 1;
      if (start >= end || end > most || sequence.computed < end) throw new Error(`${where}: handover`);
    }
    const seen = new Set<string>();
    for (const { sequence, start, count, role, samples } of work.prefills) {
      const boundary = sequence.prompt.length;
      const { roleAt } = sequence as Sequence;
      for (let at = start; at < start + count; at++) {
        if (roleAt.call(sequence, at) !== role) throw new Error(`${where}: role of ${at}`);
      }
      if (count < 1) throw new Error(`${where}: an empty chunk`);
      if (samples && start + count !== boundary) throw new Error(`${where}: samples in the middle`);
      if (config.chunkedPrefill && count > config.maxChunkTokens) throw new Error(`${where}: chunk of ${count}`);
      if (!config.chunkedPrefill && role === 'prompt' && (sequence as Sequence).runEnd(start) !== start + count)
        throw new Error(`${where}: cut`);
      seen.add(sequence.id);
    }
    for (const { id } of work.decodes) seen.add(id);
    if (seen.size !== work.prefills.length + work.decodes.length) throw new Error(`${where}: a sequence twice`);
  }
}

const describe = (iteration: Iteration): string =>
  JSON.stringify(
    iteration.ranks.map(({ moves, copies, tables, handed, prefills, decodes, preempted }) => ({
      moves: moves.map(({ sequence, from, to }) => [sequence.id, from, to]),
      copies,
      handed: handed.map(({ sequence, start }) => [sequence.id, start]),
      tables: tables.map(({ id, slot, blocks, windows }) => [id, slot, blocks, windows]),
      prefills: prefills.map(({ sequence, start, count, role }) => [sequence.id, start, count, role]),
      decodes: decodes.map(({ id, slot, computed }) => [id, slot, computed]),
      preempted: preempted.map(({ id }) => id),
    })),
  );
