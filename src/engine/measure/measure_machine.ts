/**
 * Room: what the planner asks of the machine, measured: layers, the head, dispatches and exchanges, on random weights;
 * kept for the next time (store.ts). docs/planner.md lists it. Read probe.ts next.
 */

import { loadKept } from '../../../shaders/linear/kept/kept.js';
import { throwIfAborted } from '../../base/errors.js';
import { nth } from '../../base/lists.js';
import { type AdapterRequest, type Buffer, type Device, openDevice, type Program, Recorder } from '../../gpu/index.js';
import type { NormConfig } from '../../model/config/model_config.js';
import { recordLinear } from '../../model/layers/linear/linear.js';
import { activationStride } from '../../model/layers/roles.js';
import { modelSizes } from '../../model/model_sizes.js';
import { modelShape } from '../../model/shape.js';
import { allocateMatrix, type Matrix } from '../../model/weights/matrix.js';
import {
  type AdapterMeasure,
  fitLinear,
  type LayerMeasure,
  type LinearMeasure,
  type LinearSample,
  type MachineMeasure,
  type RowsMeasure,
} from '../../placement/index.js';
import { measureGroup } from './measure_group.js';
import { measureOverheads, type Overheads } from './overheads.js';
import { BATCH, Probe, type ProbeSubject } from './probe.js';
import { chooseLayers, type LayerKind, layerKinds, layerRead } from './probe_layers.js';
import { defaultStore, measured, type MeasureStore } from './stores/store.js';
import { timeProgram } from './timing.js';

/** Of the head's weights, so many are enough to tell its speed. */
const GPU_HEAD_BYTES = 64 * 2 ** 20;
const CPU_HEAD_BYTES = 2 ** 20;
/** Weights that are read in turn, so that no cache holds more of them than of the model's: it may hold a layer or two. */
const WEIGHT_BYTES = 64 * 2 ** 20;
const MOST_BYTES = 512 * 2 ** 20;
/** A timed run of prompt rows takes about this long at most. */
const PROMPT_SECONDS = 0.1;
const FEWEST_ROWS = 16;

export interface MachineRequest {
  readonly subject: ProbeSubject;
  readonly adapters: readonly AdapterRequest[];
  /** All ranks on one device, the first adapter's. */
  readonly virtual: boolean;
  /** Measure again what was measured before. */
  readonly fresh?: boolean | undefined;
  readonly store?: MeasureStore | undefined;
  readonly signal?: AbortSignal | undefined;
  readonly onProgress?: ((what: string) => void) | undefined;
}

/**
 * Measures every rank's adapter with the model's own program, the links between them, and what they do to each other; what was
 * measured before is remembered.
 * @throws SplitkvError as `openDevice`; `internal` where an adapter computes nonsense; `aborted`.
 */
export async function measureMachine(request: MachineRequest): Promise<MachineMeasure> {
  const { subject, virtual, fresh = false, signal, onProgress } = request;
  const store = request.store ?? (await defaultStore());
  const adapters = virtual ? request.adapters.map(() => nth(request.adapters, 0)) : request.adapters;
  // Opened when first needed: what is known already needs one device a request, to tell its adapter.
  const devices = new Map<number, Device>();
  const deviceOf = async (rank: number): Promise<Device> => {
    const at = virtual ? 0 : rank;
    let device = devices.get(at);
    if (!device) {
      throwIfAborted(signal, 'measuring');
      devices.set(at, (device = await openDevice({ ...nth(adapters, at), instance: at })));
    }
    return device;
  };
  try {
    // Different words may ask for one adapter.
    const identities: string[] = [];
    const measures = new Map<string, AdapterMeasure>();
    for (const [rank, adapter] of adapters.entries()) {
      const same = adapters.findIndex((other) => JSON.stringify(other) === JSON.stringify(adapter));
      const device = await deviceOf(same);
      const identity = JSON.stringify(device.adapter);
      identities[rank] = identity;
      if (measures.has(identity)) continue;
      const measure = await measured(store, 'adapter', [identity, subject], fresh, () => {
        onProgress?.(`measuring ${device.name}`);
        return measureAdapter(device, subject);
      });
      measures.set(identity, measure);
    }
    const group = await measured(store, 'group', [identities, virtual, subject], fresh, async () => {
      onProgress?.(`measuring ${adapters.length} ranks side by side`);
      const all: Device[] = [];
      for (const rank of adapters.keys()) all.push(await deviceOf(rank));
      return measureGroup(all, subject);
    });
    return { ...group, ranks: identities.map((identity) => measures.get(identity)!) };
  } finally {
    for (const device of devices.values()) device.dispose();
  }
}

async function measureAdapter(device: Device, subject: ProbeSubject): Promise<AdapterMeasure> {
  const overheads = await measureOverheads(device);
  const head = await measureHead(device, subject);
  const layers: Partial<Record<LayerKind, LayerMeasure>> = {};
  for (const kind of layerKinds(subject.config)) layers[kind] = await measureLayers(device, subject, kind, overheads);
  return { name: device.name, ...layers, head, ...overheads };
}

