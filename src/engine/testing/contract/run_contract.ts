/**
 * Room: the numerics contract, tried: models and plans (cases.ts), bits against one rank and against golden digests,
 * exchanges by peers and bytes (route_trace.ts). `npm run contract` runs all of it.
 */

import { createHash } from 'node:crypto';
import { testAdapters } from '../../../gpu/testing/adapters.js';
import type { KvType, WeightType } from '../../api.js';
import { firstDifference, runAlone } from '../run_bits.js';
import { contractModels, contracts, type ContractModel } from './cases.js';
import { type RouteTrace, traceRoutes } from './route_trace.js';

/** What a tree computes and exchanges; two trees are compared by their documents. */
export interface ContractDocument {
  /** By adapter, with its driver, and "model, weights, kv": sha256 of the logits on one rank. */
  readonly digests: Readonly<Record<string, Readonly<Record<string, string>>>>;
  /** By "model, plan": what is exchanged. */
  readonly routes: Readonly<Record<string, RouteTrace>>;
  /** Plans whose bits weren't those of one rank, with the first row that differs. */
  readonly broken: readonly string[];
}

export interface ContractOptions {
  /** Parts to run: 'digests', 'plans', 'routes'. */
  readonly parts: readonly string[];
  /** Only cases whose name holds this. */
  readonly filter: string;
  readonly onCase: (text: string) => void;
}

const WEIGHTS: readonly WeightType[] = ['f32', 'f16', 'q8', 'q4'];
const KV: readonly KvType[] = ['f32', 'f16'];

/** @throws SplitkvError where a model doesn't run */
export async function runContract({ parts, filter, onCase }: ContractOptions): Promise<ContractDocument> {
  const adapters = await testAdapters();
  const digests: Record<string, Record<string, string>> = {};
  const routes: Record<string, RouteTrace> = {};
  const broken: string[] = [];
  const wanted = (name: string): boolean => name.includes(filter);

  for (const adapter of parts.includes('digests') ? adapters : []) {
    const device = await adapter.open();
    const { vendor, architecture, description } = device.adapter;
    const driver = [device.name, vendor, architecture, description].filter((part) => part !== '').join(', ');
    device.dispose();
    const own: Record<string, string> = {};
    digests[driver] = own;
    // The slower one compiles for seconds.
    const lengths = adapter === adapters.at(-1) ? [1, 257, 700] : [1, 300];
    for (const model of Object.keys(contractModels) as ContractModel[]) {
      for (const weights of WEIGHTS) {
        for (const kv of KV) {
          const name = `${model}, ${weights}, kv ${kv}`;
          if (!wanted(name)) continue;
          const rows = await runAlone(lengths, { adapter: adapter.name, model: contractModels[model], weights, kv });
          const hash = createHash('sha256');
          for (const row of rows) hash.update(row);
          own[name] = hash.digest('hex');
          onCase(`${adapter.name}: ${name}: ${own[name].slice(0, 16)}`);
        }
      }
    }
  }

  const { name: adapter } = adapters.at(-1)!;
  for (const { model, weights, kv, lengths, prefillChunk, plans } of contracts) {
    let one: Buffer[] | undefined;
    const given = { adapter, model: contractModels[model], weights, kv, prefillChunk };
    for (const { name: planName, make, devices } of plans) {
      const name = `${model}, ${planName}`;
      if (!wanted(name)) continue;
      const plan = make(model);
      const many = { ...given, plan, virtual: !devices };
      if (parts.includes('routes')) {
        routes[name] = await traceRoutes({ ...many, prefillChunk: 512 });
        onCase(`${name}: ${routes[name].decode.map((lines) => lines.length).join(', ')} exchanges in a decode step`);
      }
      if (!parts.includes('plans')) continue;
      one ??= await runAlone(lengths, given);
      const different = firstDifference(one, await runAlone(lengths, many));
      if (different >= 0) broken.push(`${name}, ${weights}, kv ${kv}: row ${different}`);
      onCase(`${name}: ${different < 0 ? 'the bits of one rank' : `row ${different} DIFFERS`}`);
    }
  }
  return { digests, routes, broken };
}

/** What `other` has otherwise, a line each; cases that only one of the two has run are left out. */
export function compareContracts(own: ContractDocument, other: ContractDocument): string[] {
  const differences: string[] = [];
  for (const [adapter, digests] of Object.entries(own.digests)) {
    for (const [name, digest] of Object.entries(digests)) {
      const before = other.digests[adapter]?.[name];
      if (before !== undefined && before !== digest)
        differences.push(`${adapter}: ${name}: ${before.slice(0, 16)} became ${digest.slice(0, 16)}`);
    }
  }
  for (const [name, trace] of Object.entries(own.routes)) {
    const before = other.routes[name];
    if (!before) continue;
    for (const step of ['prompt', 'decode'] as const) {
      for (const [rank, lines] of trace[step].entries()) {
        const old = before[step][rank] ?? [];
        const at = Array.from({ length: Math.max(lines.length, old.length) }).findIndex((_, i) => lines[i] !== old[i]);
        if (at >= 0)
          differences.push(
            `${name}: rank ${rank}'s ${step} step, exchange ${at}: '${old[at] ?? 'none'}' became '${lines[at] ?? 'none'}'`,
          );
      }
    }
    const dispatches = trace.dispatches.join(', ');
    if (dispatches !== before.dispatches.join(', '))
      differences.push(`${name}: dispatches of a decode step: ${before.dispatches.join(', ')} became ${dispatches}`);
  }
  return differences;
}
