import type { Device } from '../../gpu/index.js';
import { modelSizes } from '../../model/model_sizes.js';
import { modelShape } from '../../model/shape.js';
import { fitLinear, type LayerMeasure, type LinearSample, type RowsMeasure } from '../../placement/index.js';
import type { Overheads } from './overheads.js';
import { BATCH, Probe, type ProbeSubject } from './probe.js';
import { chooseLayers, type LayerKind, layerRead } from './probe_layers.js';

/** Weights that are read in turn, so that no cache holds more of them than of the model's: it may hold a layer or two. */
const WEIGHT_BYTES = 64 * 2 ** 20;
const MOST_BYTES = 512 * 2 ** 20;
/** A timed run of prompt rows takes about this long at most. */
const PROMPT_SECONDS = 0.1;
const FEWEST_ROWS = 16;
/** Noise makes small costs look negative. */
const atLeastZero = (seconds: number): number => Math.max(0, seconds);

/** One kind of layer, measured whole and in half: the two tell what a layer costs however little a rank holds of it. */
export async function measureLayers(
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