/** The output head for generated rows: two sizes, and two numbers of rows where there are several. */
export async function measureHead(
  device: Device,
  { config, type, kvType, batched }: ProbeSubject,
): Promise<LinearMeasure> {
  await loadKept([type]);
  const { headRow } = modelSizes(config, type, kvType);
  const most = Math.floor((device.adapter.software ? CPU_HEAD_BYTES : GPU_HEAD_BYTES) / headRow);
  const rows = Math.max(1, Math.min(config.vocabSize, most));
  const samples: LinearSample[] = [];
  const runs: [outFeatures: number, batch: number][] = [
    [rows, 1],
    [Math.ceil(rows / 2), 1],
  ];
  if (batched) runs.push([rows, BATCH]);
  for (const [outFeatures, batch] of runs) {
    const spec = {
      name: 'probe head',
      inFeatures: config.hiddenSize,
      parts: [{ tensor: '', tensorRows: outFeatures, firstRow: 0, rows: outFeatures }],
    };
    const { program, matrix } = await device.checked('preparing to measure', () => {
      const allocated = allocateMatrix(device, spec, type);
      return { program: recordHead(device, allocated, batch, config.norm), matrix: allocated };
    });
    const seconds = await timeProgram({ device, program, step: { rows: [batch], chunks: 1 } });
    const read = outFeatures * headRow;
    samples.push({ read, multiplied: read * batch, seconds });
    for (const { weight, scale } of matrix.shards) {
      weight.dispose();
      scale?.dispose();
    }
  }
  const { secondsPerByte, secondsPerByteRow } = fitLinear(samples);
  return { secondsPerByte, secondsPerByteRow };
}

function recordHead(device: Device, matrix: Matrix, rows: number, norm: NormConfig): Program {
  const stride = activationStride(matrix.inFeatures);
  const outStride = activationStride(matrix.outFeatures);
  const buffer = (name: string): Buffer => device.createBuffer(`probe head ${name}`, rows * stride * 4);
  const [x, weight, normed] = [buffer('x'), buffer('norm'), buffer('normed')];
  const recorder = new Recorder(device, 'probe head');
  recordLinear(recorder, { role: 'generated', rows, normed }, matrix, {
    x,
    xStride: stride,
    norm: { config: norm, weight, bias: norm.bias ? weight : undefined },
    out: device.createBuffer('probe head out', rows * outStride * 4),
    outStride,
  });
  return recorder.finish();
}

/** Noise makes small costs look negative. */
const atLeastZero = (seconds: number): number => Math.max(0, seconds);

/** One kind of layer, measured whole and in half: the two tell what a layer costs however little a rank holds of it. */
async function measureLayers(
  device: Device,
  subject: ProbeSubject,
  kind: LayerKind,
  { dispatchSeconds }: Overheads,
): Promise<LayerMeasure> {
  const { config, type, kvType } = subject;
  const sizes = modelSizes(config, type, kvType);
  const open = (part: 'whole' | 'half'): Promise<Probe> =>
    Probe.open(device, subject, chooseLayers(config, sizes, kind, part, WEIGHT_BYTES, MOST_BYTES));
  const whole = await open('whole');
  await whole.check();
  const half = await open('half');
  const kvHeads = (probe: Probe): number => (modelShape(config).latent ? 1 : probe.layers.heads);
  const sample = (probe: Probe, rows: number, seconds: number): LinearSample => {
    const { read, multiplied } = layerRead(probe.layers, config, sizes, probe.layers.layers[0], rows);
    return { read, multiplied, seconds };
  };

  const long = whole.contextLength;
  const near = await whole.layerSeconds(whole.generated(1, 1), dispatchSeconds);
  const far = await whole.layerSeconds(whole.generated(1, long), dispatchSeconds);
  const attention = long > 1 ? atLeastZero(far - near) / (kvHeads(whole) * (long - 1)) : 0;
  const samples = [
    sample(whole, 1, near),
    sample(half, 1, await half.layerSeconds(half.generated(1, 1), dispatchSeconds)),
  ];
  if (subject.batched) {
    samples.push(sample(whole, BATCH, await whole.layerSeconds(whole.generated(BATCH, 1), dispatchSeconds)));
  }
  const generated = rowsMeasure(attention, samples);

  const few = Math.min(FEWEST_ROWS, whole.promptRows);
  const fewSeconds = await whole.layerSeconds(whole.prompt(0, few), dispatchSeconds);
  const fitting = FEWEST_ROWS * Math.floor(PROMPT_SECONDS / (fewSeconds * whole.count));
  const many = Math.max(few, Math.min(whole.promptRows, Math.max(2 * FEWEST_ROWS, fitting)));
  const start = long - few;
  const lateSeconds = await whole.layerSeconds(whole.prompt(start, few), dispatchSeconds);
  const promptAttention = start > 0 ? atLeastZero(lateSeconds - fewSeconds) / (kvHeads(whole) * few * start) : 0;
  const own = (rows: number, probe: Probe): number => promptAttention * kvHeads(probe) * ((rows * (rows + 1)) / 2);
  const withoutAttention = (probe: Probe, rows: number, seconds: number): LinearSample =>
    sample(probe, rows, Math.max(seconds - own(rows, probe), seconds / 2));
  const prompt = rowsMeasure(promptAttention, [
    withoutAttention(whole, few, fewSeconds),
    withoutAttention(whole, many, await whole.layerSeconds(whole.prompt(0, many), dispatchSeconds)),
    withoutAttention(half, many, await half.layerSeconds(half.prompt(0, many), dispatchSeconds)),
  ]);
  return { generated, prompt };
}

function rowsMeasure(attention: number, samples: readonly LinearSample[]): RowsMeasure {
  const { fixedSeconds, ...linear } = fitLinear(samples);
  return { ...linear, layerSeconds: fixedSeconds, attention };
}
