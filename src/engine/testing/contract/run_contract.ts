/**
 * Room: the numerics contract, tried: models and plans (cases.ts), bits against one rank and against golden digests,
 * exchanges by peers and bytes (route_trace.ts). `npm run contract` runs all of it.
 */

import { createHash } from 'node:crypto';
import { testAdapters } from '../../../gpu/testing/adapters.js';
import type { KvType, WeightType } from '../../contracts/api.js';
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
const KV: readonly KvType[] = ['f32', 'f16', 'q8'];
/** Of kernels: an adapter's own, then those that GPUs get, which a CPU takes several times longer for. */
const VARIANTS = ['auto', 'hardware'] as const;
const HARDWARE_LENGTHS = [1, 300];
const naming = (variants: (typeof VARIANTS)[number]): string => (variants === 'hardware' ? ', hardware' : '');

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
    // The slower one compiles for seconds; on the quicker one run a GPU's variants, too.
    const quicker = adapter === adapters.at(-1);
    const lengths = quicker ? [1, 257, 700] : [1, 300];
    for (const model of Object.keys(contractModels) as ContractModel[]) {
      for (const weights of WEIGHTS) {
        for (const kv of KV) {
          for (const variants of quicker ? VARIANTS : VARIANTS.slice(0, 1)) {
            const name = `${model}, ${weights}, kv ${kv}${naming(variants)}`;
            if (!wanted(name)) continue;
            const given = { adapter: adapter.name, variants, model: contractModels[model], weights, kv };
            const rows = await runAlone(variants === 'hardware' ? HARDWARE_LENGTHS : lengths, given);
            const hash = createHash('sha256');
            for (const row of rows) hash.update(row);
            own[name] = hash.digest('hex');
            onCase(`${adapter.name}: ${name}: ${own[name].slice(0, 16)}`);
          }
        }
      }
    }
  }

  const { name: adapter } = adapters.at(-1)!;
  for (const { model, weights, kv, lengths, prefillChunk, plans } of contracts) {
    const one = new Map<string, Buffer[]>();
    for (const { name: planName, make, devices } of plans) {
      const given = { adapter, model: contractModels[model], weights, kv, prefillChunk };
      const name = `${model}, ${planName}`;
      if (!VARIANTS.some((variants) => wanted(name + naming(variants)))) continue;
      const plan = make(model);
      const many = { ...given, plan, virtual: !devices };
      if (parts.includes('routes') && wanted(name)) {
        routes[name] = await traceRoutes({ ...many, prefillChunk: 512 });
        onCase(`${name}: ${routes[name].decode.map((lines) => lines.length).join(', ')} exchanges in a decode step`);
      }
      if (!parts.includes('plans')) continue;
      for (const variants of VARIANTS) {
        const what = name + naming(variants);
        if (!wanted(what)) continue;
        const spans = variants === 'hardware' ? HARDWARE_LENGTHS : lengths;
        const alone = one.get(variants) ?? (await runAlone(spans, { ...given, variants }));
        one.set(variants, alone);
        const different = firstDifference(alone, await runAlone(spans, { ...many, variants }));
        if (different >= 0) broken.push(`${what}, ${weights}, kv ${kv}: row ${different}`);
        onCase(`${what}: ${different < 0 ? 'the bits of one rank' : `row ${different} DIFFERS`}`);
      }
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
